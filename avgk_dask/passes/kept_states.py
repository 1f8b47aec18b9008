"""Kept states: what tasks find stays in a checkpoint, by a name that tells what was read and how.

Apart from what plans them, so that a worker need not import Dask's arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from ..errors import ReadError
from ..records import EACH, Count, State
from ..sources.reading import labels_of
from ..store.read.stamps import hash_rows
from ..store.write.shelves import Shelf


@dataclass(frozen=True)
class KeptState(State):
    """The state of some bands, and how many of the tasks it is of have read scores: the others found theirs kept."""

    state: Annotated[tuple[State, ...], EACH]
    n_readers: Count


@dataclass(frozen=True)
class Keeper:
    """Keeps the states of one pass."""

    shelf: Shelf
    kind: type[State]

    def load(self, name: str) -> State | None:
        """Return a state that was kept; None if there is none, or it is damaged or another's."""
        data = self.shelf.read(name)
        try:
            return None if data is None else self.kind.from_bytes(data)
        except ReadError:
            return None

    def save(self, name: str, state: State) -> None:
        """Keep a state."""
        self.shelf.write(name, state.to_parts())


def read_kept(keeper: Keeper, name: str, read: Callable[..., State], *arguments: Any) -> KeptState:
    """Return a state as it was kept, or read it and keep it."""
    state = keeper.load(name)
    if state is not None:
        return KeptState((state,), 0)
    state = read(*arguments)
    keeper.save(name, state)
    return KeptState((state,), 1)


def hash_labels(labels: Any, numbers: Sequence[int]) -> list[int]:
    """Return a hash of the labels of each of some bands."""
    with closing(labels_of(None, labels, numbers)) as each:
        return [hash_rows(mine) for mine in each]
