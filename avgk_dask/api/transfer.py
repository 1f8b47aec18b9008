"""``transfer``: thresholds found on calibration scores, and the sets above them on other scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import xarray as xr

from ..engine.run import Run
from ..errors import ScoresError
from ..exact.budgets import DEFAULT_BUDGETS, count_guaranteed, count_labels, parse_budgets
from ..exact.sums import error_of
from ..kernels.keys import first_key_above, key_range
from ..results.datasets import build_result
from ..results.registry import TRANSFERRED
from ..sources.source import Source
from ..statistics.above import AbovePlan
from ..statistics.straddle import values_of
from ..statistics.thresholds import find_and_count_sets, find_thresholds
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
from .thresholds import score_value

#: The guarantee for the size of sets on new samples.
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
    """Find thresholds on calibration scores, and the sizes and errors of their sets on other scores.

    The sets contain every score greater than the threshold, like those of ``predict_sets``. The comparison is exact,
    also between scores of different dtypes. For reference, the result also has the threshold, sizes and errors of
    ``evaluate`` on the other scores.

    Parameters
    ----------
    calibration_scores
        n x C matrix of any kind that ``scores`` may be; its labels are not needed.
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once. By default 1 to 10, or C.
    guarantee
        ``"expected"`` takes the threshold at floor((n + 1) k - C) labels instead of floor(n k). The expected set size
        of a new sample is then at most k, for any distribution, if calibration and new samples are exchangeable.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    calibration_where
        The same for the calibration scores, as ``where``.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    Dataset
        Over ``k``, with these variables; errors are NaN without a labelled sample. Its attributes name both stores,
        their numbers of samples, and how often each was read (``calibration_reads`` and ``reads``).
    ``threshold``
        lambda, the (B + 1)-th largest calibration score, B = floor(n k) or as for the guarantee; the smallest one
        if B = n C. NaN if NaN ranks lowest and there are at most B numbers: then every number is in the sets.
    ``average_set_size``
        (Number of scores > lambda) / N. It can be well below k if many scores tie with lambda.
    ``average_set_size_stderr``
        sqrt(Var(Z) (1/n + 1/N)), Z the N set sizes, their variance with N - 1: about the standard deviation of the
        average set size over draws of both sets of samples. NaN if N = 1.
    ``average_k_error``
        Fraction of the labelled samples whose label has no score > lambda; expected with soft labels.
    ``own_threshold, own_average_set_size, own_average_k_error``
        Those of ``evaluate`` on the scores, whose sets keep some ties to fill the budget.

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
    Cost: one read of each matrix for any number of budgets, each after a pilot of at most 10 % of the chunks (or 8);
    one more read if its pilot was misled, and two more of a truncated store.

    The guarantee is conformal risk control (Angelopoulos et al., 2024) with the set size as the loss. Write S(t) for
    the number of calibration scores > t, and let lambda be the (B' + 1)-th largest, B' = floor((n + 1) k - C). Then
    S(t) <= B' if and only if t >= lambda, for any number of ties with lambda, since ties are outside the sets. The set
    of a new sample has at most C labels, so that at lambda all n + 1 samples together have at most B' + C <= (n + 1) k.
    Let t* be the least t with that property for the n + 1 samples. Then t* <= lambda, and t* does not depend on which
    of them is the new one: its expected size at t*, and so at lambda, is at most k. Without ties, it is at least
    k - 2 C / (n + 1). For B' = 0, lambda is the highest calibration score. For B' < 0, that is n < C / k - 1, there is
    no such threshold.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> calibration = np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]])
    >>> result = avgk.transfer(calibration, np.array([[0.9, 0.05, 0.05], [0.5, 0.4, 0.1]]), np.array([0, 1]), k=1)
    >>> result.threshold.values.tolist(), result.average_set_size.values.tolist(), result.average_k_error.values.tolist()
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
            f"calibration_scores must have {source.n_classes} classes, like the scores; got {calibration.n_classes}. "
            "Pass scores of the same model, or of one with the same classes."
        )
    check_same_classes(scores, calibration_scores, "calibration_scores")
    budgets = parse_budgets(k, source.n_classes)
    counts = _calibration_counts(calibration, budgets, guarantee)
    with options.run(calibration, "transfer", folder="calibration") as run:
        refuse_budgets(run, [Fraction(count, calibration.shape[0]) for count in counts])
        selections = find_thresholds(run, counts).selections
        keys = [selections[i].key for i in range(len(counts))]
        certify_budgets(run, budgets, keys)
        attrs = {
            "n_calibration_samples": calibration.shape[0],
            "calibration_store": calibration.location,
            "calibration_reads": run.reads,
            "guarantee": guarantee or "none",
        }
    with options.run(source, "transfer", folder="scores") as run:
        thresholds = [score_value(key, calibration.dtype) for key in keys]
        values, n_labelled = _evaluate(run, budgets, thresholds, calibration.shape[0])
    return build_result(
        {"threshold": values_of(keys, calibration.dtype), **values},
        {"k": [float(b) for b in budgets]},
        result_attrs(source, run.reads, n_labelled=n_labelled, **attrs),
        TRANSFERRED,
    )


