"""Kernels as the other rooms call them: compiled for large matrices, as plain NumPy for small ones.

Compiling takes seconds, where a small matrix is worked on in a few milliseconds, whichever way. Both ways give the same
bits, so a process, a worker or a single call may choose as it likes. The compiled side, and numba, are imported when
they are first needed.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cached_property
from typing import Any

from ..settings import setting
from .twins import KERNELS, compiled_kernel, plain_twin

#: Scores of the matrix that this thread works on, as far as it was told.
_n_scores: ContextVar[int] = ContextVar("n_scores", default=0)


def work_on(n_scores: int) -> None:
    """Tell the kernels that this thread works on a matrix of so many scores from now on."""
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
        """The compiled kernel; it is compiled, or loaded, when it is called with types that it has not met."""
        return compiled_kernel(self.name)


def _size(given: Any) -> int:
    """Return how many numbers an argument holds: that of the first array in a tuple."""
    while isinstance(given, tuple):
        given = given[0]
    return getattr(given, "size", 0)


_ALL = {name: Kernel(name) for name in KERNELS}


def __getattr__(name: str) -> Any:
    """Return the kernel of a name."""
    if name not in _ALL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _ALL[name]
