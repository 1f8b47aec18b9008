"""Passes: the work of one read of the bands, as plain data, with the labels that tasks receive and counts of bad data.

A *search* asks for one ``Pass`` after another until it knows its answer, and ``engine.run.drive`` reads them. ``Together``
joins searches that share reads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np

from ..arrays import Array, Floats, Ints
from ..masks import SoftFaults
from ..records import BEYOND, LEAST, MOST, Count, Several, State

#: ``work(slabs, labels, number, plan)`` reads one band, or one chunk in a pass over single chunks, and returns its state.
Work = Callable[[Iterable[Array], Any, int, Any], State]


@dataclass(frozen=True)
class Pass:
    """One read: a plan, the same for all bands, the work on a band, and the state that the bands' states merge into."""

    #: The name of the tasks, and of the stage in the progress.
    name: str
    work: Work
    plan: Any
    state: type[State]
    #: The bands to read; None for all.
    bands: tuple[int, ...] | None = None
    #: The class chunk to read from each of these bands, instead of whole bands.
    columns: tuple[int, ...] | None = None
    #: Maximum number of tasks, for large states: each task then merges every band's state with the last one.
    max_tasks: int | None = None
    #: Whether the work holds a band's whole rows, and the number of keys at which it counts scores: both take memory.
    holds_rows: bool = False
    n_edges: int = 0
    #: Bytes of the state, for any number of bands (large states are merged few at a time), and bytes per row.
    state_bytes: int = 0
    sum_bytes: int = 0
    #: Whether it is one of several that read all bands once, together.
    is_wave: bool = False
    #: Whether all bands have been read once more after this pass and those before it.
    completes: bool = False

    @property
    def ends_read(self) -> bool:
        """Whether a read of the store ends with it."""
        return self.bands is None or self.completes


class Search(Protocol):
    """Asks for passes until it knows its answer. Pure: it reads nothing, and ``advance`` returns a new search."""

    def next_pass(self) -> Pass | None:
        """Return the next pass; None once the answer is known."""

    def advance(self, state: Any) -> Self:
        """Return the search after a pass, given the state of all bands."""


@dataclass(frozen=True)
class Together:
    """Several searches as one: their passes over the same bands share a read."""

    searches: tuple[Any, ...]

    def next_pass(self) -> Pass | None:
        """Return one pass for all passes that can share a read."""
        shared = [pass_ for pass_ in self._passes() if pass_ is not None]
        if not shared:
            return None
        limits = [pass_.max_tasks for pass_ in shared if pass_.max_tasks]
        return Pass(
            "-".join(dict.fromkeys(pass_.name for pass_ in shared)),
            work_together,
            tuple(shared),
            Several,
            shared[0].bands,
            shared[0].columns,
            min(limits, default=None),
            holds_rows=shared[0].columns is None,
            n_edges=sum(pass_.n_edges for pass_ in shared),
            state_bytes=sum(pass_.state_bytes for pass_ in shared),
            sum_bytes=sum(pass_.sum_bytes for pass_ in shared),
        )

    def _passes(self) -> list[Pass | None]:
        """Return the pass of each search that joins the next read, or None if it waits.

        A pass over single chunks, such as a pilot, is read alone; others share the read of the first one's bands.
        """
        passes = [search.next_pass() for search in self.searches]
        alone = next((i for i, pass_ in enumerate(passes) if pass_ is not None and pass_.columns is not None), None)
        if alone is not None:
            return [pass_ if i == alone else None for i, pass_ in enumerate(passes)]
        bands = next((pass_.bands for pass_ in passes if pass_ is not None), None)
        return [pass_ if pass_ is not None and pass_.bands == bands else None for pass_ in passes]

    def advance(self, state: Several) -> Together:
        """Advance each search that took part by its state."""
        parts = iter(state.parts)
        pairs = zip(self.searches, self._passes(), strict=True)
        return Together(tuple(search if pass_ is None else search.advance(next(parts)) for search, pass_ in pairs))


def work_together(slabs: Iterable[Array], labels: Any, number: int, plan: tuple[Pass, ...]) -> Several:
    """Do the work of several passes on one band, which is held whole."""
    # A slab is valid until the next one is read; blocks in a list stay valid.
    held = slabs if isinstance(slabs, list) else [copy.copy(slab) for slab in slabs]
    return Several(tuple(pass_.work(iter(held), labels, number, pass_.plan) for pass_ in plan))


#: Values of a label in addition to the classes: unlabelled, one too many, and further out of range.
_OTHERS = 3


def pack(labels: Array, groups: Ints, n_classes: int) -> Ints:
    """Return one number per sample for its label and its group; labels out of range stay out of range."""
    wide = labels if labels.dtype.kind == "u" and labels.dtype.itemsize == 8 else labels.astype(np.int64)
    hard = np.minimum(wide, wide.dtype.type(n_classes + 1)).astype(np.int64)
    return np.asarray(groups * (n_classes + _OTHERS) + np.maximum(hard, -1) + 1, np.int64)


