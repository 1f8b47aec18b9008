"""Errors of all budgets: ``error_curve`` for every K, and ``smallest_k``, the least budget for a target error."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import xarray as xr

from ..arrays import Ints
from ..engine.run import Run, drive
from ..errors import BudgetError, LabelsError
from ..exact.budgets import as_float
from ..exact.sums import error_of
from ..results.datasets import build_result
from ..results.text import ShownAsTable
from ..statistics.label_ranks import LabelRankSearch
from ..statistics.smallest_budget import SmallestSearch
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import certify_budgets, certify_ranks, refuse_truncated
from .inputs.labels import labelled_source, refuse_soft
from .options import BudgetLike, LabelsLike, Named, NanPolicy, PlaceLike, ScanOptions, ScoresLike, result_attrs, rounded
from .thresholds import parse_bounded, score_value

#: Up to this number of classes, one scan for all thresholds costs less than ranking every label among all scores.
_FEW_CLASSES = 128
#: Label weight inside the sets for each K.
Weights: TypeAlias = list[int] | list[Fraction]


def error_curve(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute top-K and average-K error for every K = 1..C, and their means over K. Exact, ties included.

    A label with rank r in its row is in its top-K set if K >= r. With rank R among all N C scores (ties in row-major
    order), it is in its average-K set if N K >= R.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
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
    Dataset
        Over ``k`` = 1..C, with the variables below; all NaN if no sample is labelled.
    ``top_k_error, average_k_error``
        Fraction of the labelled samples whose label is outside its set, expected with soft labels.
    ``mean_top_k_error, mean_average_k_error``
        Their means over K: (sum over K = 1..C of the error) / C.

    Raises
    ------
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores, or are missing.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: up to 128 classes that of ``evaluate`` with C budgets, usually one read. Beyond, two reads with hard labels, and
    about 20 ns per score; memory then grows with the number of distinct label scores (32 bytes each in every tally,
    of which a process holds up to some 20), and tasks hold whole rows of a band. With soft labels all C thresholds are
    searched, in a number of reads that grows with C (``attrs["reads"]``).

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> curve = avgk.error_curve(np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]]), np.array([0, 1]))
    >>> curve.top_k_error.values.tolist(), curve.average_k_error.values.tolist()
    ([0.5, 0.0, 0.0], [0.5, 0.0, 0.0])
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = labelled_source(scores, labels, "an error curve", **options.opening)
    refuse_truncated(source, "an error curve, which goes up to K = C", in_any_order=True)
    with options.run(source, "error_curve") as run:
        by_threshold = source.has_soft_labels or source.shape[1] <= _FEW_CLASSES
        n_labelled, top, average = (_curves_of_thresholds if by_threshold else _curves_of_ranks)(run)
    values: Named = {}
    for name, weights in (("top_k_error", top), ("average_k_error", average)):
        errors = [error_of(Fraction(weight), n_labelled) for weight in weights] if n_labelled else []
        values[name] = rounded(errors or [None] * len(weights))
        values[f"mean_{name}"] = float(sum(errors, Fraction(0)) / len(errors)) if errors else np.nan
    attrs = result_attrs(source, run.reads, n_labelled=n_labelled)
    return build_result(values, {"k": np.arange(1, source.shape[1] + 1)}, attrs)


def _curves_of_ranks(run: Run) -> tuple[int, Weights, Weights]:
    """Return the number of labelled samples, and of labels inside the top-K and average-K sets for each K."""
    n_samples, n_classes = run.source.shape
    search = drive(LabelRankSearch(run.source.dtype, n_classes), run)
    assert search.labels is not None
    top = np.cumsum(search.labels.rank_counts[1 : n_classes + 1]).tolist()
    first_k: Ints = -(-search.ranks() // n_samples)
    average = np.cumsum(np.bincount(first_k, minlength=n_classes + 1)[1:]).tolist()
    return search.labels.n_labelled, top, average


def _curves_of_thresholds(run: Run) -> tuple[int, Weights, Weights]:
    """Return the same, with soft labels their weight, from the thresholds of all K: one scan, if they are few."""
    n_samples, n_classes = run.source.shape
    search = find_thresholds(run, [n_samples * k for k in range(1, n_classes + 1)], n_ranks=n_classes)
    tally = search.first_tally
    assert tally is not None
    if run.source.has_soft_labels:
        top = list(accumulate(tally.weight_at_rank.fractions()))
    else:
        top = [Fraction(n) for n in np.cumsum(tally.rank_counts[1:-1]).tolist()]
    return tally.n_labelled, top, [search.selections[i].weight for i in range(n_classes)]


@dataclass(frozen=True)
class SmallestK(ShownAsTable):
    """The smallest budgets whose errors are at most a target: the result of ``smallest_k``, which ``predict_sets`` accepts.

    Attributes
    ----------
    k
        B / N, rounded up: as a budget of the same samples it means B labels in total.
    value
        lambda, the (B + 1)-th largest score, which is the ``threshold`` of that budget.
    error
        The average-k error of that budget.
    budget
        B, the number of labels.
    top_k
        The least integer K whose top-K error is at most the target.
    top_k_error
        The top-K error of that K.
    max_error
        The target, as passed.
    n_samples
        N.
    reads
        Number of reads of all scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> smallest = avgk.smallest_k(np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]]), np.array([0, 1]), max_error=0)
    >>> smallest.k, smallest.threshold, smallest.error, smallest.top_k
    (1.5, 0.3, 0.0, 2)
    """

    k: float
    value: float | int
    error: float
    budget: int
    top_k: int
    top_k_error: float
    max_error: float
    n_samples: int
    reads: int

    @property
    def threshold(self) -> float | int:
        """The threshold."""
        return self.value


def smallest_k(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    max_error: BudgetLike,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> SmallestK:
    """Find the least budget k whose average-k error is at most a target, and the least integer K of top-K.

    Exact over all budgets B / N, ties included: with B - 1 labels the error is above the target.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds
        them. By default the labels stored with the scores.
    max_error
        The target, a number from 0 to 1, parsed exactly, like budgets: 0.01 means one in a hundred.
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
    SmallestK
        With ``k, threshold, error, budget, top_k, top_k_error, max_error, n_samples`` and ``reads``.

    Raises
    ------
    BudgetError
        If no budget reaches the target (labels have NaN for their scores), or the least cannot be certain from a
        truncated store.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores, are probabilities, or no sample has one.
    OptionError
        If the target is not a number from 0 to 1.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: two reads of the store, and a third of one band; one more of a truncated store. Memory grows with the number
    of distinct label scores, 16 bytes each; tasks hold whole rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]])
    >>> smallest = avgk.smallest_k(scores, np.array([0, 1]), max_error=0.5)
    >>> smallest.k, smallest.top_k
    (0.5, 1)
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    target = parse_bounded("max_error", max_error, "Pass the error that may remain, such as 0.01.", most=1)
    source = labelled_source(scores, labels, "smallest_k", hard=True, **options.opening)
    refuse_soft(source, "smallest_k")
    with options.run(source, "smallest_k", max_error=str(target)) as run:
        search = drive(SmallestSearch(source.dtype, source.shape[1], target), run)
        assert search.labels is not None
        n_samples, n_labelled, n_hits = source.shape[0], search.labels.n_labelled, search.n_needed
        if not n_labelled:
            raise LabelsError("at least one sample must be labelled; got none. Label some samples.")
        if n_hits > search.n_reachable:
            least = 1 - Fraction(search.n_reachable, n_labelled)
            raise BudgetError(
                f"max_error must be at least {float(least):.6g}, since the scores of some labels are NaN; "
                f"got {float(target)}. Correct the scores, or pass a larger max_error."
            )
        if n_hits:
            key = search.threshold_key
        else:  # the sets are empty, and the highest score of all is the first outside
            key = find_thresholds(run.over(run.source.with_labels(None)), [0]).selections[0].key
        certify_budgets(run, [Fraction(search.n_labels, n_samples)], [key])
        top_k, n_top_hits = search.least_top()
        certify_ranks(source, top_k, "max_error")
    return SmallestK(
        k=as_float(search.n_labels, n_samples),
        value=score_value(key, source.dtype),
        error=float(1 - Fraction(n_hits, n_labelled)),
        budget=search.n_labels,
        top_k=top_k,
        top_k_error=float(1 - Fraction(n_top_hits, n_labelled)),
        max_error=float(target),
        n_samples=n_samples,
        reads=run.reads,
    )
