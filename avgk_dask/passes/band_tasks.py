"""What tasks do on the workers. Apart from what builds graphs, so that a worker need not import Dask's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..kernels.chosen import work_on
from ..records import State
from ..scans.band_pass import Pass
from ..sources.reading import Preparation, chunks_of, kept_rows, labels_of, masks_of, slabs_of


@dataclass(frozen=True)
class Assignment:
    """What all tasks of a pass share: the pass, and what happens to scores before its work."""

    what: Pass
    preparations: tuple[Preparation, ...] = ()
    #: Of each condition that samples must meet, the label that it ignores.
    ignored: tuple[int | None, ...] = ()
    #: Scores of the whole matrix.
    n_scores: int = 0

    def work(self, slabs: Any, labels: Any, kept: Any, number: int, band: int, column: int = 0) -> State:
        """Do the work of the pass on those rows of a band, or of a chunk of it, that exist."""
        work_on(self.n_scores)
        if kept is not None:
            slabs, labels = kept_rows(slabs, kept), None if labels is None else labels[kept]
        for preparation in self.preparations:
            slabs = preparation.prepare(slabs, band, column)
        return self.what.work(slabs, labels, number, self.what.plan)


@dataclass(frozen=True)
class BandNumbers:
    """The numbers of some bands, and those by which they are read: the same where all samples exist."""

    numbers: Sequence[int]
    places: Sequence[int]


def read_bands(bands: Any, labels: Any, masks: Any, which: BandNumbers, assignment: Assignment, n_held: int) -> State:
    """Do the work of a pass on some bands, one after the other, and return the state of all.

    Up to ``n_held`` states are held before they are merged.
    """
    places = which.places
    states: list[State] = []
    merge = assignment.what.state.merge
    # Closed at once on an error, whose traceback would keep them open.
    with (
        closing(slabs_of(bands, places)) as each,
        closing(labels_of(bands, labels, places)) as all_labels,
        closing(masks_of(masks, assignment.ignored, places)) as all_masks,
    ):
        for slabs, mine, kept, number in zip(each, all_labels, all_masks, which.numbers, strict=True):
            states.append(assignment.work(slabs, mine, kept, number, number))
            if len(states) == n_held:
                states = [merge(states)]
    return merge(states)


@dataclass(frozen=True)
class ChunkNumbers:
    """The numbers of some chunks, the (band, class chunk) of each, and the numbers by which their bands are read."""

    numbers: Sequence[int]
    chunks: Sequence[tuple[int, int]]
    places: Sequence[int]


def read_chunks(reader: Any, chunks: list[Any], masks: Any, which: ChunkNumbers, assignment: Assignment) -> State:
    """Do the work of a pass on single chunks, and return the state of all."""
    with closing(chunks_of(reader, chunks)) as each, closing(masks_of(masks, assignment.ignored, which.places)) as kept:
        found = zip(each, kept, which.numbers, which.chunks, strict=True)
        return merge_states([assignment.work(slabs, None, mine, number, *at) for slabs, mine, number, at in found])


def merge_states(states: list[State]) -> State:
    """Return the state of all."""
    return type(states[0]).merge(states)
