"""Types of arrays, integers of Python or NumPy, and a pool of buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of any dtype, such as scores.
Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Dtype = np.dtype[Any]


def whole_number(value: object) -> int:
    """Return an integer of Python or NumPy as one of Python, and -1 for anything else."""
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else -1


class Pool:
    """Spare buffers of one kind, shared by the threads of a process; pickled without them.

    New memory costs a page fault for every 4 kB, more than filling it.
    """

    def __init__(self) -> None:
        self._spare: list[Any] = []

    @contextmanager
    def lend(self, make: Callable[[], Any]) -> Iterator[Any]:
        """Lend a spare or new buffer, and take it back."""
        try:
            buffer = self._spare.pop()
        except IndexError:
            buffer = make()
        yield buffer
        self._spare.append(buffer)  # not after an error: someone may still be writing to it

    def __dask_tokenize__(self) -> str:
        return "spare buffers"  # the same for any

    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()
