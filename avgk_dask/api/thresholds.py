"""Thresholds: ``threshold`` of a budget, ``threshold_at`` of a set size, and ``average_set_size_at`` of a threshold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import SupportsFloat, TypedDict, Unpack, overload

import numpy as np
import xarray as xr

from ..arrays import Dtype
from ..engine.run import Run
from ..engine.ties import Selection
from ..errors import BudgetError, OptionError
from ..exact.budgets import count_labels, is_scalar, parse_budget, parse_budgets
from ..exact.sums import error_of
from ..kernels.keys import decode, first_key_above, key_range
from ..masks import refuse_masked
from ..results.datasets import build_result
from ..results.registry import AT_SIZES, AT_THRESHOLDS
from ..results.text import ShownAsTable
from ..statistics.label_ranks import EdgeTally, edge_pass
from ..statistics.straddle import values_of
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import certify_budgets, certify_thresholds, refuse_budgets
from .inputs.sources import as_source
from .options import (
    BudgetLike,
    BudgetsLike,
    LabelsLike,
    NanPolicy,
    PlaceLike,
    ScanOptions,
    ScoresLike,
    ThresholdsLike,
    are_several,
    result_attrs,
    rounded,
)


@dataclass(frozen=True)
class Threshold(ShownAsTable):
    """The threshold of one budget: the result of ``threshold``, which ``predict_sets`` accepts.

    Attributes
    ----------
    value
        lambda, the (B + 1)-th largest score; an int if the scores are integers.
    n_above
        Number of scores > lambda.
    n_ties
        Number of scores == lambda.
    n_kept
        B - n_above, the number of ties in the sets: the first ones in row-major order.
    budget
        B = floor(N k), the total number of labels in the sets.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> threshold = avgk.threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1)
    >>> threshold.value, threshold.n_above, threshold.n_ties, threshold.n_kept
    (0.4, 1, 2, 1)
    """

    value: float | int
    n_above: int
    n_ties: int
    n_kept: int
    budget: int


class _Keywords(TypedDict, total=False):
    where: LabelsLike
    ignore_index: int | None
    nan_policy: NanPolicy
    progress: bool | None
    checkpoint: PlaceLike


@overload
def threshold(scores: ScoresLike, k: float | Decimal | Fraction | str, **options: Unpack[_Keywords]) -> Threshold: ...
@overload
def threshold(
    scores: ScoresLike, k: Iterable[float | Decimal | Fraction], **options: Unpack[_Keywords]
) -> xr.Dataset: ...
@overload
def threshold(scores: ScoresLike, k: BudgetsLike, **options: Unpack[_Keywords]) -> Threshold | xr.Dataset: ...
def threshold(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> Threshold | xr.Dataset:
    """Find the threshold lambda whose sets {score > lambda}, with kept ties, contain floor(N k) labels.

    lambda is the (B + 1)-th largest of all N C scores, B = floor(N k) in exact arithmetic (0.1 means one tenth);
    the smallest score if B = N C. Exact for every dtype and any number of ties, and the same for any chunking.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    Threshold
        For one budget.
    Dataset
        For a sequence, over ``k``: ``threshold, n_above, n_ties, n_kept, average_set_size`` as in ``evaluate``.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C], or cannot be certain from a truncated store.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store for any number of budgets, after a pilot of at most 10 % of the chunks (or 8); one more
    if the pilot was misled, and one more of a truncated store. A task takes the memory of a few chunks.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1.5)
    Threshold(value=0.3, n_above=3, n_ties=1, n_kept=0, budget=3)
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = as_source(scores, own_labels=False, **options.opening)
    budgets = parse_budgets(k, source.n_classes)
    with options.run(source, "threshold") as run:
        selections = find_selections(run, budgets)
    if is_scalar(k):
        (s,) = selections
        return Threshold(score_value(s.key, source.dtype), s.n_above, s.n_ties, s.n_kept, s.budget)
    values = {
        "threshold": values_of([s.key for s in selections], source.dtype),
        "n_above": [s.n_above for s in selections],
        "n_ties": [s.n_ties for s in selections],
        "n_kept": [s.n_kept for s in selections],
        "average_set_size": [(s.n_above + s.n_kept) / source.shape[0] for s in selections],
    }
    return build_result(values, {"k": [float(b) for b in budgets]}, result_attrs(source, run.reads))


