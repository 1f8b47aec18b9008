"""Breakdowns by their definition: the samples of a group, one by one."""

from __future__ import annotations

import math

from ..arrays import Array
from .oracle import Budget, fraction_of, oracle_average_k_sets, oracle_top_k_sets


def oracle_breakdown(scores: Array, labels: Array, k: Budget, groups: Array) -> dict[int, dict[str, float]]:
    """Return what ``breakdown`` tells of each group, for one budget, by definition.

    Parameters
    ----------
    scores
        NumPy matrix (sample, class), small enough for Python's own numbers.
    labels
        N integers; negative: unlabelled.
    k
        Budget in (0, C].
    groups
        An integer a sample; the labels themselves for a breakdown by class.

    Returns
    -------
    dict
        By group: ``n_samples, n_labelled, average_k_error, top_k_error, average_set_size``.

    Notes
    -----
    Cost: that of ``oracle_average_k_sets``; for small matrices.

    Examples
    --------
    >>> import numpy as np
    >>> scores, labels = np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([0, 1])
    >>> oracle_breakdown(scores, labels, 1, labels)[1]["average_k_error"]
    1.0

    """
    sets = oracle_average_k_sets(scores, k)
    whole = fraction_of(k).denominator == 1
    top = oracle_top_k_sets(scores, int(fraction_of(k))) if whole else None
    found = {}
    for group in sorted(set(groups.tolist())):
        mine = [i for i, name in enumerate(groups.tolist()) if name == group]
        labelled = [i for i in mine if labels[i] >= 0]
        n = len(labelled)
        missed = sum(not sets[i, labels[i]] for i in labelled)
        top_missed = None if top is None else sum(not top[i, labels[i]] for i in labelled)
        found[group] = {
            "n_samples": len(mine),
            "n_labelled": n,
            "average_k_error": missed / n if n else math.nan,
            "top_k_error": top_missed / n if n and top_missed is not None else math.nan,
            "average_set_size": sum(int(sets[i].sum()) for i in mine) / len(mine),
        }
    return found
