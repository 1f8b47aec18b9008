"""Conformal sets: thresholds, sets and coverage by definition, for any chunking, in few reads and bounded memory."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import avgk_dask as avgk
from avgk_dask.exact.coverage import HitLaw, quantile_rank
from avgk_dask.testing import CountingStore, oracle_conformal, strategies

RNG = np.random.default_rng(3)
FLOATS = ("float16", "float32", "float64", "bfloat16")


def problem(n=400, c=12, dtype="f8", seed=0, sharpness=0.3):
    """Draw probabilities, and labels that happen with them."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(c, sharpness), n)
    labels = (scores.cumsum(1) < rng.random((n, 1))).sum(1).clip(0, c - 1)
    return scores.astype(dtype), labels


@st.composite
def chance_matrices(draw, n_classes=None, dtypes=FLOATS):
    """Draw rows of probabilities with ties and zeros, in a dtype of few or many bits."""
    shape = draw(st.integers(1, 9)), n_classes or draw(st.integers(1, 7))
    weights = st.one_of(st.sampled_from([0, 0, 1, 1, 2]), st.integers(0, 50))
    drawn = np.array(draw(st.lists(weights, min_size=math.prod(shape), max_size=math.prod(shape)))).reshape(shape)
    rows = drawn / np.maximum(drawn.sum(1, keepdims=True), 1)
    return rows.astype(strategies.as_dtype(draw(st.sampled_from(dtypes))))


ALPHAS = st.one_of(st.sampled_from([0.1, "0.5", 0.01, 0.99]), st.fractions(Fraction(1, 40), Fraction(39, 40), max_denominator=40))  # fmt: skip


def drawn_groups(data, by, n):
    return np.array(data.draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n))) if by == "group" else by


def compare(data, first, labels, second, method, by, alpha, nan_policy="raise", **options):
    """Calibrate on chunks of one matrix, and compare thresholds and the sets of another with the definition."""
    given, groups = drawn_groups(data, by, len(first)), drawn_groups(data, by, len(second))
    groups = groups if by == "group" else None
    expected, sets = oracle_conformal(first, labels, second, alpha, method, given, groups, **options)
    lazy = [da.from_array(s, chunks=data.draw(strategies.chunkings(s.shape))) for s in (first, second)]
    with dask.config.set(scheduler="synchronous"):
        predictor = avgk.conformal.calibrate(lazy[0], labels, alpha, method, given, nan_policy=nan_policy, **options)
        np.testing.assert_array_equal(predictor.sets(lazy[1], groups=groups, nan_policy=nan_policy).compute(), sets)
        truth = data.draw(strategies.hard_labels(second.shape))
        truth = np.where(truth < 0, data.draw(st.sampled_from([-1, -7])), truth)
        result = predictor.evaluate(lazy[1], truth, groups=groups, nan_policy=nan_policy)
    thresholds = np.atleast_1d(predictor.threshold).astype(float)
    names = [0] if by is None else range(second.shape[1]) if by == "class" else predictor.groups.tolist()
    everything = {"lac": -math.inf, "top_k": second.shape[1]}.get(method, math.inf)
    assert dict(zip(names, thresholds.tolist(), strict=True)) == {g: expected.get(g, everything) for g in names}
    assert set(expected) <= set(names)
    check_counts(result, sets, truth)


def check_counts(result, sets, labels):
    """Compare a result with sets."""
    n, c = sets.shape
    part = labels >= 0
    hits = part & sets[np.arange(n), np.maximum(labels, 0)]
    sizes = sets.sum(1)
    assert int(result.n_hits) == hits.sum()
    assert result.attrs["n_labelled"] == part.sum()
    assert float(result.average_set_size) == sizes.sum() / n
    assert result.set_size_count.values.tolist() == np.bincount(sizes).tolist()
    assert result.set_hit_count.values.tolist() == np.bincount(sizes[hits], minlength=result.sizes["size"]).tolist()
    each = [(hits & (labels == k)).sum() / (labels == k).sum() if (labels == k).any() else math.nan for k in range(c)]
    np.testing.assert_array_equal(result.class_coverage.values, each)
    means = [sizes[labels == k].sum() / (labels == k).sum() if (labels == k).any() else math.nan for k in range(c)]
    np.testing.assert_array_equal(result.class_average_set_size.values, means)
    there = [x for x in each if x == x]
    assert float(result.coverage) == hits.sum() / part.sum() if there else math.isnan(result.coverage)
    if there:
        assert float(result.macro_coverage) == math.fsum(there) / len(there)
        assert float(result.share_below[0]) == sum(x < 0.5 for x in there) / len(there)


def labelled(data, shape):
    labels = data.draw(strategies.hard_labels(shape))
    labels[0] = max(labels[0], 0)
    return labels


@pytest.mark.sample(1)
@pytest.mark.parametrize("by", [None, "class", "group"])
@pytest.mark.parametrize("method", ["lac", "top_k"])
@given(data=st.data())
def test_scores__of_any_dtype_give_the_sets_of_the_definition(method, by, data):
    nan = data.draw(st.booleans())
    first = data.draw(strategies.score_matrices(nan=nan))
    labels = labelled(data, first.shape)
    second = first[data.draw(st.permutations(range(len(first))))]
    compare(data, first, labels, second, method, by, data.draw(ALPHAS), "lowest" if nan else "raise")


