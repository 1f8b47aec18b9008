"""The terms of the paper's regret of sets, given the probabilities, as exact sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np

from ..arrays import Array, Bools, Dtype
from ..bands.passes import Pass
from ..bands.rows import TopRanks, checked_slabs, row_strips, whole_rows
from ..exact.sums import ExactSums
from ..kernels.keys import carrier
from ..records import EACH, Count, State


@dataclass(frozen=True)
class RegretTally(State):
    """Sums of eta over the sets, over members below the threshold, and over others above it."""

    weight: ExactSums
    n_low: Count
    low: ExactSums
    n_high: Count
    high: ExactSums

    @classmethod
    def from_block(cls, eta: Array, inside: Bools, threshold: float) -> RegretTally:
        """Return the tally of a block of probabilities, given which are in the sets."""
        values = eta.astype(np.float64)
        low, high = values[inside & (values < threshold)], values[~inside & (values > threshold)]
        return cls(
            ExactSums.from_values(values[inside]),
            low.size,
            ExactSums.from_values(low),
            high.size,
            ExactSums.from_values(high),
        )

    def symmetric_difference(self, threshold: Fraction) -> Fraction:
        """Return the sum of |eta - threshold| over the symmetric difference of the sets and the best sets.

        It consists of members below the threshold and others above it; terms at the threshold are 0.
        """
        below = self.n_low * threshold - self.low[0]
        return below + self.high[0] - self.n_high * threshold


@dataclass(frozen=True)
class RegretTallies(State):
    """The tallies of several kinds of sets."""

    tallies: Annotated[tuple[RegretTally, ...], EACH]


@dataclass(frozen=True)
class RegretPlan:
    """The thresholds of the best sets; ``ks`` are the sizes of top-k sets, empty if the sets are passed as labels."""

    dtype: Dtype
    n_classes: int
    thresholds: tuple[float, ...]
    ks: tuple[int, ...] = ()


def set_pass(dtype: Dtype, n_classes: int, threshold: float) -> Pass:
    """Return the pass that compares sets, passed as labels, with the best sets."""
    return Pass("regret", tally_sets, RegretPlan(dtype, n_classes, (threshold,)), RegretTallies)


def top_pass(dtype: Dtype, n_classes: int, ks: Sequence[int], thresholds: Sequence[float]) -> Pass:
    """Return the pass that compares the top-k sets of several k with the best sets, with a threshold for each k."""
    plan = RegretPlan(dtype, n_classes, tuple(thresholds), tuple(ks))
    return Pass("gain", tally_tops, plan, RegretTallies, holds_rows=True)


def tally_sets(slabs: Iterable[Array], sets: Array, band: int, plan: RegretPlan) -> RegretTallies:
    """Return the tally of a band's sets."""
    tallies, first = [], 0
    for eta in checked_slabs(slabs, plan.dtype, plan.n_classes, sets):
        inside = sets[:, first : first + eta.shape[1]]
        tallies += [RegretTally.from_block(eta[rows], inside[rows], plan.thresholds[0]) for rows in row_strips(eta)]
        first += eta.shape[1]
    return RegretTallies((RegretTally.merge(tallies),))


def tally_tops(slabs: Iterable[Array], labels: Array | None, band: int, plan: RegretPlan) -> RegretTallies:
    """Return the tally of a band's top-k sets for each k, with the band's whole rows in memory."""
    band_rows, strips = whole_rows(slabs, plan.dtype, plan.n_classes, None), []
    for rows in row_strips(band_rows):
        eta = np.ascontiguousarray(band_rows[rows])
        top = TopRanks(eta.shape[0], max(plan.ks), eta.dtype)
        top.insert(carrier(eta), 0, 0)
        tallies = []
        for k, threshold in zip(plan.ks, plan.thresholds, strict=True):
            inside = np.zeros(eta.shape, bool)
            np.put_along_axis(inside, top.classes[:, :k], True, axis=1)
            tallies.append(RegretTally.from_block(eta, inside, threshold))
        strips.append(RegretTallies(tuple(tallies)))
    return RegretTallies.merge(strips)
