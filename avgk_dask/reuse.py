"""Memory that is used again: freshly allocated memory costs a page fault for every 4 kB, more than filling it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Pool:
    """Spare buffers of one kind, shared by the threads of a process; it travels to others empty."""

    def __init__(self) -> None:
        self._spare: list[Any] = []

    @contextmanager
    def lend(self, make: Callable[[], Any]) -> Iterator[Any]:
        """Lend a spare buffer, a new one where there is none, and take it back."""
        try:
            buffer = self._spare.pop()
        except IndexError:
            buffer = make()
        yield buffer
        self._spare.append(buffer)  # not after an error: someone may still be writing to it

    def __dask_tokenize__(self) -> str:
        return "spare buffers"  # which ones changes nothing

    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()