@pytest.mark.sample(1)
@pytest.mark.parametrize("by", [None, "class", "group"])
@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("method", ["aps", "raps"])
@given(data=st.data())
def test_probabilities__give_the_sets_of_the_definition(method, seed, by, data):
    first = data.draw(chance_matrices())
    second = data.draw(chance_matrices(first.shape[1]))
    labels = labelled(data, first.shape)
    options = {"seed": seed}
    if method == "raps":
        options |= {"penalty": data.draw(st.sampled_from([0, 0.01, "0.3", 2])), "k_reg": data.draw(st.integers(0, 3))}
    compare(data, first, labels, second, method, by, data.draw(ALPHAS), **options)


@given(data=st.data())
def test_lac__compares_scores_of_other_dtypes_exactly(data):
    first = data.draw(strategies.score_matrices(max_classes=3))
    second = data.draw(strategies.score_matrices(max_classes=first.shape[1]))
    second = np.repeat(second, first.shape[1], axis=1)[:, : first.shape[1]]
    compare(data, first, labelled(data, first.shape), second, "lac", data.draw(st.sampled_from([None, "class"])), 0.5)


@pytest.mark.parametrize("by", [None, "class", "group"])
@pytest.mark.parametrize("names", [("float16", "int64"), ("bfloat16", "uint64"), ("float32", "uint8")])
def test_lac__thresholds_above_all_scores_of_another_dtype_give_empty_sets(names, by):
    first, second = map(strategies.as_dtype, names)
    calibration, labels = np.array([[np.inf, 0]] * 4).astype(first), np.array([0, 0, 0, 1])
    scores, truth = np.array([[np.iinfo(second).max, 0], [1, 2]], second), np.array([0, 1])
    given, groups = (labels, np.array([0, 5])) if by == "group" else (by, None)
    predictor = avgk.conformal.calibrate(calibration, labels, 0.5, by=given)
    sets = oracle_conformal(calibration, labels, scores, 0.5, "lac", given, groups)[1]
    assert not sets[0, 0]
    np.testing.assert_array_equal(predictor.sets(scores, groups=groups).compute(), sets)
    check_counts(predictor.evaluate(scores, truth, groups=groups), sets, truth)


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["lac", "aps", "raps", "top_k"])
@pytest.mark.parametrize("by", [None, "class", "group"])
def test_results__are_the_same_for_any_chunks_and_kind_of_scores(method, by, tmp_path):
    scores, labels = problem(n=300, c=10, dtype="f4")
    groups = np.arange(300) % 3 if by == "group" else by
    part = {"groups": groups} if by == "group" else {}
    seed = 5 if method in ("aps", "raps") else None
    kinds = [scores, *(da.from_array(scores, chunks=c) for c in ((300, 10), (7, 3), (50, 10), ((1, 299), (1, 9))))]
    kinds += [xr.DataArray(scores, dims=("sample", "class")), avgk.ensemble([scores, scores])]
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("scores", data=scores, chunks=(32, 4))
    group.create_array("labels", data=labels, chunks=(100,))
    predictors = [avgk.conformal.calibrate(s, labels, 0.1, method, groups, seed) for s in kinds]
    predictors.append(avgk.conformal.calibrate(tmp_path / "s.zarr", None, 0.1, method, groups, seed))
    assert all(one == predictors[0] and hash(one) == hash(predictors[0]) for one in predictors)
    results = [predictors[0].evaluate(s, labels, **part) for s in kinds] + [
        predictors[0].evaluate(tmp_path / "s.zarr", **part)
    ]
    for result in results[1:]:
        xr.testing.assert_equal(result, results[0])
    sets = [np.asarray(predictors[0].sets(s, **part)) for s in [*kinds, tmp_path / "s.zarr"]]
    assert all(np.array_equal(one, sets[0]) for one in sets)
    check_counts(results[0], sets[0], labels)


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", [">f2", ">f4", ">u8"])
@pytest.mark.parametrize("by", [None, "class", "group"])
def test_evaluate__counts_the_sets_of_scores_in_foreign_byte_order(dtype, by):
    chances, labels = problem(60, 5)
    turned = (chances * 64).astype(dtype)
    native, groups = turned.astype(turned.dtype.newbyteorder("=")), labels % 2 if by == "group" else None
    predictor = avgk.conformal.calibrate(turned, labels, 0.3, by=by if groups is None else groups)
    assert predictor == avgk.conformal.calibrate(native, labels, 0.3, by=by if groups is None else groups)
    sets = predictor.sets(native, groups=groups).compute()
    for scores in (turned, np.asfortranarray(turned), da.from_array(turned, chunks=(7, 2))):
        np.testing.assert_array_equal(predictor.sets(scores, groups=groups).compute(), sets)
        check_counts(predictor.evaluate(scores, labels, groups=groups), sets, labels)


