"""What tasks do on the workers. Apart from what builds graphs, so that a worker need not import Dask's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records import State
from ..scans.band_pass import Pass
from ..sources.reading import chunk_of, labels_now, slabs_of


def read_bands(bands: Any, labels: list[Any], numbers: Sequence[int], what: Pass, n_held: int) -> State:
    """Do the work of a pass on some bands, one after the other, and return the state of all.

    Up to ``n_held`` states are held before they are merged.
    """
    states: list[State] = []
    for slabs, mine, number in zip(slabs_of(bands, numbers), labels, numbers, strict=True):
        states.append(what.work(slabs, labels_now(mine), number, what.plan))
        if len(states) == n_held:
            states = [what.state.merge(states)]
    return what.state.merge(states)


def read_chunk(reader: Any, chunk: Any, number: int, what: Pass) -> State:
    """Do the work of a pass on a single chunk."""
    return what.work(chunk_of(reader, chunk), None, number, what.plan)


def merge_states(states: list[State]) -> State:
    """Return the state of all."""
    return type(states[0]).merge(states)
