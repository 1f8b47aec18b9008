"""Standard errors by their definition, sample by sample in exact fractions: slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..arrays import Array, Bools
from .oracle import Budget, fraction_of, numbers_of, oracle_average_k_sets, oracle_top_k_sets


def oracle_influences(scores: Array, labels: Array, k: Budget, rule: str, ties: str = "first") -> list[Fraction]:
    """Return what each sample adds to an error, N times over: its influence.

    With n of N samples labelled, e the error, m = 1 for a label outside its set: (N / n) (m - e) for a labelled sample, and
    for average-k also r (Z - mean Z), Z the size of its set. r is N / n times the share of labels among the w scores that
    rank just above the budget B, ties counted by their share: w the least with w**3 >= B**2, at most 16,384.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class), small enough for Python's own numbers.
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

    Notes
    -----
    Cost: that of sorting all scores as Python numbers; for small matrices.

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
    rate, sizes = scale * _label_share(scores, labels, k, sets), [int(z) for z in sets.sum(1)]
    return [p + rate * (z - Fraction(sum(sizes), n)) for p, z in zip(psi, sizes, strict=True)]


def oracle_stderr(influences: Sequence[Fraction], clusters: Array | None = None) -> float:
    """Return the standard error of an error, from the influences of the samples: the root of the sum of their squares, over N.

    Parameters
    ----------
    influences
        What ``oracle_influences`` gives, or the difference of two of those.
    clusters
        An integer a sample: influences are first added up in each cluster. By default each sample is one.

    Returns
    -------
    float
        The standard error.

    Notes
    -----
    Cost: one pass over the influences.

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


def _label_share(scores: Array, labels: Array, k: Budget, sets: Bools) -> Fraction:
    """Return the share of labels among the scores that rank just above a budget."""
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
