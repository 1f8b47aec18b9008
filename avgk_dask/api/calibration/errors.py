"""Calibration errors: of the highest score of each sample, and of the scores near a threshold."""

from __future__ import annotations

import math
from fractions import Fraction

import xarray as xr

from ...arrays import whole_number
from ...engine.run import Run
from ...errors import BudgetError, OptionError
from ...exact.budgets import count_labels, parse_budget, parse_one
from ...results.datasets import build_result
from ...results.registry import CALIBRATION, NEAR_THRESHOLD
from ...statistics.losses import BinPlan, BinTally, bin_pass
from ...statistics.thresholds import find_thresholds
from ..inputs.labels import probabilities, refuse_scores
from ..options import BudgetLike, LabelsLike, NanPolicy, PlaceLike, ScanOptions, ScoresLike, result_attrs, rounded
from ..thresholds import score_value


def expected_calibration_error(
    scores: ScoresLike,
    labels: LabelsLike = None,
    n_bins: int = 15,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute the expected calibration error of each sample's highest score, with its table.

    Samples are put in bins of equal width by their highest score, the confidence; among equal scores the first class
    counts. The error is the mean over samples of abs(accuracy - confidence) of their bin.

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
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    Dataset
        Over ``bin``; the attribute ``n_labelled`` is the number of samples.
    ``expected_calibration_error``
        Without dimension. Exact, rounded once; NaN if no sample is labelled.
    ``bin_low, bin_high``
        The edges of the bins.
    ``count``
        Number of labelled samples in the bin.
    ``confidence``
        Their mean highest score.
    ``accuracy``
        Fraction of them whose label has that score; the expected fraction for soft labels.

    Raises
    ------
    ScoresError, DtypeError, LabelsError, MemoryLimitError, StoreError
        As for ``losses.nll``.
    OptionError
        If ``n_bins`` is not an integer from 1 to 65536.

    Notes
    -----
    Cost: one read of the store. Scores are assigned to bins exactly, and sums are exact.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.losses.expected_calibration_error(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0, 0]), n_bins=2)
    >>> float(result.expected_calibration_error), result["count"].values.tolist(), result.accuracy.values.tolist()
    (0.25, [0, 2], [nan, 0.5])
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    exact = [Fraction(i, n_bins) for i in range(_check_bins(n_bins) + 1)]
    source = probabilities(scores, labels, "a calibration error", options)
    edges = tuple(_least_float_from(edge) for edge in exact)
    plan = BinPlan(source.dtype, source.shape[1], edges, only_tops=True)
    with options.run(source, "expected_calibration_error") as run:
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
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compare the scores near the average-k threshold with how often they belong to the label.

    Average-k sets need calibrated scores only there: a score far above or far below the threshold may change without
    changing the sets. The scores with ranks from N k (1 - window) to N k (1 + window) are put in bins of equal counts.

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
        Number of ranks on each side of the threshold's rank, as a fraction of N k; in (0, 1].
    n_bins
        Number of bins, with the same number of ranks each. Ties stay together, so that counts may differ.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    Dataset
        Over ``bin``, from low scores to high ones. Counts and sums are exact, and include labelled samples only.
    ``threshold``
        The threshold of the budget, without dimension, as ``threshold`` finds it.
    ``bin_low, bin_high``
        Bins are [low, high), the last one closed. Each begins at the lowest score of its ranks. Hence all ties with the
        threshold are inside if the window reaches rank N k + 1, and a bin may hold more scores than ranks. Bins without
        a rank are empty: low equals high. If the window contains no rank, its last bin holds the ties with the threshold.
    ``count``
        Number of scores in the bin.
    ``confidence``
        Their mean.
    ``accuracy``
        Fraction of them that are the score of their sample's label; the expected fraction for soft labels.
    ``total_count, total_confidence, total_accuracy``
        The same for all bins together, without dimension.

    Raises
    ------
    ScoresError, DtypeError, LabelsError, MemoryLimitError, StoreError
        As for ``losses.nll``.
    BudgetError
        If the budget is not a number in (0, C].
    OptionError
        If the window is not a number in (0, 1], or ``n_bins`` is not an integer from 1 to 65536.

    Notes
    -----
    Cost: two reads of the store, and a pilot as for ``threshold``.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.625, 0.375]])
    >>> result = avgk.losses.calibration_at_threshold(scores, np.array([0, 1, 1, 0]), 1, window=0.5, n_bins=1)
    >>> int(result.total_count), float(result.total_confidence), float(result.total_accuracy)
    (4, 0.5, 0.5)
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    n_bins, part = _check_bins(n_bins), _check_window(window)
    source = probabilities(scores, labels, "calibration at a threshold", options)
    budget = parse_one(k, source.n_classes)
    with options.run(source, "calibration_at_threshold") as run:
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
        raise OptionError(f"window must be a number in (0, 1]; got {window!r}. Pass a fraction of N k, such as 0.1.")
    return part


def _least_float_from(edge: Fraction) -> float:
    """Return the smallest float that is not below an edge. Scores are floats, so comparing with it is exact."""
    value = float(edge)
    return value if Fraction(value) >= edge else math.nextafter(value, math.inf)


def _edges_near(run: Run, budget: Fraction, window: Fraction, n_bins: int) -> tuple[float, tuple[float, ...]]:
    """Return the threshold of a budget, and the ascending edges of bins of ranks around it; one read.

    A bin begins at the lowest score of its ranks, and the last one ends at the highest. Ties with either are inside.
    """
    source = run.source
    parts = [1 + window - 2 * window * i / n_bins for i in range(n_bins + 1)]
    counts = [count_labels(min(budget * part, Fraction(source.n_classes)), source.shape[0]) for part in parts]
    # The score of rank r has r - 1 scores above it. The first rank is counts[-1] + 1, also for bins without ranks.
    above = [max(count - 1, counts[-1]) for count in counts]
    search = find_thresholds(run.over(source.with_labels(None)), [count_labels(budget, source.shape[0]), *above])
    value, *edges = (float(score_value(search.selections[i].key, source.dtype)) for i in range(len(above) + 1))
    return value, tuple(edges)


def _bin_columns(tally: BinTally, edges: list[float]) -> dict[str, object]:
    counts = tally.counts.tolist()
    means = {
        name: rounded([total / n if n else None for total, n in zip(sums.fractions(), counts, strict=True)])
        for name, sums in (("confidence", tally.sums), ("accuracy", tally.weights))
    }
    return {"bin_low": edges[:-1], "bin_high": edges[1:], "count": counts, **means}
