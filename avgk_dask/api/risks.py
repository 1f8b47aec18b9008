"""Set sizes and risk as functions of the threshold, and the threshold of least risk."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..budgets import count_labels, parse_budget
from ..errors import BudgetError, LabelsError, OptionError
from ..graph.engine import run_search
from ..graph.places import least_risk, read_places
from ..graph.progress import computing
from ..graph.source import Source
from ..kernels.keys import first_key_above, key_range
from ..summaries.exact import as_units
from ..summaries.places import PlaceTally
from .attributes import result_attrs
from .inputs import as_source
from .options import check_nan_policy
from .thresholds import Threshold, score_value, threshold_values

_SET_SIZE = {
    "long_name": "average set size",
    "description": "Number of scores greater than the threshold, over N: the paper's function G.",
}


def average_set_size_at(
    scores: Any, thresholds: Any, *, nan_policy: str = "raise", progress: bool | None = None
) -> xr.DataArray:
    """Give the average size of the sets {score > t} for each threshold t: the paper's function G.

    Exact: thresholds are not rounded to the scores' dtype. One read for any number of thresholds.
    ``threshold_at`` is its generalised inverse: G(t) <= K if and only if t >= threshold_at(K), for 0 <= K < C.

    Parameters
    ----------
    scores
        N x C matrix: NumPy, Dask or Zarr array, xarray object, or the path of a store.
    thresholds
        Number or sequence of numbers.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` never counts NaN.
    progress
        Whether to show a progress bar on stderr.

    Returns
    -------
    DataArray over ``threshold``, in the order given; without dimension for a single number.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.average_set_size_at(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), [0.1, 0.35]).values.tolist()
    [2.5, 1.5]

    """
    check_nan_policy(nan_policy)
    source = as_source(scores, own_labels=False)
    wanted = _check_thresholds(thresholds)
    places = _Places.read(source, wanted, nan_policy, computing(progress))
    sizes = [n / source.shape[0] for n in places.n_labels]
    result = xr.DataArray(
        sizes, {"threshold": _coordinate(wanted)}, "threshold", "average_set_size", _SET_SIZE | places.attrs
    )
    return result[0] if np.ndim(thresholds) == 0 else result


def threshold_at(
    scores: Any, average_set_sizes: Any, *, nan_policy: str = "raise", progress: bool | None = None
) -> xr.DataArray:
    """Give, for each average set size K >= 0, the least t with average_set_size_at(t) <= K.

    This is the generalised inverse of the paper's function G: the (floor(N K) + 1)-th largest score, as
    ``threshold`` finds it. For K >= C every t will do; the smallest score is given. One read.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold_at(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), [0, 1, 1.4]).values.tolist()
    [0.6, 0.4, 0.4]

    """
    check_nan_policy(nan_policy)
    source = as_source(scores, own_labels=False)
    given = [average_set_sizes] if np.ndim(average_set_sizes) == 0 else list(average_set_sizes)
    try:
        sizes = [parse_budget(size) for size in given]
    except BudgetError:
        sizes = []
    if not sizes or min(sizes) < 0:
        raise BudgetError(f"average_set_sizes must be finite numbers of at least 0; got {average_set_sizes!r}.")
    n_samples, n_classes = source.shape
    counts = [count_labels(min(size, Fraction(n_classes)), n_samples) for size in sizes]
    search = run_search(source, counts, nan_policy=nan_policy, compute=computing(progress))
    values = [score_value(search.found[i].key, source.dtype) for i in range(len(counts))]
    attrs = {"long_name": "threshold", "description": "The least t with at most that many scores above it, over N."}
    result = xr.DataArray(
        threshold_values(values, source.dtype),
        {"average_set_size": [float(size) for size in sizes]},
        "average_set_size",
        "threshold",
        attrs | result_attrs(source, search.n_scans),
    )
    return result[0] if np.ndim(average_set_sizes) == 0 else result


def risk(
    scores: Any,
    labels: Any = None,
    thresholds: Any = None,
    *,
    cost: Any = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
) -> xr.Dataset:
    """Give the risk of the sets {score > t}: their error plus the cost of a label times their average size.

    This is class-selective rejection (Ha, 1997): every label in a set costs ``cost``, a missed label 1.

    Parameters
    ----------
    scores
        N x C matrix: NumPy, Dask or Zarr array, xarray object, or the path of a store.
    labels
        N integers (negative: unlabelled), or an N x C matrix of true probabilities. By default the labels
        stored beside the scores.
    thresholds
        Number or sequence of numbers.
    cost
        What a label costs; a float means the decimal that Python prints for it. By default the threshold
        itself, which is the best threshold for that cost where the scores are the true probabilities; each
        row then has a cost of its own, and the risks of different rows do not compare.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` never counts NaN.
    progress
        Whether to show a progress bar on stderr.

    Returns
    -------
    Dataset over ``threshold`` with ``error``, ``average_set_size`` and ``risk``. Exact, rounded once. One read.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.risk(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 2]), [0.15, 0.35], cost=0.1)
    >>> found.risk.values.tolist()
    [0.25, 0.65]

    """
    check_nan_policy(nan_policy)
    source = _labelled_source(scores, labels)
    if thresholds is None:
        raise OptionError("thresholds must be given: a number or a sequence of numbers.")
    wanted = _check_thresholds(thresholds)
    costs = [_finite(t) for t in wanted] if cost is None else [_check_cost(cost)] * len(wanted)
    places = _Places.read(source, wanted, nan_policy, computing(progress))
    sizes = [Fraction(n, source.shape[0]) for n in places.n_labels]
    risks = [
        math.nan if e is None or c is None else float(e + c * s)
        for e, c, s in zip(places.errors, costs, sizes, strict=True)
    ]
    over = {"threshold": _coordinate(wanted)}
    data = {
        "error": ("threshold", [math.nan if e is None else float(e) for e in places.errors], _ERROR),
        "average_set_size": ("threshold", [float(s) for s in sizes], _SET_SIZE),
        "risk": ("threshold", risks, {"long_name": "risk", "description": "error + cost * average_set_size"}),
    }
    result = xr.Dataset(data, over, places.attrs)
    return result.isel(threshold=0) if np.ndim(thresholds) == 0 else result


_ERROR = {
    "long_name": "error",
    "description": "Fraction of labelled samples whose label is outside {score > threshold}.",
}


@dataclass(frozen=True)
class BestThreshold:
    """The threshold of least risk: sets {score > value} have this error, average size and risk."""

    value: float | int
    risk: float
    error: float
    average_set_size: float
    cost: float
    #: How often all scores were read.
    reads: int


def best_threshold(
    scores: Any, labels: Any = None, *, cost: Any, nan_policy: str = "raise", progress: bool | None = None
) -> BestThreshold:
    """Find the threshold whose sets {score > t} have the least risk, error + cost * average set size, over all t.

    Exact: no other threshold has a lower risk on these data. Where the scores are the true probabilities,
    the cost itself is a best threshold; for estimated scores another one usually is. Usually three to five
    reads; more where very many thresholds have nearly the same risk.
    Of all thresholds with the same sets the least is given: the highest score left out, as in ``threshold``
    (-inf where none is).

    Parameters
    ----------
    scores
        N x C matrix: NumPy, Dask or Zarr array, xarray object, or the path of a store.
    labels
        N integers (negative: unlabelled), or an N x C matrix of true probabilities. By default the labels
        stored beside the scores.
    cost
        What a label in a set costs, where a missed label costs 1; a finite number.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` never puts NaN in a set.
    progress
        Whether to show a progress bar on stderr.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.best_threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 2]), cost=0.1)
    >>> found.risk, found.average_set_size
    (0.25, 2.5)

    """
    check_nan_policy(nan_policy)
    source = _labelled_source(scores, labels)
    exact = _check_cost(cost)
    compute = computing(progress)
    search = least_risk(source, exact, nan_policy, compute)
    best = search.best
    value: float | int = -math.inf
    reads = search.n_reads
    if best.n_labels < source.shape[0] * source.shape[1]:  # the highest score left out, as everywhere
        last = run_search(source, [best.n_labels], nan_policy=nan_policy, compute=compute)
        value, reads = score_value(last.found[0].key, source.dtype), reads + last.n_scans
    size = Fraction(best.n_labels, source.shape[0])
    return BestThreshold(value, float(best.risk), float(best.error), float(size), float(exact), reads)


@dataclass(frozen=True)
class _Places:
    """How many scores exceed each threshold, and the error of the sets they make (None without labels)."""

    n_labels: list[int]
    errors: list[Fraction | None]
    attrs: dict[str, Any]

    @classmethod
    def read(cls, source: Source, thresholds: list[Any], nan_policy: str, compute: Any) -> _Places:
        top = key_range(source.dtype)[1]
        firsts = [min(first_key_above(t, source.dtype), top + 1) for t in thresholds]
        edges = np.array(sorted({key for key in firsts if key <= top} or {top}), np.int64)
        tally = read_places(source, edges, nan_policy, compute)
        counts, weights = [*tally.n_from().tolist(), 0], _weights_from(tally)
        place = [int(np.searchsorted(edges, key)) if key <= top else edges.size for key in firsts]
        errors = [None if not tally.n_labelled else 1 - weights[i] / tally.n_labelled for i in place]
        return cls([counts[i] for i in place], errors, result_attrs(source, 1))


def _weights_from(tally: PlaceTally) -> list[Fraction]:
    """Give the label weight at or above each edge, and none behind the last."""
    if not tally.weights.size:
        return [*(Fraction(n) for n in tally.hits_from().tolist()), Fraction(0)]
    units = np.cumsum(as_units(tally.weights)[::-1])[::-1][1::2]
    return [*(Fraction(int(u), 1 << 1074) for u in units), Fraction(0)]


def _labelled_source(scores: Any, labels: Any) -> Source:
    source = as_source(scores, labels)
    if source.labels is None:
        raise LabelsError("labels must be given for a risk; got None, and none are stored beside the scores.")
    return source


def _check_thresholds(thresholds: Any) -> list[Any]:
    thresholds = thresholds.compute() if hasattr(thresholds, "compute") else thresholds
    given = [thresholds] if np.ndim(thresholds) == 0 else list(thresholds)
    found: list[Any] = [t.value if isinstance(t, (Threshold, BestThreshold)) else t for t in given]
    found = [t.item() if getattr(t, "ndim", None) == 0 else t for t in found]
    for t in found:
        if isinstance(t, bool) or not isinstance(t, numbers.Real) or not _fits_a_float(t):
            raise OptionError(f"thresholds must be numbers; got {t!r}.")
    if not found:
        raise OptionError("thresholds must not be empty.")
    return found


def _fits_a_float(value: Any) -> bool:
    """Whether a number is not NaN and a double can hold it, about."""
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def _coordinate(thresholds: list[Any]) -> NDArray[np.float64]:
    return np.array([float(t) for t in thresholds])


def _finite(value: Any) -> Fraction | None:
    return parse_budget(value) if math.isfinite(value) else None


def _check_cost(cost: Any) -> Fraction:
    value = cost.item() if getattr(cost, "ndim", None) == 0 and hasattr(cost, "item") else cost
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not _fits_a_float(value) or math.isinf(value):
        raise OptionError(f"cost must be a finite number; got {cost!r}.")
    return parse_budget(value)
