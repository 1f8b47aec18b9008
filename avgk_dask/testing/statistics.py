"""Breakdowns, standard errors and conformal sets, computed from their definitions with exact fractions.

Cost: as for ``oracle``; for small matrices only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..arrays import Array, Bools
from .oracle import Budget, _rows, _splitmix64, fraction_of, numbers_of, oracle_average_k_sets, oracle_top_k_sets


def oracle_breakdown(scores: Array, labels: Array, k: Budget, groups: Array) -> dict[int, dict[str, float]]:
    """Return the variables of ``breakdown`` for each group, for one budget, by definition.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    labels
        N integers; negative: unlabelled.
    k
        Budget in (0, C].
    groups
        One integer per sample; the labels themselves for a breakdown by class.

    Returns
    -------
    dict
        By group: ``n_samples, n_labelled, average_k_error, top_k_error, average_set_size``.

    Examples
    --------
    >>> import numpy as np
    >>> scores, labels = np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([0, 1])
    >>> oracle_breakdown(scores, labels, 1, labels)[1]["average_k_error"]
    1.0
    """
    sets = oracle_average_k_sets(scores, k)
    is_integer = fraction_of(k).denominator == 1
    top = oracle_top_k_sets(scores, int(fraction_of(k))) if is_integer else None
    result = {}
    for group in sorted(set(groups.tolist())):
        members = [i for i, name in enumerate(groups.tolist()) if name == group]
        labelled = [i for i in members if labels[i] >= 0]
        n = len(labelled)
        missed = sum(not sets[i, labels[i]] for i in labelled)
        top_missed = None if top is None else sum(not top[i, labels[i]] for i in labelled)
        result[group] = {
            "n_samples": len(members),
            "n_labelled": n,
            "average_k_error": missed / n if n else math.nan,
            "top_k_error": top_missed / n if n and top_missed is not None else math.nan,
            "average_set_size": sum(int(sets[i].sum()) for i in members) / len(members),
        }
    return result


def oracle_influences(scores: Array, labels: Array, k: Budget, rule: str, ties: str = "first") -> list[Fraction]:
    """Return the influence of each sample on an error: N times its contribution.

    Let n of N samples be labelled and e be the error. For a labelled sample, let m be 1 if its label is outside its set
    and 0 otherwise. The influence is (N / n) (m - e) for a labelled sample and 0 for others. For average-k, every
    sample adds r (Z - mean Z), where Z is the size of its set. The rate r is N / n times the share of labels among the
    scores of ranks B - w + 1 to B, where B = floor(N k) and w is the smallest integer with w**3 >= B**2, but at most
    16,384. Ties count with the share of labels among them.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    labels
        N integers; negative: unlabelled.
    k
        Budget in (0, C]; an integer for top-k.
    rule
        ``"average"`` or ``"top"``.
    ties
        ``"first"`` or ``"spread"``, as for ``evaluate``.

    Returns
    -------
    list
        N fractions, whose sum is 0.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_influences(np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([0, 1]), 1, "top")
    [Fraction(-1, 2), Fraction(1, 2)]
    """
    average = rule == "average"
    sets = oracle_average_k_sets(scores, k, ties) if average else oracle_top_k_sets(scores, int(fraction_of(k)))
    n, n_labelled = len(scores), int((labels >= 0).sum())
    scale = Fraction(n, n_labelled)
    missed = [label >= 0 and not sets[i, label] for i, label in enumerate(labels.tolist())]
    error = Fraction(sum(missed), n_labelled)
    psi = [scale * (m - error) if label >= 0 else Fraction(0) for m, label in zip(missed, labels.tolist(), strict=True)]
    if not average:
        return psi
    rate, sizes = scale * _label_share(scores, labels, k), [int(z) for z in sets.sum(1)]
    return [p + rate * (z - Fraction(sum(sizes), n)) for p, z in zip(psi, sizes, strict=True)]


def oracle_stderr(influences: Sequence[Fraction], clusters: Array | None = None) -> float:
    """Return the standard error of an error: the root of the sum of the squared influences, divided by N.

    Parameters
    ----------
    influences
        The result of ``oracle_influences``, or the difference of two.
    clusters
        One integer per sample: influences are first added up per cluster. By default each sample is a cluster.

    Returns
    -------
    float
        The standard error.

    Examples
    --------
    >>> import numpy as np
    >>> from fractions import Fraction
    >>> half = Fraction(1, 2)
    >>> oracle_stderr([half, -half]), oracle_stderr([half, -half], np.array([7, 7]))
    (0.3535533905932738, 0.0)
    """
    names: list[Any] = list(range(len(influences))) if clusters is None else clusters.tolist()
    sums = dict.fromkeys(names, Fraction(0))
    for name, psi in zip(names, influences, strict=True):
        sums[name] += psi
    return math.sqrt(sum(psi**2 for psi in sums.values())) / len(influences)


def _label_share(scores: Array, labels: Array, k: Budget) -> Fraction:
    """Return the share of labels among the scores ranked just above a budget, in the window of ``oracle_influences``."""
    flat, n_classes = numbers_of(scores), scores.shape[1]
    is_label = [int(labels[i // n_classes] == i % n_classes) for i in range(len(flat))]
    n_numbers = sum(x[0] for x in flat)
    budget = math.floor(fraction_of(k) * len(scores))
    width = next(w for w in range(budget + 1) if w**3 >= budget**2)
    ends = [min(count, n_numbers) for count in (budget - min(width, 16_384), budget)]
    if ends[0] == ends[1]:
        return Fraction(0)
    ordered = sorted(flat, reverse=True)

    def weight(count: int) -> Fraction:
        value = ordered[min(count, n_numbers - 1)]
        above = [hit for x, hit in zip(flat, is_label, strict=True) if x > value]
        at = [hit for x, hit in zip(flat, is_label, strict=True) if x == value]
        return sum(above) + Fraction((count - len(above)) * sum(at), len(at))

    return (weight(ends[1]) - weight(ends[0])) / (ends[1] - ends[0])


#: The cost of NaN, which no set contains, and the threshold above all other costs, whose sets contain every class.
_NEVER, _EVERYTHING = (2, 0), (1, 0)


def _draw(seed: int, stream: int, sample: int) -> float:
    """Return the random number of a sample, from 53 bits of a hash of the seed and the sample number."""
    start = _splitmix64((_splitmix64(seed) + stream) % 2**64)
    return float(_splitmix64(start ^ _splitmix64(sample)) >> 11) * 2.0**-53


def oracle_conformal_costs(
    scores: Array, method: str = "lac", penalty: Budget = 0, k_reg: int = 0, seed: int | None = None, stream: int = 0
) -> list[list[tuple[int, Any]]]:
    """Return the conformal cost of each class of each sample. Classes with the least cost enter the sets first.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class).
    method
        ``"lac"``: the negative score. ``"top_k"``: the rank. ``"aps"``: the sum of the probabilities down to the
        class's rank, each rounded to a multiple of 2**-60. ``"raps"``: the same plus a penalty for ranks beyond
        ``k_reg``, rounded to fewer bits if the penalty is large.
    penalty, k_reg
        Options of ``"raps"``.
    seed
        If not None, U times the probability of the class is subtracted from ``"aps"`` and ``"raps"`` costs, where U is the
        sample's random number.
    stream
        Stream of random numbers: 0 for calibration samples, 1 for new samples.

    Returns
    -------
    list
        For each sample a list of (0, cost), or (2, 0) if the score is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> [float(cost) for _, cost in oracle_conformal_costs(np.array([[0.25, 0.5, 0.25]]), "aps")[0]]
    [0.75, 0.5, 1.0]
    """
    n_classes = scores.shape[1]
    most = int(2 + fraction_of(penalty) * max(0, n_classes - k_reg)) + 1
    unit = 2 ** (62 - most.bit_length())
    late = round(fraction_of(penalty) * unit)
    result = []
    for i, row in enumerate(_rows(scores)):
        order = sorted(range(n_classes), key=lambda j: row[j], reverse=True)  # sorted is also stable in reverse
        costs: list[tuple[int, Any]] = [_NEVER] * n_classes
        total = 0
        for rank, j in enumerate(order, start=1):
            if row[j][0] == 0:
                continue
            value = row[j][1]
            if method == "lac":
                costs[j] = 0, -value
            elif method == "top_k":
                costs[j] = 0, rank
            elif method in ("aps", "raps"):
                total += round(Fraction(value) * unit)
                part = 0 if seed is None else round(Fraction(value * _draw(seed, stream, i)) * unit)
                costs[j] = 0, Fraction(total - part + late * max(0, rank - k_reg), unit)
            else:
                raise ValueError(f"unknown method {method!r}")
        result.append(costs)
    return result


def oracle_conformal(
    calibration: Array,
    labels: Array,
    scores: Array,
    alpha: Budget,
    method: str = "lac",
    by: Array | str | None = None,
    groups: Array | None = None,
    **options: Any,
) -> tuple[dict[int, float], Bools]:
    """Return the threshold of each group, and the sets of new samples, by definition.

    Parameters
    ----------
    calibration
        NumPy matrix (sample, class).
    labels
        Class numbers; negative: unlabelled.
    scores
        Another matrix with the same number of classes.
    alpha
        The allowed error.
    method
        As for ``oracle_conformal_costs``.
    by
        None, ``"class"``, or the group of each calibration sample.
    groups
        The group of each new sample.
    options
        ``penalty``, ``k_reg`` and ``seed``, as for ``oracle_conformal_costs``.

    Returns
    -------
    tuple
        Thresholds by group (0 if there is only one), and a boolean matrix. A threshold is the cost of rank
        ceil((n + 1) (1 - alpha)), converted to a score for LAC, and infinite if the sets contain all classes.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]])
    >>> oracle_conformal(scores, np.array([0, 1]), scores, 0.5)
    ({0: 0.4}, array([[ True, False, False],
           [ True,  True, False]]))
    """
    n_classes = scores.shape[1]
    costs = oracle_conformal_costs(calibration, method, stream=0, **options)
    label_costs: dict[int, list[tuple[int, Any]]] = {}
    for i, label in enumerate(labels.tolist()):
        if label >= 0:
            group = 0 if by is None else label if isinstance(by, str) else int(by[i])
            label_costs.setdefault(group, []).append(costs[i][label])
    limits = {}
    for group, own in label_costs.items():
        rank = math.ceil((len(own) + 1) * (1 - fraction_of(alpha)))
        limits[group] = min(sorted(own)[rank - 1], _EVERYTHING) if rank <= len(own) else _EVERYTHING
    sets = np.zeros(scores.shape, bool)
    new = oracle_conformal_costs(scores, method, stream=1, **options)
    for i in range(len(scores)):
        for j in range(n_classes):
            group = 0 if by is None else j if isinstance(by, str) else int(groups[i])  # type: ignore[index]
            sets[i, j] = new[i][j] <= limits.get(group, _EVERYTHING)
    return {group: _as_public_value(limit, method, n_classes) for group, limit in limits.items()}, sets


def _as_public_value(limit: tuple[int, Any], method: str, n_classes: int) -> float:
    """Return a threshold in the form that users see."""
    if limit == _EVERYTHING:
        return {"lac": -math.inf, "top_k": n_classes}.get(method, math.inf)
    return float(-limit[1] if method == "lac" else limit[1]) + 0.0
