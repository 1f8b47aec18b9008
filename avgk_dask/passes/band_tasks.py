"""What tasks do on the workers. Apart from what builds graphs, so that a worker need not import Dask's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..records import State
from ..scans.band_pass import Pass
from ..sources.reading import Preparation, chunks_of, labels_of, slabs_of


@dataclass(frozen=True)
class Assignment:
    """What all tasks of a pass share: the pass, and what happens to scores before its work."""

    what: Pass
    preparations: tuple[Preparation, ...] = ()

    def work(self, slabs: Any, labels: Any, number: int, band: int, column: int = 0) -> State:
        """Do the work of the pass on a band, or on a chunk of it."""
        for preparation in self.preparations:
            slabs = preparation.prepare(slabs, band, column)
        return self.what.work(slabs, labels, number, self.what.plan)


def read_bands(bands: Any, labels: Any, numbers: Sequence[int], assignment: Assignment, n_held: int) -> State:
    """Do the work of a pass on some bands, one after the other, and return the state of all.

    Up to ``n_held`` states are held before they are merged.
    """
    states: list[State] = []
    merge = assignment.what.state.merge
    # Closed at once on an error, whose traceback would keep them open.
    with closing(slabs_of(bands, numbers)) as each, closing(labels_of(bands, labels, numbers)) as all_labels:
        for slabs, mine, number in zip(each, all_labels, numbers, strict=True):
            states.append(assignment.work(slabs, mine, number, number))
            if len(states) == n_held:
                states = [merge(states)]
    return merge(states)


def read_chunks(
    reader: Any, chunks: list[Any], numbers: Sequence[int], places: Sequence[tuple[int, int]], assignment: Assignment
) -> State:
    """Do the work of a pass on single chunks, given their (band, class chunk), and return the state of all."""
    with closing(chunks_of(reader, chunks)) as each:
        found = zip(each, numbers, places, strict=True)
        return merge_states([assignment.work(slabs, None, number, *place) for slabs, number, place in found])


def merge_states(states: list[State]) -> State:
    """Return the state of all."""
    return type(states[0]).merge(states)
