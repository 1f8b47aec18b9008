"""``smallest_k``: the least budget whose error is at most a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ..errors import BudgetError, LabelsError, OptionError
from ..exact.budgets import as_float, parse_budget
from ..passes.certifying import certify_budgets, certify_ranks
from ..passes.finding import find_thresholds
from ..passes.run import Run, drive
from ..passes.running import running
from ..results.showing import ShownAsTable
from ..searches.smallest_budget import SmallestSearch
from .checkpoints import asked_checkpoint
from .given import BudgetLike, LabelsLike, PlaceLike, ScoresLike
from .labelled import labelled_source
from .policies import check_nan_policy
from .shared_text import documented
from .thresholds import score_value


@dataclass(frozen=True)
class SmallestK(ShownAsTable):
    """The least budgets whose errors are at most a target, as ``smallest_k`` finds them; ``predict_sets`` takes it.

    Attributes
    ----------
    k
        B / N, rounded up: as a budget of the same samples it stands for B labels in all.
    value
        lambda, the (B + 1)-th largest score, as ``threshold`` gives it for that budget.
    error
        The average-k error there.
    budget
        B, the number of labels.
    top_k
        The least integer K whose top-K error is at most the target.
    top_k_error
        The top-K error there.
    max_error
        The target, as asked.
    n_samples
        N.
    reads
        How often all scores were read.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.smallest_k(np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]]), np.array([0, 1]), max_error=0)
    >>> found.k, found.threshold, found.error, found.top_k
    (1.5, 0.3, 0.0, 2)

    """

    k: float
    value: float | int
    error: float
    budget: int
    top_k: int
    top_k_error: float
    max_error: float
    n_samples: int
    reads: int

    @property
    def threshold(self) -> float | int:
        """The threshold."""
        return self.value


@documented
def smallest_k(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    max_error: BudgetLike,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> SmallestK:
    """Find the least budget k whose average-k error is at most a target, and the least integer K of top-K.

    Exact over all budgets B / N, ties included: with B - 1 labels the error is above the target.

    Parameters
    ----------
    {scores}
    labels
        N integers (negative, masked or null: unlabelled). By default the labels stored beside the scores.
    max_error
        The target, a number from 0 to 1, as exact as budgets are: 0.01 means one in a hundred.
    {where}
    {ignore_index}
    {nan_policy}
    {progress}
    {checkpoint}

    Returns
    -------
    SmallestK
        With ``k, threshold, error, budget, top_k, top_k_error, max_error, n_samples`` and ``reads``.

    Raises
    ------
    BudgetError
        Where no budget reaches the target (labels have NaN for their scores), or the least cannot be certain from a
        truncated store.
    {refused_scores}
    LabelsError
        Where the labels do not fit the scores, are probabilities, or no sample has one.
    OptionError
        Where the target is no number from 0 to 1.
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: two reads of the store, and a third of one band; one more of a truncated store. Memory grows with the number of distinct label
    scores, 16 bytes each; tasks hold whole rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]])
    >>> found = avgk.smallest_k(scores, np.array([0, 1]), max_error=0.5)
    >>> found.k, found.top_k
    (0.5, 1)

    """
    check_nan_policy(nan_policy)
    target = _check_target(max_error)
    source = labelled_source(scores, labels, "smallest_k", where=where, ignore_index=ignore_index, hard=True)
    if source.has_soft_labels:
        raise LabelsError("labels must be class numbers for smallest_k; got a matrix. Pass one label for each sample.")
    asked = asked_checkpoint(checkpoint, "smallest_k", max_error=str(target), nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        search = drive(SmallestSearch(run.source.dtype, run.source.shape[1], target), run)
        return _found(search, run)


def _found(search: SmallestSearch, run: Run) -> SmallestK:
    """Return the answer of a search that has ended."""
    assert search.labels is not None
    n_labelled, needed, dtype = search.labels.n_labelled, search.n_needed, run.source.dtype
    if not n_labelled:
        raise LabelsError("labels must name the class of one sample at least; got none. Label some samples.")
    if needed > search.n_reachable:
        least = 1 - Fraction(search.n_reachable, n_labelled)
        raise BudgetError(
            f"max_error must be one that some budget reaches; got {float(search.max_error)}, and the scores of some labels are NaN: "
            f"the least error is {float(least):.6g}. Repair the scores, or ask for more."
        )
    # Without a label to hold, the sets are empty, and the highest score of all is the first left out.
    key = search.threshold_key if needed else find_thresholds(run.over(run.source.with_labels(None)), [0]).found[0].key
    certify_budgets(run, [Fraction(search.n_labels, run.source.shape[0])], [key])
    top, inside = search.least_top()
    certify_ranks(run.source, top, "max_error")
    return SmallestK(
        as_float(search.n_labels, run.source.shape[0]),
        score_value(key, dtype),
        float(1 - Fraction(needed, n_labelled)),
        search.n_labels,
        top,
        float(1 - Fraction(inside, n_labelled)),
        float(search.max_error),
        run.source.shape[0],
        run.reads,
    )


def _check_target(max_error: BudgetLike) -> Fraction:
    try:
        value = parse_budget(max_error)
    except BudgetError:
        value = Fraction(-1)
    if not 0 <= value <= 1 or not math.isfinite(float(value)):
        raise OptionError(
            f"max_error must be a number from 0 to 1; got {max_error!r}. Pass the error that may remain, such as 0.01."
        )
    return value
