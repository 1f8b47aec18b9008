"""Calibration errors: of the highest scores, and of those at the threshold."""

from __future__ import annotations

import math
from fractions import Fraction

import xarray as xr

from ...arrays import whole_number
from ...engine.run import Run, running
from ...errors import BudgetError, OptionError
from ...exact.budgets import count_labels, parse_budget, parse_one
from ...results.datasets import build_result
from ...results.registry import CALIBRATION, NEAR_THRESHOLD
from ...statistics.losses import BinPlan, BinTally, bin_pass
from ...statistics.thresholds import find_thresholds
from ..inputs.labels import check_no_nan_policy, probabilities, refuse_scores
from ..options import BudgetLike, LabelsLike, PlaceLike, ScoresLike, asked_checkpoint, check_flag, result_attrs, rounded
from ..thresholds import score_value


def expected_calibration_error(
    scores: ScoresLike,
    labels: LabelsLike = None,
    n_bins: int = 15,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute the expected calibration error of each sample's highest score, with its table.

    Samples are put in bins of equal width by their highest score, the confidence; of equal ones the first class counts.
    The error is the mean over samples of abs(accuracy - confidence) of their bin.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    n_bins
        Number of bins: [0, 1/n), [1/n, 2/n), ..., the last one closed.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a run that is repeated there reads only what is missing.

    Returns
    -------
    Dataset
        Over ``bin``; the attribute ``n_labelled`` is the number of samples.
    ``expected_calibration_error``
        Without dimension. Exact, rounded once; NaN without a labelled sample.
    ``bin_low, bin_high``
        The edges of the bins.
    ``count``
        Number of labelled samples in the bin.
    ``confidence``
        Their mean highest score.
    ``accuracy``
        Fraction of them whose label has that score, expected with soft labels.

    Raises
    ------
    ScoresError, DtypeError
        If the scores are not probabilities in [0, 1], contain NaN, or a row of logits has an infinite maximum.
    LabelsError
        If the labels do not fit the scores, or there are none.
    OptionError
        Where the number of bins is none of at least 1.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store. Which bin a score is in is decided exactly; sums are exact.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.losses.expected_calibration_error(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0, 0]), n_bins=2)
    >>> float(found.expected_calibration_error), found["count"].values.tolist(), found.accuracy.values.tolist()
    (0.25, [0, 2], [nan, 0.5])

    """
    check_no_nan_policy(nan_policy)
    check_flag("progress", progress, or_none=True)
    exact = [Fraction(i, n_bins) for i in range(_check_bins(n_bins) + 1)]
    source = probabilities(scores, labels, "a calibration error", where, ignore_index)
    edges = tuple(_least_float_from(edge) for edge in exact)
    plan = BinPlan(source.dtype, source.shape[1], edges, only_tops=True)
    asked = asked_checkpoint(checkpoint, "expected_calibration_error", nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        tally: BinTally = run.read(bin_pass(plan))
        refuse_scores(tally, run.source, "")
    gaps = [abs(w - s) for w, s in zip(tally.weights.fractions(), tally.sums.fractions(), strict=True)]
    error = sum(gaps, Fraction(0)) / tally.n_labelled if tally.n_labelled else None
    values = {"expected_calibration_error": rounded([error])[0], **_bin_columns(tally, [float(edge) for edge in exact])}
    attrs = result_attrs(run.source, run.reads, n_labelled=tally.n_labelled)
    return build_result(values, {"bin": list(range(n_bins))}, attrs, CALIBRATION)


def calibration_at_threshold(
    scores: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetLike | None = None,
    *,
    window: BudgetLike = 0.1,
    n_bins: int = 4,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compare the scores near the average-k threshold with how often they are the label.

    Average-k sets need no calibration elsewhere: which scores are far above the threshold or far below it does not hang on their
    values. The scores with ranks from N k (1 - window) to N k (1 + window) are put in bins of equally many.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    k
        Budget in (0, C].
    window
        How many ranks to each side of the threshold's, as a part of N k; in (0, 1].
    n_bins
        Number of bins, of equally many ranks each. Ties stay together, so that bins may have more or fewer.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a run that is repeated there reads only what is missing.

    Returns
    -------
    Dataset
        Over ``bin``, from low scores to high ones. Counts and sums are exact, over the scores of labelled samples alone.
    ``threshold``
        The threshold of the budget, without dimension, as ``threshold`` finds it.
    ``bin_low, bin_high``
        Bins are [low, high), the last one closed. They begin with the lowest score of their ranks, so that all ties with the
        threshold are inside if the window reaches rank N k + 1, and may be more than the ranks say. Bins without a rank are
        empty: low equals high. A window without a rank has the ties with the threshold in its last bin.
    ``count``
        Number of scores in the bin.
    ``confidence``
        Their mean.
    ``accuracy``
        Fraction of them that are the score of their sample's label; expected with soft labels.
    ``total_count, total_confidence, total_accuracy``
        The same for all bins together, without dimension.

    Raises
    ------
    ScoresError, DtypeError
        If the scores are not probabilities in [0, 1], contain NaN, or a row of logits has an infinite maximum.
    LabelsError
        If the labels do not fit the scores, or there are none.
    BudgetError
        Where the budget is no number in (0, C].
    OptionError
        Where the window is no number in (0, 1], or the number of bins none of at least 1.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: two reads of the store, and a pilot as for ``threshold``.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.625, 0.375]])
    >>> found = avgk.losses.calibration_at_threshold(scores, np.array([0, 1, 1, 0]), 1, window=0.5, n_bins=1)
    >>> int(found.total_count), float(found.total_confidence), float(found.total_accuracy)
    (4, 0.5, 0.5)

    """
    check_no_nan_policy(nan_policy)
    check_flag("progress", progress, or_none=True)
    n_bins, part = _check_bins(n_bins), _check_window(window)
    source = probabilities(scores, labels, "calibration at a threshold", where, ignore_index)
    budget = parse_one(k, source.n_classes)
    asked = asked_checkpoint(checkpoint, "calibration_at_threshold", nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        value, edges = _edges_near(run, budget, part, n_bins)
        tally: BinTally = run.read(bin_pass(BinPlan(source.dtype, source.shape[1], edges, only_tops=False)))
        refuse_scores(tally, run.source, "")
    n, weight, total = int(tally.counts.sum()), sum(tally.weights.fractions()), sum(tally.sums.fractions())
    values = {
        "threshold": value,
        **_bin_columns(tally, list(edges)),
        "total_count": n,
        "total_confidence": float(Fraction(total) / n) if n else math.nan,
        "total_accuracy": float(Fraction(weight) / n) if n else math.nan,
    }
    attrs = result_attrs(run.source, run.reads, n_labelled=tally.n_labelled)
    return build_result(values, {"bin": list(range(n_bins))}, attrs, NEAR_THRESHOLD)


def _check_bins(n_bins: int) -> int:
    if not 1 <= whole_number(n_bins) <= 1 << 16:
        raise OptionError(f"n_bins must be an integer from 1 to 65536; got {n_bins!r}. Leave it out for the default.")
    return int(n_bins)


def _check_window(window: BudgetLike) -> Fraction:
    try:
        part = parse_budget(window)
    except BudgetError:
        part = Fraction(0)
    if not 0 < part <= 1:
        raise OptionError(f"window must be a number in (0, 1]; got {window!r}. Pass a part of N k, such as 0.1.")
    return part


def _least_float_from(edge: Fraction) -> float:
    """Return the least float that is not below an edge: scores are floats, so comparing with it decides exactly."""
    value = float(edge)
    return value if Fraction(value) >= edge else math.nextafter(value, math.inf)


def _edges_near(run: Run, budget: Fraction, window: Fraction, n_bins: int) -> tuple[float, tuple[float, ...]]:
    """Return the threshold of a budget, and the ascending edges of bins of ranks around it; one read.

    A bin begins with the lowest score of its ranks, and the last one ends with the highest: ties with either are inside.
    """
    source = run.source
    parts = [1 + window - 2 * window * i / n_bins for i in range(n_bins + 1)]
    counts = [count_labels(min(budget * part, Fraction(source.n_classes)), source.shape[0]) for part in parts]
    # The score of rank r has r - 1 above it; the first of the ranks is counts[-1] + 1, also of bins that have none.
    above = [max(count - 1, counts[-1]) for count in counts]
    search = find_thresholds(run.over(source.with_labels(None)), [count_labels(budget, source.shape[0]), *above])
    value, *edges = (float(score_value(search.found[i].key, source.dtype)) for i in range(len(above) + 1))
    return value, tuple(edges)


def _bin_columns(tally: BinTally, edges: list[float]) -> dict[str, object]:
    counts = tally.counts.tolist()
    means = {"confidence": tally.sums.fractions(), "accuracy": tally.weights.fractions()}
    return {
        "bin_low": edges[:-1],
        "bin_high": edges[1:],
        "count": counts,
        **{
            name: rounded([s / n if n else None for s, n in zip(sums, counts, strict=True)])
            for name, sums in means.items()
        },
    }