def test_rank__is_exact():
    assert quantile_rank(9, Fraction(1, 10)) == 9
    assert quantile_rank(19, Fraction(1, 10)) == 18  # 20 * 0.9 = 18 in floats is 18.000000000000004 or so for others
    assert [quantile_rank(n, Fraction(3, 10)) for n in (9, 99, 999)] == [7, 70, 700]
    scores, labels = problem(n=99)
    for alpha, rank in ((0.1, 90), ("0.1", 90), (Fraction(1, 3), 67), (0.3, 70), (0.001, 100)):
        predictor = avgk.conformal.calibrate(scores, labels, alpha)
        assert (predictor.rank, predictor.n_calibration, predictor.alpha) == (
            rank,
            99,
            float(Fraction(alpha) if alpha != 0.1 and alpha != 0.3 and alpha != 0.001 else alpha),
        )
    assert predictor.threshold == -math.inf
    assert predictor.sets(scores).compute().all()


def test_lac__threshold_is_a_label_score_and_ties_are_in():
    scores, labels = problem(n=200, dtype="f4")
    predictor = avgk.conformal.calibrate(scores, labels, 0.2)
    own = np.sort(scores[np.arange(200), labels])[::-1]
    assert predictor.threshold == own[predictor.rank - 1]
    np.testing.assert_array_equal(predictor.sets(scores).compute(), scores >= np.float32(predictor.threshold))
    ties = np.full((50, 4), 0.25, "f2")
    assert avgk.conformal.calibrate(ties, np.arange(50) % 4, 0.5).sets(ties).compute().all()


def test_top_k__sets_are_the_first_ranks():
    scores, labels = problem()
    predictor = avgk.conformal.calibrate(scores, labels, 0.1, "top_k")
    np.testing.assert_array_equal(predictor.sets(scores), avgk.top_k_sets(scores, predictor.threshold))
    assert predictor.threshold == avgk.smallest_k(scores, labels, max_error=1 - Fraction(predictor.rank, 400)).top_k


@pytest.mark.slow
def test_coverage__is_one_minus_alpha_on_average():
    scores, labels = problem(n=40_000, c=8)
    parts = [slice(i, i + 200) for i in range(0, 40_000, 200)]
    for method, seed in (("lac", None), ("aps", 1), ("raps", 2), ("aps", None), ("top_k", None)):
        shares = []
        for one, other in zip(parts[::2], parts[1::2], strict=True):
            predictor = avgk.conformal.calibrate(scores[one], labels[one], 0.1, method, seed=seed)
            shares.append(float(predictor.evaluate(scores[other], labels[other]).coverage))
        mean, error = np.mean(shares), np.std(shares) / 10
        assert mean > 0.9 - 3 * error
        if method == "lac" or seed is not None:
            assert mean < 0.9 + 1 / 201 + 3 * error, (method, mean)


def test_seeds__draw_by_sample_number_and_apart_for_new_samples():
    scores, labels = problem(n=500)
    one, same, other = (avgk.conformal.calibrate(scores, labels, 0.1, "aps", seed=s) for s in (1, 1, 2))
    assert one == same
    assert one != other
    first, second = one.sets(scores).compute(), other.sets(scores).compute()
    assert (first != second).any()
    np.testing.assert_array_equal(one.sets(scores[:40]).compute(), first[:40])
    plain = avgk.conformal.calibrate(scores, labels, 0.1, "aps")
    assert float(one.evaluate(scores, labels).average_set_size) < float(plain.evaluate(scores, labels).average_set_size)


def test_raps__makes_large_sets_smaller_and_without_a_penalty_is_aps():
    scores, labels = problem(n=2_000, c=60, sharpness=0.5)
    sizes = []
    for penalty in (0, 0.01, 0.3):
        predictor = avgk.conformal.calibrate(scores, labels, 0.1, "raps", penalty=penalty, k_reg=3)
        sizes.append(predictor.evaluate(scores, labels).sizes["size"])
    assert sizes[0] > sizes[1] > sizes[2]
    aps = avgk.conformal.calibrate(scores, labels, 0.1, "aps")
    raps = avgk.conformal.calibrate(scores, labels, 0.1, "raps", penalty=0)
    assert aps.threshold == raps.threshold


@pytest.mark.slow
def test_masks__leave_samples_out_of_everything():
    scores, labels = problem(n=300)
    kept = RNG.random(300) < 0.6
    groups = np.arange(300) % 2
    padded = np.where(kept[:, None], scores, np.nan)
    for method in ("lac", "aps", "top_k"):
        seed = 4 if method == "aps" else None
        for by, part in ((None, None), ("class", None), (groups, groups)):
            few = None if part is None else part[kept]
            alone = avgk.conformal.calibrate(
                scores[kept], labels[kept], 0.2, method, few if part is not None else by, seed
            )
            lazy = da.from_array(padded, chunks=(37, 5))
            predictor = avgk.conformal.calibrate(lazy, labels, 0.2, method, by, seed, where=kept)
            assert predictor == alone
            ignored = avgk.conformal.calibrate(
                lazy, np.where(kept, labels, -100), 0.2, method, by, seed, ignore_index=-100
            )
            assert ignored == alone
            xr.testing.assert_equal(
                predictor.evaluate(lazy, labels, where=kept, groups=part),
                alone.evaluate(scores[kept], labels[kept], groups=few),
            )
            sets = predictor.sets(lazy, where=kept, groups=part).compute()
            np.testing.assert_array_equal(sets[kept], alone.sets(scores[kept], groups=few))
            assert not sets[~kept].any()


