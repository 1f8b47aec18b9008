"""``evaluate``: every budget's threshold, errors, gains and set sizes from one scan."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import xarray as xr

from ..engine.plan import ROW_BYTES
from ..engine.run import Run, show_progress
from ..errors import MemoryLimitError, warn_about
from ..exact.budgets import (
    DEFAULT_BUDGETS,
    MOST_IN_CURVE,
    count_labels,
    largest_integer,
    parse_budgets,
    whole_budgets,
    window_start,
)
from ..kernels.keys import narrow_dtype
from ..results.datasets import build_result, kind_sentence
from ..results.registry import Ties
from ..settings import setting
from ..sources.source import Source
from ..statistics.error_bars import compute_error_bars
from ..statistics.outcome import Grouping, Outcome, has_hard_labels
from ..statistics.straddle import analyse, n_ranked, overlap_values, rank_values, straddle_values
from ..statistics.thresholds import find_thresholds, settle_extremes
from ..statistics.truncated import certify_budgets, refuse_budgets, refuse_spread
from .inputs.labels import Groups, refuse_without_classes
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
    result_attrs,
    rounded,
    score_kind,
)

#: Bins of the histogram of each rank.
_N_BINS = 50


def evaluate(
    scores: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetsLike = DEFAULT_BUDGETS,
    *,
    straddle: bool = True,
    ties: Ties = "first",
    where: LabelsLike = None,
    ignore_index: int | None = None,
    clusters: LabelsLike = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
    missing: Missing | None = None,
) -> xr.Dataset:
    """Evaluate top-k and average-k classification for all budgets in one scan.

    The average-k sets contain B = floor(N k) labels in total: those with scores greater than lambda, the (B + 1)-th
    largest of all scores, and as many ties with lambda as fit. The top-k set of a sample contains its k highest scores;
    ties go to the lowest class. Results are exact, and identical to the last bit for any chunking, scheduler and number
    of workers.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file. Arrays
        are those of NumPy, Dask, Zarr, xarray and tensors on the CPU; frames have a column per class; files are those
        that ``open_scores`` takes.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once. Top-k needs integers. By default 1 to 10, or C.
    straddle
        Whether to also compute straddle strengths and the supports of the ranked scores, in the same scan. Budgets up
        to k have k (k + 1) / 2 strengths; for k = 100 they take several times as long as the scan.
    ties
        Which ties at a threshold are kept if not all fit: ``"first"`` the first ones in row-major order, as in the
        paper's listing; ``"spread"`` the first ones in a fixed pseudo-random order of (sample, class), which is the
        same for any chunking and takes one more read.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used. It
        takes any form that labels take. The scores of samples that are left out are ignored.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed. A
        negative label is different: its sample counts for thresholds and sizes, but not for errors.
    clusters
        One integer per sample, such as its document or patient: samples of a cluster may be alike, and standard errors
        are those of independent clusters. Nothing else changes. By default each sample is independent.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts. The
        earlier run may have been interrupted, or the store may have grown since. Results of another request, store or
        version are refused.
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    Dataset
        Over ``k``, with the variables below, each described in its ``attrs``. Without labels, all errors and gains are
        NaN; for a fractional k, top-k errors, gains, straddle strengths and overlap are NaN. The attributes are
        ``n_samples, n_classes, n_labelled, store, versions, reads``, and, except for truncated stores, ``score_kind``. It
        is ``"probabilities"`` unless more than a tenth of a thousand sampled rows are not: then it is
        ``"outside [0, 1]"``, ``"rows do not sum to 1"`` or ``"mostly absent"`` (-inf in most classes). ``made_by`` names
        the transforms of the scores, such as a softmax; ``n_left_out`` is the number of samples left out; ``ties`` is
        present if they are spread.
    ``threshold``
        lambda: the (B + 1)-th largest of all N C scores, B = floor(N k); the smallest one if B = N C.
    ``n_above, n_ties, n_kept``
        Number of scores > lambda, number of scores == lambda, and number of these ties that are kept, B - n_above.
    ``average_set_size``
        (n_above + n_kept) / N, which is B / N (less if NaN ranks lowest and there are fewer than B numbers).
    ``average_k_error, top_k_error``
        Fraction of the labelled samples whose label is outside its set; with soft labels 1 - (sum of the labels inside
        the sets) / N, or 0 if that is negative because rows sum to more than 1 by rounding.
    ``average_k_error_lowest, average_k_error_highest, average_k_error_expected``
        The least, the greatest and the mean average-k error over all ways to keep n_kept of the n_ties.
    ``adaptive_gain``
        top_k_error - average_k_error.
    ``average_k_error_stderr, top_k_error_stderr, adaptive_gain_stderr, relative_gain_stderr``
        With hard labels, the standard errors of the errors and gains as estimates of their population values. They
        account for the threshold being found on the same samples, and for both errors being of the same samples. Two
        standard errors to either side cover the true value 95 times in 100, unless only a handful of samples or clusters
        are in error: then they are too small. NaN for a single sample or cluster; errors of gains are also NaN if
        ``ties="spread"`` cut ties.
    ``relative_gain``
        adaptive_gain / top_k_error; NaN if top_k_error is 0.
    ``set_size_count(k, size)``
        Number of samples whose average-k set has that size.
    ``set_hit_count(k, size)``
        With hard labels, number of these samples whose set holds the label.
    ``plug_in_bound``
        With soft labels only: the mean over samples of the sum over classes of abs(label - score). Both errors exceed
        those of the best sets by at most that much. NaN if a score is not in [0, 1].
    ``straddle_strength(k, order)``
        d[k, o]: the mean over all N * N ordered pairs of samples (x, x') of
        max(0, s(x)[k + o] - s(x')[k + 1 - o]), s sorted decreasingly, for the orders o = 1..min(k, C - k).
        NaN if a score of these ranks is infinite. This and all variables below require ``straddle``.
    ``straddle_weight(k, order), straddle_magnitude(k, order)``
        The fraction of the pairs with a positive difference, and their mean difference (0 if there are no such pairs):
        d = weight * magnitude.
    ``straddle_bound``
        The sum of d[k, o] over the orders; or only of order 1 if k > C / 2. If the scores are the true
        probabilities, it is a lower bound on adaptive_gain; for other scores it is only descriptive.
    ``straddle_strength_error, straddle_weight_error, straddle_bound_error``
        How far strength, weight and bound can be from the exact values. 0 up to 33 million ranked scores (N times twice
        the largest k; half that for 64-bit scores).
    ``support_low(rank), support_high(rank)``
        Smallest and largest value of the score of that rank over all samples.
    ``ranked_count(rank, bin), bin_low(rank, bin)``
        Histogram of each rank: the number of samples with a score from ``bin_low`` up to the next bin's.
    ``supports_overlap``
        1 if support_high[k + 1] > support_low[k], else 0. If the scores are the true probabilities,
        average-k makes fewer errors than top-k if and only if it is 1.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C], or cannot be certain from a truncated store.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores.
    OptionError
        If an option is not one of the values it may take.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Warns
    -----
    ResultWarning
        If the scores are not probabilities, or most of each row is absent.

    Notes
    -----
    Cost: one read of each chunk for any number of budgets, after a pilot of at most 10 % of the chunks (or 8); up to
    2**18 scores there is no pilot. One more read if the pilot was misled; one more of each band in which too many ties
    are cut; one more of all, and a second pilot, if ``ties="spread"`` cuts ties; two more with soft labels and too many
    ties; one more of a truncated store. Without these options, our tests on data made to mislead read no chunk more
    than three times. ``attrs["reads"]`` is the number of full reads in this call. A task takes the memory of a few
    chunks (``info`` estimates it), and the process that merges results a few hundred MB.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.repeat([[1, 0, 0], [1/2, 1/2, 0], [1/3, 1/3, 1/3]], 4, axis=0)
    >>> result = avgk.evaluate(eta, labels=eta, k=2)
    >>> float(result.top_k_error[0].round(3)), float(result.average_k_error[0].round(3))
    (0.111, 0.0)
    """
    options = ScanOptions(
        straddle=straddle, ties=ties, where=where, ignore_index=ignore_index, clusters=clusters, nan_policy=nan_policy,
        progress=progress, checkpoint=checkpoint, missing=missing,
    )  # fmt: skip
    result, _ = evaluate_with_curve(scores, labels, k, options, most=0)
    warn_about(kind_sentence(result))
    return result


def evaluate_with_curve(
    scores: ScoresLike,
    labels: LabelsLike,
    k: BudgetsLike,
    options: ScanOptions,
    *,
    most: int = MOST_IN_CURVE,
) -> tuple[xr.Dataset, xr.Dataset | None]:
    """Return the result of ``evaluate``, and one for every integer budget up to ``most``, without straddle strengths.

    Both come from one scan. The second ends at ``largest_cheap_budget``. It is None if ``most`` is 0, or if the memory
    does not suffice for more budgets than ``k``.
    """
    with show_progress(options.progress):
        source = as_source(scores, labels, **options.opening)
        # Before a checkpoint or clusters are read.
        refuse_spread(source, options.ties)
        budgets = parse_budgets(k, source.n_classes)
        grouping = Grouping()
        if options.clusters is not None:
            refuse_without_classes(source, "clusters")
            groups = Groups.from_input(
                options.clusters, scores, source, "clusters", options.missing, labels=labels, where=options.where
            )
            names = groups.names()
            source, grouping = groups.pack_with_labels(source, names), Grouping("groups", names.size)
        with options.run(source, "evaluate", straddle=bool(options.straddle), ties=options.ties) as run:
            curve = whole_budgets(largest_cheap_budget(source, budgets, most)) if most else ()
            more = tuple(budget for budget in curve if budget not in budgets)
            try:
                outcome = find_outcome(run, budgets, options, grouping, more=more)
            except MemoryLimitError:
                if not more:
                    raise
                curve, outcome = (), find_outcome(run, budgets, options, grouping)
            results = [outcome_result(replace(outcome, budgets=budgets), options.straddle, run.reads)]
            if curve:
                whole = outcome_result(outcome, straddle=False, reads=run.reads)
                results.append(whole.isel(k=[outcome.budgets.index(budget) for budget in curve]))
    if options.ties != "first":
        for result in results:
            result.attrs["ties"] = options.ties
    return results[0], results[1] if curve else None


#: Scores that a scan retains per label in the sets: brackets are wider than thresholds.
_RETAINED_PER_LABEL = 1.25


def largest_cheap_budget(source: Source, budgets: tuple[Fraction, ...], most: int) -> int:
    """Return the largest integer budget, up to ``most``, that adds little to the cost of ``budgets``; 0 if none does.

    A scan is cheap as long as it retains whole rows (``avgk.kept-bytes``). Beyond that it takes twice the time, since a
    hundred brackets contain nearly all events. Larger budgets may be uncertain for truncated scores.
    """
    n_samples, n_columns = source.shape
    if source.truncation is not None:
        return 0
    if n_samples * n_columns <= setting("small-scores"):
        return min(most, n_columns)
    n_bytes = n_samples * narrow_dtype(source.dtype).itemsize * _RETAINED_PER_LABEL
    fitting = 0 if source.has_soft_labels else int((setting("kept-bytes") - ROW_BYTES * n_samples) // n_bytes)
    return min(most, n_columns, fitting) if fitting >= max(budgets) else 0


def find_outcome(
    run: Run,
    budgets: tuple[Fraction, ...],
    options: ScanOptions,
    grouping: Grouping | None = None,
    *,
    more: tuple[Fraction, ...] = (),
    keeps_rows: bool = False,
    with_extremes: bool = True,
) -> Outcome:
    """Find the outcome of all budgets; refuse budgets that are uncertain for truncated scores.

    ``more`` budgets follow without ambiguity analysis. ``with_extremes`` also finds the lowest and highest errors over
    all ways to keep ties, which may take two more reads for soft labels.
    """
    source, counts = run.source, [count_labels(b, run.source.shape[0]) for b in (*budgets, *more)]
    refuse_budgets(run, budgets, straddle=options.straddle)
    grouping = grouping or Grouping()
    search = find_thresholds(
        run,
        counts,
        n_ranks=0 if source.labels is None else largest_integer((*budgets, *more)),
        with_distance=source.has_soft_labels,
        n_ranked=n_ranked(budgets, source.shape[1]) if options.straddle else 0,
        ties=options.ties,
        strata=grouping.strata(source, (*budgets, *more)),
        windows=[window_start(count) for count in counts] if has_hard_labels(source) else (),
        keeps_rows=keeps_rows,
    )
    if with_extremes:
        search = settle_extremes(run, search)
    outcome = Outcome(source, (*budgets, *more), search, grouping)
    needed = [n_ranked([budget], source.n_classes) for budget in budgets] if options.straddle else None
    certify_budgets(run, budgets, [s.key for s in outcome.selections[: len(budgets)]], needed)
    return outcome


def outcome_result(outcome: Outcome, straddle: bool, reads: int) -> xr.Dataset:
    """Build the result Dataset of an outcome."""
    source, budgets = outcome.source, outcome.budgets
    values, coords = _values(outcome)
    if straddle:
        n_ranks = n_ranked(budgets, source.shape[1])
        ambiguity = analyse(outcome.tally.ranked.first(n_ranks), budgets, source.dtype, source.n_classes)
        strengths, orders = straddle_values(ambiguity, budgets, source)
        supports, ranks = rank_values(ambiguity, range(1, n_ranks + 1), source, _N_BINS, log=True)
        values |= strengths | supports | {"supports_overlap": overlap_values(ambiguity, budgets)}
        coords |= orders | ranks
    clusters: Named = {"n_clusters": outcome.n_groups} if outcome.grouping.n else {}
    kind = score_kind(source, outcome.tally.looked)
    attrs = result_attrs(source, reads, n_labelled=outcome.tally.n_labelled, **clusters, **kind)
    return build_result(values, coords, attrs)


def _values(outcome: Outcome) -> tuple[Named, Named]:
    """Return the variables and coordinates of an outcome."""
    source, selections = outcome.source, outcome.selections
    top, average = outcome.top_errors, outcome.average_errors
    extremes = outcome.extremes()
    bars = compute_error_bars(outcome)
    gains = [None if t is None or a is None else t - a for t, a in zip(top, average, strict=True)]
    relative = [gain / t if gain is not None and t else None for gain, t in zip(gains, top, strict=True)]
    n_sizes = max(s.set_sizes.size for s in selections)
    values = {
        "threshold": outcome.thresholds,
        "n_above": [s.n_above for s in selections],
        "n_ties": [s.n_ties for s in selections],
        "n_kept": [s.n_kept for s in selections],
        "average_set_size": [(s.n_above + s.n_kept) / source.shape[0] for s in selections],
        "average_k_error": rounded(average),
        "average_k_error_stderr": rounded([bar.average_k_error for bar in bars]),
        "average_k_error_lowest": rounded([low for low, _ in extremes]),
        "average_k_error_highest": rounded([high for _, high in extremes]),
        "average_k_error_expected": rounded([outcome.error(s.expected_weight) for s in selections]),
        "top_k_error": rounded(top),
        "top_k_error_stderr": rounded([bar.top_k_error for bar in bars]),
        "adaptive_gain": rounded(gains),
        "adaptive_gain_stderr": rounded([bar.adaptive_gain for bar in bars]),
        "relative_gain": rounded(relative),
        "relative_gain_stderr": rounded([bar.relative_gain for bar in bars]),
        "set_size_count": [np.pad(s.set_sizes, (0, n_sizes - s.set_sizes.size)) for s in selections],
    }
    if has_hard_labels(source):
        values["set_hit_count"] = [np.pad(s.hit_sizes, (0, n_sizes - s.hit_sizes.size)) for s in selections]
    if source.has_soft_labels:
        (values["plug_in_bound"],) = rounded([outcome.plug_in_bound])
    return values, {"k": [float(b) for b in outcome.budgets], "size": np.arange(n_sizes)}
