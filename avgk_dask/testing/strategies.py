"""Hypothesis strategies: small hostile matrices, ragged chunks, labels and budgets."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[Any]

DTYPES = (
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)


def as_dtype(name: str) -> np.dtype[Any]:
    """Give the dtype of a name of ``DTYPES``."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@st.composite
def score_matrices(
    draw: Any, dtypes: tuple[str, ...] = DTYPES, max_samples: int = 12, max_classes: int = 9, nan: bool = False
) -> Array:
    """Draw a matrix with heavy ties, both zeros, infinities and the dtype's extremes."""
    dtype = as_dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.integers(1, max_samples)), draw(st.integers(1, max_classes))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        anything: Any = st.integers(int(info.min), int(info.max))
        special: list[Any] = [0, 1, 2, 3, int(info.min), int(info.max), int(info.max) - 1]
    else:
        anything = st.floats(width=16, allow_nan=False)
        special = [0.0, -0.0, 0.5, 0.25, -1.0, 1.0, float("inf"), float("-inf"), 1e-7]
        if nan:
            special.append(float("nan"))
    pool = draw(st.lists(st.one_of(st.sampled_from(special), anything), min_size=1, max_size=8))
    values = draw(st.lists(st.sampled_from(pool), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return (
        np.array(values, dtype=object)
        .astype(np.float64 if dtype.kind not in "iu" else dtype)
        .astype(dtype)
        .reshape(shape)
    )


@st.composite
def wide_matrices(draw: Any, dtypes: tuple[str, ...] = DTYPES, max_classes: int = 300, nan: bool = False) -> Array:
    """Draw a matrix of long rows: values of a small one, mixed at random, with ties or nearly none."""
    small = draw(score_matrices(dtypes, nan=nan))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.integers(1, 6)), draw(st.integers(10, max_classes))
    wide = rng.choice(small.reshape(-1), shape)
    if draw(st.booleans()) and small.dtype.kind != "V":
        spread = rng.random(shape) * 100
        keep = rng.random(shape) < draw(st.sampled_from([0.0, 0.05, 0.7]))
        wide = np.where(keep, wide, spread.astype(small.dtype))
    return np.asarray(wide)


@st.composite
def chunkings(draw: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Draw ragged chunks of both axes."""
    return tuple(_cut(n, draw(st.sets(st.integers(1, max(n - 1, 1)), max_size=4))) for n in shape)


def _cut(n: int, places: set[int]) -> tuple[int, ...]:
    bounds = [0, *sorted(p for p in places if p < n), n]
    return tuple(b - a for a, b in itertools.pairwise(bounds))


@st.composite
def hard_labels(draw: Any, shape: tuple[int, int]) -> Array:
    """Draw a label for each sample, some of them negative: unlabelled."""
    return np.array(draw(st.lists(st.integers(-1, shape[1] - 1), min_size=shape[0], max_size=shape[0])), np.int64)


@st.composite
def soft_labels(draw: Any, shape: tuple[int, int]) -> Array:
    """Draw probabilities for each sample and class, tiny ones included."""
    one = st.one_of(st.sampled_from([0.0, 1.0, 1 / 3, 5e-324, 1e-300]), st.floats(0, 1))
    n = shape[0] * shape[1]
    return np.array(draw(st.lists(one, min_size=n, max_size=n))).reshape(shape)


@st.composite
def budgets(draw: Any, n_classes: int) -> list[Any]:
    """Draw different budgets in (0, C]: integers, and fractions of all kinds."""
    whole = st.integers(1, n_classes)
    part = st.fractions(Fraction(1, 30), n_classes, max_denominator=30)
    return list(draw(st.lists(st.one_of(whole, part), min_size=1, max_size=4, unique=True)))
