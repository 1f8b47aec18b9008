"""ScoreWriter: batches of any size and library, any dtype; parts; nothing half-written passes as whole."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.store.write.batches import truncate

SCORES = np.random.default_rng(1).random((1003, 20), dtype=np.float32)
LABELS = np.random.default_rng(2).integers(-1, 20, 1003)


def write(path, scores=SCORES, labels=LABELS, step=64, **options):
    with avgk.ScoreWriter(path, scores.shape[1], **options) as writer:
        for i in range(0, len(scores), step):
            writer.append(scores[i : i + step], None if labels is None else labels[i : i + step])
    return writer


def tree(path):
    """Give all files below a path with their contents."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_writer__stores_the_same_for_any_batches(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("w") / "a.zarr"
    n = data.draw(st.integers(1, 60))
    scores, labels = SCORES[:n, :5], LABELS[:n] % 5
    eta = scores / scores.sum(1, keepdims=True)
    bounds = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    options = {"chunk_rows": data.draw(st.sampled_from([None, 1, 7, 16])), "shard_chunks": data.draw(st.integers(1, 3))}
    soft = data.draw(st.booleans())
    with avgk.ScoreWriter(path, n_classes=5, **options) as writer:
        for first, last in zip([0, *bounds], [*bounds, n], strict=True):
            writer.append(scores[first:last], eta[first:last] if soft else labels[first:last])
    opened = xr.open_zarr(path)
    assert writer.n_samples == n
    assert np.array_equal(opened.scores.values, scores)
    assert opened.scores.dims == ("sample", "class")
    assert np.array_equal(opened.labels.values, eta if soft else labels)
    assert avgk.verify(path).ok


def test_writer__lays_out_whole_rows_of_8_to_16_megabytes_in_blosc(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=1000) as writer:
        for _ in range(3):
            writer.append(np.ones((1000, 1000), np.float32), np.zeros(1000, int))
    array = zarr.open_array(tmp_path / "a.zarr" / "scores", mode="r")
    assert array.chunks[1] == 1000
    assert 8e6 <= array.chunks[0] * 4000 <= 16e6
    assert avgk.info(tmp_path / "a.zarr")["codecs"] == ["bytes", "blosc (lz4, bitshuffle, level 5)", "crc32c"]


def test_writer__shards_on_object_stores_only():
    pytest.importorskip("fsspec")
    write("memory://shards/a.zarr")
    assert zarr.open_array("memory://shards/a.zarr/scores", mode="r").shards is None


def test_writer__makes_no_chunk_larger_than_the_data(tmp_path):
    write(tmp_path / "a.zarr")
    assert zarr.open_array(tmp_path / "a.zarr" / "scores", mode="r").chunks == (1003, 20)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_writer__names_the_rounding(tmp_path, dtype):
    writer = write(tmp_path / "a.zarr", dtype=dtype)
    expected = SCORES.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    opened = avgk.open_scores(tmp_path / "a.zarr")
    assert np.array_equal(opened.scores.values, expected)
    said = None if dtype == "float64" else f"float32 rounded to {dtype}, to nearest, ties to even"
    assert writer.rounding == said
    assert zarr.open_array(tmp_path / "a.zarr" / "scores", mode="r").attrs.get("rounding") == said
    assert avgk.info(tmp_path / "a.zarr")["rounding"] == said


def test_writer__keeps_batches_that_the_caller_reuses(tmp_path):
    buffer = np.empty((10, 4), np.float32)
    with avgk.ScoreWriter(tmp_path / "a.zarr", 4) as writer:
        for value in range(5):
            buffer[:] = value
            writer.append(buffer, np.zeros(10, int))
    assert avgk.open_scores(tmp_path / "a.zarr").scores.values[::10, 0].tolist() == [0, 1, 2, 3, 4]


class Tensor:
    """Like a tensor on a device that needs gradients: NumPy reads it only after detach and cpu."""

    def __init__(self, values, steps=()):
        self._values, self._steps, self.dtype = values, steps, "float32"

    def detach(self):
        return Tensor(self._values, (*self._steps, "detach"))

    def cpu(self):
        return Tensor(self._values, (*self._steps, "cpu"))

    def __array__(self, dtype=None, copy=None):
        if self._steps != ("detach", "cpu"):
            raise TypeError("can't convert a device tensor")
        return np.asarray(self._values)