def test_more_dimensions__are_samples_in_order():
    scores, labels = problem(n=120)
    cube, truth, groups = scores.reshape(10, 12, 12), labels.reshape(10, 12), np.arange(120).reshape(10, 12) % 2
    for by, part in ((None, None), (groups, groups)):
        predictor = avgk.conformal.calibrate(cube, truth, 0.1, by=by)
        flat = None if part is None else part.reshape(-1)
        assert predictor == avgk.conformal.calibrate(scores, labels, 0.1, by=flat)
        assert predictor.sets(cube, groups=part).shape == (10, 12, 12)
        np.testing.assert_array_equal(
            predictor.sets(cube, groups=part).reshape(120, 12), predictor.sets(scores, groups=flat)
        )
        xr.testing.assert_equal(
            predictor.evaluate(cube, truth, groups=part), predictor.evaluate(scores, labels, groups=flat)
        )


def test_lazy_scores__are_taken_by_every_method():
    logits = RNG.normal(0, 2, (300, 9)).astype("f4")
    chances = np.asarray(avgk.softmax(logits))
    labels = RNG.integers(0, 9, 300)
    for method in ("lac", "aps", "raps", "top_k"):
        predictor = avgk.conformal.calibrate(avgk.softmax(logits), labels, 0.1, method)
        assert predictor == avgk.conformal.calibrate(chances, labels, 0.1, method)
        np.testing.assert_array_equal(predictor.sets(avgk.softmax(logits)), predictor.sets(chances))


def test_sets__are_data_arrays_for_data_arrays_and_lazy():
    scores, labels = problem(n=60)
    frame = xr.DataArray(scores, dims=("sample", "class"), coords={"sample": np.arange(60) + 5})
    predictor = avgk.conformal.calibrate(frame, labels, 0.1)
    sets = predictor.sets(frame.chunk(sample=20))
    assert isinstance(sets, xr.DataArray)
    assert isinstance(sets.data, da.Array)
    assert sets.name == "conformal_sets"
    assert sets.coords["sample"].equals(frame.coords["sample"])
    assert sets.data.chunks == ((20, 20, 20), (12,))
    groups = xr.DataArray(np.arange(60) % 2, dims="sample", coords={"sample": np.arange(60) + 5})
    grouped = avgk.conformal.calibrate(frame, labels, 0.1, by=groups)
    assert grouped.sets(frame, groups=groups).shape == (60, 12)
    with pytest.raises(avgk.LabelsError, match="by must have the sample names of scores"):
        avgk.conformal.calibrate(frame, labels, 0.1, by=groups[::-1])


def test_groups__may_be_lazy_or_stored_and_those_never_met_get_everything(tmp_path):
    scores, labels = problem(n=200)
    groups = RNG.integers(-3, 3, 200)
    stored = zarr.create_array(tmp_path / "g.zarr", data=groups, chunks=(30,))
    predictor = avgk.conformal.calibrate(scores, labels, 0.2, by=groups)
    for other in (da.from_array(groups, chunks=33), stored, tmp_path / "g.zarr", groups.tolist()):
        assert avgk.conformal.calibrate(scores, labels, 0.2, by=other) == predictor
        np.testing.assert_array_equal(predictor.sets(scores, groups=other), predictor.sets(scores, groups=groups))
        xr.testing.assert_equal(
            predictor.evaluate(scores, labels, groups=other), predictor.evaluate(scores, labels, groups=groups)
        )
    assert predictor.sets(scores, groups=np.full(200, 99)).compute().all()
    result = predictor.evaluate(scores, labels, groups=np.full(200, 99))
    assert float(result.average_set_size) == 12
    assert result.group_n_labelled.values.tolist() == [0] * 6
    for i, name in enumerate(predictor.groups):
        part = groups == name
        alone = avgk.conformal.calibrate(scores[part], labels[part], 0.2)
        assert (predictor.threshold[i], predictor.rank[i], predictor.n_calibration[i]) == (
            alone.threshold,
            alone.rank,
            part.sum(),
        )


def test_groups__of_64_bits_without_a_sign_are_not_taken_for_negative_ones():
    predictor = avgk.conformal.calibrate(np.full((4, 2), 0.5), np.zeros(4, int), 0.5, by=np.full(4, -1))
    scores = np.array([[0.1, 0.9]])
    assert predictor.sets(scores, groups=np.array([-1])).compute().tolist() == [[False, True]]
    assert predictor.sets(scores, groups=np.array([2**64 - 1], np.uint64)).compute().tolist() == [[True, True]]


