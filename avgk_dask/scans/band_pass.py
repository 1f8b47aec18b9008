"""Passes: what one read of the bands does, as plain data. Searches ask for them, and ``passes.run.drive`` reads them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from ..arrays import Array
from ..records import Several, State

#: ``work(slabs, labels, number, plan)`` reads one band and returns its state. The number is that of the band, or, in a
#: pass over single chunks, that of the chunk.
Work = Callable[[Iterable[Array], Any, int, Any], State]


@dataclass(frozen=True)
class Pass:
    """One read: a plan, the same for all bands, the work on a band, and the state that the bands' states merge into."""

    #: Names the tasks, and the stage that progress tells of.
    name: str
    work: Work
    plan: Any
    state: type[State]
    #: The bands to read; None for all.
    bands: tuple[int, ...] | None = None
    #: The class chunk to read of each of those bands, instead of the whole of it.
    columns: tuple[int, ...] | None = None
    #: Where states are large: at most so many tasks, each of which adds one band's to the last.
    max_tasks: int | None = None
    #: Whether the work holds a band's whole rows, and at how many keys it counts scores: what its memory depends on.
    holds_rows: bool = False
    n_edges: int = 0
    #: Bytes that the state of any number of bands may have, beside what adds up: large ones are merged few at a time. And
    #: bytes that it has for each row.
    state_bytes: int = 0
    sum_bytes: int = 0
    #: Whether it is one of several that read all bands once, together.
    is_wave: bool = False
    #: Whether, with the passes before it, all bands have been read once more.
    completes: bool = False

    @property
    def ends_read(self) -> bool:
        """Whether a read of the store ends with it."""
        return self.bands is None or self.completes


class Search(Protocol):
    """What asks for passes until it knows the answer. Pure: it reads nothing, and ``advance`` returns a new one."""

    def next_pass(self) -> Pass | None:
        """Return the pass that is needed next; None once the answer is known."""

    def advance(self, state: Any) -> Self:
        """Return the search that knows what a pass has found."""


@dataclass(frozen=True)
class Together:
    """Several searches as one: passes over the same bands share a read."""

    searches: tuple[Any, ...]

    def next_pass(self) -> Pass | None:
        """Return one pass that does the work of all that can share a read."""
        shared = [what for what in self._passes() if what is not None]
        if not shared:
            return None
        limits = [what.max_tasks for what in shared if what.max_tasks]
        return Pass(
            "-".join(dict.fromkeys(what.name for what in shared)),
            work_together,
            tuple(shared),
            Several,
            shared[0].bands,
            shared[0].columns,
            min(limits, default=None),
            holds_rows=shared[0].columns is None,
            n_edges=sum(what.n_edges for what in shared),
            state_bytes=sum(what.state_bytes for what in shared),
            sum_bytes=sum(what.sum_bytes for what in shared),
        )

    def _passes(self) -> list[Pass | None]:
        """Return the pass of each search that joins the next read; None for those that wait.

        A pass over single chunks, such as a pilot, is read alone; others share the read of the first one's bands.
        """
        wanted = [search.next_pass() for search in self.searches]
        alone = next((i for i, what in enumerate(wanted) if what is not None and what.columns is not None), None)
        if alone is not None:
            return [what if i == alone else None for i, what in enumerate(wanted)]
        bands = next((what.bands for what in wanted if what is not None), None)
        return [what if what is not None and what.bands == bands else None for what in wanted]

    def advance(self, state: Several) -> Together:
        """Hand each search its part."""
        parts = iter(state.parts)
        pairs = zip(self.searches, self._passes(), strict=True)
        return Together(tuple(search if what is None else search.advance(next(parts)) for search, what in pairs))


def work_together(slabs: Iterable[Array], labels: Any, number: int, plan: tuple[Pass, ...]) -> Several:
    """Do the work of several passes on one band, which is held whole."""
    # A slab that is read is good until the next one is asked for; blocks that came in a list stay.
    held = slabs if isinstance(slabs, list) else [copy.copy(slab) for slab in slabs]
    return Several(tuple(what.work(iter(held), labels, number, what.plan) for what in plan))
