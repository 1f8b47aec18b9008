"""evaluate against the definitions, on adversarial small matrices in any chunks."""

from __future__ import annotations

import math
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec

import avgk_dask as avgk
from avgk_dask.testing import (
    oracle_average_k_sets,
    oracle_evaluate,
    oracle_influences,
    oracle_stderr,
    oracle_straddle,
    oracle_supports,
    strategies,
)

#: Settings with which even a tiny matrix goes through every part of the engine.
ENGINES = {
    "no pilot": {},
    "pilot": {"avgk.small-scores": 0},
    "tiny pilot": {"avgk.small-scores": 0, "avgk.pilot-least": 1, "avgk.pilot-share": 0.0},
    "few rows kept": {"avgk.small-scores": 0, "avgk.kept-bytes": 200, "avgk.pilot-least": 1, "avgk.pilot-share": 0.0},
    "events": {"avgk.small-scores": 0, "avgk.kept-bytes": 0},
    "events, no pilot": {"avgk.kept-bytes": 0},
    "counted ties": {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.max-events": 0, "avgk.least-events": 0},
    "counted ties, no pilot": {"avgk.kept-bytes": 0, "avgk.max-events": 0, "avgk.least-events": 0},
    "tiles and tree": {"avgk.tile-scores": 1, "avgk.fan-in": 2, "avgk.task-bytes": 1},
    "ranked histograms": {"avgk.ranked-bytes": 0, "avgk.task-bytes": 1, "avgk.fan-in": 2},
    "one task": {"avgk.task-bytes": 1 << 40, "avgk.max-tasks": 1},
}


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def check_result(result, scores, labels, ks, ties="first"):
    for i, k in enumerate(ks):
        expected = oracle_evaluate(scores, labels, k, ties)
        sizes = expected.pop("set_size_count")
        assert result.set_size_count.values[i][: len(sizes)].tolist() == sizes
        assert result.set_size_count.values[i].sum() == scores.shape[0]
        for name, value in expected.items():
            assert same(float(result[name][i]), float(value)), (k, name, float(result[name][i]), value)
        check_error_bars(result.isel(k=i), scores, labels, k, ties)
        top, average = expected["top_k_error"], expected["average_k_error"]
        assert result.adaptive_gain[i] == pytest.approx(top - average, abs=1e-15, nan_ok=True)


def n_labelled_units(labels, clusters=None):
    """Return the number of labelled samples, or of clusters with labelled samples."""
    labelled = np.flatnonzero(np.asarray(labels) >= 0)
    return labelled.size if clusters is None else np.unique(np.asarray(clusters)[labelled]).size


def check_error_bars(result, scores, labels, k, ties="first", clusters=None):
    """Check hits by size and standard errors against the definitions."""
    names = ["average_k_error_stderr", "top_k_error_stderr", "adaptive_gain_stderr", "relative_gain_stderr"]
    if labels is None or labels.ndim == 2 or n_labelled_units(labels, clusters) < 2:
        assert all(np.isnan(result[name]) for name in names)
        return
    sets = oracle_average_k_sets(scores, k, ties)
    hits = [i for i, label in enumerate(labels) if label >= 0 and sets[i, label]]
    assert (
        result.set_hit_count.values.tolist() == np.bincount(sets.sum(1)[hits], minlength=result.sizes["size"]).tolist()
    )
    average = oracle_influences(scores, labels, k, "average", ties)
    assert sum(average) == 0
    expected = [oracle_stderr(average, clusters), math.nan, math.nan, math.nan]
    if Fraction(str(k)).denominator == 1:
        top = oracle_influences(scores, labels, k, "top")
        gains = [t - a for t, a in zip(top, average, strict=True)]
        a, t = (
            Fraction(float(result[name])).limit_denominator(len(labels)) for name in ("average_k_error", "top_k_error")
        )
        relative = [a / t**2 * y - x / t for x, y in zip(average, top, strict=True)] if t else None
        expected[1:3] = oracle_stderr(top, clusters), oracle_stderr(gains, clusters)
        expected[3] = math.nan if relative is None else oracle_stderr(relative, clusters)
        if ties == "spread" and np.isnan(result.adaptive_gain_stderr) and 0 < result.n_kept < result.n_ties:
            expected[2:] = math.nan, math.nan
    assert [float(result[name]) for name in names] == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True)


