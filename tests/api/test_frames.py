"""Frames of pandas, polars and Arrow, tensors of torch and sparse matrices: accepted directly, or refused with the hint."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import avgk_dask as avgk

N, C = 60, 5
RNG = np.random.default_rng(5)
SCORES = RNG.dirichlet(np.ones(C), N)
LABELS = RNG.integers(0, C, N)
NAMES = ["cat", "dog", "fox", "owl", "bee"]


def arrow():
    return pytest.importorskip("pyarrow").table(
        {**{name: SCORES[:, i] for i, name in enumerate(NAMES)}, "label": LABELS}
    )


FRAMES = {
    "pandas": lambda: pd.DataFrame(SCORES, columns=NAMES).assign(label=LABELS),
    "nullable": lambda: pd.DataFrame(SCORES, columns=NAMES).astype("Float64").assign(labels=pd.array(LABELS, "Int64")),
    "arrow": arrow,
    "polars": lambda: pytest.importorskip("polars").DataFrame(
        {**{name: SCORES[:, i] for i, name in enumerate(NAMES)}, "label": LABELS}
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames__are_scores_by_column_with_names_and_labels(kind):
    frame = FRAMES[kind]()
    assert avgk.evaluate(frame, k=[1, 2]).equals(avgk.evaluate(SCORES, LABELS, k=[1, 2]))
    assert avgk.breakdown(frame, k=1).equals(avgk.breakdown(SCORES, LABELS, k=1, names=NAMES))


def test_frames__without_names_or_labels_are_matrices():
    frame = pd.DataFrame(SCORES)
    assert avgk.evaluate(frame, pd.Series(LABELS), k=2).equals(avgk.evaluate(SCORES, LABELS, k=2))
    assert avgk.evaluate(frame, k=2).attrs["n_labelled"] == 0
    assert np.array_equal(avgk.top_k_sets(frame, 1).compute(), avgk.top_k_sets(SCORES, 1).compute())


def test_labels_given__go_before_those_of_a_frame():
    frame = FRAMES["pandas"]()
    other = (LABELS + 1) % C
    assert avgk.evaluate(frame, other, k=1).equals(avgk.evaluate(SCORES, other, k=1))


def test_frames__with_integers_among_scores_are_refused():
    frame = pd.DataFrame(SCORES, columns=NAMES).assign(target=LABELS)
    with pytest.raises(
        avgk.ScoresError, match=r"target holds integers, the others floats. Name the column .* 'labels'"
    ):
        avgk.evaluate(frame, k=1)
    with pytest.raises(avgk.ScoresError, match="must have columns of numbers; got a frame with only labels"):
        avgk.evaluate(pd.DataFrame({"labels": LABELS}), k=1)


@pytest.mark.parametrize("kind", ["pandas", "nullable", "arrow", "polars"])
def test_frames__whose_integers_become_floats_must_not_lose_digits(kind):
    def frame(value):
        columns = {"a": np.array([-1, 2**60]), "b": np.array([1, value], "u8")}
        if kind == "nullable":
            return pd.DataFrame(columns).astype({"a": "Int64", "b": "UInt64"})
        return {
            "pandas": pd.DataFrame,
            "arrow": lambda columns: pytest.importorskip("pyarrow").table(columns),
            "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
        }[kind](columns)

    assert avgk.threshold(frame(2**63), 1).value == 1.0
    with pytest.raises(
        avgk.ScoresError, match=r"cannot represent 9007199254740993 at row 1, column 1\. Cast all columns"
    ):
        avgk.threshold(frame(2**53 + 1), 1)


def test_lazy_frames__are_refused_with_the_cure():
    class LazyFrame:
        def collect(self):
            raise AssertionError

    with pytest.raises(avgk.DtypeError, match=r"got LazyFrame. Call its method collect first"):
        avgk.evaluate(LazyFrame(), k=1)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array"])
def test_sparse_matrices__are_refused_with_the_size_and_meaning_of_dense_ones(kind):
    sparse = pytest.importorskip("scipy.sparse")
    scores = getattr(sparse, kind)(SCORES.astype("f4"))
    message = rf"scores\.toarray\(\), which takes {4 * N * C:,} bytes.*Entries that are not stored become 0"
    with pytest.raises(avgk.DtypeError, match=message):
        avgk.evaluate(scores, LABELS, k=1)
    with pytest.raises(avgk.DtypeError, match=r"labels\.toarray\(\), which takes 1,200 bytes"):
        avgk.evaluate(SCORES, scores, k=1)


class Device:
    def __init__(self, kind):
        self.type = kind


class Tensor:
    """Stands for a tensor of torch that NumPy cannot read."""

    ndim, shape, dtype = 2, (N, C), "torch.float32"
    requires_grad, is_sparse, device = False, False, Device("cpu")

    def __init__(self, **kinds):
        self.__dict__.update(kinds)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert it")


Tensor.__module__ = "torch"


@pytest.mark.parametrize(
    "kinds, calls",
    [
        ({"device": Device("cuda")}, ".cpu()"),
        ({"requires_grad": True}, ".detach()"),
        ({"requires_grad": True, "device": Device("mps")}, ".detach().cpu()"),
        ({"dtype": "torch.bfloat16"}, ".float()"),
        ({"is_sparse": True}, ".to_dense()"),
        ({}, ".numpy()"),
    ],
)
def test_tensors_that_numpy_cannot_read__are_refused_with_the_cure(kinds, calls):
    with pytest.raises(avgk.ScoresError, match=r"got torch.Tensor that NumPy cannot read") as refused:
        avgk.evaluate(Tensor(**kinds), LABELS, k=1)
    assert str(refused.value).endswith(f"Pass scores{calls}.")
    with pytest.raises(avgk.LabelsError) as refused:
        avgk.evaluate(SCORES, Tensor(**kinds), k=1)
    assert str(refused.value).endswith(f"Pass labels{calls}.")


def test_tensors__are_scores_and_labels():
    torch = pytest.importorskip("torch")
    result = avgk.evaluate(torch.tensor(SCORES), torch.tensor(LABELS), k=[1, 2])
    assert result.equals(avgk.evaluate(SCORES, LABELS, k=[1, 2]))
    with pytest.raises(avgk.ScoresError, match=r"Pass scores\.detach\(\)\.$"):
        avgk.evaluate(torch.tensor(SCORES, requires_grad=True), k=1)
    with pytest.raises(avgk.ScoresError, match=r"Pass scores\.float\(\)\.$"):
        avgk.evaluate(torch.tensor(SCORES, dtype=torch.bfloat16), k=1)


def test_arrow_tables__may_have_columns_of_equal_names():
    pa = pytest.importorskip("pyarrow")
    table = pa.table([pa.array([0.5, 0.25]), pa.array([0.25, 0.75])], names=["a", "a"])
    assert float(avgk.threshold(table, 1).value) == 0.25
