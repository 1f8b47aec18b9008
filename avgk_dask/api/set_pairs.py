"""``set_pairs``: which classes are in sets together; and ``set_utility``: the value of sets by size and hits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from ..arrays import Floats
from ..axis_names import name_list, refuse_reordered
from ..errors import OptionError
from ..exact.budgets import parse_one
from ..results.datasets import build_result, check_result
from ..results.registry import PAIRS, UTILITIES
from ..settings import setting
from ..statistics.pairs import PairPlan, pair_pass
from ..statistics.truncated import refuse_truncated
from .inputs.names import class_names_of, open_once
from .inputs.sources import as_source
from .options import (
    BudgetLike,
    LabelsLike,
    Named,
    NanPolicy,
    ScanOptions,
    ScoresLike,
    check_count,
    check_word,
    result_attrs,
)
from .sets import settle_rule


def set_pairs(
    scores: ScoresLike,
    k: BudgetLike,
    *,
    n_pairs: int = 100,
    names: Sequence[str] | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
) -> xr.Dataset:
    """Count the pairs of classes that are in average-k sets together, and return the most frequent ones.

    These are the classes that the model confuses.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Budget in (0, C].
    n_pairs
        Maximum number of pairs to return; ties in the count go to the lower class numbers.
    names
        A name for each class. By default those stored with the scores.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Dataset
        Over ``pair``, the most frequent first: ``class_a`` and ``class_b``, their ``name_a`` and ``name_b`` if names are
        known, ``count``, the number of sets that contain both, and ``n_sets_a``, ``n_sets_b``, the numbers of sets that
        contain each. The attribute ``n_pairs`` is the number of different pairs.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    OptionError
        If ``n_pairs`` is not a positive integer, or there is not one name per class.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: two reads: one finds the threshold, one the sets. Memory grows with the number of different pairs, at most
    C (C - 1) / 2, by 16 bytes each.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.0, 0.3, 0.7]])
    >>> pairs = avgk.set_pairs(scores, 2)
    >>> pairs.class_a.values.tolist(), pairs.class_b.values.tolist(), pairs["count"].values.tolist()
    ([0, 1], [1, 2], [2, 1])
    """
    check_count("n_pairs", n_pairs, "Pass the number of pairs to return.")
    options = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress)
    scores = open_once(scores)
    source = as_source(scores, own_labels=ignore_index is not None, **options.opening)
    refuse_truncated(source, "set_pairs")
    budget, n_classes = parse_one(k, source.n_classes), source.n_classes
    names = class_names_of(scores) if names is None else names
    if names is not None:
        names = name_list(names, n_classes, "names")
        refuse_reordered(names, class_names_of(scores))
    with options.run(source) as run:
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
    if names is not None:
        values |= {"name_a": [names[i] for i in a], "name_b": [names[i] for i in b]}
    attrs = result_attrs(source, run.reads, k=float(budget), n_pairs=int(tally.codes.size))
    return build_result(values, {"pair": np.arange(order.size)}, attrs, PAIRS)


#: The value of a set that contains its label, by its size; beta is that of F-beta.
_UTILITIES: dict[str, Callable[[Floats, float], Floats]] = {
    "accuracy": lambda size, beta: np.ones_like(size),
    "f": lambda size, beta: (1 + beta**2) / (size + beta**2),
    "discounted": lambda size, beta: 1 / size,
    "u65": lambda size, beta: 1.6 / size - 0.6 / size**2,
    "u80": lambda size, beta: 2.2 / size - 1.2 / size**2,
}
#: The cost of a set, by its size; a rate multiplies it.
_COSTS: dict[str, Callable[[Floats], Floats]] = {
    "size": lambda size: size,
    "log": lambda size: np.log(np.maximum(size, 1)),
}


def set_utility(
    result: xr.Dataset,
    utility: str | Sequence[str] = "f",
    *,
    beta: float = 1.0,
    cost: float = 0.0,
    cost_of: str = "size",
) -> xr.Dataset:
    """Compute the utility of the sets of a result, as a function of k.

    A set Y that contains its label has the value ``g(|Y|)``, other sets have none, and every set has a cost:
    utility = (sum of ``g(|Y|)`` over the sets with their label) / n - cost * (sum of ``c(|Y|)`` over all sets) / N, where
    n is the number of labelled samples.

    Parameters
    ----------
    result
        Result of ``evaluate`` for hard labels.
    utility
        g: ``"f"`` (1 + beta**2) / (size + beta**2), the F-measure of a set with one right label; ``"discounted"``
        1 / size; ``"u65"`` 1.6 / size - 0.6 / size**2 and ``"u80"`` 2.2 / size - 1.2 / size**2 (Zaffalon et al., 2012);
        ``"accuracy"`` 1. With a sequence of these, the result is also over ``utility``.
    beta
        The beta of ``"f"``: above 1, a missed label weighs more than a large set.
    cost
        Factor of the cost, such as 0.01.
    cost_of
        c: ``"size"``, or ``"log"``, the natural logarithm of the size (0 for an empty set).

    Returns
    -------
    Dataset
        ``average_k_utility`` and ``top_k_utility`` over ``k``, and the ``threshold`` of each k.

    Raises
    ------
    OptionError
        If the result is not of hard labels, or an option is not one of the values it may take.
    DtypeError
        If ``result`` is not a Dataset.

    Notes
    -----
    Cost: reads nothing; it needs only ``set_size_count`` and ``set_hit_count``.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]]), np.array([0, 1]), k=[1, 1.5])
    >>> avgk.set_utility(result, "discounted").average_k_utility.values.tolist()
    [0.5, 0.75]
    """
    check_result(result, ["set_size_count", "top_k_error"])
    if "set_hit_count" not in result:
        raise OptionError(
            "result has no set_hit_count, which evaluate computes if labels are class numbers. Pass labels to evaluate."
        )
    check_result(result, ["set_hit_count"])
    names = [utility] if isinstance(utility, str) else list(dict.fromkeys(utility))
    for name in names or [""]:
        check_word("utility", name, _UTILITIES)
    check_word("cost_of", cost_of, _COSTS)
    for name, value in (("beta", beta), ("cost", cost)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise OptionError(f"{name} must be a number of at least 0; got {value!r}. Pass a float such as 1.0.")
    utilities = [_utilities(result, name, float(beta), float(cost), cost_of) for name in names]
    average, top = (np.array(column) for column in zip(*utilities, strict=True))
    coords: Named = {"k": result["k"].values}
    attrs: Named = {"beta": float(beta), "cost": float(cost), "cost_of": cost_of}
    if isinstance(utility, str):
        average, top, attrs = average[0], top[0], {"utility": utility, **attrs}
    else:
        coords = {"utility": names, **coords}
    values = {"average_k_utility": average, "top_k_utility": top, "threshold": result["threshold"].values}
    return build_result(values, coords, attrs, UTILITIES)


def _utilities(result: xr.Dataset, utility: str, beta: float, cost: float, cost_of: str) -> tuple[Floats, Floats]:
    """Return the utilities of average-k and top-k sets for each budget."""
    sizes, k = result["size"].values.astype(np.float64), result["k"].values
    worth, price = np.zeros_like(sizes), _COSTS[cost_of](sizes) * cost
    worth[sizes > 0] = _UTILITIES[utility](sizes[sizes > 0], beta)
    n, n_labelled = int(result.attrs["n_samples"]), int(result.attrs["n_labelled"])
    average = [
        math.fsum(hits * worth) / n_labelled - math.fsum(counts * price) / n if n_labelled else math.nan
        for hits, counts in zip(result["set_hit_count"].values, result["set_size_count"].values, strict=True)
    ]
    top = (1 - result["top_k_error"].values) * _UTILITIES[utility](k, beta) - _COSTS[cost_of](k) * cost
    return np.array(average), top