def check_ambiguity(result, scores, ks):
    """Check straddle strengths, supports and overlap against the definitions."""
    n_classes = scores.shape[1]
    supports = oracle_supports(scores)
    for low, high, (least, most) in zip(
        result.support_low.values, result.support_high.values, supports[: result.sizes["rank"]], strict=True
    ):
        assert same(low, least)
        assert same(high, most)
    for i, k in enumerate(ks):
        if k != int(k):
            assert np.isnan(result.straddle_strength[i]).all()
            assert np.isnan(result.straddle_bound[i])
            assert np.isnan(result.supports_overlap[i])
            continue
        k = int(k)
        strengths = []
        for order in range(1, min(k, n_classes - k) + 1):
            expected = oracle_straddle(scores, k, order)
            names = ("straddle_strength", "straddle_weight", "straddle_magnitude")
            assert all(same(float(result[n][i, order - 1]), v) for n, v in zip(names, expected, strict=True))
            strengths.append(expected[0])
        used = strengths if 2 * k <= n_classes else strengths[:1]
        assert float(result.straddle_bound[i]) == pytest.approx(sum(used), rel=1e-12, nan_ok=True)
        assert (result.straddle_strength_error[i, : len(strengths)].fillna(0) == 0).all()
        overlap = k < n_classes and supports[k][1] > supports[k - 1][0]
        if k < n_classes and math.isnan(supports[k - 1][0]):
            overlap = not math.isnan(supports[k][1])
        assert result.supports_overlap[i] == overlap


def draw_labels(data, kind, shape):
    if kind == "none":
        return None
    if kind == "soft":
        return data.draw(strategies.soft_labels(shape))
    labels = data.draw(strategies.hard_labels(shape))
    return np.where(labels < 0, data.draw(st.sampled_from([-1, -2, -100, -(2**63)])), labels)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["none", "hard", "soft"])
@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_evaluate__equals_the_definitions(engine, kind, data):
    scores = data.draw(strategies.score_matrices())
    labels = draw_labels(data, kind, scores.shape)
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    chunks = data.draw(strategies.chunkings(scores.shape))
    with dask.config.set(ENGINES[engine]), dask.config.set(scheduler="synchronous"):
        result = avgk.evaluate(da.from_array(scores, chunks=chunks), labels, ks)
    check_result(result, scores, labels, ks)
    check_ambiguity(result, scores, ks)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_evaluate__of_clusters_has_the_standard_errors_of_their_sums(engine, data):
    scores = data.draw(strategies.score_matrices())
    labels = data.draw(strategies.hard_labels(scores.shape))
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    n = len(scores)
    clusters = np.array(data.draw(st.lists(st.sampled_from([-5, 0, 3, 2**40]), min_size=n, max_size=n)))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(ENGINES[engine]), dask.config.set(scheduler="synchronous"):
        result = avgk.evaluate(lazy, labels, ks, straddle=False, clusters=clusters)
        plain = avgk.evaluate(lazy, labels, ks, straddle=False)
        single = avgk.evaluate(lazy, labels, ks, straddle=False, clusters=np.arange(n))
    for i, k in enumerate(ks):
        check_error_bars(result.isel(k=i), scores, labels, k, clusters=clusters)
    bars = [name for name in result if name.endswith("stderr")]
    assert result.drop_vars(bars).drop_attrs().identical(plain.drop_vars(bars).drop_attrs())
    for name in bars:
        assert np.allclose(single[name], plain[name], rtol=1e-13, atol=0, equal_nan=True)


