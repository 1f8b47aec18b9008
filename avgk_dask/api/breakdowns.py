"""``breakdown``: errors and set sizes by class, or by any groups of samples."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import xarray as xr

from ..arrays import Array, Floats, Ints
from ..errors import OptionError
from ..exact.budgets import DEFAULT_BUDGETS, parse_budgets
from ..passes.certifying import certify_budgets, refuse_budgets
from ..passes.running import running
from ..results.datasets import build_result
from ..results.registry import BREAKDOWN
from ..sources.grouped_labels import with_groups
from ..sources.source import Source
from .attributes import Named, result_attrs
from .checkpoints import asked_checkpoint
from .class_names import checked_names, class_names_of
from .given import BudgetsLike, LabelsLike, PlaceLike, ScoresLike
from .grouping import as_groups
from .labelled import class_labels, labelled_source, refuse_soft
from .outcome import Grouping, Outcome
from .policies import check_nan_policy
from .shared_text import documented
from .thresholds import score_value, threshold_values

#: Standard deviations to either side that hold 95 % of a normal distribution.
Z95 = 1.959963984540054


@documented
def breakdown(
    scores: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetsLike = DEFAULT_BUDGETS,
    by: LabelsLike = "class",
    *,
    names: Sequence[str] | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
    missing: str | None = None,
) -> xr.Dataset:
    """Break errors and set sizes down by class, or by groups of samples: which are the trouble?

    The sets are those of ``evaluate``: one threshold for all samples, ties in row-major order. In the same read it is
    counted how they serve each class or group.

    Parameters
    ----------
    {scores}
    labels
        N integers (negative, masked or null: unlabelled); of more dimensions, the samples' shape. By default the labels
        stored beside the scores.
    k
        Budget or sequence of budgets in (0, C]; one given twice counts once. By default 1 to 10, or to C.
    by
        ``"class"``: the groups are the C classes, and a sample belongs to that of its label. Or an integer a sample, such
        as the hospital of a picture: the groups are the different integers.
    names
        A name for each class, or for each group in ascending order. By default those stored beside the scores.
    {where}
    {ignore_index}
    {nan_policy}
    {progress}
    {checkpoint}
    missing
        What a chunk that the store does not hold means: ``"raise"`` an error that names it (the default),
        ``"fill"`` the array's fill value.

    Returns
    -------
    Dataset
        Over ``k`` and ``group``, the number of the class or the group's integer, with its ``name`` where names are known.
    ``n_samples(group), n_labelled(group)``
        Samples of the group, and those with a label: by class these are the same.
    ``average_k_error, top_k_error, adaptive_gain``
        As in ``evaluate``, of the group's labelled samples; NaN where there is none.
    ``average_k_error_low, average_k_error_high``
        The 95 % Wilson interval of the average-k error.
    ``average_set_size``
        Mean size of the average-k sets of the group's samples; NaN where there is none.
    ``macro_average_k_error(k), macro_top_k_error(k)``
        Means over the groups that have labelled samples: each counts once, however large.
    ``threshold(k)``
        The one threshold.

    Raises
    ------
    {refused_budgets}
    {refused_scores}
    LabelsError
        Where the labels do not fit the scores, are probabilities, or there are none.
    OptionError
        Where ``by`` is neither ``"class"`` nor integers, or there are not as many names as groups.
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: that of ``evaluate`` without straddle strengths, about one read. What comes together is some 16 bytes for each group
    and budget. Groups that are given are held in memory with the labels, a few bytes a sample; classes are not.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.4, 0.2, 0.4]])
    >>> found = avgk.breakdown(scores, np.array([0, 0, 1, 2]), k=1)
    >>> found.average_k_error.values.tolist(), found.macro_average_k_error.values.round(3).tolist()
    ([[0.0, 1.0, 1.0]], [0.667])

    """
    check_nan_policy(nan_policy)
    source = labelled_source(scores, labels, "breakdown", where=where, ignore_index=ignore_index, missing=missing)
    refuse_soft(source, "breakdown")
    budgets = parse_budgets(k, source.n_classes)
    source, grouping, groups = _grouped(source, scores, labels, by, missing)
    asked = asked_checkpoint(checkpoint, "breakdown", by=grouping.kind, nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        refuse_budgets(run, budgets)
        outcome = Outcome.find(run, budgets, grouping=grouping)
        certify_budgets(run, budgets, [s.key for s in outcome.selections])
    values = _values(outcome, grouping.n - groups.size)
    known = class_names_of(scores) if names is None and _is_class(by) else names
    if known is not None:
        values["name"] = checked_names(known, groups.size, "names")
    told = "class" if _is_class(by) else "group"
    attrs = result_attrs(outcome.source, run.reads, n_labelled=outcome.tally.n_labelled, by=told)
    coords: Named = {"k": [float(b) for b in budgets], "group": groups.astype(np.int64)}
    result = build_result(values, coords, attrs, BREAKDOWN)
    # Groups of samples none of which exists are no groups; classes are there whether they occur or not.
    return result if _is_class(by) else result.isel(group=np.flatnonzero(result["n_samples"].values))


def _is_class(by: LabelsLike) -> bool:
    if isinstance(by, str) and by != "class":
        raise OptionError(f'by must be "class" or an integer for each sample; got {by!r}. Pass one of these.')
    return isinstance(by, str)


def _grouped(
    source: Source, scores: ScoresLike, labels: LabelsLike, by: LabelsLike, missing: str | None
) -> tuple[Source, Grouping, Array]:
    """Return a source that can be counted by groups, how, and the names of the groups."""
    if not _is_class(by):
        names, numbers = as_groups(by, source.lead, "by")
        return with_groups(source, numbers), Grouping("groups", names.size), names
    classes = np.arange(source.n_classes)
    if source.truncation is None:
        return source, Grouping("classes", source.n_classes + 1), classes
    # Labels of truncated rows are slots: the classes come beside them.
    numbers = np.maximum(class_labels(source, scores, labels, missing).astype(np.int64), -1) + 1
    return with_groups(source, numbers), Grouping("groups", source.n_classes + 1), classes


def _values(outcome: Outcome, first: int) -> Named:
    """Return the variables of the counted groups from ``first`` on: before those of classes stand the unlabelled samples."""
    counts = [outcome.group_counts(i) for i in range(len(outcome.budgets))]
    n_samples, n_labelled = counts[0].n_samples[first:], counts[0].n_labelled[first:]
    missed = np.array([n_labelled - one.hits[first:] for one in counts])
    top_missed = np.array([n_labelled - one.top_hits[first:] for one in counts])
    whole = np.array([budget.denominator == 1 for budget in outcome.budgets])
    average, top = _share(missed, n_labelled), _share(top_missed, n_labelled)
    top[~whole] = np.nan
    gains = _share(top_missed - missed, n_labelled)
    gains[~whole] = np.nan
    low, high = wilson(missed, n_labelled)
    source = outcome.source
    return {
        "n_samples": n_samples,
        "n_labelled": n_labelled,
        "threshold": threshold_values([score_value(s.key, source.dtype) for s in outcome.selections], source.dtype),
        "average_k_error": average,
        "average_k_error_low": low,
        "average_k_error_high": high,
        "top_k_error": top,
        "adaptive_gain": gains,
        "average_set_size": _share(np.array([one.sizes[first:] for one in counts]), n_samples),
        "macro_average_k_error": [_macro(row, n_labelled) for row in missed],
        "macro_top_k_error": [
            _macro(row, n_labelled) if w else np.nan for row, w in zip(top_missed, whole, strict=True)
        ],
    }


def _share(counts: Ints, n: Ints) -> Floats:
    """Return counts over numbers of samples; NaN where there are none."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(n > 0, counts / np.maximum(n, 1), np.nan))


def _macro(missed: Ints, n: Ints) -> float:
    """Return the mean of the errors of all groups with labelled samples, exactly, rounded once."""
    some = np.flatnonzero(n)
    if not some.size:
        return float("nan")
    total = sum(Fraction(int(m), int(of)) for m, of in zip(missed[some], n[some], strict=True))
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
