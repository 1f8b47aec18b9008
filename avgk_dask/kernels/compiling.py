"""Whether a kernel is being compiled now, which takes seconds: upper rooms show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from ..threads import forkable

#: What is called when compiling begins (True) and when it ends (False), in the thread that compiles.
Watcher = Callable[[bool], Any]

_lock = forkable(Lock())
_watchers: list[Watcher] = []
_n_open = 0


def is_compiling() -> bool:
    """Whether a kernel is being compiled in this process now."""
    return _n_open > 0


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call a function, while this holds, whenever compiling begins and ends in this process; loading from a cache is none.

    Kernels compile others that they call: of these nothing is told.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _change(by: int) -> None:
    global _n_open
    with _lock:
        before = is_compiling()
        _n_open += by
        after = is_compiling()
    if before != after:
        for watcher in list(_watchers):
            watcher(after)


@cache
def listen() -> None:
    """Listen to numba, from the first call on."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        """Counts what is being compiled."""

        def on_start(self, event: Any) -> None:
            _change(1)

        def on_end(self, event: Any) -> None:
            _change(-1)

    event.register("numba:compile", Listener())