def test_evaluate__refuses_clusters_without_class_numbers():
    for labels in (None, np.eye(3)):
        with pytest.raises(avgk.LabelsError, match="labels must be class numbers for clusters; got"):
            avgk.evaluate(np.eye(3), labels, 1, clusters=[0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("engine", ["no pilot", "pilot", "counted ties"])
@given(data=st.data())
def test_evaluate__spreads_ties_by_sample_and_class(engine, kind, data):
    scores = data.draw(strategies.score_matrices())
    labels = draw_labels(data, kind, scores.shape)
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(ENGINES[engine]), dask.config.set(scheduler="synchronous"):
        result = avgk.evaluate(lazy, labels, ks, ties="spread", straddle=False)
        sets = avgk.average_k_sets(lazy, ks[0], ties="spread").compute()
    check_result(result, scores, labels, ks, "spread")
    assert np.array_equal(sets, oracle_average_k_sets(scores, ks[0], "spread"))


@pytest.mark.parametrize("use", [avgk.evaluate, avgk.threshold, avgk.straddle_strength, avgk.supports_overlap])
def test_budgets__asked_for_twice_are_given_once(use):
    scores = np.random.default_rng(0).random((20, 6))
    once, twice = use(scores, k=[3, 1, 2.5]), use(scores, k=[3, 1, 3.0, 2.5, "1"])
    assert twice.k.values.tolist() == [3, 1, 2.5]
    assert twice.identical(once)


def test_evaluate__refuses_an_unknown_order_of_ties():
    for run in (avgk.evaluate, avgk.average_k_sets):
        with pytest.raises(avgk.OptionError, match="ties must be 'first' or 'spread'; got 'random'"):
            run(np.eye(3), k=1, ties="random")


def test_evaluate__soft_labels_above_an_interval_next_to_the_highest_key():
    scores = np.zeros((12, 2), np.uint64)
    scores[11] = 1
    labels = np.eye(2)[[0] * 11 + [1]]
    with dask.config.set(ENGINES["counted ties"]):
        check_result(avgk.evaluate(scores, labels, [1, "0.01"]), scores, labels, [1, "0.01"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "hard", "soft"])
@pytest.mark.parametrize("engine", ["no pilot", "pilot", "counted ties"])
@pytest.mark.parametrize("slab_bytes", [1, 1 << 20])
@given(data=st.data())
def test_evaluate__reads_zarr_chunked_along_both_axes(engine, kind, slab_bytes, data):
    names = tuple(d for d in strategies.DTYPES if d != "bfloat16")
    scores = data.draw(strategies.score_matrices(names))
    labels = draw_labels(data, kind, scores.shape)
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    chunks = tuple(data.draw(st.integers(1, n)) for n in scores.shape)
    stored = zarr.create_array({}, data=scores, chunks=chunks, config={"write_empty_chunks": True})
    with dask.config.set(ENGINES[engine]), dask.config.set({"scheduler": "synchronous", "avgk.slab-bytes": slab_bytes}):
        result = avgk.evaluate(stored, labels, ks)
    check_result(result, scores, labels, ks)
    check_ambiguity(result, scores, ks)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["few rows kept", "events", "one task"])
@given(data=st.data())
def test_evaluate__reads_files_into_memory_used_before(engine, tmp_path, data):
    """One task reads all bands into the same memory, for any codec of the direct reader."""
    scores = data.draw(strategies.score_matrices(("float32", "float64", "uint8", "float16")))
    labels = draw_labels(data, data.draw(st.sampled_from(["hard", "soft"])), scores.shape)
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    options = {"chunks": tuple(data.draw(st.integers(1, n)) for n in scores.shape), "overwrite": True}
    codec = data.draw(st.sampled_from([None, "auto", BloscCodec(cname="lz4", shuffle="bitshuffle")]))
    options |= {"compressors": codec, "config": {"write_empty_chunks": True}}
    stored = zarr.create_array(tmp_path / "s.zarr", data=scores, **options)
    settings_ = {"scheduler": "synchronous", "avgk.slab-bytes": data.draw(st.sampled_from([1, 100, 1 << 20]))}
    with dask.config.set(ENGINES[engine]), dask.config.set(settings_), dask.config.set(ENGINES["one task"]):
        result = avgk.evaluate(stored, labels, ks)
        curve = avgk.error_curve(stored, labels)
        in_memory = avgk.error_curve(scores, labels)
    check_result(result, scores, labels, ks)
    check_ambiguity(result, scores, ks)
    assert curve.drop_attrs().identical(in_memory.drop_attrs())


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_evaluate__ranks_nan_lowest_and_never_takes_it(engine, data):
    scores = data.draw(strategies.score_matrices(("float16", "float32", "float64", "bfloat16"), nan=True))
    labels = draw_labels(data, data.draw(st.sampled_from(["none", "hard", "soft"])), scores.shape)
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    chunks = data.draw(strategies.chunkings(scores.shape))
    with dask.config.set(ENGINES[engine]), dask.config.set(scheduler="synchronous"):
        result = avgk.evaluate(da.from_array(scores, chunks=chunks), labels, ks, nan_policy="lowest")
    check_result(result, scores, labels, ks)
    check_ambiguity(result, scores, ks)
    nan = np.argwhere(np.isnan(scores.astype(float)))
    if nan.size:
        with pytest.raises(avgk.ScoresError, match=f"sample {nan[0][0]}, class {nan[0][1]}"):
            avgk.evaluate(da.from_array(scores, chunks=chunks), labels, ks)


@pytest.mark.parametrize("engine", ["no pilot", "counted ties"])
def test_evaluate__has_no_negative_errors_where_probabilities_are_rounded(engine):
    """Ten times the float nearest to 0.1 is more than 1."""
    scores = np.full((4, 10), 0.1)
    with dask.config.set(ENGINES[engine]):
        result = avgk.evaluate(scores, scores, k=[10, 9.99, 5])
        curve = avgk.error_curve(scores, scores)
    check_result(result, scores, scores, [10, 9.99, 5])
    for name in ("average_k_error", "average_k_error_lowest", "average_k_error_highest", "average_k_error_expected"):
        assert result[name].values[0] == 0
        assert not np.signbit(result[name].values).any()
    for actual in (result, curve):
        assert actual.top_k_error.sel(k=10) == 0
        assert not np.signbit(actual.top_k_error.values).any()
    assert not np.signbit(result.adaptive_gain.values[0])
    assert float(curve.mean_top_k_error) == pytest.approx(0.45)
    assert float(curve.mean_average_k_error) >= 0


def test_risk_and_regret__have_no_negative_errors_where_probabilities_are_rounded():
    eta = np.full((4, 10), 0.1)
    risks = avgk.risk(eta, eta, 0.05, cost=0)
    assert (float(risks.error), float(risks.risk)) == (0, 0)
    best = avgk.best_threshold(eta, eta, cost=0)
    assert (best.error, best.risk) == (0, 0)
    regret = avgk.regret(np.ones((4, 10), bool), eta)
    gain = avgk.adaptive_gain(eta, 10)
    plug_in = avgk.plug_in_regret(eta, eta, 10)
    for error in (regret.set_error, regret.optimal_error, regret.regret, gain.top_k_error, gain.average_k_error,
                  gain.adaptive_gain, plug_in.top_k_error, plug_in.average_k_error, plug_in.average_k_regret):  # fmt: skip
        assert error.values.item() == 0
        assert not np.signbit(error.values.item())


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float16", "float32", "uint32", "int64"])
@pytest.mark.parametrize("engine", [*ENGINES.values(), ENGINES["counted ties, no pilot"] | ENGINES["tiles and tree"]],
                         ids=[*ENGINES, "counted ties in tiles"])  # fmt: skip
def test_evaluate__at_every_budget_there_is(engine, dtype):
    """All B from 0 to N C, beyond the number of scores that are not NaN; k = C / 2 is included, with strengths of both orders."""
    rng = np.random.default_rng(5)
    for n_samples, levels in ((1, 3), (6, 3), (6, 1000)):
        scores = (rng.integers(0, levels, (n_samples, 4)) + 1000 * rng.integers(0, 2, (n_samples, 1))).astype(dtype)
        if dtype.startswith("float"):
            scores[rng.random(scores.shape) < 0.2] = np.nan
        labels = rng.integers(-1, 4, n_samples)
        ks = [Fraction(1, n_samples + 1), *(Fraction(b, n_samples) for b in range(1, scores.size + 1))]
        chunks = (2, 3) if levels == 3 else (4, 4)
        with dask.config.set(engine), dask.config.set(scheduler="synchronous"):
            result = avgk.evaluate(da.from_array(scores, chunks=chunks), labels, ks, nan_policy="lowest")
        check_result(result, scores, labels, ks)
        check_ambiguity(result, scores, ks)


def test_standard_errors__of_half_floats_with_nan_do_not_depend_on_what_is_held():
    rng = np.random.default_rng(0)
    scores, labels = rng.random((300, 20)).astype(np.float16), rng.integers(0, 20, 300)
    scores[np.arange(0, 300, 7), labels[::7]] = np.nan  # labels are in no set, and their samples are labelled
    expected = avgk.evaluate(scores, labels, k=[1, 3.5], straddle=False, nan_policy="lowest")
    with dask.config.set({"avgk.kept-bytes": 0}):
        assert avgk.evaluate(scores, labels, k=[1, 3.5], straddle=False, nan_policy="lowest").identical(expected)
