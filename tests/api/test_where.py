"""``where`` and ``ignore_index``: samples that do not exist change nothing, whatever they hold."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
import avgk_dask.xarray  # registers .avgk
from avgk_dask.api.written_sets import SetChoice, write_sets
from avgk_dask.testing import CountingStore, Simulation
from avgk_dask.testing.strategies import budgets, chunkings, hard_labels, score_matrices, soft_labels

N, C = 300, 11
RNG = np.random.default_rng(0)
GOOD = RNG.integers(0, 50, (N, C)).astype("f4")
LABELS = RNG.integers(-1, C, N)
ETA = RNG.dirichlet(np.ones(C), N)
WHERE = RNG.random(N) < 0.6
WHERE[40:90] = False
#: Values of samples that are left out: neither numbers, nor classes, nor probabilities.
PADDED = np.where(WHERE[:, None], GOOD, np.nan).astype("f4")
PADDED_LABELS = np.where(WHERE, LABELS, 999)
PADDED_ETA = np.where(WHERE[:, None], ETA, 7)
KS = [1, 2.5, 4]
#: Every way a scan can take.
WAYS = {
    "small": {},
    "pilot": {"avgk.small-scores": 0},
    "events": {
        "avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.least-events": 4, "avgk.max-events": 4, "avgk.slab-bytes": 1
    },
}  # fmt: skip


def stored(data, chunks, **options):
    return zarr.create_array({}, data=data, chunks=chunks, config={"write_empty_chunks": True}, **options)


SCORES = {
    "memory": lambda: PADDED,
    "dask": lambda: da.from_array(PADDED, chunks=((17, 100, 1, 182), (3, 8))),
    "stored": lambda: stored(PADDED, (29, 4)),
    "sharded": lambda: stored(PADDED, (10, 3), shards=(40, 6)),
}
COLUMNS = {
    "memory": lambda column: column,
    "dask": lambda column: da.from_array(column, chunks=23),
    "stored": lambda column: stored(column, (17,)),
}


def same(result, expected):
    attrs = ("store", "reads", "versions", "score_kind", "n_left_out")  # truncated rows have no score_kind
    for each in (result, expected):
        each.attrs = {name: value for name, value in each.attrs.items() if name not in attrs}
    return result.identical(expected)


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ties", ["first", "spread"])
@pytest.mark.parametrize("kind", SCORES)
def test_where__gives_the_result_of_the_selected_samples(kind, ties, way):
    with dask.config.set(WAYS[way]), dask.config.set(scheduler="synchronous"):
        hard = avgk.evaluate(GOOD[WHERE], LABELS[WHERE], KS, ties=ties)
        soft = avgk.evaluate(GOOD[WHERE], ETA[WHERE], KS, ties=ties)
        for column in COLUMNS if way == "small" else ["stored"]:
            where, labels = COLUMNS[column](WHERE), COLUMNS[column](PADDED_LABELS)
            scores = SCORES[kind]()
            assert same(avgk.evaluate(scores, labels, KS, ties=ties, where=where), hard)
            assert same(avgk.evaluate(scores, labels, KS, ties=ties, ignore_index=999), hard)
            assert same(avgk.evaluate(scores, PADDED_ETA, KS, ties=ties, where=where), soft)


def test_where__and_ignore_index_together_leave_samples_that_meet_both():
    both = WHERE & (LABELS != 3)
    expected = avgk.evaluate(GOOD[both], LABELS[both], KS)
    for column in COLUMNS.values():
        result = avgk.evaluate(PADDED, column(LABELS), KS, where=column(WHERE), ignore_index=3)
        assert same(result, expected)


def test_where__of_all_samples_changes_nothing():
    expected = avgk.evaluate(GOOD, LABELS, KS)
    assert same(avgk.evaluate(GOOD, LABELS, KS, where=np.ones(N, bool)), expected)
    assert same(avgk.evaluate(GOOD, LABELS, KS, ignore_index=-100), expected)


def test_negative_label__is_no_padding():
    assert avgk.evaluate(GOOD, LABELS, 1).attrs["n_samples"] == N
    assert avgk.evaluate(GOOD, LABELS, 1, ignore_index=-1).attrs["n_samples"] == (LABELS >= 0).sum()


@given(st.data())
def test_where__is_exact_on_hostile_matrices(data):
    scores = data.draw(score_matrices(nan=True))
    soft = data.draw(st.booleans())
    labels = data.draw((soft_labels if soft else hard_labels)(scores.shape))
    where = np.array(data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))))
    where[data.draw(st.integers(0, len(scores) - 1))] = True
    rows, classes = data.draw(chunkings(scores.shape))
    ks = data.draw(budgets(scores.shape[1], scores[where]))
    ways = data.draw(st.sampled_from(sorted(WAYS)))
    options = {"nan_policy": "lowest", "ties": data.draw(st.sampled_from(["first", "spread"]))}
    given_scores = da.from_array(scores, chunks=(rows, classes))
    if data.draw(st.booleans()) and scores.dtype.kind != "V" and scores.dtype.name != "bfloat16":
        given_scores = stored(scores, (max(rows), max(classes)))
    given_where = COLUMNS[data.draw(st.sampled_from(sorted(COLUMNS)))](where)
    with dask.config.set(WAYS[ways]), dask.config.set(scheduler="synchronous"):
        result = avgk.evaluate(given_scores, labels, ks, where=given_where, **options)
        assert same(result, avgk.evaluate(scores[where], labels[where], ks, **options))


def equal(result, expected):
    """Return whether sets, lazy or not, are equal."""
    return np.array_equal(np.asarray(result), np.asarray(expected))


def emptied(sets):
    """Give the sets of the samples that exist, and empty ones for the others."""
    whole = np.zeros((N, C), bool)
    whole[WHERE] = np.asarray(sets)
    return whole


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "column"),
    [("memory", "memory"), ("dask", "dask"), ("stored", "stored"), ("sharded", "dask"), ("stored", "memory")],
)
def test_sets__of_samples_left_out_are_empty(kind, column):
    scores, where = SCORES[kind](), COLUMNS[column](WHERE)
    for ties in ("first", "spread"):
        sets = avgk.average_k_sets(scores, 2.3, ties=ties, where=where)
        assert equal(sets.compute(), emptied(avgk.average_k_sets(GOOD[WHERE], 2.3, ties=ties)))
    assert equal(avgk.top_k_sets(scores, 3, where=where), emptied(avgk.top_k_sets(GOOD[WHERE], 3)))
    assert equal(
        avgk.predict_sets(scores, threshold=20, where=where), emptied(avgk.predict_sets(GOOD[WHERE], threshold=20))
    )


def test_sets__with_ignore_index_look_at_the_labels_of_the_store(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", C, chunk_rows=40) as writer:
        writer.append(GOOD, LABELS)
    kept = LABELS != 3
    sets = np.asarray(avgk.average_k_sets(tmp_path / "a.zarr", 2.3, ignore_index=3))
    assert equal(sets[kept], avgk.average_k_sets(GOOD[kept], 2.3))
    assert not sets[~kept].any()
    assert avgk.threshold(tmp_path / "a.zarr", 2, ignore_index=3) == avgk.threshold(GOOD[kept], 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["booleans", "indices"])
@pytest.mark.parametrize("choice", [SetChoice(k=2.3), SetChoice("top", 2), SetChoice("threshold", threshold=20)])
def test_written_sets__hold_all_samples(tmp_path, choice, form):
    written = write_sets(stored(PADDED, (13, 4)), tmp_path / "s.zarr", choice, where=WHERE, format=form)
    alone = write_sets(GOOD[WHERE], tmp_path / "a.zarr", choice, format=form)
    assert (written.n_samples, written.n_labels, written.threshold) == (N, alone.n_labels, alone.threshold)
    sets, expected = (zarr.open_group(tmp_path / name, mode="r") for name in ("s.zarr", "a.zarr"))
    if form == "booleans":
        assert equal(sets["sets"][:], emptied(expected["sets"][:]))
        assert sets["sets"].chunks == (13, 4)
    else:
        assert equal(sets["classes"][:], expected["classes"][:])
        assert equal(np.diff(sets["offsets"][:])[WHERE], np.diff(expected["offsets"][:]))


FUNCTIONS = {
    "threshold": lambda s, y, **o: avgk.threshold(s, KS, **o),
    "average_set_size_at": lambda s, y, **o: avgk.average_set_size_at(s, [3, 10.5], **o),
    "threshold_at": lambda s, y, **o: avgk.threshold_at(s, [0, 2.5], **o),
    "error_curve": lambda s, y, **o: avgk.error_curve(s, y, **o),
    "risk": lambda s, y, **o: avgk.risk(s, y, [3, 10.5], cost=0.1, **o),
    "straddle_strength": lambda s, y, **o: avgk.straddle_strength(s, [1, 2], **o),
    "ranked_supports": lambda s, y, **o: avgk.ranked_supports(s, [1, 2], **o),
    "supports_overlap": lambda s, y, **o: avgk.supports_overlap(s, [1, 2], **o),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_where__is_known_to_every_function(name):
    expected = FUNCTIONS[name](GOOD[WHERE], LABELS[WHERE])
    for kind in ("memory", "stored"):
        assert same(FUNCTIONS[name](SCORES[kind](), PADDED_LABELS, where=WHERE), expected)
        dataset = xr.Dataset({"scores": (("sample", "class"), PADDED), "labels": ("sample", PADDED_LABELS)})
        assert same(FUNCTIONS[name](dataset, None, ignore_index=999), expected)


@pytest.mark.slow
def test_best_threshold__and_gains_and_regrets_know_where():
    best = avgk.best_threshold(PADDED, PADDED_LABELS, cost=0.05, where=WHERE)
    assert best == avgk.best_threshold(GOOD[WHERE], LABELS[WHERE], cost=0.05)
    assert same(avgk.adaptive_gain(PADDED_ETA, [1, 2], where=WHERE), avgk.adaptive_gain(ETA[WHERE], [1, 2]))
    estimate = np.where(WHERE[:, None], 1 - ETA, np.nan)
    result = avgk.plug_in_regret(estimate, stored(PADDED_ETA, (13, 4)), [1, 2.5], where=WHERE)
    assert same(result, avgk.plug_in_regret(estimate[WHERE], ETA[WHERE], [1, 2.5]))
    sets = RNG.random((N, C)) < 0.3
    assert same(avgk.regret(sets, PADDED_ETA, where=WHERE), avgk.regret(sets[WHERE], ETA[WHERE]))


def test_accessor__takes_where():
    frame = xr.DataArray(PADDED, dims=("sample", "class"), coords={"sample": np.arange(N)})
    where = xr.DataArray(WHERE, dims="sample", coords={"sample": np.arange(N)})
    assert frame.avgk.threshold(2, where=where) == avgk.threshold(GOOD[WHERE], 2)
    with pytest.raises(avgk.LabelsError, match="where must have the sample names of scores"):
        frame.avgk.threshold(2, where=where[::-1])
    with pytest.raises(avgk.LabelsError, match="where must have the scores' dimension 'sample'"):
        frame.avgk.threshold(2, where=where.rename(sample="row"))


@pytest.mark.slow
def test_truncated__stores_may_hold_anything_in_samples_that_do_not_exist(tmp_path):
    slots, index = np.sort(GOOD, axis=1)[:, ::-1][:, :6], np.argsort(-GOOD, axis=1, kind="stable")[:, :6]
    slots, index = np.where(WHERE[:, None], slots, np.nan).astype("f4"), np.where(WHERE[:, None], index, -7)
    group = zarr.open_group(tmp_path / "t.zarr", mode="w", attributes={"n_classes": C})
    for name, data in (("scores", slots), ("class_index", index), ("labels", PADDED_LABELS)):
        chunks = (13, 4)[: data.ndim]
        group.create_array(name, data=data, chunks=chunks, config={"write_empty_chunks": True})
    expected = avgk.evaluate(GOOD[WHERE], LABELS[WHERE], [1, 2], straddle=False)
    for column in COLUMNS.values():
        assert same(avgk.evaluate(group, k=[1, 2], straddle=False, where=column(WHERE)), expected)
        assert equal(avgk.average_k_sets(group, 2, where=column(WHERE)), emptied(avgk.average_k_sets(GOOD[WHERE], 2)))
    assert same(avgk.evaluate(group, k=[1, 2], straddle=False, ignore_index=999), expected)


def test_where__accepts_the_same_types_as_labels(tmp_path):
    np.save(tmp_path / "where.npy", WHERE)
    zarr.create_array(tmp_path / "where.zarr", data=WHERE, chunks=(20,), config={"write_empty_chunks": True})
    expected = avgk.threshold(GOOD[WHERE], 2)
    for where in (tmp_path / "where.npy", str(tmp_path / "where.zarr"), WHERE.tolist(), pd.Series(WHERE)):
        assert avgk.threshold(PADDED, 2, where=where) == expected


BAD = {
    "other dtype": (avgk.DtypeError, "where must be boolean; got dtype int64", {"where": WHERE.astype(int)}),
    "other length": (avgk.ScoresError, r"where must have the samples' shape \(300,\)", {"where": WHERE[:-1]}),
    "a matrix": (avgk.ScoresError, r"got shape \(300, 11\)", {"where": GOOD > 3}),
    "masked": (avgk.ScoresError, "where must not be masked", {"where": np.ma.array(WHERE, mask=~WHERE)}),
    "nothing": (avgk.ScoresError, "exclude all [0-9,]+ samples", {"where": WHERE & ~WHERE}),
    "no integer": (avgk.OptionError, "ignore_index must be an integer; got 0.5", {"ignore_index": 0.5}),
    "a flag": (avgk.OptionError, "ignore_index must be an integer; got True", {"ignore_index": True}),
}


@pytest.mark.parametrize("case", BAD)
def test_where__is_refused_if_it_does_not_fit(case):
    error, text, options = BAD[case]
    with pytest.raises(error, match=text):
        avgk.evaluate(GOOD, LABELS, 2, **options)


def test_where__is_refused_in_blocks_of_another_shape_or_dtype_than_declared():
    where = da.from_array(WHERE, chunks=50).map_blocks(lambda block: block[1:], dtype=bool, chunks=(50,))
    with pytest.raises(avgk.ScoresError, match="where must be bool of shape"):
        avgk.evaluate(GOOD, LABELS, 2, where=where)
    with pytest.raises(avgk.ScoresError, match="compute_chunk_sizes"):
        avgk.evaluate(GOOD, LABELS, 2, where=where[where])


def test_ignore_index__needs_class_numbers():
    with pytest.raises(avgk.LabelsError, match="labels must be class numbers for ignore_index; got none"):
        avgk.threshold(GOOD, 2, ignore_index=-100)
    with pytest.raises(avgk.LabelsError, match="labels must be class numbers for ignore_index; got probabilities"):
        avgk.evaluate(GOOD, ETA, 2, ignore_index=-100)


@pytest.mark.parametrize("kind", ["memory", "stored"])
def test_errors__name_samples_by_their_own_numbers(kind):
    scores, labels = PADDED.copy(), PADDED_LABELS.copy()
    first = np.flatnonzero(WHERE)[100]
    scores[first, 4] = np.nan
    scores = scores if kind == "memory" else stored(scores, (13, 4))
    with pytest.raises(avgk.ScoresError, match=f"got 1, the first at sample {first}, class 4"):
        avgk.evaluate(scores, labels, 2, where=WHERE)
    with pytest.raises(avgk.ScoresError, match=f"got one at sample {first}, class 4"):
        avgk.top_k_sets(scores, 2, where=WHERE).compute()
    labels[first] = C
    with pytest.raises(avgk.LabelsError, match=f"the first at sample {first}"):
        avgk.evaluate(GOOD, labels, 2, where=WHERE)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(100, 50), (100, 10)])
def test_where__reads_each_chunk_as_often_as_without_it(chunks):
    scores, labels, _ = Simulation(20_000, 50).rows(0, 20_000)
    store = CountingStore(zarr.storage.MemoryStore())
    zarr.create_array(store, name="scores", data=scores, chunks=chunks, config={"write_empty_chunks": True})
    where = np.random.default_rng(1).random(20_000) < 0.7
    where[5_000:10_000] = False
    expected = avgk.evaluate(scores[where], labels[where])
    array = zarr.open_array(store, path="scores", mode="r")
    store.reads.clear()
    result = avgk.evaluate(array, labels, where=where)
    reads, n_columns = store.chunk_reads(), 50 // chunks[1]
    assert result.attrs["reads"] == 1
    assert 150 * n_columns <= len(reads) < 170 * n_columns  # those of bands without samples are not read at all
    assert sum(reads.values()) - len(reads) <= max(8, len(reads) // 10)
    assert same(result, expected)


def test_checkpoint__is_of_one_mask(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", C, chunk_rows=40) as writer:
        writer.append(GOOD, LABELS)
    other = WHERE.copy()
    other[0] = ~other[0]
    kept = {"checkpoint": tmp_path / "kept", "k": KS}
    first = avgk.evaluate(tmp_path / "a.zarr", where=WHERE, **kept)
    assert same(first, avgk.evaluate(GOOD[WHERE], LABELS[WHERE], KS))
    assert same(avgk.evaluate(tmp_path / "a.zarr", where=WHERE, **kept), first)
    assert same(avgk.evaluate(tmp_path / "a.zarr", where=other, **kept), avgk.evaluate(GOOD[other], LABELS[other], KS))
    with pytest.raises(avgk.OptionError, match="where was 'given' and is None"):
        avgk.evaluate(tmp_path / "a.zarr", **kept)


def test_checkpoint__of_a_mask_serves_a_store_that_has_grown(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", C, chunk_rows=40) as writer:
        writer.append(GOOD[:200], LABELS[:200])
    kept = {"checkpoint": tmp_path / "kept", "k": KS}
    with dask.config.set({"avgk.band-bytes": 0}):
        avgk.evaluate(tmp_path / "a.zarr", where=WHERE[:200], **kept)
        with avgk.ScoreWriter(tmp_path / "a.zarr", append=True) as writer:
            writer.append(GOOD[200:], LABELS[200:])
        result = avgk.evaluate(tmp_path / "a.zarr", where=WHERE, **kept)
    assert same(result, avgk.evaluate(GOOD[WHERE], LABELS[WHERE], KS))


def test_where__stored_without_its_chunks_of_false_is_unchanged(tmp_path):
    rng = np.random.default_rng(5)
    scores, kept = rng.random((60, 7)), np.arange(60) >= 25
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("scores", data=scores, chunks=(20, 7))
    group.create_array("kept", data=kept, chunks=(10,))
    assert not (tmp_path / "s.zarr" / "kept" / "c" / "0").exists()  # as zarr writes it
    result = avgk.evaluate(scores, k=2, where=group["kept"])
    assert result.attrs["n_samples"] == 35
    xr.testing.assert_equal(result, avgk.evaluate(scores[kept], k=2))
    assert avgk.threshold(scores, 2, where=tmp_path / "s.zarr" / "kept") == avgk.threshold(scores[kept], 2)
