"""The kinds of arrays there are, by name; integers of Python or NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of any dtype: scores as they come, and what is made of them.
Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Dtype = np.dtype[Any]


def whole_number(value: object) -> int:
    """Return an integer of Python or NumPy as one of Python; -1, which no count is, of anything else.

    Examples
    --------
    >>> whole_number(np.int64(3)), whole_number(3.0), whole_number(True)
    (3, -1, -1)

    """
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else -1


# Memory that is used again: freshly allocated memory costs a page fault for every 4 kB, more than filling it.


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
