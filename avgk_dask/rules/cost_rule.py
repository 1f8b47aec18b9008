"""The rule of conformal sets: classes that cost no more than a level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array, Bools, Ints
from ..errors import ScoresError
from ..kernels.keys import carrier, decode, encode, is_float, key_range
from ..scans.costs import Costs

#: Scores whose costs are in memory at once.
_TILE = 1 << 17


@dataclass(frozen=True)
class CostRule:
    """Takes the classes whose cost is at most the level of all, of the class, or of the sample's group.

    ``by`` is ``""``, ``"class"`` or ``"group"``; ``levels`` are one, one a class, or one a group.
    """

    costs: Costs
    levels: Ints
    by: str = ""
    #: The group of each row that will be looked at.
    groups: Ints | None = None

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows at once."""
        return self.costs.needs_rows

    def for_rows(self, groups: Ints | None) -> CostRule:
        """Return the rule for rows of these groups."""
        return replace(self, groups=groups)

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members among a block of scores that starts at this row and class of a matrix of so many classes."""
        limits = self._limits(slice(first_class, first_class + scores.shape[1]))
        if self.costs.method == "lac":
            return _at_least(scores, ~limits)
        self._refuse(scores)
        chosen, step = np.empty(scores.shape, bool), max(1, _TILE // scores.shape[1])
        for first in range(0, len(scores), step):
            rows = slice(first, min(first + step, len(scores)))
            costs = self.costs.of_all(scores[rows], first_row + np.arange(rows.start, rows.stop))
            chosen[rows] = costs <= (limits[rows] if self.by == "group" else limits)
        return chosen

    def sizes(self, scores: Array, samples: Ints) -> Ints:
        """Return the size of each row's set, given the numbers of the rows' samples."""
        limits, method = self._limits(slice(None)), self.costs.method
        if method == "lac":
            members = _at_least(scores, ~limits)
        elif self.by == "class":
            members = self.costs.of_all(scores, samples) <= limits
        elif method == "top_k":
            return np.minimum(np.sum(scores == scores, axis=1, dtype=np.int64), limits.reshape(-1))
        else:
            members = self.costs.sorted_costs(scores, samples) <= limits
        found: Ints = np.sum(members, axis=1, dtype=np.int64)
        return found

    def holds(self, scores: Array, labels: Ints, samples: Ints) -> Bools:
        """Return whether each row's set holds its label; never where that is negative."""
        rows, held = np.flatnonzero(labels >= 0), np.zeros(labels.size, bool)
        mine = labels[rows]
        costs = self.costs.of_labels(scores[rows], mine, samples[rows])
        limits = self._limits(slice(None)).reshape(-1)
        held[rows] = costs <= (limits[mine] if self.by == "class" else limits[rows] if self.by else limits)
        return held

    def _limits(self, classes: slice) -> Ints:
        """Return the levels so that they compare with a block of whole rows, or of some classes."""
        if self.by == "class":
            return self.levels[classes]
        if self.by == "group":
            assert self.groups is not None
            return np.asarray(self.levels[self.groups][:, None])
        return self.levels[:1, None]

    def _refuse(self, scores: Array) -> None:
        if self.costs.bad_rows(scores).size:
            raise ScoresError(
                f"scores must be probabilities that sum to 1 in each row for the method {self.costs.method!r}; got others. "
                "Pass softmax(scores) if they are logits."
            )


def _at_least(scores: Array, keys: Ints) -> Bools:
    """Return which scores have a key of at least these; NaN never."""
    low, high = key_range(scores.dtype)
    if (keys > high).any():
        reached = encode(scores) >= keys
        return reached & (scores == scores) if is_float(scores.dtype) else np.asarray(reached)
    # In the scores' own dtype, or that of their kernels, which is several times as fast.
    return np.asarray(carrier(scores) >= carrier(decode(np.maximum(keys, low), scores.dtype)))
