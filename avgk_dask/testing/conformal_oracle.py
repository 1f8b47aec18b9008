"""Conformal sets by their definition: slow, obvious, and independent of the package's engine."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ..arrays import Array, Bools
from .oracle import Budget, _splitmix64, fraction_of, numbers_of

#: What no set holds, and what every set holds whose rank is beyond the calibration samples.
_NEVER, _EVERYTHING = (2, 0), (1, 0)


def _draw(seed: int, stream: int, sample: int) -> float:
    """Return the random number of a sample: 53 bits of hashes of its number and the seed."""
    start = _splitmix64((_splitmix64(seed) + stream) % 2**64)
    return float(_splitmix64(start ^ _splitmix64(sample)) >> 11) * 2.0**-53


def oracle_conformal_costs(
    scores: Array,
    method: str = "lac",
    penalty: Budget = 0,
    k_reg: int = 0,
    seed: int | None = None,
    stream: int = 0,
) -> list[list[tuple[int, Any]]]:
    """Return what each class of each sample costs: those that cost least enter the sets first.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class), small enough for Python's own numbers.
    method
        ``"lac"``: the score with its sign changed; ``"top_k"``: the rank; ``"aps"``: the sum of the probabilities of the ranks
        down to and with the class's own, each rounded to a multiple of 2**-60; ``"raps"``: with a penalty for late ranks,
        and as many bits less as the largest penalty has.
    penalty, k_reg
        Those of ``"raps"``.
    seed
        Where given, costs of probabilities are less by U times the class's own, U the random number of the sample.
    stream
        0 for calibration samples, 1 for new ones, whose random numbers differ.

    Returns
    -------
    list
        For each sample a list of (0, cost); (2, 0) where the score is NaN.

    Notes
    -----
    Cost: sorts every row as Python numbers; for small matrices.

    Examples
    --------
    >>> import numpy as np
    >>> [float(cost) for _, cost in oracle_conformal_costs(np.array([[0.25, 0.5, 0.25]]), "aps")[0]]
    [0.75, 0.5, 1.0]

    """
    n_classes, numbers = scores.shape[1], numbers_of(scores)
    most = int(2 + fraction_of(penalty) * max(0, n_classes - k_reg)) + 1
    unit = 2 ** (62 - most.bit_length())
    late = round(fraction_of(penalty) * unit)
    found = []
    for i in range(len(scores)):
        row = numbers[i * n_classes : (i + 1) * n_classes]
        order = sorted(range(n_classes), key=lambda j: row[j], reverse=True)  # sorted is stable in reverse, too
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
            else:
                total += round(Fraction(value) * unit)
                part = 0 if seed is None else round(Fraction(value * _draw(seed, stream, i)) * unit)
                costs[j] = 0, Fraction(total - part + late * max(0, rank - k_reg), unit)
        found.append(costs)
    return found


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
        NumPy matrix (sample, class), small enough for Python's own numbers.
    labels
        Class numbers, negative where there is none.
    scores
        Another matrix, with as many classes.
    alpha
        The error that is allowed.
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
        Thresholds by group (0 where there is one), and a boolean matrix. The threshold is the cost of rank ceil((n + 1) (1 - alpha)),
        for LAC the score that has it; infinite where everything is in.

    Notes
    -----
    Cost: that of ``oracle_conformal_costs``, twice; for small matrices.

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
    mine: dict[int, list[tuple[int, Any]]] = {}
    for i, label in enumerate(labels.tolist()):
        if label >= 0:
            group = 0 if by is None else label if isinstance(by, str) else int(by[i])
            mine.setdefault(group, []).append(costs[i][label])
    limits = {}
    for group, found in mine.items():
        rank = math.ceil((len(found) + 1) * (1 - fraction_of(alpha)))
        limits[group] = min(sorted(found)[rank - 1], _EVERYTHING) if rank <= len(found) else _EVERYTHING
    sets = np.zeros(scores.shape, bool)
    new = oracle_conformal_costs(scores, method, stream=1, **options)
    for i in range(len(scores)):
        for j in range(n_classes):
            group = 0 if by is None else j if isinstance(by, str) else int(groups[i])  # type: ignore[index]
            sets[i, j] = new[i][j] <= limits.get(group, _EVERYTHING)
    return {group: _shown(limit, method, n_classes) for group, limit in limits.items()}, sets


def _shown(limit: tuple[int, Any], method: str, n_classes: int) -> float:
    """Return a threshold as users see it."""
    if limit == _EVERYTHING:
        return {"lac": -math.inf, "top_k": n_classes}.get(method, math.inf)
    return float(-limit[1] if method == "lac" else limit[1]) + 0.0
