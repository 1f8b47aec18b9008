"""Set sizes as a function of the threshold, and back: the paper's function G and its generalised inverse."""

from __future__ import annotations

from fractions import Fraction

import xarray as xr

from ..errors import BudgetError
from ..exact.budgets import count_labels, parse_budget
from ..masks import refuse_masked
from ..passes.certifying import certify_budgets, refuse_budgets
from ..passes.finding import find_thresholds
from ..passes.running import running
from ..results.datasets import build_result
from ..results.registry import AT_SIZES, AT_THRESHOLDS
from .above_thresholds import SetsAbove, check_thresholds, coordinate, given_thresholds
from .attributes import result_attrs
from .checkpoints import asked_checkpoint
from .given import BudgetsLike, LabelsLike, PlaceLike, ScoresLike, ThresholdsLike, are_several
from .inputs import as_source
from .policies import check_nan_policy
from .shared_text import documented
from .thresholds import score_value, threshold_values


@documented
def average_set_size_at(
    scores: ScoresLike,
    thresholds: ThresholdsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.DataArray:
    """Compute the average size of the sets {score > t} for each threshold t: the paper's function G.

    G(t) = (number of scores > t) / N. Exact: thresholds are not rounded to the scores' dtype. ``threshold_at`` is
    its generalised inverse: G(t) <= K if and only if t >= threshold_at(K), for 0 <= K < C.

    Parameters
    ----------
    {scores}
    thresholds
        Number or sequence of numbers, or what ``threshold``, ``best_threshold`` or ``evaluate`` gave.
    {where}
    {ignore_index}
    {nan_policy_of_counts}
    {progress}
    {checkpoint}

    Returns
    -------
    DataArray
        G over ``threshold``, in the order given; without dimension for a single number.

    Raises
    ------
    OptionError
        Where a threshold is no number.
    {refused_scores}
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: one read of the store for any number of thresholds. Tasks hold whole rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.average_set_size_at(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), [0.1, 0.35]).values.tolist()
    [2.5, 1.5]

    """
    check_nan_policy(nan_policy)
    source = as_source(scores, own_labels=False, where=where, ignore_index=ignore_index)
    thresholds = given_thresholds(thresholds)
    wanted = check_thresholds(thresholds)
    asked = asked_checkpoint(checkpoint, "average_set_size_at", nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        source = run.source
        above = SetsAbove.read(run, wanted)
    sizes = [n / source.shape[0] for n in above.n_labels]
    over = {"threshold": coordinate(wanted)}
    result = build_result({"average_set_size": sizes}, over, {}, AT_THRESHOLDS)["average_set_size"]
    result = result.assign_attrs(above.attrs)
    return result if are_several(thresholds) else result[0]


@documented
def threshold_at(
    scores: ScoresLike,
    average_set_sizes: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.DataArray:
    """Return, for each average set size K >= 0, the least t with average_set_size_at(t) <= K.

    This is the generalised inverse of the paper's function G: the (floor(N K) + 1)-th largest score, as
    ``threshold`` finds it. For K >= C every t will do; the smallest score is given.

    Parameters
    ----------
    {scores}
    average_set_sizes
        Number or sequence of numbers of at least 0, as exact as budgets are.
    {where}
    {ignore_index}
    {nan_policy_of_ranks}
    {progress}
    {checkpoint}

    Returns
    -------
    DataArray
        Thresholds over ``average_set_size``, in the order given; without dimension for a single number.

    Raises
    ------
    BudgetError
        Where a size is negative or no finite number.
    {refused_scores}
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: as for ``threshold``: one read of the store for any number of sizes, and a pilot of at most 10 % of the chunks (or
    8) before; one more where the pilot was misled.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold_at(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), [0, 1, 1.4]).values.tolist()
    [0.6, 0.4, 0.4]

    """
    check_nan_policy(nan_policy)
    source = as_source(scores, own_labels=False, where=where, ignore_index=ignore_index)
    refuse_masked(average_set_sizes, "average_set_sizes")
    given = list(average_set_sizes) if are_several(average_set_sizes) else [average_set_sizes]
    try:
        sizes = [parse_budget(size) for size in given]
    except BudgetError:
        sizes = []
    if not sizes or min(sizes) < 0:
        raise BudgetError(
            f"average_set_sizes must be finite numbers of at least 0; got {average_set_sizes!r}. Pass labels per sample."
        )
    budgets = [min(size, Fraction(source.n_classes)) for size in sizes]
    counts = [count_labels(budget, source.shape[0]) for budget in budgets]
    asked = asked_checkpoint(checkpoint, "threshold_at", nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        source = run.source
        refuse_budgets(run, budgets)
        search = find_thresholds(run, counts)
        certify_budgets(run, budgets, [search.found[i].key for i in range(len(counts))])
    values = [score_value(search.found[i].key, source.dtype) for i in range(len(counts))]
    over = {"average_set_size": [float(size) for size in sizes]}
    found = {"threshold": threshold_values(values, source.dtype)}
    result = build_result(found, over, {}, AT_SIZES)["threshold"].assign_attrs(result_attrs(source, run.reads))
    return result if are_several(average_set_sizes) else result[0]
