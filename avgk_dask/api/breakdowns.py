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
from ..statistics.thresholds import find_group_thresholds
from ..statistics.truncated import certify_budgets, certify_groups, refuse_budgets
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
from .outcome import GroupCounts, Grouping, Outcome, rank_sums
from .thresholds import score_value, threshold_values

#: Standard deviations to either side that hold 95 % of a normal distribution.
Z95 = 1.959963984540054
#: One threshold for all groups, or one for each.
Thresholds = Literal["shared", "own"]


def group_values(counts: Sequence[GroupCounts], budgets: Sequence[Fraction]) -> Named:
    """Return the variables of a breakdown from the counts of all groups for each budget."""
    n_samples, n_labelled = counts[0].n_samples, counts[0].n_labelled
    missed = np.array([n_labelled - one.hits for one in counts])
    top_missed = np.array([n_labelled - one.top_hits for one in counts])
    whole = np.array([budget.denominator == 1 for budget in budgets])
    top, gains = _share(top_missed, n_labelled), _share(top_missed - missed, n_labelled)
    top[~whole] = gains[~whole] = np.nan
    low, high = wilson(missed, n_labelled)
    return {
        "n_samples": n_samples,
        "n_labelled": n_labelled,
        "average_k_error": _share(missed, n_labelled),
        "average_k_error_low": low,
        "average_k_error_high": high,
        "top_k_error": top,
        "adaptive_gain": gains,
        "average_set_size": _share(np.array([one.sizes for one in counts]), n_samples),
        "macro_average_k_error": [_macro(row, n_labelled) for row in missed],
        "macro_top_k_error": [
            _macro(row, n_labelled) if w else np.nan for row, w in zip(top_missed, whole, strict=True)
        ],
    }