def test_reads__are_one_or_two_if_costs_do_not_fit():
    scores, labels = problem(n=3_000, c=20)
    for by in (None, "class", np.arange(3_000) % 4):
        for method in ("lac", "aps", "top_k"):
            store = CountingStore(zarr.storage.MemoryStore())
            zarr.create_array(store, data=scores, chunks=(200, 20))
            array = zarr.open_array(store, mode="r")
            result = []
            for most, reads in ((1 << 20, {1}), (100, {1, 2, 3})):
                store.reads.clear()
                with dask.config.set({"avgk.label-costs": most, "avgk.fan-in": 2, "avgk.band-bytes": 1}):
                    result.append(avgk.conformal.calibrate(array, labels, 0.1, method, by))
                counts = {n for key, n in store.reads.items() if "c/" in key}
                assert counts == {result[-1].reads}
                assert result[-1].reads in reads
            assert np.array_equal(result[0].threshold, result[1].threshold)
            assert result[1].reads == 1 if method == "top_k" else result[1].reads > 1
        store.reads.clear()
        part = by if isinstance(by, np.ndarray) else None
        assert result[0].evaluate(array, labels, groups=part).attrs["reads"] == 1
        assert {n for key, n in store.reads.items() if "c/" in key} == {1}


def test_memory__of_merged_results_is_checked_before_reading():
    scores, labels = problem(n=400)
    with (
        dask.config.set({"avgk.memory-limit": "1 MB"}),
        pytest.raises(avgk.MemoryLimitError, match="available to a worker thread"),
    ):
        avgk.conformal.calibrate(scores, labels)