def _calibration_counts(source: Source, budgets: Sequence[Fraction], guarantee: str | None) -> list[int]:
    """Return the number of calibration scores that may be above each threshold."""
    n_samples, n_classes = source.shape[0], source.n_classes
    if guarantee is None:
        return [count_labels(b, n_samples) for b in budgets]
    count_guaranteed(min(budgets), n_samples, n_classes)  # refuses the budget that needs the most samples
    return [count_guaranteed(b, n_samples, n_classes) for b in budgets]


def _evaluate(
    run: Run, budgets: Sequence[Fraction], thresholds: Sequence[float | int], n_calibration: int
) -> tuple[Named, int]:
    """Return the variables of the sets above some thresholds, and the number of labelled samples. One read.

    The same read finds the scores' own thresholds for the same budgets. A threshold that is NaN has all numbers above.
    """
    source, dtype = run.source, run.source.dtype
    low, top = key_range(dtype)
    firsts = [low if t != t else min(first_key_above(t, dtype), top + 1) for t in thresholds]
    plan = AbovePlan(dtype, source.shape[1], tuple(sorted({key for key in firsts if key <= top})))
    refuse_budgets(run, budgets)
    search = find_and_count_sets(run, [count_labels(b, source.shape[0]) for b in budgets], plan)
    own = [search.search.selections[i] for i in range(len(budgets))]
    certify_budgets(run, budgets, [s.key for s in own])
    certify_thresholds(run, thresholds, firsts)
    assert search.search.first_tally is not None
    n, n_labelled = source.shape[0], search.search.first_tally.n_labelled

    def error(weight: Fraction) -> Fraction | None:
        return error_of(weight, n_labelled) if n_labelled else None

    # The total of the set sizes, that of their squares, and the label weight; 0 for a threshold above all scores.
    sums = {top + 1: (0, 0, Fraction(0))}
    for i, first in enumerate(plan.firsts):
        tally = search.tally
        sums[first] = int(tally.n_labels[i]), int(tally.squares[i]), tally.weight_from(i)
    values: Named = {
        "average_set_size": [sums[first][0] / n for first in firsts],
        "average_set_size_stderr": [_stderr(*sums[first][:2], n, n_calibration) for first in firsts],
        "average_k_error": rounded([error(sums[first][2]) for first in firsts]),
        "own_threshold": values_of([s.key for s in own], dtype),
        "own_average_set_size": [(s.n_above + s.n_kept) / n for s in own],
        "own_average_k_error": rounded([error(s.weight) for s in own]),
    }
    return values, n_labelled


def _stderr(total: int, squares: int, n: int, n_calibration: int) -> float:
    """Return sqrt(Var(Z) (1 / n_calibration + 1 / n)) of n sizes with this sum and sum of squares."""
    if n == 1:
        return math.nan
    variance = (squares - Fraction(total**2, n)) / (n - 1)
    return math.sqrt(variance * (Fraction(1, n_calibration) + Fraction(1, n)))
