"""``risk``, the error plus the cost of labels at given thresholds, and ``best_threshold``, which minimises it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import xarray as xr

from ..errors import OptionError
from ..exact.budgets import parse_budget
from ..results.datasets import build_result
from ..results.registry import AT_THRESHOLDS
from ..results.text import ShownAsTable
from ..statistics.label_ranks import least_risk
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import certify_least_risk
from .inputs.labels import labelled_source
from .options import (
    BudgetLike,
    LabelsLike,
    NanPolicy,
    PlaceLike,
    ScanOptions,
    ScoresLike,
    ThresholdsLike,
    result_attrs,
    rounded,
)
from .thresholds import count_above, parse_bounded, parse_thresholds, score_value


def risk(
    scores: ScoresLike,
    labels: LabelsLike = None,
    thresholds: ThresholdsLike | None = None,
    *,
    cost: BudgetLike | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute the risk of the sets {score > t}: their error plus the cost of a label times their average size.

    risk(t) = error(t) + cost * average_set_size(t). This is class-selective rejection (Ha, 1997): every label in
    a set costs ``cost``, and a missed label costs 1. Exact, rounded once; thresholds are not rounded to the scores'
    dtype.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    thresholds
        Number or sequence of numbers, or a result of ``threshold``, ``best_threshold`` or ``evaluate``.
    cost
        Cost of a label, at least 0; a float is read as the decimal that Python prints for it. By default the cost
        equals the threshold (of any sign): if the scores are the true probabilities, the best threshold for a cost is
        the cost itself. The risks of different thresholds are then not comparable, because their costs differ.
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
        Over ``threshold``, in the order of the argument; scalar for a single number.
    ``error``
        Fraction of the labelled samples whose label scores at most t; with soft labels, the expected fraction.
    ``average_set_size``
        (Number of scores > t) / N.
    ``risk``
        error + cost * average_set_size; NaN without a labelled sample.

    Raises
    ------
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores, or are missing.
    OptionError
        If a threshold is not a number, or the cost is negative.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store for any number of thresholds. Tasks hold whole rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> risks = avgk.risk(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 2]), [0.15, 0.35], cost=0.1)
    >>> risks.risk.values.tolist()
    [0.25, 0.65]
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = labelled_source(scores, labels, "a risk", **options.opening)
    if thresholds is None:
        raise OptionError(
            "thresholds must be a number or a sequence of numbers; got None. Pass the thresholds of the sets."
        )
    numbers, is_sequence = parse_thresholds(thresholds)
    if cost is None:
        costs = [parse_budget(t) if math.isfinite(t) else None for t in numbers]
    else:
        costs = [_parse_cost(cost)] * len(numbers)
    with options.run(source, "risk") as run:
        sizes, errors = count_above(run, numbers)
    risks = [None if e is None or c is None else e + c * s for e, c, s in zip(errors, costs, sizes, strict=True)]
    values = {"error": rounded(errors), "average_set_size": rounded(sizes), "risk": rounded(risks)}
    coords = {"threshold": np.array([float(t) for t in numbers])}
    result = build_result(values, coords, result_attrs(source, run.reads), AT_THRESHOLDS)
    return result if is_sequence else result.isel(threshold=0)


@dataclass(frozen=True)
class BestThreshold(ShownAsTable):
    """The threshold of least risk: the result of ``best_threshold``, which ``predict_sets`` accepts.

    Attributes
    ----------
    value
        The threshold t: the sets are {score > t}. -inf if they contain all scores.
    risk
        error + cost * average_set_size.
    error
        Fraction of the labelled samples whose label is outside its set; with soft labels, the expected fraction.
    average_set_size
        (Number of scores > t) / N.
    cost
        The cost of a label, as passed.
    reads
        Number of reads of all scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> best = avgk.best_threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 2]), cost=0.3)
    >>> best.value, best.error, best.average_set_size, best.risk
    (0.4, 0.5, 0.5, 0.65)
    """

    value: float | int
    risk: float
    error: float
    average_set_size: float
    cost: float
    reads: int


def best_threshold(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    cost: BudgetLike,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> BestThreshold:
    """Find the threshold whose sets {score > t} have the least risk, error + cost * average set size, over all t.

    Exact: no other threshold has a lower risk on these data. If the scores are the true probabilities, the cost itself
    is a best threshold; for estimated scores it usually is not. If several sets have the least risk, the smallest sets
    win. The lowest threshold with these sets is returned, as in ``threshold``: the highest score outside the sets,
    or -inf if all scores are inside.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    cost
        Cost of a label in a set, where a missed label costs 1: a finite number of at least 0. It is parsed exactly,
        like budgets.
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
    BestThreshold
        With ``value, risk, error, average_set_size, cost`` and ``reads``.

    Raises
    ------
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores, or no sample is labelled.
    OptionError
        If the cost is not a finite number of at least 0.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: usually three to five reads; more if very many thresholds have nearly the same risk. The first read counts the
    scores in up to 262,144 bins, later ones only within the bins that may contain the best threshold. Tasks hold whole
    rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> best = avgk.best_threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 2]), cost=0.1)
    >>> best.risk, best.average_set_size
    (0.25, 2.5)
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = labelled_source(scores, labels, "a risk", **options.opening)
    exact = _parse_cost(cost)
    with options.run(source, "best_threshold") as run:
        best = least_risk(run, exact).best
        certify_least_risk(run, best, exact)
        value: float | int = -math.inf
        if best.n_labels < source.shape[0] * source.n_classes:  # the highest score outside the sets
            search = find_thresholds(run.over(run.source.with_labels(None)), [best.n_labels])
            value = score_value(search.selections[0].key, source.dtype)
    size = Fraction(best.n_labels, source.shape[0])
    return BestThreshold(value, float(best.risk), float(best.error), float(size), float(exact), run.reads)


def _parse_cost(cost: BudgetLike) -> Fraction:
    return parse_bounded("cost", cost, "Pass the cost of a label relative to a missed label.")