@pytest.mark.parametrize("n, rank, n_new", [(9, 9, 1), (100, 91, 250), (1_000, 901, 5), (37, 20, 400), (50, 1, 30)])
def test_hit_law__is_beta_binomial(n, rank, n_new):
    law, other = HitLaw(n, rank, n_new), stats.betabinom(n_new, rank, n + 1 - rank)
    for hits in range(-1, n_new + 2, max(1, n_new // 20)):
        assert law.at_most(hits) == pytest.approx(other.cdf(hits), rel=1e-9, abs=1e-300)
        assert law.at_least(hits) == pytest.approx(other.sf(hits - 1), rel=1e-7, abs=1e-12)
    assert law.interval(0.9) == tuple(int(x) for x in other.ppf([0.05, 0.95]))


def test_hit_law__of_very_many_samples_is_nearly_normal():
    law = HitLaw(10**8, 9 * 10**7, 10**9)
    spread = 1e9 * math.sqrt(0.09 * (1e-8 + 1e-9))
    low, high = law.interval(0.95)
    assert (high - low) / spread == pytest.approx(2 * 1.95996, rel=1e-3)
    assert law.at_most(9 * 10**8) == pytest.approx(0.5, abs=1e-3)
    assert HitLaw(5, 6, 10).at_most(9) == 0
    assert HitLaw(5, 6, 10).interval(0.9) == (10, 10)


@pytest.mark.parametrize("by", ["class", "group"])
def test_p_values__are_computed_for_each_of_several_thresholds(by):
    scores, labels = problem(n=2_000)
    groups = labels if by == "class" else np.arange(2_000) % 3
    old, new = slice(0, 1_000), slice(1_000, None)
    predictor = avgk.conformal.calibrate(scores[old], labels[old], 0.1, by="class" if by == "class" else groups[old])
    result = predictor.evaluate(scores[new], labels[new], **({} if by == "class" else {"groups": groups[new]}))
    sets = np.asarray(predictor.sets(scores[new], **({} if by == "class" else {"groups": groups[new]})))
    hits = sets[np.arange(1_000), labels[new]]
    for i, name in enumerate(result[by].values):
        part = groups[new] == name
        law = stats.betabinom(part.sum(), predictor.rank[i], predictor.n_calibration[i] + 1 - predictor.rank[i])
        assert float(result[f"{by}_p_value_low"][i]) == pytest.approx(law.cdf(hits[part].sum()))
    said = avgk.report.print_coverage(result)
    assert f" of {result.sizes[by]} {'classes' if by == 'class' else 'groups'} ha" in said
    page = avgk.report.render_coverage(result)
    assert f"for the samples of each {by}" in page
    assert "for all samples together" not in page


def test_audit__tells_whether_the_coverage_is_plausible():
    scores, labels = problem(n=2_000)
    predictor = avgk.conformal.calibrate(scores[:1_000], labels[:1_000], 0.1)
    result = predictor.evaluate(scores[1_000:], labels[1_000:], confidence=0.99)
    law = stats.betabinom(1_000, predictor.rank, 1_001 - predictor.rank)
    assert float(result.p_value_low) == pytest.approx(law.cdf(int(result.n_hits)))
    assert float(result.p_value_high) == pytest.approx(law.sf(int(result.n_hits) - 1))
    assert (result.hits_low, result.hits_high) == tuple(law.ppf([0.005, 0.995]))
    assert float(result.coverage_stderr) == pytest.approx(math.sqrt(result.coverage * (1 - result.coverage) / 1_000))
    wrong = predictor.evaluate(scores[1_000:], np.roll(labels[1_000:], 1))
    assert float(wrong.p_value_low) < 1e-6
    assert math.isnan(avgk.conformal.calibrate(scores, labels, by="class").evaluate(scores, labels).p_value_low)
    assert "class_p_value_low" not in result
    by_class = avgk.conformal.calibrate(scores, labels, by="class").evaluate(scores, labels)
    assert list(by_class.data_vars)[-3:] == ["macro_coverage", "share_below", "class_p_value_low"]
    assert math.isnan(predictor.evaluate(scores).coverage)
    assert predictor.evaluate(scores, levels=[0.25, "0.9"]).level.values.tolist() == [0.25, 0.9]


def test_long_tails__are_covered_by_class_at_the_price_of_large_sets():
    rng = np.random.default_rng(5)
    n, c = 12_000, 200
    shares = 1 / np.arange(1, c + 1) ** 1.3
    shares /= shares.sum()
    labels = rng.choice(c, n, p=shares)
    logits = rng.normal(0, 1, (n, c)) + 3 * np.eye(c)[labels]
    chances = np.exp(logits) * shares  # what a model that knows the prevalences gives
    chances /= chances.sum(1, keepdims=True)
    half = slice(None, n // 2), slice(n // 2, None)
    result = {}
    for by in (None, "class"):
        predictor = avgk.conformal.calibrate(chances[half[0]], labels[half[0]], 0.1, by=by)
        result[by] = predictor.evaluate(chances[half[1]], labels[half[1]])
    assert abs(float(result[None].coverage) - 0.9) < 0.02
    assert float(result[None].share_below[0]) > 0.2
    assert float(result["class"].share_below[0]) < 0.02
    assert float(result["class"].macro_coverage) > 0.9 > 0.75 > float(result[None].macro_coverage)
    assert float(result["class"].average_set_size) > 4 * float(result[None].average_set_size)


@pytest.fixture
def truncated(tmp_path):
    scores, labels = problem(n=500, c=40, dtype="f4", sharpness=0.05)
    with avgk.ScoreWriter(tmp_path / "t.zarr", n_classes=40, top_m=20) as writer:
        writer.append(scores, labels)
    return tmp_path / "t.zarr", scores, labels


def test_truncated_stores__give_certain_results_only(truncated):
    path, scores, labels = truncated
    for method in ("lac", "top_k"):
        predictor, whole = (avgk.conformal.calibrate(s, y, 0.1, method) for s, y in ((path, None), (scores, labels)))
        assert predictor.threshold == whole.threshold
        np.testing.assert_array_equal(predictor.sets(path), whole.sets(scores))
        result, other = predictor.evaluate(path), whole.evaluate(scores, labels)
        xr.testing.assert_equal(result, other[list(result.data_vars)])
        assert "class_coverage" not in result
    for options in ({"method": "aps"}, {"method": "raps"}, {"by": "class"}, {"by": np.zeros(500, int)}):
        with pytest.raises(avgk.ScoresError, match="must be whole rows for"):
            avgk.conformal.calibrate(path, **options)
    with pytest.raises(avgk.ScoresError, match="Use a larger alpha"):
        avgk.conformal.calibrate(path, alpha=1e-4)
    with pytest.raises(avgk.BudgetError, match="alpha needs 40 ranks"):
        avgk.conformal.calibrate(path, alpha=1e-4, method="top_k")
    with pytest.raises(avgk.ScoresError, match="the threshold may be below scores that were discarded"):
        avgk.conformal.calibrate(scores, labels, 1e-4).evaluate(path)


@pytest.mark.parametrize("method, by, seed", [("lac", None, None), ("aps", "class", 3), ("raps", "group", 0), ("top_k", None, None), ("lac", "class", None)])  # fmt: skip
def test_files__come_back_equal(method, by, seed, tmp_path):
    scores, labels = problem(n=200, dtype="f4")
    predictor = avgk.conformal.calibrate(
        scores, labels, "0.15", method, np.arange(200) % 3 if by == "group" else by, seed
    )
    predictor.save(tmp_path / "a.json")
    back = avgk.conformal.load(tmp_path / "a.json")
    assert back == predictor
    assert repr(back) == repr(predictor)
    part = {"groups": np.arange(200) % 3} if by == "group" else {}
    xr.testing.assert_identical(back.evaluate(scores, labels, **part), predictor.evaluate(scores, labels, **part))
    predictor.save(tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_files__of_others_and_damaged_ones_are_refused(tmp_path):
    scores, labels = problem(n=50)
    path = tmp_path / "a.json"
    avgk.conformal.calibrate(scores, labels).save(path)
    text = path.read_text()
    for bad in (
        "",
        "[]",
        "{",
        "null",
        text[:-20],
        text.replace('"lac"', '"aps"'),
        text.replace('"version": 1', '"version": 9'),
    ):
        path.write_text(bad)
        with pytest.raises(
            avgk.StoreError,
            match=r"is not a valid conformal predictor file: .* Calibrate and save it again\.",
        ):
            avgk.conformal.load(path)
    with pytest.raises(avgk.StoreError, match="cannot read"):
        avgk.conformal.load(tmp_path / "none.json")
    with pytest.raises(avgk.OptionError, match="local file"):
        avgk.conformal.load("s3://bucket/a.json")
    with pytest.raises(avgk.WriteError, match="cannot write to"):
        avgk.conformal.calibrate(scores, labels).save(tmp_path / "no" / "a.json")
    from avgk_dask.api.calibration.temperature import TemperatureScaling

    TemperatureScaling().fit(np.log(scores + 1e-9), labels).save(path)
    with pytest.raises(avgk.StoreError, match="it is not a conformal predictor"):
        avgk.conformal.load(path)


def forged(path, **changes):
    """Write a file with other values, and a hash that fits them."""
    from avgk_dask.files.sealed import _digest

    content = json.loads(path.read_text())
    del content["sha256"]
    content |= changes
    path.write_text(json.dumps({**content, "sha256": _digest(content)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "best"},
        {"alpha": "2"},
        {"dtype": "complex64"},
        {"n_classes": "many"},
        {"by": "class"},
        {"levels": 3},
        {"levels": {"shape": [1], "int64": "AAAAAAAAAIA="}},  # -2**63: a threshold above inf
        {"seed": 3},
    ],
)
def test_files__that_fit_their_hash_but_make_no_sense_are_refused(changes, tmp_path):
    scores, labels = problem(n=50)
    avgk.conformal.calibrate(scores, labels).save(tmp_path / "a.json")
    forged(tmp_path / "a.json", **changes)
    with pytest.raises(avgk.StoreError, match="is not a valid conformal predictor file"):
        avgk.conformal.load(tmp_path / "a.json")


SCORES, LABELS = problem(n=60)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"alpha": 0}, avgk.OptionError, "alpha must be a number between 0 and 1; got 0"),
        ({"alpha": 1}, avgk.OptionError, "alpha must"),
        ({"alpha": "x"}, avgk.OptionError, "alpha must"),
        ({"alpha": math.nan}, avgk.OptionError, "alpha must"),
        ({"method": "saps"}, avgk.OptionError, "method must be one of lac, aps, raps, top_k; got 'saps'"),
        ({"by": "label"}, avgk.OptionError, "by must be 'class'"),
        ({"by": np.zeros(60)}, avgk.DtypeError, "by must be integers"),
        ({"by": np.zeros(59, int)}, avgk.LabelsError, "by must have the samples' shape"),
        ({"seed": 1}, avgk.OptionError, "seed must be None for the method 'lac'"),
        ({"seed": 1, "method": "top_k"}, avgk.OptionError, "seed must be None"),
        ({"seed": -1, "method": "aps"}, avgk.OptionError, "seed must be an integer"),
        ({"seed": 0.5, "method": "aps"}, avgk.OptionError, "seed must be an integer"),
        ({"penalty": 0.1}, avgk.OptionError, "penalty must be None for the method 'lac'"),
        ({"k_reg": 1, "method": "aps"}, avgk.OptionError, "k_reg must be None"),
        ({"penalty": -1, "method": "raps"}, avgk.OptionError, "penalty must be a number of at least 0"),
        ({"penalty": "1e9", "method": "raps"}, avgk.OptionError, "penalty must be small enough"),
        ({"k_reg": -1, "method": "raps"}, avgk.OptionError, "k_reg must be an integer"),
        ({"nan_policy": "lowest", "method": "aps"}, avgk.OptionError, "nan_policy must be 'raise'"),
        ({"nan_policy": "never"}, avgk.OptionError, "nan_policy must"),
        ({"labels": None}, avgk.LabelsError, "labels are required for conformal sets"),
        ({"labels": SCORES}, avgk.LabelsError, "labels must be class numbers"),
        ({"labels": np.full(60, -1)}, avgk.LabelsError, "at least one sample must be labelled"),
        ({"labels": np.full(60, 12)}, avgk.LabelsError, "labels must lie in 0..11"),
        ({"labels": np.full(60, 12), "by": np.zeros(60, int)}, avgk.LabelsError, "labels must lie in 0..11"),
        ({"scores": np.full((60, 12), np.nan)}, avgk.ScoresError, "NaN"),
        ({"scores": SCORES - 0.5, "method": "aps"}, avgk.ScoresError, "must be probabilities that sum to 1 .* 60 samples"),
        ({"scores": np.ones((60, 12)), "method": "raps"}, avgk.ScoresError, "probabilities that sum to 1"),
    ],
)  # fmt: skip
def test_calibrate__refuses(options, error, text):
    given = {"scores": SCORES, "labels": LABELS, **options}
    with pytest.raises(error, match=text):
        avgk.conformal.calibrate(**given)


