"""Evaluators as files: all that is known, as plain arrays and JSON, with a hash."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..arrays import Array
from ..errors import OptionError, ReadError
from ..kernels.zones import ZoneTable
from ..records import Record
from ..searches.open_scans import OpenScan
from ..searches.scripts import Wave
from ..states.bin_counts import BinCounts
from ..states.scan_tally import ScanTally
from ..store.where.addresses import shown
from ..store.write.shelves import Shelf
from .first_ties import FirstTies
from .loop_batches import Batch
from .loop_scans import Asked, Hints, LoopScan

#: The number of samples given, whether some were left out, and the names of the classes.
Given = tuple[int, bool, tuple[str, ...] | None]


@dataclass(frozen=True)
class SavedScan(Record):
    """An open scan: its plan and those of its waves in plain values."""

    plan: Wave
    windowed: bool
    n_groups: int
    n_bands: int
    parts: tuple[ScanTally, ...]
    so_far: tuple[ScanTally, ...]
    wave_plans: tuple[Wave, ...]
    wave_counts: tuple[BinCounts, ...]
    n_narrowed: int
    certain: bool

    @classmethod
    def of(cls, scan: OpenScan) -> SavedScan:
        """Return a scan in plain values."""
        so_far = () if scan.so_far is None else (scan.so_far,)
        plans = tuple(Wave.of(replace(scan.plan, zones=zones), ()) for zones, _ in scan.waves)
        counts = tuple(counts for _, counts in scan.waves)
        plan = Wave.of(scan.plan, ())
        return cls(
            plan,
            scan.windowed,
            scan.n_groups,
            scan.n_bands,
            scan.parts,
            so_far,
            plans,
            counts,
            scan.n_narrowed,
            scan.certain,
        )

    def scan(self, budgets: tuple[Fraction, ...]) -> OpenScan:
        """Return the scan."""
        zones: list[ZoneTable] = [wave.plan.zones for wave in self.wave_plans]
        return OpenScan(
            self.plan.plan,
            budgets,
            self.windowed,
            self.n_groups,
            self.n_bands,
            self.parts,
            self.so_far[0] if self.so_far else None,
            tuple(zip(zones, self.wave_counts, strict=True)),
            self.n_narrowed,
            self.certain,
        )


@dataclass(frozen=True)
class SavedRows(Record):
    """The rows that wait, as bytes, and what all rows have in common."""

    dtype: str
    kind: str
    scores: Array
    labels: tuple[Array, ...]
    numbers: Array
    scan: tuple[SavedScan, ...]
    ties: tuple[FirstTies, ...]
    hints: tuple[Hints, ...]

    @classmethod
    def of(cls, found: LoopScan) -> SavedRows:
        """Return what a scan knows in plain values."""
        rows = found.waiting.rows
        return cls(
            found.dtype.name,
            found.kind,
            np.ascontiguousarray(rows.scores).view(np.uint8),
            () if rows.labels is None else (rows.labels,),
            rows.numbers,
            () if found.scan is None else (SavedScan.of(found.scan),),
            found.ties,
            () if found.hints is None else (found.hints,),
        )

    def loop_scan(self, asked: Asked) -> LoopScan:
        """Return what is known."""
        found = LoopScan(asked, np.dtype(self.dtype), self.kind, self.hints[0] if self.hints else None)
        scores = np.ascontiguousarray(self.scores).view(found.dtype)
        found.scan, found.ties = self.scan[0].scan(asked.budgets) if self.scan else None, self.ties
        found.add(Batch(scores, self.labels[0] if self.labels else None, self.numbers, self.kind))
        return found


@dataclass(frozen=True)
class SavedEvaluator(Record):
    """An evaluator: what it is asked for, and what it knows."""

    n_classes: int
    budgets: tuple[str, ...]
    straddle: bool
    nan_policy: str
    by_class: bool
    n_given: int
    is_masked: bool
    class_names: tuple[str, ...]
    known: tuple[SavedRows, ...]
    hints: tuple[Hints, ...]


def write_state(path: object, asked: Asked, given: Given, found: LoopScan | None, hints: Hints | None) -> None:
    """Write an evaluator; what was there is replaced at once, or stays."""
    shelf, name = _place(path)
    n_given, is_masked, class_names = given
    state = SavedEvaluator(
        asked.n_classes,
        tuple(map(str, asked.budgets)),
        asked.straddle,
        asked.nan_policy,
        asked.by_class,
        n_given,
        is_masked,
        class_names or (),
        () if found is None else (SavedRows.of(found),),
        () if hints is None else (hints,),
    )
    shelf.write(name, state.to_parts())


def read_state(path: object) -> tuple[Asked, Given, LoopScan | None, Hints | None]:
    """Return what ``write_state`` wrote.

    Raises
    ------
    ReadError
        Where there is no such file, or it is damaged.

    """
    shelf, name = _place(path)
    data = shelf.read(name)
    if data is None:
        raise ReadError(
            f"path must be a file that save wrote; got {shown(path)}: it is not there, or damaged. Check it."
        )
    state = SavedEvaluator.from_bytes(data)
    asked = Asked(
        state.n_classes, tuple(map(Fraction, state.budgets)), state.straddle, state.nan_policy, state.by_class
    )
    found = state.known[0].loop_scan(asked) if state.known else None
    given = state.n_given, state.is_masked, state.class_names or None
    return asked, given, found, state.hints[0] if state.hints else None


def _place(path: object) -> tuple[Shelf, str]:
    """Return the folder of a file, and its name there."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.basename(os.fspath(path)):
        raise OptionError(f"path must be that of a file; got {shown(path)!r}. Name a file, such as evaluator.avgk.")
    text = str(os.fspath(path))
    if "://" not in text:
        text = os.path.abspath(text)
    elif "#" in text or "?" in text:
        raise OptionError(f"path must be that of a file, without query or fragment; got {shown(path)!r}. Name a file.")
    return Shelf.at(text[: -len(os.path.basename(text)) - 1] or os.sep), os.path.basename(text)
