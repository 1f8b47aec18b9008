"""Hypothesis strategies for small adversarial matrices, ragged chunks, labels and budgets, including boundary cases."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from ..arrays import Array, Dtype
from ..kernels.keys import decode, encode, key_range

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


def as_dtype(name: str) -> Dtype:
    """Return the dtype of a name of ``DTYPES``."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def _sizes(most: int) -> st.SearchStrategy[int]:
    """Draw a number of samples or classes; often 1 or the maximum."""
    return st.one_of(st.sampled_from([1, most]), st.integers(1, most))


@st.composite
def bin_ends(draw: st.DrawFn, dtype: Dtype, anchors: list[float]) -> list[float]:
    """Draw the last value of a bin of 2**s order keys that begins at the lowest value or an anchor, and the next value."""
    low, high = key_range(dtype)
    starts = [low, *(int(key) for key in encode(_as_array(anchors, dtype)) if key >= low)]
    last = draw(st.sampled_from(starts)) + (1 << draw(st.integers(0, (high - low).bit_length()))) - 1
    keys = [key for key in (last, last + 1) if key <= high]
    kind = int if dtype.kind in "iu" else float
    return [kind(value) for value in decode(keys, dtype)]


def _as_array(values: list[float], dtype: Dtype) -> Array:
    """Return Python numbers as an array, without an intermediate dtype that would round them."""
    exact = np.array(values, dtype=object).astype(dtype if dtype.kind in "iu" else np.float64)
    return np.asarray(exact.astype(dtype))


def _values(dtype: Dtype) -> tuple[list[float], st.SearchStrategy[float]]:
    """Return the special values of a dtype, and a strategy for all values."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        return [0, 1, 2, 3, low, high, high - 1], st.integers(low, high)
    special = [0.0, -0.0, 0.5, 0.25, -1.0, 1.0, float("inf"), float("-inf"), 1e-7]
    return special, st.floats(width=16, allow_nan=False)


@st.composite
def score_matrices(
    draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES, max_samples: int = 12, max_classes: int = 9, nan: bool = False
) -> Array:
    """Draw a matrix with many ties, both zeros, infinities, the extremes of the dtype and the ends of bins of keys."""
    dtype = as_dtype(draw(st.sampled_from(dtypes)))
    shape = draw(_sizes(max_samples)), draw(_sizes(max_classes))
    special, anything = _values(dtype)
    pool = draw(st.lists(st.one_of(st.sampled_from(special), anything), min_size=1, max_size=8))
    if draw(st.booleans()):
        pool += draw(bin_ends(dtype, pool))
    if nan and dtype.kind not in "iu" and draw(st.booleans()):
        pool += [float("nan")] * draw(st.sampled_from([1, len(pool), 3 * len(pool)]))
    values = draw(st.lists(st.sampled_from(pool), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return _as_array(values, dtype).reshape(shape)


@st.composite
def wide_matrices(
    draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES, max_classes: int = 300, nan: bool = False
) -> Array:
    """Draw a matrix of long rows with values of a small matrix, with many or few ties."""
    small = draw(score_matrices(dtypes, nan=nan))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.integers(1, 6)), draw(st.integers(10, max_classes))
    wide = rng.choice(small.reshape(-1), shape)
    if draw(st.booleans()) and small.dtype.kind != "V":
        spread = rng.random(shape) * 100
        chosen = rng.random(shape) < draw(st.sampled_from([0.0, 0.05, 0.7]))
        wide = np.where(chosen, wide, spread.astype(small.dtype))
    return np.asarray(wide)


@st.composite
def chunkings(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Draw ragged chunks along each axis."""
    return tuple(_split(n, draw(st.sets(st.integers(1, max(n - 1, 1)), max_size=4))) for n in shape)


def _split(n: int, bounds_inside: set[int]) -> tuple[int, ...]:
    bounds = [0, *sorted(b for b in bounds_inside if b < n), n]
    return tuple(b - a for a, b in itertools.pairwise(bounds))


@st.composite
def hard_labels(draw: st.DrawFn, shape: tuple[int, int]) -> Array:
    """Draw a label for each sample, some of them negative: unlabelled."""
    return np.array(draw(st.lists(st.integers(-1, shape[1] - 1), min_size=shape[0], max_size=shape[0])), np.int64)


@st.composite
def soft_labels(draw: st.DrawFn, shape: tuple[int, int]) -> Array:
    """Draw probabilities for each sample and class, including tiny ones; rows sum to 1 up to rounding."""
    one = st.one_of(st.sampled_from([0.0, 1.0, 0.1, 1 / 3, 5e-324, 1e-300]), st.floats(0, 1))
    n = shape[0] * shape[1]
    drawn = np.array(draw(st.lists(one, min_size=n, max_size=n))).reshape(shape)
    drawn[drawn.sum(1) < 1, 0] = 1.0
    return np.asarray(drawn / drawn.sum(1, keepdims=True))


@st.composite
def budgets(draw: st.DrawFn, n_classes: int, scores: Array | None = None) -> list[int | Fraction]:
    """Draw different budgets in (0, C]: integers, C and C/2, fractions, and those at which the sets of ``scores`` change."""
    ends = sorted({Fraction(n_classes), max(Fraction(n_classes, 2), Fraction(1)), Fraction(max(1, n_classes - 1))})
    integers = st.integers(1, n_classes)
    fractions = st.fractions(Fraction(1, 30), n_classes, max_denominator=30)
    kinds: list[st.SearchStrategy[int | Fraction]] = [integers, fractions, st.sampled_from(ends)]
    if scores is not None:
        kinds.append(_boundaries(scores))
    return list(draw(st.lists(st.one_of(kinds), min_size=1, max_size=4, unique=True)))


@st.composite
def _boundaries(draw: st.DrawFn, scores: Array) -> Fraction:
    """Draw a budget at a boundary: B = 0, 1, N C, the number of scores that are not NaN, or the rank of some score."""
    n_samples, numbers = len(scores), scores[scores == scores]
    n_real = numbers.size
    counts = [0, 1, scores.size - 1, scores.size, n_real, n_real, n_real - 1, n_real + 1]
    if n_real:
        one = numbers[draw(st.integers(0, n_real - 1))]
        counts += [int((numbers > one).sum()), int((numbers >= one).sum())]
    count = draw(st.sampled_from([n for n in counts if 0 <= n <= scores.size]))
    return Fraction(count, n_samples) if count else Fraction(1, n_samples + 1)
