"""``evaluate``: every budget's threshold, errors, gains and set sizes from one scan."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import xarray as xr

from ..engine.plan import ROW_BYTES
from ..engine.ranked import narrow_dtype
from ..engine.run import Run, showing
from ..errors import MemoryLimitError, warn_of
from ..exact.budgets import DEFAULT_BUDGETS, MOST_IN_CURVE, parse_budgets, whole_budgets
from ..results.datasets import build_result, kind_sentence
from ..settings import setting
from ..sources.source import Source
from ..statistics.straddle import analyse
from ..statistics.thresholds import settle_extremes
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
    Ties,
    result_attrs,
    rounded,
    score_kind,
)
from .outcome import Grouping, Outcome, error_bars
from .straddle import ambiguity_values, integers, n_ranked
from .thresholds import score_value, threshold_values


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

    The average-k sets hold every score above one threshold for all samples, and B = floor(N k) labels in all:
    scores greater than lambda, the (B + 1)-th largest, and as many ties with it as fit. The
    top-k set of a sample holds its k highest scores, among equals the lowest class first. Exact, and the same
    to the last bit for any chunking, scheduler and number of workers.

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
        Whether to also analyse the ambiguity: straddle strengths and the supports of the ranked scores,
        in the same scan. For budgets up to k there are k (k + 1) / 2 strengths: for k = 100 they take
        several times as long as the scan.
    ties
        Which ties at a threshold are kept where not all fit: ``"first"`` the first ones in row-major
        order, as in the paper's listing; ``"spread"`` those that come first in a fixed pseudo-random
        order of (sample, class), the same for any chunking, for one more read.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count. It
        takes any form that labels take. Scores of samples that are left out are not looked at.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply. A
        negative label is different: its sample counts for thresholds and sizes, but not for errors.
    clusters
        One integer per sample, such as its document or patient: samples of a cluster may be alike, and standard errors
        are those of independent clusters. Nothing else changes. By default each sample is independent.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a run that is repeated there reads only what is missing. That
        may be an interrupted run, or one over a store that has grown. Results of another request, store or version are
        refused.
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    Dataset
        Over ``k``, with the variables below, each described in its ``attrs``. Without labels all errors and gains are
        NaN; for a fractional k all that needs an integer is (top-k, gains, straddle, overlap). The attributes are
        ``n_samples, n_classes, n_labelled, store, versions, reads``, and ``score_kind``: a thousand samples are looked
        at, and if more than a tenth are not ``"probabilities"``, it is ``"outside [0, 1]"``, ``"rows do not sum to 1"``
        or ``"mostly absent"`` (-inf in most classes). Truncated stores do not have it. ``made_by`` says what was
        done to the scores that were read, such as a softmax; ``n_left_out`` is the number of samples left out; ``ties``
        that they are spread, where they are.
    ``threshold``
        lambda: the (B + 1)-th largest of all N C scores, B = floor(N k); the smallest one where B = N C.
    ``n_above, n_ties, n_kept``
        Number of scores > lambda, number of scores == lambda, and B - n_above, the ties kept.
    ``average_set_size``
        (n_above + n_kept) / N, which is B / N (less where NaN ranks lowest and the numbers run out).
    ``average_k_error, top_k_error``
        Fraction of the labelled samples whose label is outside its set; with soft labels 1 - (sum of the labels inside
        the sets) / N, or 0 where that is negative because rows sum to more than 1 by rounding.
    ``average_k_error_lowest, average_k_error_highest, average_k_error_expected``
        The least, the greatest and the mean average-k error over all ways to keep n_kept of the n_ties.
    ``adaptive_gain``
        top_k_error - average_k_error.
    ``average_k_error_stderr, top_k_error_stderr, adaptive_gain_stderr, relative_gain_stderr``
        With hard labels, the standard errors of these: how far they are from those of all samples there could be, by
        chance. That the threshold is found on the same samples, and that both errors are of the same samples, is taken
        into account. Twice the standard error to either side covers the true value 95 times in 100, unless only a
        handful of samples, or of clusters, are in error: then it is too small. NaN of a single sample or cluster; those
        of gains also where ``ties="spread"`` cut ties.
    ``relative_gain``
        adaptive_gain / top_k_error; NaN where that is 0.
    ``set_size_count(k, size)``
        Number of samples whose average-k set has that size.
    ``set_hit_count(k, size)``
        With hard labels, number of these samples whose set holds the label.
    ``plug_in_bound``
        With soft labels only: the mean over samples of the sum over classes of abs(label - score). No more
        than that can both errors exceed those of the best sets; NaN where a score is not in [0, 1].
    ``straddle_strength(k, order)``
        d[k, o]: the mean over all N * N ordered pairs of samples (x, x') of
        max(0, s(x)[k + o] - s(x')[k + 1 - o]), s sorted decreasingly, for the orders o = 1..min(k, C - k).
        NaN where a score of these ranks is infinite. This and what follows only with ``straddle``.
    ``straddle_weight(k, order), straddle_magnitude(k, order)``
        The fraction of the pairs with a positive difference, and their mean difference (0 where there are
        none): d = weight * magnitude.
    ``straddle_bound``
        The sum of d[k, o] over the orders; for k > C / 2 that of order 1 alone. Where the scores are the true
        probabilities, adaptive_gain is at least that; for others it only describes them.
    ``straddle_strength_error, straddle_weight_error, straddle_bound_error``
        How far strength, weight and bound can be from the exact values; 0 when these are exact, which holds up
        to 33 million ranked scores (N times twice the largest k; half as many of 64 bits).
    ``support_low(rank), support_high(rank)``
        Smallest and largest value of the score of that rank over all samples.
    ``ranked_count(rank, bin), bin_low(rank, bin)``
        Histogram of each rank: the number of samples with a score from ``bin_low`` up to the next bin's.
    ``supports_overlap``
        1 where support_high[k + 1] > support_low[k], else 0. Where the scores are the true probabilities,
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
    Cost: each chunk is read once, and a pilot of at most 10 % of the chunks (or 8) before, for any number of budgets;
    up to 2**18 scores there is no pilot. One more read where the pilot was misled; one more of each band where a cut
    through very many ties falls; one more of all, and of a second pilot, with ``ties="spread"`` where ties are cut; two
    more with soft labels and very many ties; one more of a truncated store. Three of any chunk at most in our tests
    without these options, on data made to mislead. ``attrs["reads"]`` is the number of full reads in this call. A task
    takes the memory of a few chunks (``info`` estimates it), the process in which results come together a few hundred
    MB.

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
    warn_of(kind_sentence(result))
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

    Both come from one scan. The curve ends where it would no longer be cheap (see ``cheap_budgets``). There is none if
    ``most`` is 0, or if the memory does not suffice for more budgets than ``k``.
    """
    straddle = options.straddle
    with showing(options.progress):
        source = as_source(scores, labels, **options.opening)
        refuse_spread(source, options.ties)
        budgets = parse_budgets(k, source.n_classes)
        grouping = Grouping()
        if options.clusters is not None:
            refuse_without_classes(source, "clusters")
            groups = Groups.of(
                options.clusters, scores, source, "clusters", options.missing, labels=labels, where=options.where
            )
            names = groups.names()
            source, grouping = groups.beside_labels(source, names), Grouping("groups", names.size)
        with options.run(source, "evaluate", straddle=bool(straddle), ties=options.ties) as run:
            curve = whole_budgets(cheap_budgets(source, budgets, most))
            more = tuple(budget for budget in curve if budget not in budgets)
            try:
                outcome = find_outcome(run, budgets, options, grouping, more=more)
            except MemoryLimitError:
                if not more:
                    raise
                curve, outcome = (), find_outcome(run, budgets, options, grouping)
            results = [outcome_result(replace(outcome, budgets=budgets), straddle, run.reads)]
            if curve:
                whole = outcome_result(outcome, straddle=False, reads=run.reads)
                results.append(whole.isel(k=[outcome.budgets.index(budget) for budget in curve]))
    if options.ties != "first":
        for result in results:
            result.attrs["ties"] = options.ties
    return results[0], results[1] if curve else None