class Shared:
    """Offers DLPack only."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        raise TypeError("no")

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


@pytest.mark.parametrize("kind", [Tensor, Shared, np.asarray, lambda x: x.tolist()])
def test_writer__takes_arrays_of_other_libraries(tmp_path, kind):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 20, dtype="float32") as writer:
        writer.append(kind(SCORES[:30]), kind(LABELS[:30]))
    assert np.array_equal(avgk.open_scores(tmp_path / "a.zarr").scores.values, SCORES[:30])


def test_writer__stores_masked_labels_as_unlabelled(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 20, chunk_rows=7) as writer:
        for first in range(0, 30, 10):
            batch = slice(first, first + 10)
            writer.append(SCORES[batch], np.ma.masked_less(LABELS[batch].astype("u4"), 3))
    stored = avgk.open_scores(tmp_path / "a.zarr").labels.values
    assert stored.tolist() == np.where(LABELS[:30] < 3, -1, LABELS[:30]).tolist()


def test_writer__takes_torch_tensors(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scores = torch.tensor(SCORES[:30], requires_grad=True)
    with avgk.ScoreWriter(tmp_path / "a.zarr", 20) as writer:
        writer.append(scores, torch.tensor(LABELS[:30]))
    assert np.array_equal(avgk.open_scores(tmp_path / "a.zarr").scores.values, SCORES[:30])
    with avgk.ScoreWriter(tmp_path / "b.zarr", 20, dtype="bfloat16") as writer:
        writer.append(scores.to(torch.bfloat16))
    assert np.array_equal(avgk.open_scores(tmp_path / "b.zarr").scores.values, SCORES[:30].astype(ml_dtypes.bfloat16))


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "scores, labels, error, match",
    [
        (SCORES[:3, :4], None, avgk.ScoresError, r"shape \(samples, 20\)"),
        (SCORES[0], None, avgk.ScoresError, "shape"),
        (SCORES[:3], LABELS[:2], avgk.LabelsError, "3 integers"),
        (SCORES[:3], np.array([0.5, 1, 2]), avgk.LabelsError, "integers"),
        (SCORES[:3], np.array([1, 20, 2]), avgk.LabelsError, r"0\.\.19.*got 20 at sample 1"),
        (SCORES[:3], SCORES[:3, :4], avgk.LabelsError, "probabilities"),
        (SCORES[:3] * 1e6, None, avgk.ScoresError, "must fit float16"),
        (np.ma.masked_array(SCORES[:3]), None, avgk.ScoresError, "masked"),
        (np.zeros((3, 20), complex), None, avgk.DtypeError, "real numbers"),
        (object(), None, (avgk.DtypeError, avgk.ScoresError), "batch"),
    ],
)
def test_writer__refuses_bad_batches_and_goes_on(tmp_path, scores, labels, error, match):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 20, dtype="float16") as writer:
        with pytest.raises(error, match=match):
            writer.append(scores, labels)
        writer.append(SCORES[:5], LABELS[:5])
        with pytest.raises(avgk.LabelsError, match="one kind"):
            writer.append(SCORES[:5])
    assert avgk.open_scores(tmp_path / "a.zarr").sizes["sample"] == 5


@pytest.mark.parametrize(
    "options, match",
    [
        ({"n_classes": 0}, "n_classes"),
        ({"n_classes": 2.5}, "n_classes"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"shard_chunks": 0}, "shard_chunks"),
        ({"top_m": 21}, "top_m"),
        ({"codec": "rar"}, "codec"),
        ({"part": -1}, "part"),
        ({"dtype": "foo"}, "dtype"),
    ],
)
def test_writer__refuses_bad_options_and_writes_nothing(tmp_path, options, match):
    with pytest.raises((avgk.OptionError, avgk.DtypeError), match=match):
        avgk.ScoreWriter(tmp_path / "a.zarr", **{"n_classes": 20, **options})
    assert not (tmp_path / "a.zarr").exists()


def test_writer__refuses_to_quantise_or_to_narrow_integers(tmp_path):
    for dtype, given_ in (("uint8", SCORES), ("int8", np.zeros((2, 20), np.int32))):
        writer = avgk.ScoreWriter(tmp_path / dtype, 20, dtype=dtype)
        with pytest.raises(avgk.DtypeError, match="dtype must"):
            writer.append(given_)


def test_writer__refuses_existing_files_unless_it_overwrites(tmp_path):
    write(tmp_path / "a.zarr")
    before = tree(tmp_path / "a.zarr")
    with pytest.raises(avgk.StoreError, match="exists already"):
        avgk.ScoreWriter(tmp_path / "a.zarr", 20)
    assert tree(tmp_path / "a.zarr") == before
    write(tmp_path / "a.zarr", SCORES[:10], LABELS[:10], overwrite=True)
    assert avgk.open_scores(tmp_path / "a.zarr").sizes["sample"] == 10
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(avgk.StoreError, match="it is not a Zarr store"):
        avgk.ScoreWriter(tmp_path / "mine", 20, overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_writer__that_fails_leaves_a_store_that_says_it_is_incomplete(tmp_path):
    def fail():
        with avgk.ScoreWriter(tmp_path / "a.zarr", 20, chunk_rows=100) as writer:
            writer.append(SCORES[:250], LABELS[:250])
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        fail()
    for use in (avgk.evaluate, avgk.open_scores, avgk.verify, avgk.info, lambda p: avgk.evaluate(p / "scores")):
        with pytest.raises(avgk.StoreError, match="incomplete"):
            use(tmp_path / "a.zarr")
    with pytest.raises(avgk.StoreError, match="incomplete"):
        avgk.evaluate(zarr.open_group(tmp_path / "a.zarr", mode="r"))
    with avgk.ScoreWriter(tmp_path / "a.zarr", 20, chunk_rows=100, resume=True) as again:
        assert again.n_samples == 200
        again.append(SCORES[200:], LABELS[200:])
    write(tmp_path / "b.zarr", chunk_rows=100)
    assert tree(tmp_path / "a.zarr") == tree(tmp_path / "b.zarr")


def test_resume__begins_a_new_store_or_ends_at_a_complete_one(tmp_path):
    write(tmp_path / "a.zarr", resume=True)
    with avgk.ScoreWriter(tmp_path / "a.zarr", 20, resume=True) as writer:
        assert writer.n_samples == 1003
        with pytest.raises(avgk.StoreError, match="complete"):
            writer.append(SCORES, LABELS)


def test_resume__refuses_another_plan_or_foreign_stores(tmp_path):
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 20, chunk_rows=100)
    writer.append(SCORES[:150], LABELS[:150])
    del writer  # which lets go of the store
    with pytest.raises(avgk.OptionError, match="chunk_rows was 100"):
        avgk.ScoreWriter(tmp_path / "a.zarr", 20, chunk_rows=50, resume=True)
    zarr.create_array(tmp_path / "f.zarr", data=SCORES)
    with pytest.raises(avgk.StoreError, match="cannot be continued"):
        avgk.ScoreWriter(tmp_path / "f.zarr", 20, resume=True)


def test_writer__without_samples_does_not_close(tmp_path):
    with pytest.raises(avgk.StoreError, match="no samples"), avgk.ScoreWriter(tmp_path / "a.zarr", 20):
        pass


@given(data=st.data())
def test_truncate__keeps_the_largest_in_order_ties_by_class(data):
    rows, classes = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    m = data.draw(st.integers(1, classes))
    dtype = data.draw(st.sampled_from(["f4", "f2", "u1", "i8"]))
    values = data.draw(st.lists(st.integers(0, 4), min_size=rows * classes, max_size=rows * classes))
    block = np.array(values, dtype).reshape(rows, classes)
    scores, index = truncate(block, m)
    for i in range(rows):
        expected = sorted(range(classes), key=lambda c: (-float(block[i, c]), c))[:m]
        assert index[i].tolist() == expected
        assert scores[i].tolist() == block[i, expected].tolist()


def test_writer__truncates_to_top_m(tmp_path):
    write(tmp_path / "a.zarr", top_m=3, chunk_rows=100)
    opened = xr.open_zarr(tmp_path / "a.zarr")
    order = np.argsort(-SCORES, axis=1, kind="stable")[:, :3]
    assert opened.attrs["n_classes"] == 20
    assert opened.scores.dims == opened.class_index.dims == ("sample", "slot")
    assert np.array_equal(opened.class_index.values, order)
    assert np.array_equal(opened.scores.values, np.take_along_axis(SCORES, order, 1))
    assert avgk.verify(tmp_path / "a.zarr").n_chunks == 23
    writer = avgk.ScoreWriter(tmp_path / "n.zarr", 20, top_m=3, chunk_rows=1)
    with pytest.raises(avgk.ScoresError, match="NaN"):
        writer.append(np.full((2, 20), np.nan))
