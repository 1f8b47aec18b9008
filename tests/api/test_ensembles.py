"""Means of several models' scores: the same bits as plain NumPy's for any chunking, each member read once."""

from __future__ import annotations

from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.engine.run import Run
from avgk_dask.sources import ensembles as ensembled
from avgk_dask.sources.planning import held_bytes
from avgk_dask.statistics.thresholds import find_thresholds
from avgk_dask.testing import CountingStore, Simulation, strategies

FLOATS = ("float16", "float32", "float64", "bfloat16")


def mean_of(members, weights=None):
    """The weighted mean by its definition: in float64, in the order of the members, rounded once."""
    weights = [1] * len(members) if weights is None else weights
    total = sum(map(Fraction, weights))
    shares = [float(Fraction(weight) / total) for weight in weights]
    with np.errstate(all="ignore"):
        mean = members[0].astype(np.float64) * shares[0]
        for member, share in zip(members[1:], shares[1:], strict=True):
            mean = mean + member.astype(np.float64) * share
        return mean.astype("f8" if any(m.itemsize == 8 for m in members) else "f4")


def stored(scores, chunks, labels=None, store=None):
    group = zarr.create_group(MemoryStore() if store is None else store)
    group.create_array("scores", data=scores, chunks=chunks, config={"write_empty_chunks": True})
    if labels is not None:
        group.create_array("labels", data=labels, config={"write_empty_chunks": True})
    return group


@st.composite
def ensembles_of(draw, dtypes=strategies.DTYPES, n_members=3):
    """Draw members of one shape, each of any dtype, and weights."""
    first = draw(strategies.score_matrices(dtypes))
    members = [first]
    for _ in range(draw(st.integers(0, n_members - 1))):
        pool = draw(strategies.score_matrices(dtypes)).reshape(-1)
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        members.append(rng.choice(pool, first.shape))
    weights = draw(
        st.none() | st.lists(st.sampled_from([1, 2, 0.1, 1 / 3, 7e5]), min_size=len(members), max_size=len(members))
    )
    return members, weights


def kinds(data, member):
    """Give a member in one of the ways there are, in chunks of its own."""
    chunks = data.draw(strategies.chunkings(member.shape))
    kind = data.draw(st.sampled_from(["numpy", "dask", "zarr", "xarray"]))
    if kind == "zarr" and member.dtype.name != "bfloat16":
        whole = {"config": {"write_empty_chunks": True}}
        return zarr.create_array(MemoryStore(), data=member, chunks=tuple(max(c) for c in chunks), **whole)
    if kind == "xarray" and member.dtype.name != "bfloat16":
        return xr.DataArray(da.from_array(member, chunks), dims=("sample", "class"))
    return member if kind == "numpy" else da.from_array(member, chunks)


