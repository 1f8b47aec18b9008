"""The temperature of least NLL: a bracket of scales, narrowed by a few evaluations in each read.

The NLL is convex in the scale, which is 1 / temperature. So the sign of its slope tells on which side of a scale the
optimum lies, and the slopes and bends at both ends of a bracket give a cubic whose root is near it. Only sums, products and
divisions: the same bits on any machine. A sum of two scales that are evaluated costs a third of another one: the first read
doubles scales, later ones take equal steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from ..arrays import Dtype
from ..scans.band_pass import Pass
from ..scans.scaled_rows import DIRECT, Scale, ScalePlan, scale_pass
from ..states.loss_tally import ScaleTally

#: The scales of the first read: from 1/4 to 4, each twice the last; 1 itself tells the NLL before.
_FIRST = tuple(Scale(2.0**n, DIRECT if n in (-2, 0) else (n + 1, n + 1)) for n in range(-2, 3))
#: Temperatures are sought up to this one, and down to its inverse.
BOUND = 65536.0
#: Steps by which a search widens. Wider brackets than the first are split evenly, wider ones than the second are looked at in
#: so many steps beside an estimate.
_WIDER = (4.0, 16.0, 64.0)
_WIDEST, _WIDE = 3.0, 1.1
_BESIDE, _STEPS = 0.06, 4
#: Done where the next step would be shorter, relative to the scale.
_NEGLIGIBLE = 2e-5
_MOST_READS = 20
_HALVINGS = 80


@dataclass(frozen=True)
class Evaluated:
    """The mean NLL at a temperature, and its derivatives by the scale 1 / temperature."""

    temperature: float
    loss: float
    slope: float
    bend: float
    #: Whether the loss is that of the temperature to the last bit.
    is_direct: bool = True

    @property
    def scale(self) -> float:
        """1 / temperature."""
        return 1.0 / self.temperature

    @property
    def is_flat(self) -> bool:
        """Whether nothing changes with the scale: no float tells the probabilities from 0 and 1, or from each other."""
        return self.slope == 0 and self.bend <= 0

    @property
    def is_optimal(self) -> bool:
        """Whether the step to the optimum is negligible."""
        return self.is_direct and not self.is_flat and abs(self.slope) <= _NEGLIGIBLE * self.scale * self.bend


@dataclass(frozen=True)
class TemperatureSearch:
    """What is known of the NLL, by ascending scale."""

    dtype: Dtype
    n_classes: int
    known: tuple[Evaluated, ...] = ()
    n_reads: int = 0
    #: The state of the first read, which tells about the labels.
    first: ScaleTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the pass over the next few scales; None at the end."""
        wanted = self._wanted()
        return scale_pass(ScalePlan(self.dtype, self.n_classes, wanted)) if wanted else None

    def advance(self, state: ScaleTally) -> TemperatureSearch:
        """Return the search that knows the NLL at these scales, too."""
        found = []
        for i, scale in enumerate(self._wanted()):
            loss, slope, bend = (s.mean(i, state.n_labelled) for s in (state.losses, state.slopes, state.bends))
            found.append(Evaluated(1.0 / scale.value, loss, slope, bend, scale.parents == DIRECT))
        known = tuple(sorted((*self.known, *found), key=lambda e: e.scale))
        return replace(self, known=known, n_reads=self.n_reads + 1, first=self.first or state)

    @property
    def before(self) -> Evaluated:
        """The NLL at temperature 1."""
        return next(e for e in self.known if e.temperature == 1.0)

    @property
    def best(self) -> Evaluated:
        """The optimum as far as it is known: where the slope is least, or the end where the NLL is lowest."""
        if self.is_bounded:
            return self.known[0] if _rises(self.known[0]) else self.known[-1]
        return min((e for e in self.known if e.is_direct and not e.is_flat), key=_steepness, default=self.before)

    @property
    def is_bounded(self) -> bool:
        """Whether the NLL still falls at the last temperature that is tried."""
        return self._bracket is None and not self.converged

    @property
    def converged(self) -> bool:
        """Whether a temperature is optimal, or all are alike."""
        return any(e.is_optimal for e in self.known) or (bool(self.known) and all(e.is_flat for e in self.known))

    @property
    def _bracket(self) -> tuple[Evaluated, Evaluated] | None:
        """The two neighbours between which the NLL turns; None where it only falls, or only rises."""
        return next(((a, b) for a, b in pairwise(self.known) if not _rises(a) and _rises(b)), None)

    def _wanted(self) -> tuple[Scale, ...]:
        """Return the scales of the next read, none at the end."""
        if not self.known:
            return _FIRST
        if self.converged or self.n_reads >= _MOST_READS:
            return ()
        if self._bracket is None:
            return self._wider()
        a, b = self._bracket
        ratio, root = b.scale / a.scale, _cubic_root(a, b)
        if ratio > _WIDEST:
            step = math.sqrt(math.sqrt(ratio))
            return _directly(a.scale * step, a.scale * step * step, b.scale / step)
        return _in_steps(root * (1 - _BESIDE * (_STEPS - 1) / 2), root * _BESIDE) if ratio > _WIDE else _directly(root)

    def _wider(self) -> tuple[Scale, ...]:
        """Return scales beyond the end where the NLL falls."""
        if _rises(self.known[0]):
            return _directly(*(s for step in _WIDER if (s := self.known[0].scale / step) >= 1 / BOUND))
        return _directly(*(s for step in _WIDER if (s := self.known[-1].scale * step) <= BOUND))


def _rises(one: Evaluated) -> bool:
    return one.slope > 0


def _steepness(one: Evaluated) -> float:
    return abs(one.slope)


def _directly(*scales: float) -> tuple[Scale, ...]:
    """Return scales that are inverse to a temperature, near those given, each evaluated for itself."""
    return tuple(Scale(1.0 / (1.0 / scale)) for scale in scales)


def _in_steps(first: float, step: float) -> tuple[Scale, ...]:
    """Return a step as a scale of its own, and scales that go on from the first by such steps."""
    scales = [Scale(step), Scale(first), Scale(first + step, (1, 0))]
    for n in range(2, _STEPS):
        scales.append(Scale(scales[-1].value + step, (n, 0)))
    return tuple(scales)


def _cubic_root(a: Evaluated, b: Evaluated) -> float:
    """Return where the cubic with the slopes and bends at the ends of a bracket is 0."""
    width = b.scale - a.scale

    def slope(t: float) -> float:
        s = 1 - t
        ends = (a.slope * s + b.slope * t) + (t * s) * (b.slope - a.slope) * (t - s)
        return ends + width * t * s * (a.bend * s - b.bend * t)

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return a.scale + width * high
