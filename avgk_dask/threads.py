"""The process: its threads, for work on what has come together in it, its memory, and whether its task is still wanted."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from dask import config, threaded
from dask.base import get_scheduler
from dask.system import CPU_COUNT

Item = TypeVar("Item")
Value = TypeVar("Value")


def n_threads() -> int:
    """Return how many threads Dask's configuration allows: one under its synchronous scheduler, else as many as cores."""
    if config.get("scheduler", None) in ("sync", "synchronous", "single-threaded"):
        return 1
    return int(config.get("num_workers", None) or CPU_COUNT)


def n_task_threads() -> int:
    """Return how many threads tasks run on: those of the cluster that Dask would use, else those of this process."""
    return sum(int(worker["nthreads"]) for worker in cluster_workers()) or n_threads()


def cluster_workers() -> list[dict[str, Any]]:
    """Return what is known of the workers of the cluster that Dask would use; none where this process computes itself."""
    client = cluster_client()
    return [] if client is None else list(client.scheduler_info(n_workers=-1)["workers"].values())


def cluster_client() -> Any:
    """Return the distributed client that Dask would compute with; None for a local scheduler."""
    if "distributed" not in sys.modules:  # whoever has a client has imported it
        return None
    client = getattr(get_scheduler(), "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def local_scheduler() -> Any:
    """Return the scheduler of this process where nobody has asked for another one; None for Dask's own choice.

    Dask would import distributed to look for a client, which takes half a second. Whoever has one has imported it.
    """
    return None if "distributed" in sys.modules or config.get("scheduler", None) else threaded.get


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
        # What this thread knows of its work, the others know, too.
        return list(pool.map(lambda context, item: context.run(function, item), [copy_context() for _ in held], held))


def process_memory() -> int:
    """Return the bytes that this process may take: the limit of a Dask worker, else all there are."""
    limit = getattr(getattr(_worker(), "memory_manager", None), "memory_limit", None)
    return int(limit or machine_memory())


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return int(total)


def give_back_memory() -> None:
    """Give memory that is free back to the system, where the C library keeps it: pieces of it would add up from wave to wave."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def is_cancelled() -> bool:
    """Whether this thread works on a task of a Dask worker that nobody wants any longer."""
    worker = _worker()
    try:
        task = None if worker is None else worker.state.tasks.get(worker.get_current_task())
    except (AttributeError, KeyError):
        return False
    return getattr(task, "state", None) == "cancelled"


def _worker() -> Any:
    """Return the Dask worker whose task this thread works on; None where there is none."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].get_worker()
    except (AttributeError, ValueError):
        return None
