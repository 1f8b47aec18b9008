"""What it costs a set to hold a class, and the rule of conformal sets: the classes that cost at most a level.

The level is the cost of a calibration label. So LAC, APS, RAPS and top-k differ in nothing but what a class costs:

``lac``    the order key of its score, reversed
``top_k``  its rank in its row
``aps``    the sum of the probabilities of the ranks down to its own, each rounded once to a multiple of ``2**-bits``
``raps``   that, and a penalty for each rank beyond ``k_reg``

Costs are integers, the least for the class that enters first. They add up to the same sum in any order, so that no
chunking changes a bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..bands.probabilities import rows_outside
from ..bands.rows import RowChecks
from ..errors import ScoresError
from ..kernels.dispatch import rank_in_row
from ..kernels.keys import (
    HALF_NAN,
    KEY_MAX,
    carrier,
    decode,
    encode,
    is_float,
    is_half,
    key_range,
    sample_draws,
)

#: What a class costs that no set may hold: one whose score is NaN.
NEVER = KEY_MAX
#: Rows of probabilities may sum to this much: costs of all classes fit an integer of 64 bits.
MOST_SUM = 2
#: The least number of bits that a penalty leaves for a probability.
_LEAST_BITS = 40
#: Scores that are worked on at once.
_TILE = 1 << 17


def cost_bits(penalty: Fraction, k_reg: int, n_classes: int) -> int:
    """Return in how many bits behind the point probabilities are added up; negative where a penalty leaves too few.

    Examples
    --------
    >>> cost_bits(Fraction(0), 0, 1000), cost_bits(Fraction(1, 100), 5, 1000), cost_bits(Fraction(10**9), 0, 1000)
    (60, 58, -1)

    """
    most = MOST_SUM + penalty * max(0, n_classes - k_reg)
    bits = 62 - (int(most) + 1).bit_length()
    return bits if bits >= _LEAST_BITS else -1


@dataclass(frozen=True)
class Costs:
    """A method, and all that its costs depend on beside the scores."""

    method: str
    dtype: Dtype
    bits: int = 0
    #: In units of ``2**-bits``.
    penalty: int = 0
    k_reg: int = 0
    #: Costs are less by a part of the class's own probability, one random number a sample.
    seed: int | None = None
    stream: int = 0

    @property
    def needs_rows(self) -> bool:
        """Whether whole rows must be seen at once."""
        return self.method != "lac"

    @property
    def sums_probabilities(self) -> bool:
        """Whether scores must be probabilities."""
        return self.method in ("aps", "raps")

    @property
    def everything(self) -> int:
        """The level up to which every class costs whose score is a number."""
        return KEY_MAX if self.method == "lac" and not is_float(self.dtype) else KEY_MAX - 1

    def bad_rows(self, scores: Array) -> Ints:
        """Return the rows that are no probabilities; none where they need not be."""
        if not self.sums_probabilities:
            return np.zeros(0, np.int64)
        sums = scores.sum(1, dtype=np.float64)
        return np.union1d(rows_outside(scores), np.flatnonzero(sums > MOST_SUM))

    def of_labels(self, scores: Array, labels: Ints, samples: Ints) -> Ints:
        """Return the cost of each row's label, none of which is negative, given the numbers of the rows' samples."""
        rows, n_classes = np.arange(labels.size), scores.shape[1]
        if self.method == "lac":
            return ~encode(scores[rows, labels])
        tile, ranks = carrier(scores), np.empty(labels.size, np.int64)
        rank_in_row(tile, labels, ranks)
        if is_half(scores.dtype):
            ranks[tile[rows, labels] == HALF_NAN] = n_classes + 1
        if self.method == "top_k":
            return np.where(ranks > n_classes, NEVER, ranks)
        p = scores.astype(np.float64)
        own = p[rows, labels][:, None]
        earlier = (p > own) | ((p == own) & (np.arange(n_classes) <= labels[:, None]))
        sums: Ints = np.where(earlier, self._units(p), 0).sum(1)
        return sums + self._penalties(ranks) - self._parts(own, samples)[:, 0]

    def of_all(self, scores: Array, samples: Ints) -> Ints:
        """Return what each class of whole rows costs."""
        keys = ~encode(scores)
        if self.method == "lac":
            return keys
        order = np.argsort(keys, axis=1, kind="stable")
        if self.method == "top_k":
            by_rank: Ints = np.broadcast_to(np.arange(1, scores.shape[1] + 1), scores.shape)
        else:
            by_rank = self._sums(np.take_along_axis(scores.astype(np.float64), order, axis=1), samples)
        found = np.empty(scores.shape, np.int64)
        np.put_along_axis(found, order, by_rank, axis=1)
        if is_float(scores.dtype):
            found[scores != scores] = NEVER
        return found

    def sorted_costs(self, scores: Array, samples: Ints) -> Ints:
        """Return the costs of each row's ranks, ascending, of probabilities: as many as ``of_all`` in less time."""
        return self._sums(-np.sort(-scores.astype(np.float64), axis=1), samples)

    def _sums(self, p: Floats, samples: Ints) -> Ints:
        """Return the costs of descending probabilities."""
        sums: Ints = np.cumsum(self._units(p), axis=1)
        return sums + self._penalties(np.arange(1, p.shape[1] + 1)) - self._parts(p, samples)

    def _units(self, p: Floats) -> Ints:
        """Return probabilities in whole units."""
        return np.rint(p * 2.0**self.bits).astype(np.int64)

    def _penalties(self, ranks: Ints) -> Ints:
        return self.penalty * np.maximum(ranks - self.k_reg, 0)

    def _parts(self, p: Floats, samples: Ints) -> Ints:
        """Return the part of each probability that a row's random number takes off."""
        if self.seed is None:
            return np.zeros((len(p), 1), np.int64)
        draws = sample_draws(self.seed, self.stream, samples)
        return self._units(p * draws[:, None])


