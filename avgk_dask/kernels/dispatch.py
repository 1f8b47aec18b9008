"""Kernels as the other folders call them: compiled for large matrices, NumPy for small ones.

Each kernel exists twice, under the same name, in ``kernels/compiled`` and ``kernels/numpy``: its twin there defines what it
does. Both are called the same way and give the same bits, so a process, a worker or a single call may use either. Compiling
takes seconds, and a small matrix needs only milliseconds. The compiled kernels, and numba, are imported when they are first
needed. ``watching`` reports when a kernel is being compiled, so that progress bars can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from importlib import import_module
from threading import Lock, RLock
from typing import Any

from ..settings import setting
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
    """Call a function whenever compiling begins and ends in this process; loading from the cache does not count.

    Kernels compile others that they call: these are not reported.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _change(by: int) -> None:
    """Count kernels that begin or end to be compiled, and call the watchers at the first and the last."""
    global _n_open
    with _lock:
        before, _n_open = is_compiling(), _n_open + by
        after = is_compiling()
    for watcher in list(_watchers) if before != after else ():
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


#: The kernels of each module; ``compiled`` and ``numpy`` hold modules of the same names.
MODULES = {
    "events": """add_exact collect_near count_apart count_at_edges count_bins count_cells find_brackets find_edge
        group_order half_keys join_bins move_cells rank_in_row scatter_rows step_events""",
    "exponentials": """exponentials logarithms mix_rows row_sums scaled_losses sigmoid_narrow sigmoid_wide
        softmax_narrow softmax_norms softmax_part softmax_wide""",
    "ranks": "add_products count_lower order_top rank_top row_floor",
    "rows": "add_strata count_sets find_labels gather_above hold_rows rank_labels scan_rows split_rows tell_sets",
}
#: The module of each kernel.
KERNELS = {name: module for module, names in MODULES.items() for name in names.split()}
#: Threads that import numba at once see it half made, or wait for each other forever: they hold different locks of its own.
_importing = forkable(RLock())


def compiled_kernel(name: str) -> Any:
    """Return the compiled kernel of a name."""
    with _importing:
        listen()
        return getattr(import_module(f".compiled.{KERNELS[name]}", __package__), name)


def plain_twin(name: str) -> Any:
    """Return the plain twin of a kernel."""
    return getattr(import_module(f".numpy.{KERNELS[name]}", __package__), name)


def kept_in() -> str:
    """Return the folder in which numba keeps the compiled kernels."""
    return str(compiled_kernel("hold_rows")._cache.cache_path)


#: Scores of the matrix that this thread works on, as set by ``work_on``.
_n_scores: ContextVar[int] = ContextVar("n_scores", default=0)


def work_on(n_scores: int) -> None:
    """Set the number of scores of the matrix that this thread works on from now on."""
    _n_scores.set(n_scores)


class Kernel:
    """A kernel of the table, called by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Any:
        """Do what the kernel and its twin do."""
        most = setting("plain-scores")
        is_small = _n_scores.get() <= most and all(_size(given) <= most for given in arguments[:2])
        return (self.plain if is_small else self.compiled)(*arguments)

    @cached_property
    def plain(self) -> Any:
        """The plain twin."""
        return plain_twin(self.name)

    @cached_property
    def compiled(self) -> Any:
        """The compiled kernel; it is compiled, or loaded, when it is called with new types."""
        return compiled_kernel(self.name)


def _size(given: Any) -> int:
    """Return how many numbers an argument holds: that of the first array in a tuple."""
    return _size(given[0]) if isinstance(given, tuple) else getattr(given, "size", 0)


_ALL = {name: Kernel(name) for name in KERNELS}


def __getattr__(name: str) -> Any:
    """Return the kernel of a name."""
    if name not in _ALL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _ALL[name]