#: Scores that a scan holds for each that a budget takes, since brackets are wider than thresholds.
_HELD_PER_LABEL = 1.25


def cheap_budgets(source: Source, budgets: tuple[Fraction, ...], most: int) -> int:
    """Return the largest integer budget, up to ``most``, that adds little to the cost of ``budgets``; 0 if none does.

    A scan is cheap as long as it holds its rows (``avgk.kept-bytes``): beyond that it takes twice the time, since a
    hundred brackets hold nearly all events. Larger budgets may be uncertain for truncated scores.
    """
    n_samples, n_columns = source.shape
    if source.truncation is not None:
        return 0
    if n_samples * n_columns <= setting("small-scores"):
        return min(most, n_columns)
    n_bytes = n_samples * narrow_dtype(source.dtype).itemsize * _HELD_PER_LABEL
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
) -> Outcome:
    """Find the outcome of all budgets, and refuse uncertain ones; ``more`` budgets follow without their ambiguity."""
    source, straddle = run.source, options.straddle
    refuse_budgets(run, budgets, straddle=straddle)
    outcome = Outcome.find(
        run,
        (*budgets, *more),
        n_ranked=n_ranked(budgets, source.shape[1]) if straddle else 0,
        ties=options.ties,
        grouping=grouping,
        keeps_rows=keeps_rows,
    )
    outcome = replace(outcome, search=settle_extremes(run, outcome.search))
    needed = [n_ranked([budget], source.n_classes) for budget in budgets] if straddle else None
    certify_budgets(run, budgets, [s.key for s in outcome.selections[: len(budgets)]], needed)
    return outcome


