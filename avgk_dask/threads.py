"""The process: its threads and memory, the cluster that Dask would compute on, and their state after a fork."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

from dask import config, threaded
from dask.base import get_scheduler
from dask.system import CPU_COUNT

from .errors import ClusterError

Item = TypeVar("Item")
Value = TypeVar("Value")

#: How to start processes instead of forking.
FORK_HINT = 'start processes with multiprocessing.set_start_method("spawn") or "forkserver"'
#: If this process was forked, the modules imported before the fork and the clients of its parent.
_PARENT_MODULES: set[str] = set()
_PARENT_CLIENTS: WeakSet[Any] = WeakSet()


def in_forked_child(function: Callable[[], Any]) -> None:
    """Call a function in each process forked from this one, where only the forking thread continues."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def forkable(lock: Any) -> Any:
    """Make a lock free in forked children, even if another thread holds it during the fork; return it."""
    in_forked_child(lock._at_fork_reinit)
    return lock


def _leave_parent() -> None:
    """Replace Dask's thread pools, whose threads stayed in the parent; record the modules and clients that used such threads."""
    threaded.default_pool = None
    threaded.pools.clear()
    threaded.pools_lock = Lock()
    if config.get("pool", None) is not None:
        config.set(pool=None)
    _PARENT_MODULES.update(sys.modules)
    if "distributed" in sys.modules:
        _PARENT_CLIENTS.update(getattr(sys.modules["distributed"].Client, "_instances", ()))


in_forked_child(_leave_parent)


def was_forked_with(module: str) -> bool:
    """Return whether this process was forked after its parent had imported a module."""
    return module in _PARENT_MODULES


def n_threads() -> int:
    """Return the number of threads in Dask's configuration, by default one per core; 1 for its synchronous scheduler."""
    if config.get("scheduler", None) in ("sync", "synchronous", "single-threaded"):
        return 1
    return int(config.get("num_workers", None) or CPU_COUNT)


def n_task_threads() -> int:
    """Return the number of threads for tasks, of the cluster that Dask would use or else of this process."""
    return sum(int(worker["nthreads"]) for worker in cluster_workers()) or n_threads()


def cluster_workers() -> list[dict[str, Any]]:
    """Return the scheduler's records of the workers of the cluster that Dask would use, or [] without one."""
    client = cluster_client()
    return [] if client is None else list(client.scheduler_info(n_workers=-1)["workers"].values())


def cluster_client() -> Any:
    """Return the distributed client that Dask would compute with, or None for a local scheduler.

    Raises ClusterError if the client was created before this process was forked.
    """
    if "distributed" not in sys.modules:  # then no client exists
        return None
    client = getattr(get_scheduler(), "__self__", None)
    if not hasattr(client, "scheduler_info"):
        return None
    if client in _PARENT_CLIENTS:
        raise ClusterError(
            "the Dask client belongs to the parent process: its threads do not survive a fork. "
            f"Create a client in this process, or {FORK_HINT}."
        )
    return client


def local_scheduler() -> Any:
    """Return the threaded scheduler if none is configured and no client can exist, or None for Dask's own choice.

    Dask would import distributed to look for a client, which takes half a second.
    """
    return None if "distributed" in sys.modules or config.get("scheduler", None) else threaded.get


def in_threads(function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """Return a function's value for each item, in order, computed on several threads."""
    items = list(items)
    n = min(n_threads(), len(items))
    if n <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n, thread_name_prefix="avgk") as pool:
        contexts = [copy_context() for _ in items]  # with the phase and the problem size of this thread
        return list(pool.map(lambda context, item: context.run(function, item), contexts, items))


def process_memory() -> int:
    """Return the memory limit of this Dask worker, or else the memory of the machine, in bytes."""
    limit = getattr(getattr(_worker(), "memory_manager", None), "memory_limit", None)
    return int(limit or machine_memory())


def machine_memory() -> int:
    """Return the memory of this machine or container in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return int(total)


def give_back_memory() -> None:
    """Return free memory that the C library keeps to the system; otherwise it would add up from wave to wave."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def is_cancelled() -> bool:
    """Whether the Dask task of this thread was cancelled."""
    worker = _worker()
    try:
        task = None if worker is None else worker.state.tasks.get(worker.get_current_task())
    except (AttributeError, KeyError):
        return False
    return getattr(task, "state", None) == "cancelled"


def _worker() -> Any:
    """Return the Dask worker of this thread's task, or None."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].get_worker()
    except (AttributeError, ValueError):
        return None