def find_selections(run: Run, budgets: Sequence[Fraction]) -> list[Selection]:
    """Find the selection of each budget, and refuse budgets that a truncated store leaves uncertain."""
    refuse_budgets(run, budgets)
    search = find_thresholds(run, [count_labels(b, run.source.shape[0]) for b in budgets])
    selections = [search.selections[i] for i in range(len(budgets))]
    certify_budgets(run, budgets, [s.key for s in selections])
    return selections


def score_value(key: int, dtype: Dtype) -> float | int:
    """Return the score of a key as a Python number."""
    value = decode([key], dtype)[0]
    return int(value) if dtype.kind in "iu" else float(value)


def count_above(run: Run, thresholds: list[Real]) -> tuple[list[Fraction], list[Fraction | None]]:
    """Return the average size of the sets {score > t} for each threshold, and their errors (None without labels).

    One read.
    """
    source = run.source
    top = key_range(source.dtype)[1]
    firsts = [min(first_key_above(t, source.dtype), top + 1) for t in thresholds]
    certify_thresholds(run, thresholds, firsts)
    edges = np.array(sorted({key for key in firsts if key <= top} or {top}), np.int64)
    tally = run.read(edge_pass(source.dtype, source.shape[1], edges))
    # Scores and label weight at or above each edge, and 0 beyond the last.
    counts, weights = [*tally.n_from().tolist(), 0], [*_weights_from(tally), Fraction(0)]
    index = [int(np.searchsorted(edges, key)) if key <= top else edges.size for key in firsts]
    errors = [error_of(weights[i], tally.n_labelled) if tally.n_labelled else None for i in index]
    return [Fraction(counts[i], source.shape[0]) for i in index], errors


def _weights_from(tally: EdgeTally) -> list[Fraction]:
    """Return the label weight at or above each edge."""
    if not len(tally.weights):
        return [Fraction(n) for n in tally.hits_from().tolist()]
    weights, unit = tally.weights.integers()
    from_top = np.cumsum(weights[::-1])[::-1][1::2]
    return [Fraction(int(weight), unit) for weight in from_top]


def parse_thresholds(thresholds: ThresholdsLike) -> tuple[list[Real], bool]:
    """Return thresholds as a list of numbers, and whether they are a sequence rather than a single number.

    They may be lazy, or a result of ``threshold``, ``best_threshold`` or ``evaluate``.
    """
    if isinstance(thresholds, xr.Dataset):
        if "threshold" not in thresholds:
            raise OptionError(
                "thresholds must be numbers, or a result with thresholds; got a Dataset without the variable threshold. "
                "Pass the result of threshold or evaluate."
            )
        thresholds = thresholds["threshold"]
    values = thresholds.compute() if hasattr(thresholds, "compute") else thresholds
    refuse_masked(values, "thresholds")
    numbers: list[Real] = []
    for t in list(values) if are_several(values) else [values]:
        value = getattr(t, "value", t)
        number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
        if isinstance(number, bool) or not isinstance(number, Real) or not fits_a_float(number):
            raise OptionError(f"thresholds must be numbers; got {number!r}. Pass integers or floats.")
        numbers.append(number)
    if not numbers:
        raise OptionError(
            "thresholds must contain at least one number; got an empty sequence. Pass a number or several."
        )
    return numbers, are_several(values)


def parse_threshold(threshold: ThresholdsLike) -> Real:
    """Return one threshold as a number, also from a sequence or a result that has only one."""
    try:
        numbers, _ = parse_thresholds(threshold)
    except OptionError as error:
        value = getattr(threshold, "value", threshold)
        got = value if isinstance(value, (float, np.floating)) else type(threshold).__name__
        raise OptionError(
            "threshold must be a number, or a result of threshold, best_threshold or evaluate for one k; "
            f"got {got}. Pass one number."
        ) from error
    if len(numbers) > 1:
        raise OptionError(
            f"threshold must be a single number; got {len(numbers)} numbers. Pass one, for example "
            "result.threshold.sel(k=5)."
        )
    return numbers[0]


