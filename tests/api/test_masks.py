"""Missing values: a missing class number means unlabelled; scores, soft labels and sets must not have missing values."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import avgk_dask as avgk
import avgk_dask.xarray  # registers .avgk

N, C = 120, 6
RNG = np.random.default_rng(0)
SCORES = RNG.dirichlet(np.full(C, 0.3), N)
MASK = RNG.random(N) < 0.3
LABELS = RNG.integers(0, C, N)
FILLED = np.where(MASK, -1, LABELS)
MASKED = np.ma.masked_array(LABELS, MASK)
HOLES = np.zeros((N, C), bool)
HOLES[7, 2] = True


def hidden(values, mask, chunks, meta=None):
    """Return a Dask array whose metadata do not show that its blocks are masked."""
    meta = np.empty((0,) * values.ndim, values.dtype) if meta is None else meta
    both = da.from_array(np.stack([values, mask]), chunks=(2, *chunks))
    chunks = both.chunks[1:]

    def mask_block(block):
        return np.ma.masked_array(block[0].astype(values.dtype), block[1].astype(bool))

    return both.map_blocks(mask_block, drop_axis=0, dtype=values.dtype, meta=meta, chunks=chunks)


def partly_masked(values, mask, chunks):
    """Return a Dask array whose first block only is masked."""
    n = chunks[0]
    first = hidden(values[:n], mask[:n], chunks)
    return da.concatenate([first, da.from_array(np.where(mask, -1, values)[n:], chunks=chunks)])


def arrow(values, mask=None):
    return pytest.importorskip("pyarrow").array(values, mask=mask)


def polars():
    return pytest.importorskip("polars", reason="polars is not installed")


HARD = {
    "numpy": lambda: MASKED,
    "numpy unsigned": lambda: np.ma.masked_array(LABELS.astype("u8"), MASK),
    "numpy int8 hard mask": lambda: np.ma.masked_array(LABELS.astype("i1"), MASK, hard_mask=True),
    "masked garbage": lambda: np.ma.masked_array(np.where(MASK, 999, LABELS), MASK),
    "list of numbers and masked": lambda: list(MASKED),
    "tuple": lambda: tuple(MASKED),
    "list with None": lambda: [None if gone else int(label) for label, gone in zip(LABELS, MASK, strict=True)],
    "list with NA": lambda: [pd.NA if gone else label for label, gone in zip(LABELS, MASK, strict=True)],
    "object array": lambda: np.array([None if gone else int(x) for x, gone in zip(LABELS, MASK, strict=True)]),
    "dask from_array": lambda: da.from_array(MASKED, chunks=13),
    "dask masked_array": lambda: da.ma.masked_array(da.from_array(LABELS, chunks=13), da.from_array(MASK, chunks=13)),
    "dask masked_where": lambda: da.ma.masked_where(
        da.from_array(MASK, chunks=50), da.from_array(LABELS.astype("u1"), chunks=50)
    ),
    "dask hidden": lambda: hidden(LABELS, MASK, (17,)),
    "dask one block": lambda: partly_masked(LABELS, MASK, (40,)),
    "dask objects": lambda: da.from_array(HARD["object array"](), chunks=30),
    "xarray of hidden dask": lambda: xr.DataArray(hidden(LABELS, MASK, (17,)), dims="sample"),
    "xarray of nullable": lambda: xr.DataArray(pd.array(MASKED.tolist(), "Int64"), dims="sample"),
    "xarray Dataset": lambda: xr.Dataset({"labels": ("sample", pd.array(MASKED.tolist(), "Int64"))}),
    "pandas Int64": lambda: pd.Series(MASKED.tolist(), dtype="Int64"),
    "pandas UInt8 array": lambda: pd.array(MASKED.tolist(), dtype="UInt8"),
    "pandas Index": lambda: pd.Index(MASKED.tolist(), dtype="Int64"),
    "pandas objects": lambda: pd.Series(MASKED.tolist(), dtype=object),
    "pandas Categorical": lambda: pd.Categorical(MASKED.tolist()),
    "pandas category": lambda: pd.Series(pd.Categorical(MASKED.tolist())),
    "pandas of arrow": lambda: pd.Series(arrow(LABELS, MASK).to_pandas(types_mapper=pd.ArrowDtype)),
    "arrow": lambda: arrow(LABELS, MASK),
    "arrow unsigned": lambda: arrow(LABELS.astype("u2"), MASK),
    "arrow chunked": lambda: pytest.importorskip("pyarrow").chunked_array([arrow(LABELS, MASK)[:50], arrow(LABELS, MASK)[50:]]),
    "arrow dictionary": lambda: arrow(LABELS, MASK).dictionary_encode(),
    "polars": lambda: polars().Series(MASKED.tolist()),
    "masked when read": lambda: Variable(LABELS, MASK),
}  # fmt: skip

LABELLED = {
    "evaluate": lambda s, y: avgk.evaluate(s, y, [1, 2.5]).drop_attrs(),
    "n_labelled": lambda s, y: avgk.evaluate(s, y, 1).attrs["n_labelled"],
    "spread": lambda s, y: avgk.evaluate(np.round(s, 1), y, [1, 2.5], ties="spread").drop_attrs(),
    "ties": lambda s, y: avgk.evaluate(np.round(s, 1), y, [1, 2.5]).drop_attrs(),
    "error_curve": lambda s, y: avgk.error_curve(s, y).drop_attrs(),
    "risk": lambda s, y: avgk.risk(s, y, [0.1, 0.5], cost=0.1).drop_attrs(),
    "best_threshold": lambda s, y: avgk.best_threshold(s, y, cost=0.1),
    "smallest_k": lambda s, y: avgk.smallest_k(s, y, max_error=0.1),
    "conformal": lambda s, y: avgk.conformal.calibrate(s, y, 0.3),
    "conformal evaluate": lambda s, y: avgk.conformal.calibrate(SCORES, FILLED).evaluate(s, y).drop_attrs(),
    "accessor": lambda s, y: xr.DataArray(s, dims=("sample", "class")).avgk.evaluate(y, k=[1, 2.5]).drop_attrs(),
}


def same(result, expected):
    return result.identical(expected) if hasattr(expected, "identical") else result == expected


@pytest.fixture(scope="module")
def expected():
    return {name: use(SCORES, FILLED) for name, use in LABELLED.items()}


#: Each kind is tested with all functions; the default tier runs every third.
SOME = [pytest.param(kind, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, kind in enumerate(HARD)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOME)
def test_missing_labels__are_unlabelled_everywhere(expected, kind):
    labels = HARD[kind]()
    for name, use in LABELLED.items():
        assert same(use(SCORES, labels), expected[name]), name


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("top_m", [None, 4])
def test_missing_labels__are_stored_as_unlabelled(tmp_path, kind, top_m):
    labels = HARD[kind]()
    with avgk.ScoreWriter(tmp_path / "a.zarr", C, top_m=top_m) as writer:
        writer.append(SCORES, labels["labels"] if isinstance(labels, xr.Dataset) else labels)
    assert avgk.open_scores(tmp_path / "a.zarr").labels.values.tolist() == FILLED.tolist()
    if top_m is None:
        np.save(tmp_path / "s.npy", SCORES)
        avgk.ingest(tmp_path / "s.npy", labels, out=tmp_path / "b.zarr")
        assert avgk.open_scores(tmp_path / "b.zarr").labels.values.tolist() == FILLED.tolist()


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", HARD)
def test_missing_labels__are_unlabelled_for_truncated_stores(tmp_path, kind):
    with avgk.ScoreWriter(tmp_path / "a.zarr", C, top_m=4) as writer:
        writer.append(SCORES)
    result = avgk.evaluate(tmp_path / "a.zarr", HARD[kind](), 1, straddle=False)
    assert result.drop_attrs().identical(avgk.evaluate(tmp_path / "a.zarr", FILLED, 1, straddle=False).drop_attrs())


def test_missing_labels__beside_scores_in_a_dataset_are_unlabelled(expected):
    frame = xr.DataArray(SCORES, dims=("sample", "class"))
    for labels in (hidden(LABELS, MASK, (17,)), pd.array(MASKED.tolist(), "Int64")):
        both = xr.Dataset({"scores": frame, "labels": ("sample", labels)})
        assert avgk.evaluate(both, k=[1, 2.5]).drop_attrs().identical(expected["evaluate"])


def test_missing_labels__may_be_all_or_none():
    all_gone = avgk.evaluate(SCORES, FILLED * 0 - 1, 1).drop_attrs()
    for labels in (np.ma.masked_all(N, int), [None] * N, [np.ma.masked] * N, pd.array([pd.NA] * N, "Int64")):
        assert avgk.evaluate(SCORES, labels, 1).drop_attrs().identical(all_gone)
    whole = avgk.evaluate(SCORES, LABELS, 1).drop_attrs()
    for labels in (np.ma.masked_array(LABELS), da.from_array(np.ma.masked_array(LABELS)), pd.array(LABELS, "Int64")):
        assert avgk.evaluate(SCORES, labels, 1).drop_attrs().identical(whole)


def test_missing_labels__leave_the_range_of_the_others_checked():
    huge = LABELS.astype("u8")
    huge[5] = 2**63 + 2
    clear = np.where(np.arange(N) == 3, True, False)
    for labels in (np.ma.masked_array(huge, clear), da.from_array(np.ma.masked_array(huge, clear), chunks=50)):
        with pytest.raises(avgk.LabelsError, match="sample 5"):
            avgk.evaluate(SCORES, labels, 1)


class Variable:
    """Like a variable of netCDF4: NumPy reads a masked array from it."""

    def __init__(self, values, mask):
        self._values = np.ma.masked_array(values, mask)

    def __array__(self, dtype=None, copy=None):
        return self._values


MATRICES = {
    "masked when read": Variable,
    "list of masked when read": lambda x, holes: [Variable(*row) for row in zip(x, holes, strict=True)],
    "list of dask rows": lambda x, holes: [hidden(*row, (3,)) for row in zip(x[:9], holes[:9], strict=True)],
    "numpy": lambda x, holes: np.ma.masked_array(x, holes),
    "numpy without a masked element": lambda x, holes: np.ma.masked_array(x),
    "list of masked rows": lambda x, holes: list(np.ma.masked_array(x, holes)),
    "list of lists": lambda x, holes: [list(row) for row in np.ma.masked_array(x, holes)],
    "dask from_array": lambda x, holes: da.from_array(np.ma.masked_array(x, holes), chunks=(50, 4)),
    "dask masked_array": lambda x, holes: da.ma.masked_array(da.from_array(x, chunks=50), da.from_array(holes, chunks=50)),
    "dask without a masked element": lambda x, holes: da.from_array(np.ma.masked_array(x), chunks=50),
    "dask hidden": lambda x, holes: hidden(x, holes, (50, C)),
    "dask hidden in columns": lambda x, holes: hidden(x, holes, (50, 4)),
    "dask hidden without a masked element": lambda x, holes: hidden(x, holes & False, (50, C)),
    "xarray of hidden dask": lambda x, holes: xr.DataArray(hidden(x, holes, (50, C)), dims=("sample", "class")),
}  # fmt: skip

FRAMES = {
    "list of pandas rows": lambda x, holes: [
        pd.Series(np.ma.masked_array(*row).tolist(), dtype="Float64") for row in zip(x, holes, strict=True)
    ],
    "pandas Float64": lambda x, holes: pd.DataFrame(np.ma.masked_array(x, holes).tolist(), dtype="Float64"),
    "pandas mixed": lambda x, holes: pd.DataFrame(x).astype({2: "Float64"}).mask(holes),
    "arrow": lambda x, holes: pytest.importorskip("pyarrow").table({f"c{i}": arrow(x[:, i], holes[:, i]) for i in range(C)}),
    "polars": lambda x, holes: polars().DataFrame({f"c{i}": np.ma.masked_array(x, holes)[:, i].tolist() for i in range(C)}),
}  # fmt: skip

OF_SCORES = {
    "evaluate": lambda s: avgk.evaluate(s, LABELS, 1),
    "evaluate, lowest": lambda s: avgk.evaluate(s, LABELS, 1, nan_policy="lowest"),
    "threshold": lambda s: avgk.threshold(s, 1),
    "threshold_at": lambda s: avgk.threshold_at(s, 1),
    "average_k_sets": lambda s: avgk.average_k_sets(s, 1).compute(),
    "average_k_sets, spread": lambda s: avgk.average_k_sets(s, 1, ties="spread").compute(),
    "top_k_sets": lambda s: avgk.top_k_sets(s, 1).compute(),
    "predict_sets": lambda s: avgk.predict_sets(s, threshold=0.5).compute(),
    "straddle_strength": lambda s: avgk.straddle_strength(s, 1),
    "supports_overlap": lambda s: avgk.supports_overlap(s, 1),
    "ranked_supports": lambda s: avgk.ranked_supports(s, [1]),
    "error_curve": lambda s: avgk.error_curve(s, LABELS),
    "error_curve, soft": lambda s: avgk.error_curve(s, SCORES),
    "risk": lambda s: avgk.risk(s, LABELS, 0.5),
    "best_threshold": lambda s: avgk.best_threshold(s, LABELS, cost=0.1),
    "smallest_k": lambda s: avgk.smallest_k(s, LABELS, max_error=0.1),
    "conformal": lambda s: avgk.conformal.calibrate(s, LABELS),
    "conformal sets": lambda s: avgk.conformal.calibrate(SCORES, LABELS).sets(s).compute(),
    "average_set_size_at": lambda s: avgk.average_set_size_at(s, 0.5),
    "adaptive_gain": lambda s: avgk.adaptive_gain(s, 1),
    "regret": lambda s: avgk.regret(SCORES > 0.5, s),
    "plug_in_regret": lambda s: avgk.plug_in_regret(s, SCORES, 1),
    "plug_in_regret, eta": lambda s: avgk.plug_in_regret(SCORES, s, 1),
}

OF_SOFT_LABELS = {
    "evaluate": lambda y: avgk.evaluate(SCORES, y, 1),
    "ties": lambda y: avgk.evaluate(np.round(SCORES, 1), y, 1, ties="spread"),
    "error_curve": lambda y: avgk.error_curve(SCORES, y),
    "risk": lambda y: avgk.risk(SCORES, y, 0.5),
    "best_threshold": lambda y: avgk.best_threshold(SCORES, y, cost=0.1),
}


@pytest.mark.sample(86)
@pytest.mark.parametrize("kind", [*MATRICES, *FRAMES])
@pytest.mark.parametrize("use", OF_SCORES)
def test_masked_scores__are_refused_everywhere(use, kind):
    scores = (MATRICES | FRAMES)[kind](SCORES, HOLES)
    with pytest.raises(
        (avgk.ScoresError, avgk.LabelsError), match=r"must not be (masked|missing); got .*Fill them first"
    ):
        OF_SCORES[use](scores)


@pytest.mark.sample(92)
@pytest.mark.parametrize("kind", [*MATRICES, *FRAMES])
@pytest.mark.parametrize("use", OF_SOFT_LABELS)
def test_masked_soft_labels__are_refused_everywhere(use, kind):
    with pytest.raises(avgk.LabelsError, match=r"labels must not be (masked|missing); got .*Fill them first"):
        OF_SOFT_LABELS[use]((MATRICES | FRAMES)[kind](SCORES, HOLES))


@pytest.mark.parametrize("kind", MATRICES)
def test_masked_sets__are_refused(kind):
    with pytest.raises(avgk.ScoresError, match=r"sets must not be masked; got .*Fill them first"):
        avgk.regret(MATRICES[kind](SCORES > 0.5, HOLES), SCORES)


@pytest.mark.sample(13)
@pytest.mark.parametrize("kind", [*MATRICES, *FRAMES])
def test_masked_batches__are_refused(tmp_path, kind):
    masked = (MATRICES | FRAMES)[kind](SCORES, HOLES)
    with avgk.ScoreWriter(tmp_path / "a.zarr", C) as writer:
        with pytest.raises(avgk.ScoresError, match=r"scores must not be (masked|missing)"):
            writer.append(masked, LABELS)
        with pytest.raises(avgk.LabelsError, match=r"labels must not be (masked|missing)"):
            writer.append(SCORES, masked)
        writer.append(SCORES, LABELS)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FRAMES)
def test_frames__without_nulls_are_plain_data(kind):
    frame = FRAMES[kind](SCORES, HOLES & False)
    expected = avgk.evaluate(SCORES, LABELS, 2).drop_attrs()
    assert avgk.evaluate(frame, LABELS, 2).drop_attrs().identical(expected)
    soft = avgk.evaluate(SCORES, SCORES, 2).drop_attrs()
    assert avgk.evaluate(SCORES, frame, 2).drop_attrs().identical(soft)


def test_frames__of_plain_floats_keep_nan_as_a_number():
    frame = pd.DataFrame(np.where(HOLES, np.nan, SCORES))
    expected = avgk.evaluate(frame.to_numpy(), LABELS, 2, nan_policy="lowest").drop_attrs()
    assert avgk.evaluate(frame, LABELS, 2, nan_policy="lowest").drop_attrs().identical(expected)


def test_frames__with_columns_that_are_no_numbers_are_refused():
    frame = pd.DataFrame(SCORES).astype({1: "Float64"}).assign(flag=pd.array([True] * N, "boolean"))
    with pytest.raises(avgk.DtypeError, match="real numbers"):
        avgk.evaluate(frame, k=1)


@pytest.mark.parametrize(
    "labels",
    [
        pd.array([0.0, None] * 60, "Float64"),
        np.where(MASK, np.nan, LABELS),
        np.ma.masked_array(LABELS.astype(float), MASK),
        da.from_array(np.where(MASK, np.nan, LABELS), chunks=50),
        xr.DataArray(MASKED, dims="sample"),  # which makes it floats
        np.where(MASK, np.nan, LABELS).astype(object),
    ],
)
def test_float_labels__are_told_how_to_say_unlabelled(tmp_path, labels):
    with pytest.raises(avgk.DtypeError, match=r"got dtype float64.*astype\(int\).*fill it with -1"):
        avgk.evaluate(SCORES, labels, 1)
    with (
        pytest.raises((avgk.DtypeError, avgk.LabelsError), match="fill it with -1"),
        avgk.ScoreWriter(tmp_path / "a.zarr", C) as writer,
    ):
        writer.append(SCORES, labels)


def test_boolean_labels__are_refused():
    with pytest.raises(avgk.DtypeError, match="Int64"):
        avgk.evaluate(SCORES, pd.array([True, None] * 60, "boolean"), 1)
