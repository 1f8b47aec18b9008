"""Encoded stores: scaled values and missing values of xarray are read with the same bits as by xarray."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk

RNG = np.random.default_rng(3)
SCORES = 0.9 * RNG.random((40, 6))
LABELS = RNG.integers(0, 6, 40)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::xarray.SerializationWarning")


def write(path, scores, encoding, *, labels=LABELS, label_encoding=None, zarr_format=3):
    dataset = xr.Dataset({"scores": (("sample", "class"), scores), "labels": ("sample", labels)})
    both = {"scores": {"chunks": (16, 6), **encoding}, "labels": label_encoding or {}}
    dataset.to_zarr(path, encoding=both, zarr_format=zarr_format, consolidated=False, mode="w")


def same_bits(a, b):
    return a.dtype == b.dtype and np.array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))


ENCODINGS = {
    "int16 scaled": {"dtype": "int16", "scale_factor": 1e-4, "add_offset": 0.5},
    "int16 scaled, missing": {"dtype": "int16", "scale_factor": 1e-4, "add_offset": 0.5, "_FillValue": -32768},
    "uint8 scaled": {"dtype": "uint8", "scale_factor": 1 / 255},
    "int32 scaled": {"dtype": "int32", "scale_factor": 1e-8},
    "float32 offset": {"dtype": "float32", "add_offset": -1.0},
    "negative scale": {"dtype": "int16", "scale_factor": -1e-4},
    "unsigned": {"dtype": "int8", "_Unsigned": "true", "scale_factor": 1 / 255, "_FillValue": -1},
    "missing value": {"dtype": "float32", "missing_value": -9.0, "_FillValue": -9.0},
    "nan": {"dtype": "float32", "_FillValue": np.nan},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ENCODINGS)
def test_encoded_scores__are_what_xarray_gives(tmp_path, name, zarr_format):
    path = tmp_path / "a.zarr"
    write(path, SCORES, ENCODINGS[name], zarr_format=zarr_format)
    expected = xr.open_zarr(path, consolidated=False)
    assert same_bits(avgk.open_scores(path).scores.values, expected.scores.values)
    result = avgk.evaluate(path, k=[1, 2.5])
    values = expected.scores.values
    assert result.drop_attrs().identical(avgk.evaluate(values, LABELS, [1, 2.5]).drop_attrs())
    assert result.drop_attrs().identical(avgk.evaluate(expected.load(), k=[1, 2.5]).drop_attrs())
    assert result.threshold.values.tolist() == [avgk.threshold(values, k).value for k in (1, 2.5)]
    assert avgk.info(path)["dtype"] == str(values.dtype)
    assert (avgk.info(path)["encoding"] is None) == (name == "nan")
    assert avgk.verify(path).ok


@given(data=st.data())
def test_encoded_scores__are_what_xarray_gives_for_any_encoding(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("e") / "a.zarr"
    dtype = np.dtype(data.draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "i8", "f2", "f4", "f8", ">i2", ">f4"])))
    raw = data.draw(st.lists(st.integers(0, 100), min_size=12, max_size=12))
    numbers = st.one_of(st.floats(-3, 3, width=32), st.integers(-3, 3))
    attributes = data.draw(st.fixed_dictionaries({}, optional={"scale_factor": numbers, "add_offset": numbers}))
    if data.draw(st.booleans()):
        fill = data.draw(st.integers(0, 100))
        is_float = dtype.kind == "f"
        attributes["_FillValue"] = xr.backends.zarr.FillValueCoder.encode(fill, dtype) if is_float else fill
    if data.draw(st.booleans()):
        attributes["missing_value"] = data.draw(st.integers(0, 100))
    group = zarr.open_group(path, mode="w")
    chunks = data.draw(st.sampled_from([(4, 3), (2, 3), (3, 2)]))
    block = np.array(raw, dtype).reshape(4, 3)
    array = group.create_array("scores", data=block, chunks=chunks, dimension_names=("sample", "class"))
    array.attrs.update(attributes)
    expected = xr.open_zarr(path, consolidated=False).scores.values
    expected = expected.astype(expected.dtype.newbyteorder("="))
    assert same_bits(avgk.open_scores(path, missing="fill").scores.values, expected)


def test_missing_scores__are_nan_and_refused_by_their_place(tmp_path):
    scores = SCORES.copy()
    scores[20, 3] = np.nan
    write(tmp_path / "a.zarr", scores, ENCODINGS["int16 scaled, missing"])
    with pytest.raises(avgk.ScoresError, match="sample 20, class 3"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)
    assert avgk.evaluate(tmp_path / "a.zarr", k=1, nan_policy="lowest").attrs["n_samples"] == 40


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_labels__are_unlabelled(tmp_path, zarr_format):
    labels = LABELS.astype(float)
    labels[[3, 30]] = np.nan
    stored = {"dtype": "uint8", "_FillValue": 255}
    write(tmp_path / "a.zarr", SCORES, {}, labels=labels, label_encoding=stored, zarr_format=zarr_format)
    expected = LABELS.copy()
    expected[[3, 30]] = -1
    result = avgk.evaluate(tmp_path / "a.zarr", k=1)
    assert result.attrs["n_labelled"] == 38
    assert result.drop_attrs().identical(avgk.evaluate(SCORES, expected, 1).drop_attrs())
    assert avgk.open_scores(tmp_path / "a.zarr").labels.values.tolist() == expected.tolist()


def test_soft_labels__are_decoded(tmp_path):
    soft = RNG.dirichlet(np.ones(6), 40)
    path = tmp_path / "a.zarr"
    dataset = xr.Dataset({"scores": (("sample", "class"), SCORES), "labels": (("sample", "class"), soft)})
    dataset.to_zarr(path, encoding={"labels": {"dtype": "uint16", "scale_factor": 1 / 65535}}, consolidated=False)
    values = xr.open_zarr(path, consolidated=False).labels.values
    assert avgk.evaluate(path, k=2).drop_attrs().identical(avgk.evaluate(SCORES, values, 2).drop_attrs())


def test_zeros__of_version_2_are_values(tmp_path):
    scores = np.round(SCORES)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    array = group.create_array("scores", data=scores, chunks=(16, 6))
    array.attrs["_ARRAY_DIMENSIONS"] = ["sample", "class"]
    assert array.fill_value == 0
    assert np.array_equal(avgk.open_scores(tmp_path / "a.zarr").scores.values, scores)


@pytest.mark.parametrize(
    "attributes",
    [{"scale_factor": "two"}, {"scale_factor": [1.0, 2.0]}, {"add_offset": {}}, {"_FillValue": "?"},
     {"_FillValue": [1]}, {"dtype": "bfloat16", "scale_factor": 2.0}],
)  # fmt: skip
def test_encodings__that_cannot_be_decoded_are_refused_by_name(tmp_path, attributes):
    dtype = "u2" if "dtype" in attributes else "f4"
    array = zarr.open_group(tmp_path / "a.zarr", mode="w").create_array("scores", data=SCORES.astype(dtype))
    array.attrs.update(attributes)
    for call in (avgk.evaluate, avgk.threshold):
        with pytest.raises(avgk.DtypeError, match="array 'scores' of") as refused:
            call(tmp_path / "a.zarr", k=1)
    assert next(name for name in attributes if name != "dtype") in str(refused.value)


def test_scaled_labels__are_refused(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("scores", data=SCORES)
    group.create_array("labels", data=LABELS).attrs["scale_factor"] = 2.0
    with pytest.raises(avgk.LabelsError, match="scale_factor"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)


def test_frames__that_are_not_decoded_are_refused(tmp_path):
    write(tmp_path / "a.zarr", SCORES, ENCODINGS["negative scale"])
    raw = xr.open_zarr(tmp_path / "a.zarr", mask_and_scale=False, consolidated=False)
    with pytest.raises(avgk.ScoresError, match="scale_factor"):
        avgk.evaluate(raw, k=1)


def test_ingestion__stores_decoded_values(tmp_path):
    write(tmp_path / "a.zarr", SCORES, ENCODINGS["int16 scaled"])
    avgk.ingest(tmp_path / "a.zarr", out=tmp_path / "b.zarr")
    expected = xr.open_zarr(tmp_path / "a.zarr", consolidated=False).scores.values
    assert same_bits(xr.open_zarr(tmp_path / "b.zarr").scores.values, expected)


@pytest.mark.parametrize("attributes", [{}, {"_FillValue": 0}])
def test_labels__too_large_for_int64_are_out_of_range_and_not_negative(tmp_path, attributes):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("scores", data=SCORES)
    labels = np.where(np.arange(40) % 2, np.uint64(2**63 + 5), np.uint64(1))
    group.create_array("labels", data=labels).attrs.update(attributes)
    with pytest.raises(avgk.LabelsError, match="lie in"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)


ATTRIBUTES = [
    {"units": "1"}, {"units": "percent"}, {"units": "days"}, {"units": ["days since 2000-01-01"]},
    {"units": "days since 2000-01-01"}, {"units": "points since the start"}, {"units": "hours since 2000-01-01", "calendar": "noleap"},
    {"units": "days since 2000-01-01", "scale_factor": 0.5}, {"units": "days", "dtype": "timedelta64[ns]"},
    {"dtype": "bool"}, {"dtype": "bool", "missing_value": 3}, {"dtype": "float32"},
    {"scale_factor": float("nan")}, {"add_offset": float("nan")}, {"scale_factor": 0.5, "missing_value": float("nan")},
    {"_Unsigned": "true"}, {"_Unsigned": "false"}, {"_Unsigned": "true", "missing_value": -1},
    {"missing_value": 3}, {"missing_value": [2, 3]}, {"missing_value": "3"}, {"missing_value": float("nan")},
    {"valid_range": [0, 2]}, {"valid_min": 1}, {"flag_values": [0, 1], "flag_meanings": "a b"}, {"_Encoding": "utf-8"},
]  # fmt: skip


def with_attributes(name, values, attributes):
    """Return a group in which one array has the attributes, and its values as decoded by xarray, or a text if it cannot."""
    group = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
    dims = ("sample", "class")[: values.ndim]
    group.create_array(name, data=values, dimension_names=dims).attrs.update(attributes)
    try:
        return group, xr.open_zarr(group.store, consolidated=False)[name].values
    except Exception:  # xarray raises several kinds
        return group, np.array("")


@pytest.mark.sample(32)
@pytest.mark.parametrize("dtype", ["i1", "u2", "i8", "f2", "f8"])
@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
def test_attributes_of_scores__decode_as_xarray_does_or_are_refused_by_name(attributes, dtype):
    group, expected = with_attributes("scores", (np.arange(6).reshape(3, 2) - 1).astype(dtype), attributes)
    if expected.dtype.kind in "iuf":
        assert same_bits(avgk.open_scores(group).scores.values, expected)
    else:
        with pytest.raises(avgk.DtypeError, match=f"dtype {expected.dtype}|{next(iter(attributes))} = "):
            avgk.threshold(group, 1)


@pytest.mark.sample(37)
@pytest.mark.parametrize("dtype", ["i1", "u2", "i8"])
@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
def test_attributes_of_labels__decode_as_xarray_does_or_are_refused_by_name(attributes, dtype):
    group, expected = with_attributes("labels", np.array([0, 1, 3], dtype), attributes)
    group.create_array("scores", data=np.eye(4)[:3])
    is_number = expected.dtype.kind in "iuf" and not any("scale" in name or name[0] == "a" for name in attributes)
    if is_number and "_Unsigned" not in attributes:
        missing = np.isnan(expected)
        np.testing.assert_array_equal(avgk.open_scores(group).labels.values, np.where(missing, -1.0, expected))
    else:
        with pytest.raises(
            (avgk.DtypeError, avgk.LabelsError), match=f"dtype {expected.dtype}|{next(iter(attributes))}( = |,|;)"
        ):
            avgk.evaluate(group, k=1)


def test_masks__that_xarray_stores_as_integers_are_booleans(tmp_path):
    where = RNG.random(40) < 0.7
    mask = zarr.create_array(tmp_path / "mask.zarr", data=where.astype("i1"), chunks=(16,))
    with pytest.raises(avgk.DtypeError, match="where must be boolean; got dtype int8"):
        avgk.evaluate(SCORES, LABELS, 1, where=tmp_path / "mask.zarr")
    mask.attrs["dtype"] = "bool"
    expected = avgk.evaluate(SCORES, LABELS, 1, where=where).drop_attrs()
    assert avgk.evaluate(SCORES, LABELS, 1, where=tmp_path / "mask.zarr").drop_attrs().identical(expected)
    mask.attrs["units"] = "days since 2000-01-01"
    with pytest.raises(avgk.DtypeError, match="because of units = 'days since 2000-01-01'"):
        avgk.evaluate(SCORES, LABELS, 1, where=tmp_path / "mask.zarr")


@pytest.mark.parametrize(
    "attributes", [{"missing_value": 3}, {"scale_factor": 1.0}, {"units": "days since 2000-01-01"}]
)
def test_class_index__that_is_not_decoded_to_integers_is_refused(attributes):
    group = zarr.open_group(zarr.storage.MemoryStore(), mode="w", attributes={"n_classes": 6})
    group.create_array("scores", data=np.sort(SCORES)[:, ::-1][:, :3].copy())
    group.create_array("class_index", data=np.tile([0, 3, 5], (40, 1))).attrs.update(attributes)
    with pytest.raises((avgk.ScoresError, avgk.DtypeError), match=r"class_index.* must hold"):
        avgk.evaluate(group, LABELS, 0.1)
