"""``threshold``: the exact average-k threshold, its ties and how many of them are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import overload

import numpy as np
import xarray as xr

from ..arrays import Array, Dtype
from ..exact.budgets import count_labels, is_scalar, parse_budgets
from ..kernels.keys import decode
from ..passes.certifying import certify_budgets, refuse_budgets
from ..passes.finding import find_thresholds
from ..passes.running import running
from ..results.datasets import build_result
from ..results.showing import ShownAsTable
from ..searches.selection import Selection
from .attributes import result_attrs
from .checkpoints import asked_checkpoint
from .given import BudgetsLike, LabelsLike, PlaceLike, ScoresLike
from .inputs import as_source
from .policies import check_nan_policy
from .shared_text import documented


@dataclass(frozen=True)
class Threshold(ShownAsTable):
    """The threshold of one budget, as ``threshold`` finds it; ``predict_sets`` takes it.

    Attributes
    ----------
    value
        lambda, the (B + 1)-th largest score; an int where the scores are integers.
    n_above
        Number of scores > lambda.
    n_ties
        Number of scores == lambda.
    n_kept
        B - n_above: so many ties complete the budget, the first ones in row-major order.
    budget
        B = floor(N k), the number of labels in all sets together.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1)
    >>> found.value, found.n_above, found.n_ties, found.n_kept
    (0.4, 1, 2, 1)

    """

    value: float | int
    n_above: int
    n_ties: int
    n_kept: int
    budget: int


@overload
def threshold(
    scores: ScoresLike,
    k: float | Decimal | Fraction | str,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> Threshold: ...
@overload
def threshold(
    scores: ScoresLike,
    k: Iterable[float | Decimal | Fraction],
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset: ...
@overload
def threshold(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> Threshold | xr.Dataset: ...
@documented
def threshold(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> Threshold | xr.Dataset:
    """Find the threshold lambda whose sets {score > lambda}, with kept ties, hold floor(N k) labels.

    lambda is the (B + 1)-th largest of all N C scores, B = floor(N k) in exact arithmetic (0.1 means one tenth);
    the smallest score where B = N C. Exact for every dtype and any number of ties, and the same for any chunking.

    Parameters
    ----------
    {scores}
    k
        Budget or sequence of budgets in (0, C]; one given twice counts once, where it comes first.
    {where}
    {ignore_index}
    {nan_policy_of_ranks}
    progress
        Whether to show a progress bar, on stderr or as a widget.
    {checkpoint}

    Returns
    -------
    Threshold
        For one budget; see there for its fields.
    Dataset
        For a sequence, over ``k``: ``threshold, n_above, n_ties, n_kept, average_set_size`` as in ``evaluate``.

    Raises
    ------
    BudgetError
        Where a budget is no number in (0, C], or cannot be certain from a truncated store.
    {refused_scores}
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: one read of the store for any number of budgets, and a pilot of at most 10 % of the chunks (or 8)
    before; one more where the pilot was misled, and one more of a truncated store. A task takes the memory of a few chunks.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1.5)
    Threshold(value=0.3, n_above=3, n_ties=1, n_kept=0, budget=3)

    """
    check_nan_policy(nan_policy)
    source = as_source(scores, own_labels=False, where=where, ignore_index=ignore_index)
    budgets = parse_budgets(k, source.n_classes)
    counts = [count_labels(b, source.shape[0]) for b in budgets]
    asked = asked_checkpoint(checkpoint, "threshold", nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        source = run.source
        refuse_budgets(run, budgets)
        search = find_thresholds(run, counts)
        certify_budgets(run, budgets, [search.found[i].key for i in range(len(budgets))])
    found = [_threshold(search.found[i], source.dtype) for i in range(len(budgets))]
    if is_scalar(k):
        return found[0]
    values = {
        "threshold": threshold_values([t.value for t in found], source.dtype),
        "n_above": [t.n_above for t in found],
        "n_ties": [t.n_ties for t in found],
        "n_kept": [t.n_kept for t in found],
        "average_set_size": [(t.n_above + t.n_kept) / source.shape[0] for t in found],
    }
    return build_result(values, {"k": [float(b) for b in budgets]}, result_attrs(source, run.reads))


def _threshold(selection: Selection, dtype: Dtype) -> Threshold:
    return Threshold(
        score_value(selection.key, dtype), selection.n_above, selection.n_ties, selection.n_kept, selection.budget
    )


def score_value(key: int, dtype: Dtype) -> float | int:
    """Return the score of a key as a Python number."""
    value = decode([key], dtype)[0]
    return int(value) if dtype.kind in "iu" else float(value)


def threshold_values(values: list[float | int], dtype: Dtype) -> Array:
    """Return thresholds as float64, which holds every score but 64-bit integers; those as they are."""
    return np.array(values, dtype if dtype.kind in "iu" and dtype.itemsize == 8 else np.float64)