def _share(counts: Ints, n: Ints) -> Floats:
    """Return counts over numbers of samples; NaN for groups without samples."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(n > 0, counts / np.maximum(n, 1), np.nan))


def _macro(missed: Ints, n: Ints) -> float:
    """Return the mean of the errors of all groups with labelled samples, exactly, rounded once."""
    some = np.flatnonzero(n)
    if not some.size:
        return float("nan")
    sizes, which = np.unique(n[some], return_inverse=True)  # few: their fractions are added up fast
    sums = np.zeros(sizes.size, np.int64)
    np.add.at(sums, which, missed[some])
    total = sum(Fraction(int(m), int(of)) for m, of in zip(sums, sizes, strict=True))
    return float(total / some.size)


def wilson(counts: Ints, n: Ints) -> tuple[Floats, Floats]:
    """Return the ends of the 95 % Wilson intervals of the shares counts / n; NaN where n is 0.

    (p + z**2 / 2n -+ z sqrt(p (1 - p) / n + z**2 / 4n**2)) / (1 + z**2 / n); Wilson (1927).
    """
    p, of = _share(counts, n), np.maximum(n, 1)
    middle, scale = p + Z95**2 / (2 * of), 1 + Z95**2 / of
    reach = Z95 * np.sqrt(p * (1 - p) / of + Z95**2 / (4 * of.astype(np.float64) ** 2))
    low, high = (middle - reach) / scale, (middle + reach) / scale
    some = n > 0
    return np.where(some & (counts == 0), 0.0, low), np.where(some & (counts == n), 1.0, high)


@dataclass(frozen=True)
class Counted:
    """The counts of all groups for each budget, the thresholds, and how often the store was read."""

    counts: Sequence[GroupCounts]
    thresholds: Named
    reads: int

    def of_groups(self, which: Ints) -> Counted:
        """Return the counts of some groups."""
        counts = [GroupCounts(*(column[which] for column in one)) for one in self.counts]
        own = "group_threshold"
        thresholds: Named = dict(self.thresholds)
        if own in thresholds:
            thresholds[own] = np.asarray(thresholds[own])[:, which]
        return Counted(counts, thresholds, self.reads)


def own_thresholds(run: Run, budgets: tuple[Fraction, ...], grouping: Grouping, n: int) -> Counted:
    """Find a threshold for each of the last n groups, and count what its sets hold."""
    refuse_budgets(run, budgets)
    keys = np.full((len(budgets), grouping.n), NAN_KEY, np.int64)
    hits, missing, ranks = np.zeros_like(keys), np.zeros_like(keys), StrataRanks.empty()
    # What is kept of each group: the ranks of its labels, and the state of each of its thresholds.
    members = -(-run.source.shape[0] // grouping.n)
    per_group = 16 * len(budgets) + 24 * min(largest_integer(budgets) + 2, members)
    strata = Strata(grouping.kind, grouping.n * per_group)
    for search in find_group_thresholds(run, budgets, strata, grouping.n, grouping.n - n):
        assert search.targets is not None
        assert search.ranks is not None
        found, ranks = search.targets, search.ranks
        at = found.budgets, found.groups
        keys[at], hits[at], missing[at] = found.keys, found.hits, np.where(found.known, 0, found.left)
    counts = []
    for budget, in_sets, lacking in zip(budgets, hits, missing, strict=True):
        n_samples, n_labelled, top_hits = rank_sums(ranks, grouping.n, budget)
        sizes = count_labels_of_each(budget, n_samples) - lacking  # sets lack members if scores are NaN
        counts.append(GroupCounts(n_samples, n_labelled, in_sets, top_hits, sizes))
    n_samples = counts[0].n_samples
    last = np.arange(grouping.n - n, grouping.n)
    certify_groups(run, budgets, keys, n_samples, last[n_samples[last] > 0])
    values, some = decode(keys, run.source.dtype), n_samples > 0
    # NaN stands for no samples. Integers of 64 bits, which float64 would round, are kept where it is not needed.
    are_kept = values.dtype.kind in "iu" and values.dtype.itemsize == 8 and some[last].all()
    thresholds = values if are_kept else np.where(some, values.astype(np.float64), np.nan)
    return Counted(counts, {"group_threshold": thresholds}, run.reads).of_groups(last)


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
    """Break errors and set sizes down by class, or by groups of samples: which are the trouble?

    The sets are those of ``evaluate``: one threshold for all samples, ties in row-major order. In the same read it is
    counted how they serve each class or group.

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
        ``"class"``: the groups are the C classes, and a sample belongs to that of its label. Or one integer per sample,
        such as the hospital of a picture, in memory or the path of a file or store: the groups are the different
        integers.
    thresholds
        ``"shared"``: one threshold for all, as in ``evaluate``. ``"own"``: one for each group, so that its sets hold
        B_g = floor(N_g k) labels, N_g its number of samples: every group has k labels a sample.
    names
        A name for each class, or for each group in ascending order. By default those stored with the scores.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
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
        Over ``k`` and ``group``, the number of the class or the group's integer, with its ``name`` where names are
        known.
    ``n_samples(group), n_labelled(group)``
        Samples of the group, and those with a label: by class these are the same.
    ``average_k_error, top_k_error, adaptive_gain``
        As in ``evaluate``, of the group's labelled samples; NaN if there are none.
    ``average_k_error_low, average_k_error_high``
        The 95 % Wilson interval of the average-k error.
    ``average_set_size``
        Mean size of the average-k sets of the group's samples; NaN if there are none.
    ``macro_average_k_error(k), macro_top_k_error(k)``
        Means over the groups that have labelled samples: each counts once, however large.
    ``threshold(k)``
        The one threshold.
    ``group_threshold(k, group)``
        Instead of that, with ``thresholds="own"``: the threshold of each group, NaN where it has no samples
        (with such groups, 64-bit integers are rounded to float64).

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If the labels do not fit the scores, are probabilities, or there are none.
    OptionError
        If an option is not one of the values it may take, or there are not as many names as groups.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: that of ``evaluate`` without straddle strengths, about one read. What comes together is some 16 bytes for each
    group and budget. Groups that are given are held in memory with the labels, a few bytes a sample; classes are not.
    With ``thresholds="own"`` the scores are held, in up to 128 MB, that may be above the thresholds of groups: one read
    as long as they fit (about 800,000 samples with k up to 10), else two, whatever the number of groups; one more where
    the threshold of some group lies far below those of others.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.4, 0.2, 0.4]])
    >>> found = avgk.breakdown(scores, np.array([0, 0, 1, 2]), k=1)
    >>> found.average_k_error.values.tolist(), found.macro_average_k_error.values.round(3).tolist()
    ([[0.0, 1.0, 1.0]], [0.667])

    """
    check_word("thresholds", thresholds, Thresholds)
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint,
        missing=missing,
    )  # fmt: skip
    scores = open_once(scores, missing)
    source = labelled_source(scores, labels, "breakdown", hard=True, **options.opening)
    refuse_soft(source, "breakdown")
    budgets = parse_budgets(k, source.n_classes)
    grouped, grouping, groups = _grouped(source, scores, labels, by, where, missing)
    request = {"by": grouping.kind} | ({"thresholds": "own"} if thresholds == "own" else {})
    with options.run(grouped, "breakdown", **request) as run:
        count = own_thresholds if thresholds == "own" else _shared_threshold
        found = count(run, budgets, grouping, groups.size)
    # Groups whose samples are all left out are dropped; classes are reported whether they occur or not.
    if not _is_class(by):
        some = np.flatnonzero(found.counts[0].n_samples)
        found, groups = found.of_groups(some), groups[some]
    values = group_values(found.counts, budgets) | found.thresholds
    known = class_names_of(scores) if names is None and _is_class(by) else names
    if known is not None:
        shown = name_list(known, groups.size, "names", None if _is_class(by) else groups.tolist())
        refuse_reordered(shown, class_names_of(scores) if _is_class(by) and names is not None else None)
        values["name"] = shown
    told = "class" if _is_class(by) else "group"
    n_labelled = int(found.counts[0].n_labelled.sum())
    attrs = result_attrs(source, found.reads, n_labelled=n_labelled, by=told, thresholds=thresholds)
    coords: Named = {"k": [float(b) for b in budgets], "group": groups.astype(np.int64)}
    return build_result(values, coords, attrs, BREAKDOWN)


def _is_class(by: LabelsLike) -> bool:
    return isinstance(by, str) and by == "class"


def _shared_threshold(run: Run, budgets: tuple[Fraction, ...], grouping: Grouping, n: int) -> Counted:
    """Count the groups at one threshold; samples without a label, counted before the classes, are left out."""
    refuse_budgets(run, budgets)
    outcome = Outcome.find(run, budgets, grouping=grouping)
    certify_budgets(run, budgets, [s.key for s in outcome.selections])
    return _counted(outcome, n, run.reads)


def _counted(outcome: Outcome, n: int, reads: int) -> Counted:
    """Return the counts of the last n groups of an outcome."""
    counts = [GroupCounts(*(c[-n:] for c in outcome.group_counts(i))) for i in range(len(outcome.budgets))]
    dtype = outcome.source.dtype
    values = threshold_values([score_value(s.key, dtype) for s in outcome.selections], dtype)
    return Counted(counts, {"threshold": values}, reads)


def classes_result(outcome: Outcome, reads: int, names: Sequence[str] | None = None) -> xr.Dataset:
    """Build the result Dataset of an outcome whose samples were counted by class, perhaps with their names."""
    source, found = outcome.source, _counted(outcome, outcome.source.n_classes, reads)
    n_labelled = int(found.counts[0].n_labelled.sum())
    attrs = result_attrs(source, reads, n_labelled=n_labelled, by="class", thresholds="shared")
    coords: Named = {"k": [float(b) for b in outcome.budgets], "group": np.arange(source.n_classes)}
    values = group_values(found.counts, outcome.budgets) | found.thresholds
    return build_result(values | ({} if names is None else {"name": list(names)}), coords, attrs, BREAKDOWN)


def _grouped(
    source: Source, scores: ScoresLike, labels: LabelsLike, by: LabelsLike, where: LabelsLike, missing: str | None
) -> tuple[Source, Grouping, Array]:
    """Return a source that can be counted by groups, how, and the names of the groups."""
    if not _is_class(by):
        groups = Groups.of(by, scores, source, "by", missing, labels=labels, where=where)
        names = groups.names()
        return groups.beside_labels(source, names), Grouping("groups", names.size), names
    classes = np.arange(source.n_classes)
    if source.truncation is None:
        return source, Grouping("classes", source.n_classes + 1), classes
    # Labels of truncated rows are slots: the classes come beside them.
    groups = Groups(np.maximum(class_labels(source, scores, labels, missing).astype(np.int64), -1))
    names = np.arange(-1, source.n_classes)
    return groups.beside_labels(source, names), Grouping("groups", names.size), classes