def test_predictors__refuse_scores_and_options_that_do_not_fit():
    predictor = avgk.conformal.calibrate(SCORES, LABELS, by=np.zeros(60, int))
    aps = avgk.conformal.calibrate(SCORES, LABELS, method="aps")
    for call in (predictor.sets, predictor.evaluate):
        with pytest.raises(avgk.OptionError, match="groups are required for a predictor calibrated by group"):
            call(SCORES)
        with pytest.raises(avgk.ScoresError, match="scores must have 12 classes, like the calibration scores; got 11"):
            call(SCORES[:, :11], groups=np.zeros(60, int))
    for call in (aps.sets, aps.evaluate):
        with pytest.raises(avgk.OptionError, match="groups must be None unless the predictor was calibrated by group"):
            call(SCORES, groups=np.zeros(60, int))
        with pytest.raises(avgk.OptionError, match="nan_policy"):
            call(SCORES, nan_policy="lowest")
    with pytest.raises(avgk.ScoresError, match="NaN"):
        aps.sets(np.where(SCORES > 0.5, np.nan, SCORES)).compute()
    for bad in (SCORES * 9, -SCORES):
        with pytest.raises(avgk.ScoresError, match="probabilities that sum to 1"):
            aps.sets(bad).compute()
        with pytest.raises(avgk.ScoresError, match="probabilities that sum to 1"):
            aps.evaluate(bad, LABELS)
    with pytest.raises(avgk.LabelsError, match="class numbers"):
        aps.evaluate(SCORES, SCORES)
    for options in ({"levels": 2}, {"levels": "x"}, {"confidence": 1}, {"confidence": "x"}):
        with pytest.raises(avgk.OptionError, match=r"(levels|confidence) must"):
            aps.evaluate(SCORES, LABELS, **options)


