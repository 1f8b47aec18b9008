"""Rules that define sets: by a threshold, by the rank in the row, or by a conformal method."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array, Bools, Ints
from ..bands.conformal import ConformalMethod
from ..bands.rows import TopRanks
from ..errors import ScoresError
from ..kernels.keys import carrier, encode, refine_keys

#: Scores per tile, which limits the memory for their costs.
_TILE = 1 << 17


@dataclass(frozen=True)
class ThresholdRule:
    """Scores whose key exceeds ``key``, and in row-major order the ties of ``key`` up to ``last_row`` and ``last_class``."""

    key: int
    last_row: int = -1
    last_class: int = -1
    everything: bool = False
    #: The key whose ties are in another order, or None. If it is set, the other fields refer to the refined keys.
    tied: int | None = None
    #: That order, one of ``TIE_DRAWS``.
    ties: str = ""

    needs_rows = False

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members of the sets in a block that starts at ``first_row`` and ``first_class`` of the matrix."""
        if self.everything:
            return np.ones(scores.shape, bool)
        keys = encode(scores)
        if self.tied is not None:
            keys = refine_keys(keys, np.array([self.tied], np.int64), first_row, first_class, n_classes, self.ties)
        chosen = keys > self.key
        if first_row <= self.last_row:
            rows = first_row + np.arange(keys.shape[0])[:, None]
            classes = first_class + np.arange(keys.shape[1])
            kept = (rows < self.last_row) | ((rows == self.last_row) & (classes <= self.last_class))
            chosen |= (keys == self.key) & kept
        return chosen


@dataclass(frozen=True)
class TopRule:
    """The k highest scores of each row. Ties go to the lowest class, and NaN is never included."""

    k: int

    needs_rows = True

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members of the sets in a block of whole rows."""
        top = TopRanks(scores.shape[0], self.k, scores.dtype)
        top.insert(carrier(scores), 0, 0)
        chosen = np.zeros(scores.shape, bool)
        rows, ranks = np.nonzero(top.classes >= 0)
        chosen[rows, top.classes[rows, ranks]] = True
        return chosen


@dataclass(frozen=True)
class CostRule:
    """The classes whose cost is at most a level.

    ``by`` is ``""`` for a single level, ``"class"`` for one level per class, or ``"group"`` for one per group.
    """

    method: ConformalMethod
    levels: Ints
    by: str = ""
    #: For each level, whether its sets are empty because all scores are below its threshold; None if no level has
    #: empty sets.
    empty: Bools | None = None
    #: The group of each row.
    groups: Ints | None = None

    @property
    def needs_rows(self) -> bool:
        """Whether ``choose`` needs blocks of whole rows."""
        return self.method.needs_rows

    def for_rows(self, groups: Ints | None) -> CostRule:
        """Return the rule for rows of these groups."""
        return replace(self, groups=groups)

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members of the sets in a block that starts at ``first_row`` and ``first_class`` of the matrix."""
        if self.method.bad_rows(scores).size:
            raise ScoresError(
                f"scores must be probabilities that sum to 1 in each row for the method {self.method.name!r}; got other values. "
                "Pass softmax(scores) if they are logits."
            )
        classes = slice(first_class, first_class + scores.shape[1])
        limits, chosen = self._by_block(self.levels, classes), np.empty(scores.shape, bool)
        step = max(1, _TILE // scores.shape[1] if self.needs_rows else len(scores))
        for first in range(0, len(scores), step):
            rows = slice(first, min(first + step, len(scores)))
            row_limits = limits[rows] if self.by == "group" else limits
            samples = first_row + np.arange(rows.start, rows.stop)
            chosen[rows] = self.method.members(scores[rows], row_limits, samples)
        return chosen if self.empty is None else chosen & ~self._by_block(self.empty, classes)

    def sizes(self, scores: Array, samples: Ints) -> Ints:
        """Return the size of each row's set; ``samples`` are the sample numbers of the rows."""
        limits = self._by_block(self.levels, slice(None))
        if self.by != "class" and self.empty is None:
            return self.method.set_sizes(scores, limits, samples)
        members = self.method.members(scores, limits, samples)
        if self.empty is not None:
            members &= ~self._by_block(self.empty, slice(None))
        return np.asarray(np.sum(members, axis=1, dtype=np.int64))

    def contains_labels(self, scores: Array, labels: Ints, samples: Ints) -> Bools:
        """Return whether each row's set contains its label; False if the label is negative."""
        rows, hits = np.flatnonzero(labels >= 0), np.zeros(labels.size, bool)
        classes = labels[rows]
        costs = self.method.label_costs(scores[rows], classes, samples[rows])
        hits[rows] = costs <= self._by_label(self.levels, rows, classes)
        if self.empty is not None:
            hits[rows] &= ~self._by_label(self.empty, rows, classes)
        return hits

    def _by_block(self, values: Array, classes: slice) -> Array:
        """Reshape values per level to broadcast against a block with these classes."""
        if self.by == "class":
            return values[classes]
        if self.by == "group":
            assert self.groups is not None
            return np.asarray(values[self.groups][:, None])
        return values[:1, None]

    def _by_label(self, values: Array, rows: Ints, labels: Ints) -> Array:
        """Return the value that applies to the label of each row."""
        limits = self._by_block(values, slice(None)).reshape(-1)
        return limits[labels] if self.by == "class" else limits[rows] if self.by else limits
