"""Sets: lazy boolean matrices, chunked like the scores."""

from __future__ import annotations

from fractions import Fraction

import dask.array as da
import xarray as xr

from ..errors import BudgetError
from ..exact.budgets import parse_budgets, show
from ..kernels.keys import first_key_above
from ..passes.certifying import certify_ranks
from ..rules.lazy_sets import apply_rule, find_rule
from ..rules.threshold_rule import ThresholdRule
from ..rules.top_rule import TopRule
from ..sources.source import Source
from .above_thresholds import check_threshold
from .dimensions import with_lead
from .given import BudgetsLike, LabelsLike, ScoresLike, ThresholdsLike
from .inputs import as_lazy
from .policies import check_nan_policy, check_ties
from .shared_text import documented


@documented
def average_k_sets(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    ties: str = "first",
) -> da.Array | xr.DataArray:
    """Return the average-k sets: every label above one global threshold, floor(N k) in all, exactly.

    A class is in the set of a sample if its score > lambda, the (B + 1)-th largest of all scores with
    B = floor(N k), or if it is one of the B - n_above ties with lambda that are kept. Lazy: reads metadata
    only, until computed.

    Parameters
    ----------
    {scores}
    k
        Budget in (0, C].
    {where}
    {ignore_index}
    {nan_policy}
    ties
        Which ties at the threshold are kept where not all fit: ``"first"`` the first ones in row-major order;
        ``"spread"`` those that come first in a fixed pseudo-random order of (sample, class), which spreads
        them over the samples and is the same for any chunking.

    Returns
    -------
    DataArray or dask Array
        Boolean, N x C, lazy, chunked like the scores; a DataArray where the scores are one. Scores of more dimensions give
        sets of their shape. Samples that do not exist have empty sets.

    Raises
    ------
    {refused_budgets}
    {refused_scores}
    OptionError
        Where an option is none of the values it may take.
    {refused_store}

    Notes
    -----
    Cost: computing it finds the threshold (one read, and a pilot before) and then reads the scores once more;
    where ties are cut, one band again, and with ``ties="spread"`` one more read. The sets are as many bytes as
    there are scores: the one thing here as large as the matrix. With a stored or lazy ``where``, that is counted first.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.average_k_sets(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1.5).compute().astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])

    """
    check_nan_policy(nan_policy)
    check_ties(ties)
    source, frame = as_lazy(scores, where=where, ignore_index=ignore_index)
    (budget,) = parse_budgets([k], source.n_classes)
    rule = find_rule(source, budget, nan_policy, ties)
    return _wrap(apply_rule(source, rule, nan_policy), source, frame, "average_k_sets", k=show(budget))


@documented
def top_k_sets(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
) -> da.Array | xr.DataArray:
    """Return the top-k sets: each row's k highest scores, among equals the lowest class index first.

    Lazy: reads metadata only, until computed.

    Parameters
    ----------
    {scores}
    k
        Integer budget in 1..C.
    {where}
    {ignore_index}
    {nan_policy}

    Returns
    -------
    DataArray or dask Array
        Boolean, N x C, lazy, chunked like the scores; a DataArray where the scores are one. Scores of more dimensions give
        sets of their shape. Samples that do not exist have empty sets.

    Raises
    ------
    BudgetError
        Where k is no integer in 1..C.
    {refused_scores}
    {refused_store}

    Notes
    -----
    Cost: computing it reads the scores once. A task holds whole rows; the sets are as many bytes as there are scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.top_k_sets(np.array([[0.4, 0.2, 0.4, 0.4]]), 2).compute().astype(int)
    array([[1, 0, 1, 0]])

    """
    check_nan_policy(nan_policy)
    source, frame = as_lazy(scores, where=where, ignore_index=ignore_index)
    (budget,) = parse_budgets([k], source.n_classes)
    return _wrap(apply_rule(source, top_rule(budget, source), nan_policy), source, frame, "top_k_sets", k=show(budget))


@documented
def predict_sets(
    scores: ScoresLike,
    *,
    threshold: ThresholdsLike,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
) -> da.Array | xr.DataArray:
    """Return the sets {score > threshold} for a threshold found elsewhere, such as on a calibration set.

    The comparison is exact: the threshold is not rounded to the scores' dtype. Ties with it are out, so that on tied
    data the sets can be smaller than those of ``average_k_sets``, which keeps some. Lazy: reads metadata only, until computed.

    Parameters
    ----------
    {scores}
    threshold
        Number, or what ``threshold``, ``best_threshold`` or ``evaluate`` gave for one k.
    {where}
    {ignore_index}
    {nan_policy}

    Returns
    -------
    DataArray or dask Array
        Boolean, N x C, lazy, chunked like the scores; a DataArray where the scores are one. Scores of more dimensions give
        sets of their shape. Samples that do not exist have empty sets.

    Raises
    ------
    OptionError
        Where the threshold is no number, or several.
    {refused_scores}
    {refused_store}

    Notes
    -----
    Cost: computing it reads the scores once. The sets are as many bytes as there are scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.predict_sets(np.array([[0.6, 0.3, 0.1]]), threshold=0.3).compute().astype(int)
    array([[1, 0, 0]])

    """
    check_nan_policy(nan_policy)
    source, frame = as_lazy(scores, where=where, ignore_index=ignore_index)
    value, rule = check_threshold(threshold), rule_above(threshold, source)
    return _wrap(apply_rule(source, rule, nan_policy), source, frame, "predict_sets", threshold=float(value))


def top_rule(budget: Fraction, source: Source) -> TopRule:
    """Return the rule of the top-k sets of a source; refuse a budget that is no integer, or not certain."""
    if budget.denominator != 1:
        raise BudgetError(
            f"k must be an integer for top-k sets; got {show(budget)}. Use average_k_sets for a fractional k."
        )
    certify_ranks(source, int(budget), "k")
    return TopRule(int(budget))


def rule_above(threshold: ThresholdsLike, source: Source) -> ThresholdRule:
    """Return the rule of the sets above what stands for one threshold."""
    return ThresholdRule.from_first_key(first_key_above(check_threshold(threshold), source.dtype))


def _wrap(
    sets: da.Array, source: Source, frame: xr.DataArray | None, name: str, **attrs: object
) -> da.Array | xr.DataArray:
    sets = with_lead(sets, source.lead)
    return sets if frame is None else xr.DataArray(sets, frame.coords, frame.dims, name, attrs)
