"""Kernels as the other folders call them: compiled for large matrices, NumPy for small ones.

Each kernel exists twice, with the same name, arguments and bits: in ``kernels/numpy``, whose docstring defines it, and in
``kernels/compiled``. Compiling takes seconds, and a small matrix needs only milliseconds. The compiled kernels, and
numba, are imported when they are first needed. ``watch_compiling`` reports to progress bars when a kernel is being compiled.
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

#: Called when compiling begins (True) and when it ends (False), in the thread that compiles.
Watcher = Callable[[bool], Any]

_lock = forkable(Lock())
_watchers: list[Watcher] = []
_n_open = 0


def is_compiling() -> bool:
    """Whether a kernel is being compiled in this process now."""
    return _n_open > 0


@contextmanager
def watch_compiling(watcher: Watcher) -> Iterator[None]:
    """Call a function whenever compiling begins and ends in this process; loading from the cache does not count."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _change(by: int) -> None:
    """Count the kernels being compiled, which compile others that they call; call the watchers at the first and last."""
    global _n_open
    with _lock:
        before, _n_open = is_compiling(), _n_open + by
        after = is_compiling()
    for watcher in list(_watchers) if before != after else ():
        watcher(after)


@cache
def listen() -> None:
    """Register with numba, once."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            _change(1)

        def on_end(self, event: Any) -> None:
            _change(-1)

    event.register("numba:compile", Listener())


#: The kernels of each module; ``compiled`` and ``numpy`` hold modules of the same names.
MODULES = {
    "events": """add_exact collect_near count_apart count_at_edges count_bins count_cells count_spaced find_brackets
        group_order half_keys join_bins move_cells rank_in_row scatter_rows step_events""",
    "exponentials": """exponentials logarithms mix_rows row_sums scaled_losses sigmoid_narrow sigmoid_wide
        softmax_narrow softmax_norms softmax_part softmax_wide""",
    "ranks": "add_products count_lower rank_top",
    "rows": "add_strata count_sets find_labels gather_above hold_rows rank_labels scan_rows split_rows measure_sets",
}
#: The module of each kernel.
KERNELS = {name: module for module, names in MODULES.items() for name in names.split()}
#: Threads that import numba at once see it half made, or deadlock over its own locks.
_importing = forkable(RLock())


def compiled_kernel(name: str) -> Any:
    """Return the compiled kernel of a name."""
    with _importing:
        listen()
        return getattr(import_module(f".compiled.{KERNELS[name]}", __package__), name)


def numpy_kernel(name: str) -> Any:
    """Return the NumPy kernel of a name."""
    return getattr(import_module(f".numpy.{KERNELS[name]}", __package__), name)


def kernel_cache_folder() -> str:
    """Return the folder of numba's cache."""
    return str(compiled_kernel("hold_rows")._cache.cache_path)


#: Scores of the matrix that this thread works on, as set by ``set_problem_size``.
_n_scores: ContextVar[int] = ContextVar("n_scores", default=0)


def set_problem_size(n_scores: int) -> None:
    """Set the number of scores of the matrix that this thread works on from now on."""
    _n_scores.set(n_scores)


class Kernel:
    """A kernel that chooses its implementation by the size of the matrix and of its arguments."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        most = setting("plain-scores")
        is_small = _n_scores.get() <= most and all(_size(argument) <= most for argument in arguments[:2])
        return (self.numpy if is_small else self.compiled)(*arguments)

    @cached_property
    def numpy(self) -> Any:
        """The NumPy kernel."""
        return numpy_kernel(self.name)

    @cached_property
    def compiled(self) -> Any:
        """The compiled kernel; numba compiles or loads it when it is called with new types."""
        return compiled_kernel(self.name)


def _size(argument: Any) -> int:
    """Return the size of an array, or of the first array in a tuple."""
    return _size(argument[0]) if isinstance(argument, tuple) else getattr(argument, "size", 0)


_ALL = {name: Kernel(name) for name in KERNELS}


def __getattr__(name: str) -> Any:
    """Return the kernel of a name."""
    if name not in _ALL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _ALL[name]