def checked_tiles(checks: RowChecks, costs: Costs) -> Iterator[tuple[int, Array]]:
    """Return (first row, scores) of stretches of a band's rows, each checked first; none once any are refused."""
    step = max(1, _TILE // checks.rows.shape[1])
    for first in range(0, len(checks.rows), step):
        scores = checks.rows[first : first + step]
        checks.note_nan(scores, first)
        if costs.sums_probabilities and not checks.n_nan:
            checks.refuse(first + costs.bad_rows(scores))
        if not (costs.sums_probabilities and (checks.n_nan or checks.n_refused)):
            yield first, scores


@dataclass(frozen=True)
class CostRule:
    """Takes the classes whose cost is at most the level of all, of the class, or of the sample's group.

    ``by`` is ``""``, ``"class"`` or ``"group"``; ``levels`` are one, one per class, or one per group.
    """

    costs: Costs
    levels: Ints
    by: str = ""
    #: Which of the levels no class reaches, of scores that are all below their threshold; None if none is such.
    empty: Bools | None = None
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
        """Return the members among a block of scores that starts at this row and class of the matrix."""
        classes = slice(first_class, first_class + scores.shape[1])
        if self.costs.method == "lac":
            return self._reaching(scores, classes)
        self._refuse(scores)
        limits = self._by_block(self.levels, classes)
        chosen, step = np.empty(scores.shape, bool), max(1, _TILE // scores.shape[1])
        for first in range(0, len(scores), step):
            rows = slice(first, min(first + step, len(scores)))
            costs = self.costs.of_all(scores[rows], first_row + np.arange(rows.start, rows.stop))
            chosen[rows] = costs <= (limits[rows] if self.by == "group" else limits)
        return chosen

    def sizes(self, scores: Array, samples: Ints) -> Ints:
        """Return the size of each row's set, given the numbers of the rows' samples."""
        limits, method = self._by_block(self.levels, slice(None)), self.costs.method
        if method == "lac":
            members = self._reaching(scores, slice(None))
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
        held[rows] = costs <= self._by_label(self.levels, rows, mine)
        if self.empty is not None:
            held[rows] &= ~self._by_label(self.empty, rows, mine)
        return held

    def _reaching(self, scores: Array, classes: slice) -> Bools:
        """Return which scores of a block of some classes reach the threshold of LAC."""
        reached = _at_least(scores, ~self._by_block(self.levels, classes))
        return reached if self.empty is None else reached & ~self._by_block(self.empty, classes)

    def _by_block(self, values: Array, classes: slice) -> Array:
        """Return values of the levels so that they compare with a block of whole rows, or of some classes."""
        if self.by == "class":
            return values[classes]
        if self.by == "group":
            assert self.groups is not None
            return np.asarray(values[self.groups][:, None])
        return values[:1, None]

    def _by_label(self, values: Array, rows: Ints, labels: Ints) -> Array:
        """Return values of the levels for the labels of some rows."""
        limits = self._by_block(values, slice(None)).reshape(-1)
        return limits[labels] if self.by == "class" else limits[rows] if self.by else limits

    def _refuse(self, scores: Array) -> None:
        if self.costs.bad_rows(scores).size:
            raise ScoresError(
                f"scores must be probabilities that sum to 1 in each row for the method {self.costs.method!r}; got others. "
                "Pass softmax(scores) if they are logits."
            )


def _at_least(scores: Array, keys: Ints) -> Bools:
    """Return which scores have a key of at least these, the highest of which is one of their dtype; NaN never."""
    # In the scores' own dtype, or that of their kernels, which is several times as fast.
    lowest = key_range(scores.dtype)[0]
    return np.asarray(carrier(scores) >= carrier(decode(np.maximum(keys, lowest), scores.dtype)))