@dataclass(frozen=True)
class SampleGroups:
    """Splits the column that a task receives as labels, in which labels may be packed together with groups."""

    n_classes: int
    are_packed: bool = True

    def split(self, column: Array | None) -> tuple[Array | None, Ints | None]:
        """Return labels and groups, or None for the groups if the column holds only labels."""
        if not self.are_packed or column is None:
            return column, None
        groups, labels = np.divmod(column.astype(np.int64), self.n_classes + _OTHERS)
        return labels - 1, groups


#: Band, row in it, class.
Place = tuple[int, int, int]
NOWHERE: Place = (BEYOND, BEYOND, BEYOND)


@dataclass(frozen=True)
class CheckedTally(State):
    """Counts of the bands read so far, with the first place of each kind of bad data."""

    VERSION: ClassVar[int] = 2

    n_rows: Count
    n_nan: Count
    first_nan: Annotated[Place, LEAST]
    n_bad_labels: Count
    first_bad_label: Annotated[Place, LEAST]
    #: The least nonnegative hard label, and the largest bad one.
    least_label: Annotated[int, LEAST]
    most_label: Annotated[int, MOST]
    #: Rows of soft labels that do not sum to 1: their number, and the band, row and sum of the first one. Number of rows of
    #: zeros and several ones.
    n_bad_sums: Count
    first_bad_sum: Annotated[tuple[int, int, float], LEAST]
    n_multi_hot: Count
    n_labelled: Count


#: Larger than any label.
_NO_LABEL = 2**64 - 1
_NO_FAULTS = SoftFaults(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class UsableLabels:
    """The hard or soft labels of a band without the bad ones."""

    hard: Ints | None = None
    soft: Floats | None = None
    #: Rows of bad labels; the least nonnegative hard label; the largest bad one, or -1.
    bad: Ints | tuple[int, ...] = ()
    least: int = _NO_LABEL
    most: int = -1
    soft_faults: SoftFaults = _NO_FAULTS
    #: The groups of the rows, if they are packed with the labels.
    groups: Array | None = None

    @classmethod
    def from_labels(cls, labels: Array | None, n_classes: int) -> UsableLabels:
        """Return the usable labels of a band."""
        if labels is None:
            return cls()
        if labels.ndim == 2:
            soft = labels.astype(np.float64)
            faults = SoftFaults.find(soft)
            soft[faults.outside] = 0
            return cls(soft=soft, bad=faults.outside, soft_faults=faults)
        bad = np.flatnonzero(labels >= n_classes)
        hard = labels.astype(np.int64)
        least = int(hard.view(np.uint64).min(initial=_NO_LABEL))  # negative ones are large there
        most = int(labels[bad].max(initial=0)) if bad.size else -1
        hard[bad] = -1
        hard[hard < 0] = -1
        return cls(hard, None, bad, least, most)

    @classmethod
    def of_column(cls, column: Array | None, n_classes: int, *, are_packed: bool) -> UsableLabels:
        """Return the usable labels of a column, and its groups if both are packed in it."""
        labels, groups = SampleGroups(n_classes, are_packed).split(column)
        return replace(cls.from_labels(labels, n_classes), groups=None if groups is None else groups.astype(np.int32))

    @property
    def array(self) -> Array | None:
        """The hard or soft labels."""
        return self.hard if self.soft is None else self.soft

    @property
    def n_labelled(self) -> int:
        """The number of rows with a label."""
        if self.hard is None:
            return 0 if self.soft is None else len(self.soft)
        return int((self.hard >= 0).sum())

    def strata(self, kind: str, n_rows: int) -> Array:
        """Return the stratum of each row: its class + 1, or 0 without a label; its group; or 0 for all."""
        if kind == "groups":
            assert self.groups is not None
            return self.groups
        if kind == "classes" and self.hard is not None:
            return (self.hard + 1).astype(np.int32)
        return np.zeros(n_rows, np.int8)

    def faults(self, band: int) -> dict[str, Any]:
        """Return the fields of a ``CheckedTally`` about bad labels, by name."""
        first = (band, int(self.bad[0]), 0) if len(self.bad) else NOWHERE
        off = self.soft_faults.off
        return {
            "n_bad_labels": len(self.bad), "first_bad_label": first, "least_label": self.least, "most_label": self.most,
            "n_bad_sums": off.size, "n_multi_hot": self.soft_faults.n_multi_hot,
            "first_bad_sum": (band, int(off[0]), self.soft_faults.first_sum) if off.size else NOWHERE,
        }  # fmt: skip
