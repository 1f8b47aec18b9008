"""Dask arrays whose blocks differ from their metadata, and arrays of other kinds, are refused by name."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk

N, C = 60, 5
RNG = np.random.default_rng(1)
SCORES = RNG.dirichlet(np.full(C, 0.5), N).astype("f4")
LABELS = np.arange(N) % C


def lying(values, lie, chunks):
    """Give a Dask array that promises the values and whose blocks are something else."""
    lazy = da.from_array(values, chunks=chunks)
    return lazy.map_blocks(lie, dtype=values.dtype, chunks=lazy.chunks, meta=np.empty((0,) * values.ndim, values.dtype))


def longer(block):
    return np.concatenate([block, block[:1]])


USES = {
    "evaluate": lambda s: avgk.evaluate(s, LABELS, 1),
    "evaluate, no labels": lambda s: avgk.evaluate(s, k=1, straddle=False),
    "threshold": lambda s: avgk.threshold(s, 1),
    "threshold_at": lambda s: avgk.threshold_at(s, 1),
    "average_k_sets": lambda s: avgk.average_k_sets(s, 1).compute(),
    "top_k_sets": lambda s: avgk.top_k_sets(s, 1).compute(),
    "predict_sets": lambda s: avgk.predict_sets(s, threshold=0.5).compute(),
    "straddle_strength": lambda s: avgk.straddle_strength(s, 1),
    "ranked_supports": lambda s: avgk.ranked_supports(s, [1]),
    "error_curve": lambda s: avgk.error_curve(s, LABELS),
    "smallest_k": lambda s: avgk.smallest_k(s, LABELS, max_error=0.1),
    "conformal": lambda s: avgk.conformal.calibrate(s, LABELS),
    "conformal, by class": lambda s: avgk.conformal.calibrate(s, LABELS, 0.1, "top_k", "class"),
    "conformal sets": lambda s: avgk.conformal.calibrate(SCORES, LABELS, 0.1, "top_k", "class").sets(s).compute(),
    "conformal evaluate": lambda s: avgk.conformal.calibrate(SCORES, LABELS).evaluate(s, LABELS),
    "risk": lambda s: avgk.risk(s, LABELS, 0.5),
    "best_threshold": lambda s: avgk.best_threshold(s, LABELS, cost=0.1),
    "average_set_size_at": lambda s: avgk.average_set_size_at(s, 0.5),
    "adaptive_gain": lambda s: avgk.adaptive_gain(s, 1),
    "regret": lambda s: avgk.regret(SCORES > 0.5, s),
    "plug_in_regret": lambda s: avgk.plug_in_regret(s, SCORES, 1),
}
LIES = {
    "wider": lambda b: b.astype("f8"),
    "integers": lambda b: b.astype("i4"),
    "objects": lambda b: b.astype(object),
    "fewer rows": lambda b: b[:-1],
    "no rows": lambda b: b[:0],
    "more rows": longer,
    "fewer classes": lambda b: b[:, :-1],
    "more classes": lambda b: np.concatenate([b, b[:, :1]], axis=1),
    "one dimension": lambda b: b[:, 0],
    "lists": lambda b: b.tolist(),
}


@pytest.mark.sample(25)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("lie", LIES)
def test_scores__that_are_not_as_declared_are_refused(use, lie):
    for chunks in ((20, C), (20, 3)):
        with pytest.raises((avgk.ScoresError, avgk.DtypeError), match=r"scores must"):
            USES[use](lying(SCORES, LIES[lie], chunks))


@pytest.mark.parametrize("lie", LIES)
def test_scores__that_are_not_as_declared_are_refused_by_the_pilot(lie):
    with dask.config.set({"avgk.small-scores": 0}), pytest.raises((avgk.ScoresError, avgk.DtypeError), match="scores"):
        avgk.threshold(lying(SCORES, LIES[lie], (4, C)), 1)


@pytest.mark.parametrize("lie", LIES)
def test_scores__of_another_dtype_or_shape_than_declared_are_refused_next_to_empty_blocks(lie):
    with pytest.raises((avgk.ScoresError, avgk.DtypeError), match="scores must"):
        avgk.threshold(lying(SCORES, lambda b: LIES[lie](b) if len(b) else b, ((20, 0, 40), C)), 1)


@pytest.mark.parametrize("lie", [lie for lie in LIES if lie not in ("wider", "integers")])
def test_sets__that_are_not_as_declared_are_refused(lie):
    with pytest.raises((avgk.ScoresError, avgk.DtypeError), match="sets must"):
        avgk.regret(lying(SCORES > 0.5, LIES[lie], (20, 3)), SCORES)
    with pytest.raises(avgk.ScoresError, match="sets must be bool"):
        avgk.regret(lying(SCORES > 0.5, lambda b: b.astype(int), (20, 3)), SCORES)


LABELLED = {
    "evaluate": lambda y: avgk.evaluate(SCORES, y, 1),
    "error_curve": lambda y: avgk.error_curve(SCORES, y),
    "risk": lambda y: avgk.risk(SCORES, y, 0.5),
    "best_threshold": lambda y: avgk.best_threshold(SCORES, y, cost=0.1),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("use", LABELLED)
@pytest.mark.parametrize(
    "lie, match",
    [
        (lambda b: b[:-1], r"of shape \(\d+,\), as in their metadata; got a block of shape"),
        (longer, r"of shape \(\d+,\), as in their metadata; got a block of shape"),
        (lambda b: b[:, None], r"got a block of shape \(\d+, 1\)"),
        (lambda b: SCORES[: len(b)], rf"got a block of shape \(\d+, {C}\)"),
        (lambda b: b + 0.5, "integers, as in their metadata; got a block of float64"),
        (lambda b: b.astype("f4"), "integers, as in their metadata; got a block of float32"),
        (lambda b: b.astype(str), "integers, as in their metadata; got a block of"),
        (lambda b: b > 1, "integers, as in their metadata; got a block of bool"),
    ],
)
def test_labels__that_are_not_as_declared_are_blamed_themselves(use, lie, match):
    for chunks in (20, 7, N):
        with pytest.raises(avgk.LabelsError, match=f"labels must be .*{match}"):
            LABELLED[use](lying(LABELS, lie, chunks))


@pytest.mark.parametrize("use", LABELLED)
@pytest.mark.parametrize("lie", [LIES["fewer rows"], longer, LIES["fewer classes"], lambda b: b.astype(complex)])
def test_soft_labels__that_are_not_as_declared_are_blamed_themselves(use, lie):
    for chunks in ((20, C), (20, 3)):
        with pytest.raises(avgk.LabelsError, match=r"labels must .*as in their metadata"):
            LABELLED[use](lying(SCORES, lie, chunks))


def test_labels__of_other_dtypes_that_lose_nothing_are_taken():
    expected = avgk.evaluate(SCORES, LABELS, 1).drop_attrs()
    for dtype in ("i1", "u8", ">i4"):
        given = lying(LABELS, lambda b, dtype=dtype: b.astype(dtype), 20)
        assert avgk.evaluate(SCORES, given, 1).drop_attrs().identical(expected)


def test_labels__of_unknown_length_are_refused_with_the_cure():
    lazy = da.from_array(LABELS, chunks=20)
    with pytest.raises(avgk.LabelsError, match="compute_chunk_sizes"):
        avgk.evaluate(SCORES, lazy[lazy >= 0], 1)


def sparse_kinds():
    scipy = pytest.importorskip("scipy.sparse")
    yield scipy.csr_matrix(SCORES), "toarray"
    yield scipy.coo_array(SCORES), "toarray"
    yield lying(SCORES, scipy.csr_matrix, (20, C)), "toarray"
    try:
        import sparse
    except ImportError:
        return
    yield sparse.COO(SCORES), "todense"
    yield da.from_array(SCORES, chunks=20).map_blocks(sparse.COO), "todense"
    yield lying(SCORES, sparse.COO, (20, C)), "todense"
    yield xr.DataArray(sparse.COO(SCORES), dims=("sample", "class")), "todense"


def test_sparse_matrices__are_refused_with_the_cure(tmp_path):
    for given, method in sparse_kinds():
        with pytest.raises(avgk.DtypeError, match=rf"scores must be dense; .*\.{method}\(\)"):
            avgk.evaluate(given, k=1)
        with pytest.raises(avgk.DtypeError, match=rf"scores must be dense; .*\.{method}\(\)"):
            avgk.predict_sets(given, threshold=0.5).compute()
        with pytest.raises(avgk.DtypeError, match=rf"labels must be dense; .*\.{method}\(\)"):
            avgk.evaluate(SCORES, given, 1)
        with pytest.raises(avgk.DtypeError, match=rf"sets must be dense; .*\.{method}\(\)"):
            avgk.regret(given > 0.5, SCORES)
        with avgk.ScoreWriter(tmp_path / "a.zarr", C, overwrite=True) as writer:
            writer.append(SCORES)
            with pytest.raises(avgk.DtypeError, match=rf"\.{method}\(\)"):
                writer.append(given)


def test_ragged_lists__are_refused():
    with pytest.raises(avgk.ScoresError, match="scores must be an array; got list"):
        avgk.evaluate([[0.1, 0.9], [1.0]], k=1)
    with pytest.raises(avgk.LabelsError, match="labels must be an array; got list"):
        avgk.evaluate(SCORES, [[0.1, 0.9], [1.0]], k=1)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["cat", "dog"] * 30),
        np.array(["cat", "dog"] * 30, object),
        ["cat", "dog", None] * 20,
        da.from_array(np.array(["cat", "dog"] * 30), chunks=20),
    ],
)
def test_class_names__without_names_of_classes_are_refused_with_the_cure(tmp_path, labels):
    with pytest.raises((avgk.DtypeError, avgk.LabelsError), match=r"class names.*return_inverse=True"):
        avgk.evaluate(SCORES, labels, 1)
    with (
        pytest.raises((avgk.DtypeError, avgk.LabelsError), match=r"class names.*return_inverse=True"),
        avgk.ScoreWriter(tmp_path / "a.zarr", C) as writer,
    ):
        writer.append(SCORES, labels)


def test_class_names__of_pandas_and_arrow_are_refused_with_the_cure(tmp_path):
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    names = ["cat", "dog", None] * 20
    for labels in (pd.Series(names), pd.Categorical(names), pd.Series(names, dtype="category"), pa.array(names)):
        with pytest.raises(avgk.DtypeError, match=r"class names.*return_inverse=True"):
            avgk.evaluate(SCORES, labels, 1)
    np.save(tmp_path / "labels.npy", np.array(["cat", "dog"] * 30))
    with pytest.raises(avgk.LabelsError, match=r"class names.*return_inverse=True"):
        avgk.evaluate(SCORES, tmp_path / "labels.npy", 1)


FROM_ONE = "look as if counted from 1: if so, subtract 1"


def test_labels__counted_from_one_are_refused_with_the_cause(tmp_path):
    with avgk.ScoreWriter(tmp_path / "t.zarr", C, top_m=3) as writer:
        writer.append(SCORES)
    given = LABELS + 1, np.where(LABELS == 0, -1, LABELS + 1), da.from_array(LABELS + 1, chunks=20)
    for i, labels in enumerate(given):
        for use in LABELLED.values():
            with pytest.raises(avgk.LabelsError, match=FROM_ONE):
                use(labels)
        with pytest.raises(avgk.LabelsError, match=FROM_ONE):
            avgk.evaluate(tmp_path / "t.zarr", labels, 1)
        with pytest.raises(avgk.LabelsError, match=FROM_ONE), avgk.ScoreWriter(tmp_path / f"{i}.zarr", C) as writer:
            writer.append(SCORES, labels)


@pytest.mark.sample(1)
@pytest.mark.parametrize("odd", [C + 1, 2**40])
def test_labels__that_are_only_too_large_are_not(odd):
    with_zero, beyond = np.where(LABELS == 1, C, LABELS), np.where(np.arange(N) == 50, odd, LABELS + 1)
    for labels in (with_zero, beyond, da.from_array(with_zero, chunks=7), da.from_array(beyond, chunks=7)):
        for use in LABELLED.values():
            with pytest.raises(avgk.LabelsError, match=r"0\.\.4.*belong together") as caught:
                use(labels)
            assert "from 1" not in str(caught.value)