def fits_a_float(value: SupportsFloat) -> bool:
    """Return whether a number is not NaN, and not too large for a double."""
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def parse_bounded(name: str, value: BudgetLike, hint: str, most: float = math.inf) -> Fraction:
    """Return a number from 0 to ``most`` as an exact fraction, parsed like a budget."""
    try:
        number = parse_budget(value)
    except BudgetError:
        number = Fraction(-1)
    if not 0 <= number <= most or not fits_a_float(number):
        rule = "a finite number of at least 0" if most == math.inf else f"a number from 0 to {most}"
        raise OptionError(f"{name} must be {rule}; got {value!r}. {hint}")
    return number


def average_set_size_at(
    scores: ScoresLike,
    thresholds: ThresholdsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.DataArray:
    """Compute the average size of the sets {score > t} for each threshold t: the paper's function G.

    G(t) = (number of scores > t) / N. Exact: thresholds are not rounded to the scores' dtype. ``threshold_at`` is
    its generalised inverse: G(t) <= K if and only if t >= threshold_at(K), for 0 <= K < C.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    thresholds
        Number or sequence of numbers, or a result of ``threshold``, ``best_threshold`` or ``evaluate``.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    DataArray
        G over ``threshold``, in the order of the argument; without dimension for a single number.

    Raises
    ------
    OptionError
        If a threshold is not a number.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store for any number of thresholds. Tasks hold whole rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.average_set_size_at(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), [0.1, 0.35]).values.tolist()
    [2.5, 1.5]
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = as_source(scores, own_labels=False, **options.opening)
    numbers, is_sequence = parse_thresholds(thresholds)
    with options.run(source, "average_set_size_at") as run:
        sizes, _ = count_above(run, numbers)
    values, coords = {"average_set_size": rounded(sizes)}, {"threshold": np.array([float(t) for t in numbers])}
    result = build_result(values, coords, {}, AT_THRESHOLDS)["average_set_size"]
    result = result.assign_attrs(result_attrs(source, run.reads))
    return result if is_sequence else result[0]


def threshold_at(
    scores: ScoresLike,
    average_set_sizes: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.DataArray:
    """Return, for each average set size K >= 0, the least t with average_set_size_at(t) <= K.

    This is the generalised inverse of the paper's function G: the (floor(N K) + 1)-th largest score, as
    ``threshold`` finds it. For K >= C, where every t qualifies, it is the smallest score.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    average_set_sizes
        Number or sequence of numbers of at least 0, parsed exactly, like budgets.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    DataArray
        Thresholds over ``average_set_size``, in the order of the argument; without dimension for a single number.

    Raises
    ------
    BudgetError
        If a size is negative or not finite.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: the same as ``threshold``, for any number of sizes.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold_at(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), [0, 1, 1.4]).values.tolist()
    [0.6, 0.4, 0.4]
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = as_source(scores, own_labels=False, **options.opening)
    refuse_masked(average_set_sizes, "average_set_sizes")
    values = list(average_set_sizes) if are_several(average_set_sizes) else [average_set_sizes]
    try:
        sizes = [parse_budget(size) for size in values]
    except BudgetError:
        sizes = []
    if not sizes or min(sizes) < 0:
        raise BudgetError(
            f"average_set_sizes must be finite numbers of at least 0; got {average_set_sizes!r}. Pass a mean number of labels per sample."
        )
    budgets = [min(size, Fraction(source.n_classes)) for size in sizes]
    with options.run(source, "threshold_at") as run:
        keys = [s.key for s in find_selections(run, budgets)]
    coords = {"average_set_size": [float(size) for size in sizes]}
    result = build_result({"threshold": values_of(keys, source.dtype)}, coords, {}, AT_SIZES)["threshold"]
    result = result.assign_attrs(result_attrs(source, run.reads))
    return result if are_several(average_set_sizes) else result[0]
