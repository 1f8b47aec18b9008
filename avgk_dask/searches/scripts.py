"""Scripts: the waves of a scan as they were read, so that another run reads the same ones, or finds them read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ..arrays import Ints
from ..kernels.zones import ZoneTable
from ..records import Record
from ..scans.plan import ScanPlan, ScanShape


@dataclass(frozen=True)
class Wave(Record):
    """One wave: its bands, and its plan in plain values."""

    bands: Ints
    #: The shape as JSON.
    shape: str
    floors: Ints
    shifts: Ints
    starts: Ints
    table_shift: int
    n_bins: int
    sample_base: int
    sample_shift: int
    highest: int
    expected_events: float
    with_rows: bool

    @classmethod
    def of(cls, plan: ScanPlan, bands: Sequence[int]) -> Wave:
        """Return the wave that reads some bands by a plan."""
        told = {"dtype": plan.shape.dtype.name, "looked": plan.shape.looked.hex()}
        zones, shape = plan.zones, asdict(plan.shape) | told
        return cls(
            np.asarray(bands, np.int64),
            json.dumps(shape, sort_keys=True),
            zones.floors,
            zones.shifts.view(np.int64),
            zones.starts.astype(np.int64),
            int(zones.table_shift),
            zones.n_bins,
            plan.sample_base,
            plan.sample_shift,
            plan.highest,
            float(plan.expected_events),
            plan.with_rows,
        )

    @property
    def plan(self) -> ScanPlan:
        """The plan of the wave."""
        starts, table_shift = self.starts.astype(np.int32), np.uint64(self.table_shift)
        zones = ZoneTable(self.floors, self.shifts.view(np.uint64), starts, table_shift, self.n_bins)
        where = self.sample_base, self.sample_shift, self.highest
        return ScanPlan(self._shape(), zones, *where, self.expected_events, self.with_rows)

    def _shape(self) -> ScanShape:
        told = json.loads(self.shape)
        return ScanShape(**told | {"dtype": np.dtype(told["dtype"]), "looked": bytes.fromhex(told["looked"])})


Script = tuple[Wave, ...]


def fitting_script(script: Script, shape: ScanShape) -> Script:
    """Return a script if it finds what a search of some shape has to find, and reads bands that there are; else an empty one."""
    numbers = np.concatenate([np.zeros(0, np.int64), *(wave.bands for wave in script)])
    if not script or numbers.size != np.unique(numbers).size or not 0 <= numbers.min() <= numbers.max() < shape.n_bands:
        return ()
    first, *others = (wave.plan.shape for wave in script)
    alike = all(_as_large_as(first, other) == first for other in others)
    return script if alike and adopted_shape(shape, first) is not None else ()


def _as_large_as(shape: ScanShape, other: ScanShape) -> ScanShape:
    """Return another shape with the samples and bands of a shape."""
    size = {name: getattr(shape, name) for name in ("n_samples", "n_chunks", "n_bands", "looked")}
    return replace(other, **size)


def adopted_shape(shape: ScanShape, other: ScanShape) -> ScanShape | None:
    """Return a shape with as many ranks as another has, which may be more; None where the other finds less, or something else."""
    same = ("n_classes", "dtype", "with_distance", "ranked_bins", "strata")
    if any(getattr(shape, name) != getattr(other, name) for name in same):
        return None
    if other.n_ranks < shape.n_ranks or other.n_ranked < shape.n_ranked or bool(other.n_ranked) != bool(shape.n_ranked):
        return None
    if other.n_ranked != shape.n_ranked and shape.ranked_bins:  # their number tells how many bins each has
        return None
    return replace(shape, n_ranks=other.n_ranks, n_ranked=other.n_ranked)


def grown_plan(plan: ScanPlan, shape: ScanShape) -> ScanPlan:
    """Return the plan of a wave for the samples and bands of a shape; what states must have in common stays."""
    return replace(plan, shape=_as_large_as(shape, plan.shape))
