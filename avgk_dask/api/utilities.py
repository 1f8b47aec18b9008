"""``set_utility``: what sets are worth, from how many there are of each size and how many hold their label."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr

from ..arrays import Floats
from ..errors import OptionError
from ..results.datasets import build_result, check_result
from ..results.registry import UTILITIES

#: What a set of some size that holds its label is worth; beta is that of F-beta.
_UTILITIES: dict[str, Callable[[Floats, float], Floats]] = {
    "accuracy": lambda size, beta: np.ones_like(size),
    "f": lambda size, beta: (1 + beta**2) / (size + beta**2),
    "discounted": lambda size, beta: 1 / size,
    "u65": lambda size, beta: 1.6 / size - 0.6 / size**2,
    "u80": lambda size, beta: 2.2 / size - 1.2 / size**2,
}
#: What a set of some size costs, times the rate.
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

    A set Y that holds its label is worth ``g(|Y|)``, any other nothing; each costs something besides:
    utility = (sum of ``g(|Y|)`` over the sets with their label) / n - cost * (sum of ``c(|Y|)`` over all sets) / N, n the number of
    labelled samples.

    Parameters
    ----------
    result
        What ``evaluate`` gave for hard labels.
    utility
        g: ``"f"`` (1 + beta**2) / (size + beta**2), the F-measure of a set with one right label; ``"discounted"``
        1 / size; ``"u65"`` 1.6 / size - 0.6 / size**2 and ``"u80"`` 2.2 / size - 1.2 / size**2 (Zaffalon et al., 2012);
        ``"accuracy"`` 1. Or several of these: the result is then over ``utility``, too.
    beta
        That of ``"f"``: above 1, a missed label weighs more than a large set.
    cost
        What each unit of the cost takes off, such as 0.01.
    cost_of
        c: ``"size"``, or ``"log"``, the natural logarithm of the size (0 for an empty set).

    Returns
    -------
    Dataset
        ``average_k_utility`` and ``top_k_utility`` over ``k``, and the ``threshold`` of each k.

    Raises
    ------
    OptionError
        Where the result has no hard labels, or an option is none of the values it may take.
    DtypeError
        Where ``result`` is no Dataset.

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
            "result must be of class numbers as labels, for set_hit_count; got none. Pass evaluate its labels."
        )
    check_result(result, ["set_hit_count"])
    names = [utility] if isinstance(utility, str) else list(dict.fromkeys(utility))
    for name in names or [""]:
        _check_choice("utility", name, _UTILITIES)
    _check_choice("cost_of", cost_of, _COSTS)
    for name, value in (("beta", beta), ("cost", cost)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise OptionError(f"{name} must be a number of at least 0; got {value!r}. Pass a float such as 1.0.")
    found = np.array([_utilities(result, name, float(beta), float(cost), cost_of) for name in names])
    one = isinstance(utility, str)
    average, top = (found[0, i] if one else found[:, i] for i in range(2))
    values = {"average_k_utility": average, "top_k_utility": top, "threshold": result["threshold"].values}
    coords = {"k": result["k"].values} if one else {"utility": names, "k": result["k"].values}
    attrs = {"beta": float(beta), "cost": float(cost), "cost_of": cost_of}
    return build_result(values, coords, {"utility": utility, **attrs} if one else attrs, UTILITIES)


def _utilities(result: xr.Dataset, utility: str, beta: float, cost: float, cost_of: str) -> tuple[Floats, Floats]:
    """Return the utilities of average-k and of top-k, for each budget."""
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


def _check_choice(name: str, value: object, choices: Mapping[str, object]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"{name} must be {' or '.join(map(repr, choices))}; got {value!r}. Use one of these.")
