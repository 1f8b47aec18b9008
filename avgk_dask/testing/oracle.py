"""Every quantity by its definition: slow, simple, and independent of the engine.

Cost: oracles sort and compare scores as Python numbers, and are for small matrices only.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array, Bools

#: A budget, as ``evaluate`` takes it.
Budget: TypeAlias = float | Decimal | Fraction | str
#: A score as a sort key: whether it is a number, and its value.
Ordered: TypeAlias = tuple[int, float]


def fraction_of(k: Budget) -> Fraction:
    """Return a budget as an exact fraction."""
    return Fraction(k) if isinstance(k, (int, Fraction)) else Fraction(Decimal(str(k)))


def numbers_of(scores: Array) -> list[Ordered]:
    """Return the scores row by row as sort keys: -0.0 equals 0.0, and NaN is below all numbers."""
    exact = scores if scores.dtype.kind in "iu" else scores.astype(np.float64)
    return [(0, 0) if x != x else (1, x + 0) for x in exact.reshape(-1).tolist()]


def _rows(scores: Array) -> list[list[Ordered]]:
    """Return the scores of each row as sort keys."""
    flat, n_classes = numbers_of(scores), scores.shape[1]
    return [flat[i : i + n_classes] for i in range(0, len(flat), n_classes)]


def oracle_threshold(scores: Array, k: Budget) -> tuple[float, int, int, int]:
    """Return lambda, n_above, n_ties, n_kept: sort all scores and count.

    lambda is the (B + 1)-th largest of the N C scores, B = floor(N k), or the smallest if B = N C. NaN ranks below all
    numbers and is never kept.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    k
        Budget in (0, C].

    Returns
    -------
    tuple
        ``(lambda, n_above, n_ties, n_kept)``.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_threshold(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1)
    (0.4, 1, 2, 1)
    """
    flat = numbers_of(scores)
    budget = math.floor(fraction_of(k) * scores.shape[0])
    ordered = sorted(flat, reverse=True)
    value = ordered[min(budget, len(ordered) - 1)]
    n_above = sum(x > value for x in flat)
    n_ties = sum(x == value for x in flat)
    n_kept = 0 if value[0] == 0 else budget - n_above
    return (math.nan if value[0] == 0 else value[1]), n_above, n_ties, n_kept


def oracle_average_k_sets(scores: Array, k: Budget, ties: str = "first") -> Bools:
    """Return the sets: all scores above lambda, then ties (in row-major order, or spread) until the budget is used.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    k
        Budget in (0, C].
    ties
        ``"first"`` or ``"spread"``, as for ``evaluate``.

    Returns
    -------
    ndarray
        Boolean, of the scores' shape.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_average_k_sets(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1).astype(int)
    array([[1, 0, 0],
           [1, 0, 0]])
    """
    value, _, _, n_kept = oracle_threshold(scores, k)
    threshold = (0, 0) if value != value else (1, value)
    flat = numbers_of(scores)
    tied = [i for i, x in enumerate(flat) if x == threshold]
    if ties == "spread":
        tied.sort(key=lambda i: -(_splitmix64(i) >> 24))  # stable: equal numbers stay in row-major order
    kept = set(tied[:n_kept])
    return np.array([x > threshold or i in kept for i, x in enumerate(flat)]).reshape(scores.shape)


def _splitmix64(number: int) -> int:
    """Return the pseudo-random number of a flat index."""
    x = (number + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def _label_weights(sets: Bools, labels: Array) -> list[Fraction]:
    """Return the label weight of each member of the sets."""
    if labels.ndim == 2:
        return [Fraction(x) for x in labels[sets].astype(np.float64).tolist()]
    return [Fraction(int(labels[i] == j)) for i, j in np.argwhere(sets).tolist()]


def _outside(weight: Fraction, labels: Array) -> float:
    """Return 1 - weight / n, rounded once; 0 if rounded probabilities sum to more than 1."""
    n_labelled = len(labels) if labels.ndim == 2 else int((labels >= 0).sum())
    return float(max(1 - weight / n_labelled, Fraction(0))) if n_labelled else math.nan


def _error(sets: Bools, labels: Array | None) -> float:
    """Return the error of sets: the label weight outside, divided by the number of labelled samples."""
    return math.nan if labels is None else _outside(sum(_label_weights(sets, labels), Fraction(0)), labels)


def oracle_tie_sensitivity(scores: Array, labels: Array, k: Budget) -> tuple[float, float, float]:
    """Return the lowest, the highest and the expected average-k error over all ways to keep n_kept of the ties.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    labels
        N integers (negative: unlabelled), or a matrix of probabilities.
    k
        Budget in (0, C].

    Returns
    -------
    tuple
        ``(lowest, highest, expected)``; all NaN if no sample is labelled.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_tie_sensitivity(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 1]), 1)
    (0.0, 0.5, 0.25)
    """
    value, _, n_ties, n_kept = oracle_threshold(scores, k)
    threshold = (0, 0) if value != value else (1, value)
    flat = numbers_of(scores)
    above = np.array([x > threshold for x in flat]).reshape(scores.shape)
    tied = np.array([x == threshold for x in flat]).reshape(scores.shape)
    base = sum(_label_weights(above, labels), Fraction(0))
    weights = sorted(_label_weights(tied, labels), reverse=True)
    most = sum(weights[:n_kept], Fraction(0))
    least = sum(weights[n_ties - n_kept :], Fraction(0))
    mean = sum(weights, Fraction(0)) * n_kept / n_ties
    low, high, expected = (_outside(base + extra, labels) for extra in (most, least, mean))
    return low, high, expected


def oracle_top_k_sets(scores: Array, k: int) -> Bools:
    """Return each row's k highest scores, the lowest class first among equal scores; never NaN.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    k
        Integer budget in 1..C.

    Returns
    -------
    ndarray
        Boolean, of the scores' shape.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_top_k_sets(np.array([[0.4, 0.2, 0.4, 0.4]]), 2).astype(int)
    array([[1, 0, 1, 0]])
    """
    chosen = np.zeros(scores.shape, bool)
    for i, row in enumerate(_rows(scores)):
        order = sorted(range(len(row)), key=lambda j: row[j], reverse=True)  # sorted is also stable in reverse
        for j in order[:k]:
            chosen[i, j] = row[j][0] == 1
    return chosen


def oracle_evaluate(scores: Array, labels: Array | None, k: Budget, ties: str = "first") -> dict[str, Any]:
    """Return all results for one budget, by definition.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    labels
        N integers (negative: unlabelled), or a matrix of probabilities, or None.
    k
        Budget in (0, C].
    ties
        ``"first"`` or ``"spread"``, as for ``evaluate``.

    Returns
    -------
    dict
        ``threshold, n_above, n_ties, n_kept, average_set_size, average_k_error``, its lowest, highest and expected
        value, ``top_k_error`` and ``set_size_count``, as ``evaluate`` names them; errors are exact fractions, rounded once.

    Examples
    --------
    >>> import numpy as np
    >>> result = oracle_evaluate(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 1]), 1)
    >>> result["average_k_error"], result["top_k_error"], result["set_size_count"]
    (0.5, 0.5, [0, 2])
    """
    value, n_above, n_ties, n_kept = oracle_threshold(scores, k)
    sets = oracle_average_k_sets(scores, k, ties)
    nan = math.nan, math.nan, math.nan
    low, high, expected = nan if labels is None else oracle_tie_sensitivity(scores, labels, k)
    is_integer = fraction_of(k).denominator == 1
    return {
        "threshold": float(value),
        "n_above": n_above,
        "n_ties": n_ties,
        "n_kept": n_kept,
        "average_set_size": float(Fraction(int(sets.sum()), scores.shape[0])),
        "average_k_error": _error(sets, labels),
        "average_k_error_lowest": low,
        "average_k_error_highest": high,
        "average_k_error_expected": expected,
        "top_k_error": _error(oracle_top_k_sets(scores, int(fraction_of(k))), labels) if is_integer else math.nan,
        "set_size_count": np.bincount(sets.sum(1)).tolist(),
    }


def oracle_transfer(
    calibration: Array, scores: Array, labels: Array | None, k: Budget, guarantee: str | None = None
) -> dict[str, float]:
    """Return the result of applying the threshold of calibration scores to other scores, for one budget.

    Parameters
    ----------
    calibration
        NumPy matrix (sample, class).
    scores
        Another matrix with the same number of classes.
    labels
        N integers (negative: unlabelled), or a matrix of probabilities, or None.
    k
        Budget in (0, C].
    guarantee
        None or ``"expected"``, as for ``transfer``.

    Returns
    -------
    dict
        The variables of ``transfer``.

    Examples
    --------
    >>> import numpy as np
    >>> result = oracle_transfer(np.array([[0.6, 0.3], [0.4, 0.2]]), np.array([[0.5, 0.4], [0.1, 0.35]]), None, 1)
    >>> result["threshold"], result["average_set_size"], result["own_threshold"]
    (0.3, 1.5, 0.35)
    """
    (n, n_classes), n_new = calibration.shape, len(scores)
    budget = fraction_of(k) * n if guarantee is None else fraction_of(k) * (n + 1) - n_classes
    ordered = sorted(numbers_of(calibration), reverse=True)
    value = ordered[min(math.floor(budget), len(ordered) - 1)]
    # Python compares integers and floats exactly.
    sets = np.array([x > value for x in numbers_of(scores)]).reshape(scores.shape)
    sizes = [Fraction(size) for size in sets.sum(1).tolist()]
    mean = sum(sizes) / n_new
    spread = sum((size - mean) ** 2 for size in sizes) * (Fraction(1, n) + Fraction(1, n_new))
    own = oracle_average_k_sets(scores, k)
    return {
        "threshold": math.nan if value[0] == 0 else float(value[1]),
        "average_set_size": float(mean),
        "average_set_size_stderr": math.sqrt(spread / (n_new - 1)) if n_new > 1 else math.nan,
        "average_k_error": _error(sets, labels),
        "own_threshold": float(oracle_threshold(scores, k)[0]),
        "own_average_set_size": float(Fraction(int(own.sum()), n_new)),
        "own_average_k_error": _error(own, labels),
    }


def oracle_smallest_k(scores: Array, labels: Array, max_error: Budget) -> dict[str, float]:
    """Return the least budget whose average-k error is at most a target, by trying all budgets.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    labels
        Class numbers; negative: unlabelled.
    max_error
        The target, from 0 to 1.

    Returns
    -------
    dict
        ``budget`` (B), ``threshold`` (the (B + 1)-th largest score, or the smallest), ``error``, ``top_k`` and
        ``top_k_error``; budgets are infinite if none is sufficient.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_smallest_k(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), np.array([0, 1]), 0)["budget"]
    3
    """
    flat, n_classes = numbers_of(scores), scores.shape[1]
    order = sorted(range(len(flat)), key=lambda i: (flat[i], -i), reverse=True)
    order = [i for i in order if flat[i][0]]
    label_indices = {i * n_classes + int(y) for i, y in enumerate(labels) if y >= 0}
    result = {"budget": math.inf, "top_k": math.inf}
    for budget in range(len(order) + 1):
        error = 1 - Fraction(len(label_indices.intersection(order[:budget])), len(label_indices))
        if error <= fraction_of(max_error):
            lowest = order[budget] if budget < len(order) else order[-1]
            value = math.nan if budget == len(order) < len(flat) else flat[lowest][1]
            result |= {"budget": budget, "threshold": value, "error": float(error)}
            break
    for k in range(1, n_classes + 1):
        sets = oracle_top_k_sets(scores, k).reshape(-1)
        error = 1 - Fraction(sum(bool(sets[i]) for i in label_indices), len(label_indices))
        if error <= fraction_of(max_error):
            result |= {"top_k": k, "top_k_error": float(error)}
            break
    return result


def oracle_straddle(scores: Array, k: int, order: int) -> tuple[float, float, float]:
    """Return strength, weight and magnitude of one order of one budget: means over all pairs of samples, rounded once.

    The differences are s(x)[k + order] - s(x')[k + 1 - order], s sorted decreasingly, for all ordered pairs (x, x').

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    k
        Integer budget.
    order
        Order in 1..min(k, C - k).

    Returns
    -------
    tuple
        ``(strength, weight, magnitude)``; strength and magnitude are NaN if a score of these ranks is infinite or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> eta = np.array([[1, 0, 0], [1/2, 1/2, 0], [1/3, 1/3, 1/3]])
    >>> tuple(round(x, 4) for x in oracle_straddle(eta, 2, 1))  # 1/27 = 1/9 * 1/3
    (0.037, 0.1111, 0.3333)
    """
    rows = [sorted(row, reverse=True) for row in _rows(scores)]
    pairs = [(x[k + order - 1], y[k - order]) for x in rows for y in rows]
    n_positive = sum(a > b for a, b in pairs)
    weight = Fraction(n_positive, len(pairs))
    if any(is_number == 0 or math.isinf(value) for pair in pairs for is_number, value in pair):
        return math.nan, float(weight), math.nan
    total = sum((Fraction(a[1]) - Fraction(b[1]) for a, b in pairs if a > b), Fraction(0))
    return float(total / len(pairs)), float(weight), float(total / n_positive) if n_positive else 0.0


def oracle_supports(scores: Array) -> list[tuple[float, float]]:
    """Return the smallest and the largest score of every rank; NaN is below all numbers.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).

    Returns
    -------
    list
        ``(smallest, largest)`` for the ranks 1..C.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_supports(np.array([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]]))
    [(0.4, 0.7), (0.2, 0.4), (0.1, 0.2)]
    """
    columns = zip(*(sorted(row, reverse=True) for row in _rows(scores)), strict=True)
    return [tuple(math.nan if x[0] == 0 else x[1] for x in (min(c), max(c))) for c in columns]  # type: ignore[misc]
