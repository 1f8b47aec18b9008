"""``set_pairs``: which classes are in sets together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from ..axis_names import name_list, refuse_reordered
from ..errors import OptionError
from ..exact.budgets import parse_one
from ..passes.certifying import refuse_truncated
from ..passes.running import running
from ..results.datasets import build_result
from ..results.registry import PAIRS
from ..rules.lazy_sets import settle_rule
from ..scans.set_members import PairPlan, pair_pass
from ..settings import setting
from .attributes import Named, result_attrs
from .given import BudgetLike, LabelsLike, ScoresLike
from .input_names import class_names_of, open_once
from .inputs import as_source
from .policies import check_nan_policy
from .shared_text import documented


@documented
def set_pairs(
    scores: ScoresLike,
    k: BudgetLike,
    *,
    n_pairs: int = 100,
    names: Sequence[str] | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
) -> xr.Dataset:
    """Count which classes are in average-k sets together, and return the most frequent pairs.

    These are the classes that the model takes for each other.

    Parameters
    ----------
    {scores}
    k
        Budget in (0, C].
    n_pairs
        How many pairs to return at most; ties in the count go to the lower class numbers.
    names
        A name for each class. By default those stored beside the scores.
    {where}
    {ignore_index}
    {nan_policy}
    {progress}

    Returns
    -------
    Dataset
        Over ``pair``, the most frequent first: ``class_a`` and ``class_b``, their ``name_a`` and ``name_b`` where names are
        known, ``count``, the number of sets that hold both, and ``n_sets_a``, ``n_sets_b``, those that hold each. The
        attribute ``n_pairs`` tells how many different pairs there are.

    Raises
    ------
    {refused_budgets}
    {refused_scores}
    OptionError
        Where ``n_pairs`` is no positive integer, or there are not as many names as classes.
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: two reads: one finds the threshold, one the sets. What comes together grows with the number of different pairs,
    16 bytes each, of which there are at most C (C - 1) / 2.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.0, 0.3, 0.7]])
    >>> found = avgk.set_pairs(scores, 2)
    >>> found.class_a.values.tolist(), found.class_b.values.tolist(), found["count"].values.tolist()
    ([0, 1], [1, 2], [2, 1])

    """
    check_nan_policy(nan_policy)
    if isinstance(n_pairs, bool) or not isinstance(n_pairs, (int, np.integer)) or n_pairs < 1:
        raise OptionError(f"n_pairs must be a positive integer; got {n_pairs!r}. Pass how many pairs you want.")
    scores = open_once(scores)
    source = as_source(scores, own_labels=ignore_index is not None, where=where, ignore_index=ignore_index)
    refuse_truncated(source, "set_pairs")
    budget, n_classes = parse_one(k, source.n_classes), source.n_classes
    known = class_names_of(scores) if names is None else names
    known = None if known is None else name_list(known, n_classes, "names")
    if known is not None and names is not None:
        refuse_reordered(known, class_names_of(scores))
    with running(source, progress, nan_policy) as run:
        selection, rule = settle_rule(run, budget, "first")
        plan = PairPlan(source.dtype, n_classes, rule, tuple(source.rows), setting("tile-scores"))
        n_labels = selection.n_above + selection.n_kept
        most = min(n_classes * (n_classes - 1) // 2, n_labels * int(selection.set_sizes.size))
        tally = run.read(pair_pass(plan, most))
    order = np.lexsort((tally.codes, -tally.counts))[:n_pairs]
    a, b = np.divmod(tally.codes[order], n_classes)
    values: Named = {
        "class_a": a,
        "class_b": b,
        "count": tally.counts[order],
        "n_sets_a": tally.n_sets[a],
        "n_sets_b": tally.n_sets[b],
    }
    if known is not None:
        values |= {"name_a": [known[i] for i in a], "name_b": [known[i] for i in b]}
    attrs = result_attrs(source, run.reads, k=float(budget), n_pairs=int(tally.codes.size))
    return build_result(values, {"pair": np.arange(order.size)}, attrs, PAIRS)
