"""Tie sensitivity: how the label weight inside the sets depends on which ties are kept."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..summaries.events import EventTally
from ..summaries.exact import sum_weights


def extreme_weights(ties: EventTally, n_kept: int, soft: bool) -> tuple[Fraction, Fraction] | None:
    """Give the least and the most label weight that any ``n_kept`` of the ties can have.

    None where the ties bring soft weights of which only the sums are known.
    """
    n_ties, total = ties.n_scores, ties.total_weight()
    if n_kept in (0, n_ties) or total == 0:
        everything = total if n_kept else Fraction(0)
        return everything, everything
    if not soft:
        n_hits = int(total)
        return Fraction(max(0, n_kept - (n_ties - n_hits))), Fraction(min(n_kept, n_hits))
    if ties.limb_keys.size:
        return None
    weights = np.sort(ties.weights)
    n_zero = n_ties - weights.size
    return sum_weights(weights[: max(0, n_kept - n_zero)]), sum_weights(weights[::-1][:n_kept])