def test_predictors__are_frozen_and_show_themselves():
    predictor = avgk.conformal.calibrate(SCORES, LABELS, by="class")
    with pytest.raises(AttributeError):
        predictor.alpha = 0.2
    with pytest.raises(ValueError, match="read-only"):
        predictor.threshold[0] = 1
    assert "thresholds of 12 classes" in repr(predictor)
    assert "<table>" in predictor._repr_html_()
    assert predictor != "something else"


def test_evaluate__names_classes(tmp_path):
    (tmp_path / "s.csv").write_text("cat,dog,label\n0.5,0.3,0\n0.1,0.8,1\n")
    avgk.ingest(tmp_path / "s.csv", out=tmp_path / "s.zarr")
    predictor = avgk.conformal.calibrate(tmp_path / "s.zarr", alpha=0.5).evaluate(tmp_path / "s.zarr")
    assert predictor.class_name.values.tolist() == ["cat", "dog"]


@pytest.mark.parametrize("n_classes", [126, 127, 255, 256, 300])
def test_calibrate__by_group_takes_any_number_of_classes(n_classes):
    rng = np.random.default_rng(0)
    scores, labels, groups = rng.dirichlet(np.ones(n_classes), 60), rng.integers(0, 100, 60), np.arange(60) % 2
    predictor = avgk.conformal.calibrate(scores, labels, alpha=0.2, by=groups)
    own = [np.sort(scores[np.arange(60), labels][groups == g])[::-1] for g in range(2)]
    assert predictor.threshold.tolist() == [float(part[25 - 1]) for part in own]  # ceil(31 * 0.8)
    assert predictor.evaluate(scores, groups=groups).average_set_size > 0


def test_long_tails__are_served_in_between_by_scores_divided_by_class_frequencies():
    """Standard sets are small and leave rare classes out, those by class are large; divided scores lie between."""
    rng = np.random.default_rng(0)
    n, c = 40_000, 60
    prior = 1 / np.arange(1, c + 1) ** 1.5
    prior /= prior.sum()
    labels = rng.choice(c, n, p=prior)
    scores = np.exp(2 * rng.normal(size=(n, c)) + 4.0 * (np.arange(c) == labels[:, None])) * prior
    scores /= scores.sum(1, keepdims=True)
    divided, half = np.asarray(avgk.balanced(scores, prior)), n // 2
    result = []
    for part, by in ((scores, None), (divided, None), (scores, "class")):
        predictor = avgk.conformal.calibrate(part[:half], labels[:half], alpha=0.1, by=by)
        result.append(predictor.evaluate(part[half:], labels[half:]))
    sizes, macro, below = (
        [float(t[name].max()) for t in result] for name in ("average_set_size", "macro_coverage", "share_below")
    )
    assert 2 * sizes[0] < sizes[1] < sizes[2]
    assert macro[0] + 0.2 < macro[1] < macro[2]
    assert below[0] > 0.3 > below[1] >= below[2]


def test_calibrate__says_if_samples_are_too_few_and_refuses_penalties_that_overflow():
    scores, labels = problem(n=100)
    assert "too few samples for this alpha: sets hold every class" in repr(
        avgk.conformal.calibrate(scores, labels, "0.001")
    )
    assert "too few" not in repr(avgk.conformal.calibrate(scores, labels, 0.1))
    with pytest.raises(avgk.OptionError, match="penalty must be small enough"):
        avgk.conformal.calibrate(scores, labels, method="raps", penalty=10**9, k_reg=scores.shape[1])


def test_sets_by_class__refuse_classes_in_another_order(tmp_path):
    scores, labels = problem(n=300)
    names = [f"class {i}" for i in range(scores.shape[1])]
    frame = xr.DataArray(scores, dims=("sample", "class"), coords={"class": names})
    result = avgk.conformal.calibrate(frame, labels, by="class")
    result.save(tmp_path / "p.json")
    again = avgk.conformal.load(tmp_path / "p.json")
    assert again == result
    for predictor in (result, again):
        for call in (predictor.sets, lambda given, p=predictor: p.evaluate(given, labels)):
            with pytest.raises(
                avgk.ScoresError, match="scores must have the class names of the predictor, in the same order"
            ):
                call(frame[:, ::-1])
        assert predictor.sets(scores).shape == scores.shape  # nothing is known of these
        assert float(predictor.evaluate(frame, labels).coverage) > 0.8
    with pytest.raises(avgk.ScoresError, match="class names of the predictor"):  # also with one threshold for all
        avgk.conformal.calibrate(frame, labels).sets(frame[:, ::-1])