def outcome_result(outcome: Outcome, straddle: bool, reads: int) -> xr.Dataset:
    """Build the result Dataset of an outcome."""
    source, budgets = outcome.source, outcome.budgets
    values, coords = _values(outcome)
    if straddle:
        ranked = outcome.tally.ranked.first(n_ranked(budgets, source.shape[1]))
        ambiguity = analyse(ranked, integers(budgets), source.dtype, source.n_classes)
        more, ranks = ambiguity_values(ambiguity, budgets, source)
        values, coords = values | more, coords | ranks
    clusters: Named = {"n_clusters": outcome.n_groups} if outcome.grouping.n else {}
    kind = score_kind(source, outcome.tally.looked)
    attrs = result_attrs(source, reads, n_labelled=outcome.tally.n_labelled, **clusters, **kind)
    return build_result(values, coords, attrs)


def _values(outcome: Outcome) -> tuple[Named, Named]:
    """Return the variables and coordinates of an outcome."""
    source, found = outcome.source, outcome.selections
    top, average = outcome.top_errors, outcome.average_errors
    extremes = outcome.extremes()
    bars = error_bars(outcome)
    gains = [None if t is None or a is None else t - a for t, a in zip(top, average, strict=True)]
    n_sizes = max(s.set_sizes.size for s in found)
    values = {
        "threshold": threshold_values([score_value(s.key, source.dtype) for s in found], source.dtype),
        "n_above": [s.n_above for s in found],
        "n_ties": [s.n_ties for s in found],
        "n_kept": [s.n_kept for s in found],
        "average_set_size": [(s.n_above + s.n_kept) / source.shape[0] for s in found],
        "average_k_error": rounded(average),
        "average_k_error_stderr": rounded([bar.average_k_error for bar in bars]),
        "average_k_error_lowest": rounded([low for low, _ in extremes]),
        "average_k_error_highest": rounded([high for _, high in extremes]),
        "average_k_error_expected": rounded([outcome.error(s.expected_weight) for s in found]),
        "top_k_error": rounded(top),
        "top_k_error_stderr": rounded([bar.top_k_error for bar in bars]),
        "adaptive_gain": rounded(gains),
        "adaptive_gain_stderr": rounded([bar.adaptive_gain for bar in bars]),
        "relative_gain": rounded(
            [gain / t if gain is not None and t else None for gain, t in zip(gains, top, strict=True)]
        ),
        "relative_gain_stderr": rounded([bar.relative_gain for bar in bars]),
        "set_size_count": [np.pad(s.set_sizes, (0, n_sizes - s.set_sizes.size)) for s in found],
    }
    if source.labels is not None and not source.has_soft_labels:
        values["set_hit_count"] = [np.pad(s.hit_sizes, (0, n_sizes - s.hit_sizes.size)) for s in found]
    if source.has_soft_labels:
        (values["plug_in_bound"],) = rounded([outcome.plug_in_bound])
    return values, {"k": [float(b) for b in outcome.budgets], "size": np.arange(n_sizes)}
