"""``breakdown``: errors and set sizes by class, or by any groups of samples, at one threshold or at one for each group.

The samples of each group are counted in the scan that finds the thresholds; errors, intervals and means follow from the
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import xarray as xr

from ..arrays import Array, Floats, Ints
from ..axis_names import name_list, refuse_reordered
from ..engine.memory import Strata
from ..engine.run import Run
from ..engine.strata import StrataRanks
from ..exact.budgets import DEFAULT_BUDGETS, count_labels_of_each, largest_integer, parse_budgets
from ..kernels.keys import NAN_KEY, decode
from ..results.datasets import build_result
from ..results.registry import BREAKDOWN
from ..sources.source import Source
from ..statistics.outcome import GroupCounts, Grouping, Outcome, count_ranks
from ..statistics.thresholds import find_group_thresholds
from ..statistics.truncated import certify_groups, refuse_budgets
from .evaluate import find_outcome
from .inputs.labels import Groups, class_labels, labelled_source, refuse_soft
from .inputs.names import class_names_of, open_once
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
)

#: Standard deviations to either side that hold 95 % of a normal distribution.
Z95 = 1.959963984540054
#: One threshold for all groups, or one for each.
Thresholds = Literal["shared", "own"]


@dataclass(frozen=True)
class Counts:
    """The counts of all groups for each budget, and the thresholds as variables of the result."""

    by_budget: Sequence[GroupCounts]
    thresholds: Named

    def select(self, groups: Ints) -> Counts:
        """Return the counts of some groups."""
        thresholds = dict(self.thresholds)
        if "group_threshold" in thresholds:
            thresholds["group_threshold"] = np.asarray(thresholds["group_threshold"])[:, groups]
        return Counts([counts.select(groups) for counts in self.by_budget], thresholds)


def count_at_one_threshold(outcome: Outcome, n: int) -> Counts:
    """Return the counts of the last n groups of an outcome."""
    counts = [outcome.group_counts(i).select(slice(-n, None)) for i in range(len(outcome.budgets))]
    return Counts(counts, {"threshold": outcome.thresholds})


def count_at_own_thresholds(run: Run, budgets: tuple[Fraction, ...], grouping: Grouping, n: int) -> Counts:
    """Find a threshold for each of the last n groups, and count the samples and labels of its sets."""
    refuse_budgets(run, budgets)
    keys = np.full((len(budgets), grouping.n), NAN_KEY, np.int64)
    hits, missing, ranks = np.zeros_like(keys), np.zeros_like(keys), StrataRanks.empty()
    # For each group the ranks of its labels, and the state of each of its thresholds.
    members = -(-run.source.shape[0] // grouping.n)
    per_group = 16 * len(budgets) + 24 * min(largest_integer(budgets) + 2, members)
    strata = Strata(grouping.kind, grouping.n * per_group)
    for search in find_group_thresholds(run, budgets, strata, grouping.n, grouping.n - n):
        assert search.targets is not None
        assert search.ranks is not None
        targets, ranks = search.targets, search.ranks
        at = targets.budgets, targets.groups
        keys[at], hits[at], missing[at] = targets.keys, targets.hits, np.where(targets.known, 0, targets.left)
    counts = []
    for budget, in_sets, lacking in zip(budgets, hits, missing, strict=True):
        n_samples, n_labelled, top_hits = count_ranks(ranks, grouping.n, budget)
        sizes = count_labels_of_each(budget, n_samples) - lacking  # sets lack members if scores are NaN
        counts.append(GroupCounts(n_samples, n_labelled, in_sets, top_hits, sizes))
    n_samples = counts[0].n_samples
    last = np.arange(grouping.n - n, grouping.n)
    certify_groups(run, budgets, keys, n_samples, last[n_samples[last] > 0])
    values, occupied = decode(keys, run.source.dtype), n_samples > 0
    # NaN marks groups without samples. If there are no such groups, 64-bit integers, which float64 would round, are kept.
    are_kept = values.dtype.kind in "iu" and values.dtype.itemsize == 8 and occupied[last].all()
    thresholds = values if are_kept else np.where(occupied, values.astype(np.float64), np.nan)
    return Counts(counts, {"group_threshold": thresholds}).select(last)


def group_values(counts: Counts, budgets: Sequence[Fraction]) -> Named:
    """Return the variables of a breakdown."""
    n_samples, n_labelled = counts.by_budget[0].n_samples, counts.by_budget[0].n_labelled
    missed = np.array([n_labelled - c.hits for c in counts.by_budget])
    top_missed = np.array([n_labelled - c.top_hits for c in counts.by_budget])
    fractional = np.array([budget.denominator != 1 for budget in budgets])
    top, gains = _divide(top_missed, n_labelled), _divide(top_missed - missed, n_labelled)
    macro_top = np.array([_macro(row, n_labelled) for row in top_missed])
    top[fractional] = gains[fractional] = np.nan
    macro_top[fractional] = np.nan
    low, high = wilson(missed, n_labelled)
    return {
        "n_samples": n_samples,
        "n_labelled": n_labelled,
        "average_k_error": _divide(missed, n_labelled),
        "average_k_error_low": low,
        "average_k_error_high": high,
        "top_k_error": top,
        "adaptive_gain": gains,
        "average_set_size": _divide(np.array([c.sizes for c in counts.by_budget]), n_samples),
        "macro_average_k_error": [_macro(row, n_labelled) for row in missed],
        "macro_top_k_error": macro_top,
        **counts.thresholds,
    }


def _divide(counts: Ints, n: Ints) -> Floats:
    """Return counts over numbers of samples; NaN for groups without samples."""
    return np.asarray(np.where(n > 0, counts / np.maximum(n, 1), np.nan))


def _macro(missed: Ints, n: Ints) -> float:
    """Return the mean of the errors of all groups with labelled samples, exactly, rounded once."""
    labelled = np.flatnonzero(n)
    if not labelled.size:
        return float("nan")
    sizes, index = np.unique(n[labelled], return_inverse=True)  # few different ones: few fractions to add up
    sums = np.zeros(sizes.size, np.int64)
    np.add.at(sums, index, missed[labelled])
    total = sum(Fraction(int(m), int(size)) for m, size in zip(sums, sizes, strict=True))
    return float(total / labelled.size)


def wilson(counts: Ints, n: Ints) -> tuple[Floats, Floats]:
    """Return the ends of the 95 % Wilson intervals of counts / n; NaN if n is 0.

    (p + z**2 / 2n -+ z sqrt(p (1 - p) / n + z**2 / 4n**2)) / (1 + z**2 / n); Wilson (1927).
    """
    p, size = _divide(counts, n), np.maximum(n, 1)
    middle, scale = p + Z95**2 / (2 * size), 1 + Z95**2 / size
    reach = Z95 * np.sqrt(p * (1 - p) / size + Z95**2 / (4 * size.astype(np.float64) ** 2))
    low, high = (middle - reach) / scale, (middle + reach) / scale
    some = n > 0
    return np.where(some & (counts == 0), 0.0, low), np.where(some & (counts == n), 1.0, high)


def breakdown(
    scores: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetsLike = DEFAULT_BUDGETS,
    by: LabelsLike = "class",
    *,
    thresholds: Thresholds = "shared",
    names: Sequence[str] | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
    missing: Missing | None = None,
) -> xr.Dataset:
    """Break errors and set sizes down by class, or by groups of samples, to see which are the worst.

    The sets are those of ``evaluate``: one threshold for all samples, ties in row-major order. Their errors and sizes
    are counted for each class or group in the same read.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds
        them. By default the labels stored with the scores.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once. By default 1 to 10, or C.
    by
        ``"class"``: a sample belongs to the class of its label. Or one integer per sample, such as the hospital of a
        picture, in memory or the path of a file or store: each different integer is a group.
    thresholds
        ``"shared"``: one threshold for all, as in ``evaluate``. ``"own"``: one for each group, so that its sets hold
        B_g = floor(N_g k) labels, N_g its number of samples: every group has k labels per sample.
    names
        A name for each class, or for each group in ascending order. By default those stored with the scores.
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
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    Dataset
        Over ``k`` and ``group``, the number of the class or the group's integer, with its ``name`` if names are known.
    ``n_samples(group), n_labelled(group)``
        Samples of the group, and those with a label: by class these are the same.
    ``average_k_error, top_k_error, adaptive_gain``
        As in ``evaluate``, for the labelled samples of the group; NaN without labelled samples.
    ``average_k_error_low, average_k_error_high``
        The 95 % Wilson interval of the average-k error.
    ``average_set_size``
        Mean size of the average-k sets of the group's samples; NaN without samples.
    ``macro_average_k_error(k), macro_top_k_error(k)``
        Means over the groups that have labelled samples, each with the same weight.
    ``threshold(k)``
        The threshold of all samples, with ``thresholds="shared"``.
    ``group_threshold(k, group)``
        The threshold of each group, with ``thresholds="own"``; NaN for a group without samples (if there are such
        groups, 64-bit integers are rounded to float64).

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores, are probabilities, or are missing.
    OptionError
        If an option is not one of the values it may take, or there are not as many names as groups.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: that of ``evaluate`` without straddle strengths, about one read, and about 16 bytes per group and budget.
    The groups of samples stay in memory with the labels, a few bytes per sample; classes do not.
    ``thresholds="own"`` retains the scores that may be above the thresholds of groups: one read if they fit 128 MB
    (about 800,000 samples with k up to 10), else two, for any number of groups; one more if the threshold of some group
    is far below those of others.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.4, 0.2, 0.4]])
    >>> groups = avgk.breakdown(scores, np.array([0, 0, 1, 2]), k=1)
    >>> groups.average_k_error.values.tolist(), groups.macro_average_k_error.values.round(3).tolist()
    ([[0.0, 1.0, 1.0]], [0.667])
    """
    check_word("thresholds", thresholds, Thresholds)
    options = ScanOptions(
        straddle=False, where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress,
        checkpoint=checkpoint, missing=missing,
    )  # fmt: skip
    scores = open_once(scores, missing)
    source = labelled_source(scores, labels, "breakdown", hard=True, **options.opening)
    refuse_soft(source, "breakdown")
    budgets = parse_budgets(k, source.n_classes)
    by_class = isinstance(by, str) and by == "class"
    if by_class:
        grouped, grouping, groups = _group_by_class(source, scores, labels, missing)
    else:
        columns = Groups.from_input(by, scores, source, "by", missing, labels=labels, where=where)
        groups = columns.names()
        grouped, grouping = columns.pack_with_labels(source, groups), Grouping("groups", groups.size)
    request = {"by": grouping.kind} | ({"thresholds": "own"} if thresholds == "own" else {})
    with options.run(grouped, "breakdown", **request) as run:
        if thresholds == "own":
            counts = count_at_own_thresholds(run, budgets, grouping, groups.size)
        else:
            counts = count_at_one_threshold(find_outcome(run, budgets, options, grouping), groups.size)
    if not by_class:  # groups whose samples are all left out are dropped; classes are reported in any case
        occupied = np.flatnonzero(counts.by_budget[0].n_samples)
        counts, groups = counts.select(occupied), groups[occupied]
    class_names = class_names_of(scores) if by_class else None
    names = class_names if names is None else names
    if names is not None:
        names = name_list(names, groups.size, "names", None if by_class else groups.tolist())
        refuse_reordered(names, class_names)
    attrs: Named = {"by": "class" if by_class else "group", "thresholds": thresholds}
    return _build(source, counts, budgets, groups, names, attrs, run.reads)


def _group_by_class(
    source: Source, scores: ScoresLike, labels: LabelsLike, missing: str | None
) -> tuple[Source, Grouping, Array]:
    """Return a source whose samples can be counted by the class of their label, the grouping, and the classes.

    Samples without a label are counted before the first class.
    """
    classes = np.arange(source.n_classes)
    if source.truncation is None:
        return source, Grouping("classes", source.n_classes + 1), classes
    # Labels of truncated rows are slots: the classes become groups.
    groups = Groups(np.maximum(class_labels(source, scores, labels, missing).astype(np.int64), -1))
    names = np.arange(-1, source.n_classes)
    return groups.pack_with_labels(source, names), Grouping("groups", names.size), classes


def classes_result(outcome: Outcome, names: Sequence[str] | None) -> xr.Dataset:
    """Build the result Dataset of an outcome whose samples were counted by class, in one read."""
    source, classes = outcome.source, np.arange(outcome.source.n_classes)
    counts = count_at_one_threshold(outcome, classes.size)
    return _build(source, counts, outcome.budgets, classes, names, {"by": "class", "thresholds": "shared"}, 1)


def _build(
    source: Source, counts: Counts, budgets: Sequence[Fraction], groups: Ints, names: Sequence[str] | None,
    attrs: Named, reads: int,
) -> xr.Dataset:  # fmt: skip
    values = group_values(counts, budgets) | ({} if names is None else {"name": list(names)})
    coords: Named = {"k": [float(b) for b in budgets], "group": groups.astype(np.int64)}
    attrs = result_attrs(source, reads, n_labelled=int(counts.by_budget[0].n_labelled.sum()), **attrs)
    return build_result(values, coords, attrs, BREAKDOWN)