@pytest.mark.slow
@given(data=st.data())
def test_ensemble__is_the_mean_to_the_last_bit_for_any_chunking(data):
    members, weights = data.draw(ensembles_of())
    labels = data.draw(strategies.hard_labels(members[0].shape))
    expected = mean_of(members, weights)
    ways = data.draw(st.sampled_from([{}, {"avgk.small-scores": 0}, {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.max-events": 4, "avgk.slab-bytes": 1}]))  # fmt: skip
    with dask.config.set(scheduler="synchronous", **ways):
        mean = avgk.ensemble([kinds(data, member) for member in members], weights)
        result = avgk.evaluate(mean, labels, [1], nan_policy="lowest", straddle=False).drop_attrs()
    assert result.identical(avgk.evaluate(expected, labels, [1], nan_policy="lowest", straddle=False).drop_attrs())
    assert (mean.dtype, mean.shape) == (expected.dtype, expected.shape)
    assert np.asarray(mean).tobytes() == expected.tobytes() or np.isnan(expected).any()


@pytest.mark.parametrize("dtypes", [(a, b) for a in FLOATS for b in FLOATS])
def test_ensemble__takes_members_of_any_two_dtypes(dtypes):
    rng = np.random.default_rng(0)
    members = [rng.random((50, 7)).astype(strategies.as_dtype(name)) for name in dtypes]
    mean = avgk.ensemble([da.from_array(members[0], (20, 3)), da.from_array(members[1], (11, 7))], [1, 3])
    assert np.asarray(mean).tobytes() == mean_of(members, [1, 3]).tobytes()


@pytest.fixture(scope="module")
def models():
    """Give the scores of three models and the labels."""
    drawn = [Simulation(20_000, 50, seed=seed).rows(0, 20_000) for seed in (1, 2, 3)]
    return [scores for scores, _, _ in drawn], drawn[0][1]


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, [1, 2, 0.5]])
@pytest.mark.parametrize("chunks", [[(100, 50)] * 3, [(100, 50), (200, 25), (50, 10)], [(60, 20), (90, 50), (30, 7)]])
def test_ensemble__reads_each_chunk_of_each_member_once_and_a_small_pilot(models, chunks, weights):
    scores, labels = models
    stores = [CountingStore(MemoryStore()) for _ in scores]
    groups = [stored(s, c, labels, store) for s, c, store in zip(scores, chunks, stores, strict=True)]
    mean = avgk.ensemble([zarr.open_group(store, mode="r") for store in stores], weights)
    for store in stores:
        store.reads.clear()
    result = avgk.evaluate(mean, k=[1, 3, 5])
    for store, group in zip(stores, groups, strict=True):
        reads, n_chunks = store.chunk_reads(), group["scores"].nchunks
        assert len(reads) == n_chunks
        assert sum(reads.values()) - n_chunks <= n_chunks / 8 + 8
    assert result.attrs["reads"] == 1
    assert result.drop_attrs().identical(avgk.evaluate(mean_of(scores, weights), labels, [1, 3, 5]).drop_attrs())


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(101, 97), (997, 30), (30, 997)])
def test_ensemble__of_chunks_that_never_end_together_reads_none_more_than_twice(models, monkeypatch, rows):
    monkeypatch.setattr(ensembled, "_MOST_COMMON", 1 << 19)
    scores, labels = models
    stores = [CountingStore(MemoryStore()) for _ in rows]
    for store, part, size in zip(stores, scores, rows, strict=False):
        stored(part, (size, 50), None, store)
    mean = avgk.ensemble([zarr.open_group(store, mode="r") for store in stores])
    for store in stores:
        store.reads.clear()
    with dask.config.set({"avgk.small-scores": 1 << 40, "avgk.band-bytes": 0}):  # no pilot
        result = avgk.evaluate(mean, labels, k=[1, 3, 5])
    most = [max(store.chunk_reads().values()) for store in stores]
    assert sorted(most) == [1, 2]
    assert result.drop_attrs().identical(avgk.evaluate(mean_of(scores[:2]), labels, [1, 3, 5]).drop_attrs())


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{}, {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.max-events": 2000}])
def test_ensemble__is_taken_by_every_function(models, limits):
    scores, labels = [s[:2000] for s in models[0]], models[1][:2000]
    chunks = [(100, 50), (200, 25), (50, 10)]
    members = [stored(s, c)["scores"] for s, c in zip(scores, chunks, strict=True)]
    mean, plain = avgk.ensemble(members), mean_of(scores)
    with dask.config.set(limits):
        assert avgk.error_curve(mean, labels).drop_attrs().identical(avgk.error_curve(plain, labels).drop_attrs())
        assert avgk.threshold(mean, 2.5) == avgk.threshold(plain, 2.5)
        assert avgk.best_threshold(mean, labels, cost=0.1).risk == avgk.best_threshold(plain, labels, cost=0.1).risk
        spread = {"k": [1, 2], "ties": "spread"}
        result = avgk.evaluate(mean, labels, **spread).drop_attrs()
    assert result.identical(avgk.evaluate(plain, labels, **spread).drop_attrs())
    for sets in (lambda s: avgk.average_k_sets(s, 2.5), lambda s: avgk.top_k_sets(s, 3)):
        assert np.array_equal(sets(mean).compute(), sets(plain).compute())
    assert (
        avgk.transfer(mean, mean, labels, 2).drop_attrs().identical(avgk.transfer(plain, plain, labels, 2).drop_attrs())
    )


def test_ensemble__of_ensembles_and_of_other_lazy_scores(models):
    scores = [s[:500] for s in models[0]]
    logits = [np.log(np.maximum(s, 1e-30)) for s in scores]
    inner = avgk.ensemble([stored(scores[0], (100, 50))["scores"], scores[1]], [1, 2])
    outer = avgk.ensemble([inner, scores[2]], [3, 1])
    assert np.asarray(outer).tobytes() == mean_of([mean_of(scores[:2], [1, 2]), scores[2]], [3, 1]).tobytes()
    made = [np.asarray(avgk.softmax(z)) for z in logits]
    lazy = avgk.ensemble([avgk.softmax(stored(z, (70, 20))["scores"]) for z in logits])
    result = avgk.evaluate(lazy, models[1][:500], [1, 2]).drop_attrs()
    assert result.identical(avgk.evaluate(mean_of(made), models[1][:500], [1, 2]).drop_attrs())


def test_ensemble__of_logits_is_the_softmax_of_their_mean_rounded_once(models):
    logits = [(np.log(np.maximum(s[:500], 1e-30)) * 50).astype("f4") for s in models[0]]
    mean = avgk.ensemble([stored(z, c)["scores"] for z, c in zip(logits, [(70, 20), (50, 50), (500, 7)], strict=True)], of="logits")  # fmt: skip
    terms = np.exp(
        (exact := mean_of([z.astype("f8") for z in logits]).astype(np.longdouble)) - exact.max(1, keepdims=True)
    )
    expected = terms / terms.sum(1, keepdims=True)
    actual = np.asarray(mean)
    assert actual.dtype == mean.dtype == np.float32
    assert (
        np.abs(actual - expected) <= np.spacing(actual)
    ).all()  # a mean in float32 would be off by hundreds of units
    assert np.asarray(avgk.ensemble(logits, of="logits")).tobytes() == actual.tobytes()
    labels = models[1][:500]
    with dask.config.set({"avgk.small-scores": 0}):
        result = avgk.evaluate(mean, labels, [1, 2]).drop_attrs()
    assert result.identical(avgk.evaluate(actual, labels, [1, 2]).drop_attrs())


def test_ensemble__of_float64_logits_is_the_softmax_of_their_mean(models):
    logits = [np.log(np.maximum(s[:500], 1e-30)).astype("f8") for s in models[0]]
    expected = np.asarray(avgk.softmax(mean_of(logits)))
    assert np.asarray(avgk.ensemble(logits, of="logits")).tobytes() == expected.tobytes()


def test_labels__are_those_of_the_first_member_that_has_some():
    rng = np.random.default_rng(0)
    scores, labels, other = rng.random((40, 5)), rng.integers(0, 5, 40), rng.integers(0, 5, 40)
    bare, with_labels = stored(scores, (10, 5)), stored(scores, (7, 5), labels)
    result = avgk.evaluate(avgk.ensemble([bare, with_labels]), k=1)
    assert result.average_k_error.item() == avgk.evaluate(scores, labels, 1).average_k_error.item()
    given_ = avgk.evaluate(avgk.ensemble([bare, with_labels]), other, k=1)
    assert given_.average_k_error.item() == avgk.evaluate(scores, other, 1).average_k_error.item()


@pytest.mark.sample(1)
@pytest.mark.parametrize("sealed", [True, False])
def test_labels__of_several_members_must_agree(tmp_path, sealed):
    rng = np.random.default_rng(0)
    scores, labels = rng.random((40, 5)), np.where(np.arange(40) % 7, rng.integers(0, 5, 40), -1)
    other = labels.copy()
    other[17] = (other[17] + 1) % 5
    same = np.where(labels < 0, -100, labels)  # also unlabelled
    names = {"a": labels, "b": labels.astype(np.int16), "c": other, "d": same, "e": labels}
    for name, part in names.items():
        if sealed:
            with avgk.ScoreWriter(tmp_path / name, 5, chunk_rows=9) as writer:
                writer.append(scores, part)
        else:
            zarr.save_group(tmp_path / name, scores=scores, labels=part)
    for name in ("b", "d", "e"):
        avgk.evaluate(avgk.ensemble([tmp_path / "a", tmp_path / name]), k=1)
    wrong = avgk.ensemble([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    with pytest.raises(avgk.LabelsError, match=r"got different ones for members 0 and 2, first at sample 17\. Pass"):
        avgk.evaluate(wrong, k=1)
    avgk.evaluate(wrong, labels, k=1)
    avgk.average_k_sets(wrong, 1).compute()  # needs none


def test_labels__with_equal_digests_are_not_read_to_be_compared(tmp_path, monkeypatch):
    scores, labels = np.random.default_rng(0).random((40, 5)), np.arange(40) % 5
    for name in "ab":
        with avgk.ScoreWriter(tmp_path / name, 5) as writer:
            writer.append(scores, labels)
    monkeypatch.setattr("avgk_dask.api.ensembles._as_dask", lambda labels: pytest.fail("labels were read"))
    avgk.evaluate(avgk.ensemble([tmp_path / "a", tmp_path / "b"]), k=1)


@pytest.mark.parametrize(
    "members, options, error, text",
    [
        ([], {}, avgk.OptionError, "members must contain at least one"),
        (np.eye(3), {}, avgk.DtypeError, "members must be a list of scores; got ndarray"),
        ("a.zarr", {}, avgk.DtypeError, "members must be a list of scores; got str"),
        ([np.eye(3), np.eye(4)], {}, avgk.ScoresError, r"same shape; got \(3, 3\) for the first and \(4, 4\) for member 1"),
        ([np.eye(3)] * 2, {"weights": [1]}, avgk.OptionError, "one entry for each of the 2 members; got 1"),
        ([np.eye(3)] * 2, {"weights": [1, 0]}, avgk.OptionError, "weights must be positive numbers; got 0"),
        ([np.eye(3)] * 2, {"weights": [1, -1.0]}, avgk.OptionError, "weights must be positive numbers; got -1.0"),
        ([np.eye(3)] * 2, {"weights": [1, np.nan]}, avgk.OptionError, "weights must be positive numbers; got nan"),
        ([np.eye(3)] * 2, {"weights": [1, np.inf]}, avgk.OptionError, "weights must be positive numbers; got inf"),
        ([np.eye(3)] * 2, {"weights": ["1", 2]}, avgk.OptionError, "weights must be positive numbers; got '1'"),
        ([np.eye(3)] * 2, {"weights": [1e-300, 1e300]}, avgk.OptionError, "must not vanish"),
        ([np.eye(3)] * 2, {"of": "votes"}, avgk.OptionError, "of must be 'probabilities' or 'logits'; got 'votes'"),
        ([np.eye(3), np.zeros((3, 3), complex)], {}, avgk.DtypeError, "real numbers"),
    ],
)  # fmt: skip
def test_ensemble__refuses_invalid_members_and_weights(members, options, error, text):
    with pytest.raises(error, match=text):
        avgk.ensemble(members, **options)


def test_ensemble__refuses_truncated_members_and_other_coordinates(tmp_path):
    scores = np.random.default_rng(0).random((10, 5))
    with avgk.ScoreWriter(tmp_path / "few", 5, top_m=2) as writer:
        writer.append(scores)
    with pytest.raises(avgk.ScoresError, match="whole rows for an ensemble; got truncated ones"):
        avgk.ensemble([scores, tmp_path / "few"])
    frames = [xr.DataArray(scores, {"sample": range(n, n + 10)}, ("sample", "class")) for n in (0, 1)]
    with pytest.raises(avgk.ScoresError, match=r"members\[1\] must have the sample names of members\[0\]"):
        avgk.ensemble(frames)
    sets = avgk.average_k_sets(avgk.ensemble([frames[0], scores]), 2)
    assert sets.sample.identical(frames[0].sample)


def test_ensemble__names_the_place_of_nan_and_of_infinities_that_meet():
    bad = np.zeros((10, 5), "f4")
    bad[7, 3] = np.nan
    with pytest.raises(avgk.ScoresError, match="sample 7, class 3"):
        avgk.evaluate(avgk.ensemble([np.eye(10, 5), bad]), k=1)
    up, down = np.zeros((10, 5)), np.zeros((10, 5))
    up[4, 2], down[4, 2] = np.inf, -np.inf
    with pytest.raises(avgk.ScoresError, match="sample 4, class 2"):
        avgk.evaluate(avgk.ensemble([up, down]), k=1)


def test_checkpoint__of_an_ensemble_saves_reading_and_notices_other_members(tmp_path, models):
    scores, labels = models
    for name, rows in (("a", scores[0]), ("b", scores[1]), ("c", scores[2])):
        with avgk.ScoreWriter(tmp_path / name, 50, chunk_rows=500 if name == "a" else 1000) as writer:
            writer.append(rows, labels)
    request = {"k": [1, 3], "checkpoint": tmp_path / "found"}
    mean = avgk.ensemble([tmp_path / "a", tmp_path / "b"])
    result = avgk.evaluate(mean, **request)
    assert result.drop_attrs().identical(avgk.evaluate(mean_of(scores[:2]), labels, [1, 3]).drop_attrs())
    reads = []
    original = Run.read

    def read(self, what):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("avgk_dask.engine.run.pass_task", lambda *_: reads.append(what.name))
            return original(self, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "read", read)
        assert avgk.evaluate(mean, **request).identical(result.assign_attrs(reads=0))
    assert reads == []
    for other in (
        avgk.ensemble([tmp_path / "a", tmp_path / "c"]),
        avgk.ensemble([tmp_path / "a", tmp_path / "b"], [1, 2]),
    ):
        with pytest.raises(avgk.OptionError, match=r"the checkpoint .* (belongs|was made)"):
            avgk.evaluate(other, **request)
    with pytest.raises(avgk.OptionError, match="checkpoint needs scores in a store"):
        avgk.evaluate(avgk.ensemble([tmp_path / "a", scores[1]]), k=1, checkpoint=tmp_path / "other")


@pytest.mark.slow
def test_progress__counts_the_bytes_of_all_members(models):
    scores = models[0]
    members = [stored(scores[0], (100, 50))["scores"], stored(scores[1].astype("f2"), (200, 50))["scores"]]
    source = as_source(avgk.ensemble(members), own_labels=False)
    result = []

    def compute(tasks, stage, reads=None):
        result.append((stage, reads.n_bytes))
        return list(dask.compute(*tasks))

    find_thresholds(Run(source, compute), [20_000])
    assert dict(result)["scan"] == 20_000 * 50 * (4 + 2)


def test_memory__of_a_task_counts_every_member(models):
    one = as_source(stored(models[0][0], (100, 50))["scores"])
    three = as_source(avgk.ensemble([stored(s, (100, 50))["scores"] for s in models[0]]), own_labels=False)
    assert held_bytes(three) >= 3 * held_bytes(one)
    with dask.config.set({"avgk.memory-limit": "1 MB"}), pytest.raises(avgk.MemoryLimitError):
        avgk.evaluate(avgk.ensemble(models[0]), k=1)


@pytest.mark.slow
def test_ensemble__gives_the_same_on_a_cluster(models, tmp_path):
    distributed = pytest.importorskip("distributed")
    scores, labels = models
    zarr.save_group(tmp_path / "a", scores=scores[0], labels=labels)
    mean = avgk.ensemble([tmp_path / "a", da.from_array(scores[1], (3000, 20)), scores[2]], [1, 2, 3])
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster),
    ):
        result = avgk.evaluate(mean, k=[1, 2])
        sets = avgk.average_k_sets(mean, 2).sum(axis=1).compute()
    plain = mean_of(scores, [1, 2, 3])
    assert result.drop_attrs().identical(avgk.evaluate(plain, labels, [1, 2]).drop_attrs())
    assert np.array_equal(sets, avgk.average_k_sets(plain, 2).compute().sum(axis=1))


@pytest.mark.slow
def test_ensemble__of_models_of_real_images_makes_fewer_errors_than_they_do(data, tmp_path):
    """Five trees, each grown on other images: both errors of their mean are below the mean of theirs, for every K."""
    trees = pytest.importorskip("sklearn.tree")
    if not (data / "fashion_mnist").is_dir():
        pytest.skip("Fashion-MNIST (../shared/data/fashion_mnist) is not here")
    with np.load(data / "fashion_mnist" / "fashion_mnist.npz") as images:
        pixels, labels, test, truth = (
            images[f"{part}_{kind}"] for part in ("train", "test") for kind in ("images", "labels")
        )
    members = []
    for number in range(5):
        own = np.random.default_rng(number).choice(len(pixels), 2000, replace=False)
        tree = trees.DecisionTreeClassifier(max_depth=10, random_state=number)
        tree.fit(pixels[own].reshape(2000, -1), labels[own])
        with avgk.ScoreWriter(tmp_path / str(number), 10, chunk_rows=500 * (1 + number % 2)) as writer:
            writer.append(tree.predict_proba(test.reshape(len(test), -1)).astype("f4"), truth)
        members.append(tmp_path / str(number))
    mean = avgk.error_curve(avgk.ensemble(members))
    each = [avgk.error_curve(member) for member in members]
    for name in ("mean_top_k_error", "mean_average_k_error"):
        assert mean[name] < min(one[name] for one in each)
    for name in ("top_k_error", "average_k_error"):
        assert (mean[name][:5] < sum(one[name] for one in each)[:5] / 5).all()


def test_ensembles__leave_out_padding_of_nan_and_infinity():
    logits, labels = np.eye(3, dtype="f4") * 4, np.arange(3)
    padded = np.concatenate([logits, np.array([[np.inf, np.nan, 1]], "f4")])
    mean = avgk.ensemble([avgk.softmax(padded), avgk.softmax(padded * 2)])
    result = avgk.evaluate(mean, np.append(labels, -100), k=1, ignore_index=-100)
    both = avgk.ensemble([avgk.softmax(logits), avgk.softmax(logits * 2)])
    assert result.drop_attrs().identical(avgk.evaluate(both, labels, k=1).drop_attrs())


def test_ensemble__refuses_more_classes_whose_first_names_are_the_same(tmp_path):
    for name, classes in {"a": ["cat", "dog"], "b": ["cat", "dog", "cow"]}.items():
        with avgk.ScoreWriter(tmp_path / f"{name}.zarr", len(classes), attributes={"class_names": classes}) as writer:
            writer.append(np.eye(len(classes), dtype=np.float32))
    with pytest.raises(
        avgk.ScoresError, match=r"at position 2 there is no class in members\[0\] and 'cow' in members\[1\]"
    ):
        avgk.ensemble([tmp_path / "a.zarr", tmp_path / "b.zarr"])
