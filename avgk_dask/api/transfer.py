"""``transfer``: thresholds found on calibration scores, and the sets above them on other scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import xarray as xr

from ..arrays import Dtype
from ..engine.run import Run
from ..errors import ScoresError
from ..exact.budgets import DEFAULT_BUDGETS, count_guaranteed, count_labels, parse_budgets
from ..exact.sums import error_of
from ..kernels.keys import first_key_above, key_range
from ..results.datasets import build_result
from ..results.registry import TRANSFERRED
from ..sources.source import Source
from ..statistics.above import AbovePlan, BesideSearch
from ..statistics.thresholds import find_beside, find_thresholds
from ..statistics.truncated import certify_budgets, certify_thresholds, refuse_budgets
from .inputs.names import check_same_classes, open_once
from .inputs.sources import as_source
from .options import (
    BudgetsLike,
    LabelsLike,
    Missing,
    Named,
    NanPolicy,
    PlaceLike,
    ScanOptions,
    ScoresLike,
    check_word,
    result_attrs,
    rounded,
)
from .thresholds import score_value, threshold_values

#: What is promised of the thresholds' sets on new samples.
Guarantee = Literal["expected", None]


def transfer(
    calibration_scores: ScoresLike,
    scores: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetsLike = DEFAULT_BUDGETS,
    *,
    guarantee: Guarantee = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    calibration_where: LabelsLike = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
    missing: Missing | None = None,
) -> xr.Dataset:
    """Find thresholds on calibration scores, and what sizes and errors their sets have on other scores.

    The sets hold every score greater than the threshold, as ``predict_sets`` gives them. The comparison is exact, also
    between scores of different dtypes. The result also gives the numbers of the threshold found on the other
    scores themselves.

    Parameters
    ----------
    calibration_scores
        n x C matrix, of any kind that ``scores`` may be; no labels of it are needed.
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once. By default 1 to 10, or C.
    guarantee
        ``"expected"`` takes the threshold at floor((n + 1) k - C) labels instead of floor(n k): then the expected size
        of the set of a new sample is at most k, whatever the distribution, where calibration and new samples are
        exchangeable.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    calibration_where
        The same for the calibration scores, as ``where``.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a run that is repeated there reads only what is missing.
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    Dataset
        Over ``k``, with these variables; errors are NaN without a labelled sample. Its attributes name both stores, how
        many samples each has, and how often each was read (``calibration_reads`` and ``reads``).
    ``threshold``
        lambda, the (B + 1)-th largest calibration score, B = floor(n k) or as the guarantee says; the smallest one
        where B = n C. NaN where NaN ranks lowest and the numbers run out: then every number is in the sets.
    ``average_set_size``
        (Number of scores > lambda) / N. With ties at lambda it can be well below k, and 0 where none is above.
    ``average_set_size_stderr``
        sqrt(Var(Z) (1/n + 1/N)), Z the N set sizes, their variance with N - 1: the standard deviation that the
        average set size has over draws of both sets of samples, about. NaN where N = 1.
    ``average_k_error``
        Fraction of the labelled samples whose label has no score > lambda; expected with soft labels.
    ``own_threshold, own_average_set_size, own_average_k_error``
        Those of ``evaluate`` on the scores themselves, whose sets keep some ties to fill the budget.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C], is too small to be guaranteed from the calibration samples (the error
        says how many are needed), or cannot be certain from a truncated store.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores.
    OptionError
        If an option is not one of the values it may take, or a threshold cannot be certain on truncated scores.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of each matrix for any number of budgets, and a pilot of at most 10 % of the chunks (or 8) before
    each; one more of one where its pilot was misled, and two more of a truncated store.

    The guarantee is conformal risk control (Angelopoulos et al., 2024) with the set size as the loss. Write S(t) for
    the number of calibration scores > t, and let lambda be the (B' + 1)-th largest, B' = floor((n + 1) k - C). Then
    S(t) <= B' if and only if t >= lambda, however many scores tie with lambda, since ties are out of the sets. The set
    of a new sample has at most C labels, so that at lambda all n + 1 samples together have at most B' + C <= (n + 1) k.
    Let t* be the least t with that property for the n + 1 samples. Then t* <= lambda, and t* does not depend on which
    of them is the new one: its expected size at t*, and so at lambda, is at most k. Where scores do not tie, it is at
    least k - 2 C / (n + 1). With B' = 0 lambda is the highest calibration score. Below that, for n < C / k - 1, there
    is no such threshold.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> calibration = np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]])
    >>> found = avgk.transfer(calibration, np.array([[0.9, 0.05, 0.05], [0.5, 0.4, 0.1]]), np.array([0, 1]), k=1)
    >>> found.threshold.values.tolist(), found.average_set_size.values.tolist(), found.average_k_error.values.tolist()
    ([0.35], [1.5], [0.0])

    """
    check_word("guarantee", guarantee, Guarantee, "Leave it out for none.")
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint,
        missing=missing,
    )  # fmt: skip
    calibration_scores, scores = open_once(calibration_scores, missing), open_once(scores, missing)
    calibration = as_source(calibration_scores, own_labels=False, missing=missing, where=calibration_where)
    source = as_source(scores, labels, **options.opening)
    if calibration.n_classes != source.n_classes:
        raise ScoresError(
            f"calibration_scores must have the classes of the scores, {source.n_classes}; got {calibration.n_classes}. "
            "Give scores of the same model, or of one with the same classes."
        )
    check_same_classes(scores, calibration_scores, "calibration_scores")
    budgets = parse_budgets(k, source.n_classes)
    counts = _calibration_counts(calibration, budgets, guarantee)
    with options.run(calibration, "transfer", folder="calibration") as run:
        known = _Known.find(run, budgets, counts)
    with options.run(source, "transfer", folder="scores") as run:
        found = _Transferred.find(run, budgets, known)
    attrs = {
        "n_calibration_samples": calibration.shape[0],
        "calibration_store": calibration.location,
        "calibration_reads": known.reads,
        "guarantee": guarantee or "none",
    }
    return build_result(
        {"threshold": threshold_values(known.values, calibration.dtype), **found.values(calibration.shape[0])},
        {"k": [float(b) for b in budgets]},
        result_attrs(source, run.reads, n_labelled=found.n_labelled, **attrs),
        TRANSFERRED,
    )


def _calibration_counts(source: Source, budgets: Sequence[Fraction], guarantee: str | None) -> list[int]:
    """Return how many of the calibration scores may be above each threshold."""
    n_samples, n_classes = source.shape[0], source.n_classes
    if guarantee is None:
        return [count_labels(b, n_samples) for b in budgets]
    count_guaranteed(min(budgets), n_samples, n_classes)  # needs the most samples: an error tells of those
    return [count_guaranteed(b, n_samples, n_classes) for b in budgets]


@dataclass(frozen=True)
class _Known:
    """The thresholds of the calibration scores; NaN where all numbers are above."""

    values: list[float | int]
    reads: int

    @classmethod
    def find(cls, run: Run, budgets: Sequence[Fraction], counts: Sequence[int]) -> _Known:
        """Find the thresholds with at most these counts of scores above them. One read."""
        source = run.source
        refuse_budgets(run, [Fraction(count, source.shape[0]) for count in counts])
        search = find_thresholds(run, counts)
        keys = [search.found[i].key for i in range(len(counts))]
        certify_budgets(run, budgets, keys)
        return cls([score_value(key, source.dtype) for key in keys], run.reads)

    def first_keys(self, dtype: Dtype) -> list[int]:
        """Return the first key above each threshold among scores of a dtype; one past the highest if there is none."""
        low, top = key_range(dtype)
        return [low if t != t else min(first_key_above(t, dtype), top + 1) for t in self.values]


@dataclass(frozen=True)
class _Transferred:
    """What the sets above known first keys are on other scores, and those of their own thresholds."""

    source: Source
    firsts: list[int]
    above: AbovePlan
    search: BesideSearch

    @classmethod
    def find(cls, run: Run, budgets: Sequence[Fraction], known: _Known) -> _Transferred:
        """Count the sets, and search the own thresholds of the same budgets. One read."""
        source = run.source
        firsts, top = known.first_keys(source.dtype), key_range(source.dtype)[1]
        above = AbovePlan(source.dtype, source.shape[1], tuple(sorted({key for key in firsts if key <= top})))
        refuse_budgets(run, budgets)
        search = find_beside(run, [count_labels(b, source.shape[0]) for b in budgets], above)
        certify_budgets(run, budgets, [search.search.found[i].key for i in range(len(budgets))])
        certify_thresholds(run, known.values, firsts)
        return cls(source, firsts, above, search)

    @property
    def n_labelled(self) -> int:
        """Number of labelled samples."""
        assert self.search.search.first_tally is not None
        return self.search.search.first_tally.n_labelled

    def values(self, n_calibration: int) -> Named:
        """Return the variables of the result, all but the thresholds that were known."""
        n = self.source.shape[0]
        sizes = [self._sizes(first) for first in self.firsts]
        own = [self.search.search.found[i] for i in range(len(self.firsts))]
        return {
            "average_set_size": [total / n for total, _ in sizes],
            "average_set_size_stderr": [_stderr(*both, n, n_calibration) for both in sizes],
            "average_k_error": rounded([self._error(self._weight(first)) for first in self.firsts]),
            "own_threshold": threshold_values([score_value(s.key, self.source.dtype) for s in own], self.source.dtype),
            "own_average_set_size": [(s.n_above + s.n_kept) / n for s in own],
            "own_average_k_error": rounded([self._error(s.weight) for s in own]),
        }

    def _sizes(self, first: int) -> tuple[int, int]:
        """Return the sum of the set sizes, and that of their squares."""
        if first not in self.above.firsts:
            return 0, 0
        number, tally = self.above.firsts.index(first), self.search.tally
        return int(tally.n_labels[number]), int(tally.squares[number])

    def _weight(self, first: int) -> Fraction:
        if first not in self.above.firsts:
            return Fraction(0)
        return self.search.tally.weight_from(self.above.firsts.index(first))

    def _error(self, weight: Fraction) -> Fraction | None:
        return error_of(weight, self.n_labelled) if self.n_labelled else None


def _stderr(total: int, squares: int, n: int, n_calibration: int) -> float:
    """Return sqrt(Var(Z) (1 / n_calibration + 1 / n)) of n sizes with this sum and sum of squares."""
    if n == 1:
        return math.nan
    variance = (squares - Fraction(total**2, n)) / (n - 1)
    return math.sqrt(variance * (Fraction(1, n_calibration) + Fraction(1, n)))
