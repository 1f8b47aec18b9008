"""The threads of this process, for work on what has come together in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dask import config
from dask.system import CPU_COUNT

Item = TypeVar("Item")
Value = TypeVar("Value")


def n_threads() -> int:
    """Return how many threads Dask's configuration allows: one under its synchronous scheduler, else as many as cores."""
    if config.get("scheduler", None) in ("sync", "synchronous", "single-threaded"):
        return 1
    return int(config.get("num_workers", None) or CPU_COUNT)


def in_threads(function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """Return a function's value of each item, in order, worked out on several threads.

    Examples
    --------
    >>> in_threads(abs, [-1, 2, -3])
    [1, 2, 3]

    """
    held = list(items)
    n = min(n_threads(), len(held))
    if n <= 1:
        return [function(item) for item in held]
    with ThreadPoolExecutor(n, thread_name_prefix="avgk") as pool:
        return list(pool.map(function, held))
