"""What goes wrong on clusters, in words: why nothing is finished, and what distributed's own errors mean."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from distributed import KilledWorker, scheduler
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from ..errors import AvgkError
from .reads import Reads

_MEMORY_CURE = (
    "Use workers with more memory or fewer threads, or store the scores in smaller chunks; "
    "avgk info shows the memory that a worker needs."
)
_WAIT_CURE = "The setting avgk.stall-limit says how long a run waits."
#: Seconds that a scheduler has to answer.
_ANSWER_SECONDS = 10
#: What distributed raises where the connection is gone, and where no worker may take a task.
_LOST = (CommClosedError, ClosedClientError, CancelledError, asyncio.CancelledError)
_UNWORKED = tuple(
    getattr(scheduler, name) for name in ("NoWorkerError", "NoValidWorkerError") if hasattr(scheduler, name)
)


def lost_text() -> str:
    """Return what to say where tasks are gone with their scheduler."""
    return (
        "the cluster must keep its tasks until they are finished; got them cancelled: its scheduler was lost or restarted. "
        "Check that it runs, and start again."
    )


def fault_text(error: BaseException, client: Any, reads: Reads | None) -> str | None:
    """Return what an error of distributed means; None for errors of tasks, and our own."""
    if isinstance(error, AvgkError):
        return None
    if isinstance(error, KilledWorker):
        text = f"workers must survive their tasks; got more than {_count(error.allowed_failures, 'worker')} that died"
        # Distributed suspects all tasks that a dead worker had, and names the first that was there too often.
        return f"{text}, one after the other, in the task that {_place(error.task, reads)} or one beside it. {_MEMORY_CURE}"
    if isinstance(error, _UNWORKED):
        return f"the cluster must have workers that may take the tasks; got none. Start some. {_WAIT_CURE}"
    if isinstance(error, _LOST) or (isinstance(error, OSError) and client.status != "running"):
        return lost_text()
    return None


@dataclass(frozen=True)
class Trouble:
    """Why nothing is finished and what to do, and the tasks of others that are running: those of users' own arrays."""

    text: str
    others: frozenset[str] = frozenset()


def retry_tasks(client: Any, keys: list[str]) -> None:
    """Let a cluster try tasks again that failed, with all that they wait for.

    ``Client.retry`` does the same, but fails where one of those is a task of which the client has no future.
    """

    async def retry() -> None:
        for key in await client.scheduler.retry(keys=keys, client=client.id):
            if key in client.futures:
                client.futures[key].retry()

    client.sync(retry)


def find_trouble(client: Any, seconds: float, reads: Reads | None) -> Trouble:
    """Ask a cluster why no task has finished for some seconds."""
    try:
        workers = list(_ask(client, "identity", n_workers=-1)["workers"].values())
        running = [str(key) for keys in _ask(client, "processing").values() for key in keys]
    except (OSError, *_LOST):  # TimeoutError is an OSError
        return Trouble("the scheduler does not answer. Check that it runs, and that its machine is in reach.")
    others = frozenset(key for key in running if not key.startswith("avgk-"))
    return Trouble(_why(workers, seconds) or _still_running(running, len(workers), reads), others)


def _ask(client: Any, what: str, **arguments: Any) -> Any:
    return client.sync(getattr(client.scheduler, what), **arguments, callback_timeout=_ANSWER_SECONDS)


def _why(workers: list[dict[str, Any]], seconds: float) -> str | None:
    """Return what is wrong with workers, if anything is."""
    if not workers:
        return f"the cluster has no workers. Start some. {_WAIT_CURE}"
    paused = [worker for worker in workers if worker["status"] == "paused"]
    if len(paused) == len(workers):
        which = "the one worker is" if len(workers) == 1 else f"all {len(workers)} workers are"
        return f"{which} paused because the memory is full. {_MEMORY_CURE}"
    unheard = _unheard(workers, seconds)
    if unheard:
        (name, since), n = unheard[0], len(unheard)
        more = f", nor {n - 1} others" if n > 1 else ""
        return f"worker {name} has not been heard of for {since:.0f} s{more}. Look at its machine and its log."
    return None


def _unheard(workers: list[dict[str, Any]], seconds: float) -> list[tuple[Any, float]]:
    """Return the names of workers that have been silent, and for how long, the longest first."""
    now = max(time.time(), *(worker["last_seen"] for worker in workers))  # clocks may differ
    least = max(seconds / 2, len(workers) / 50)  # heartbeats are rarer in large clusters
    silent = [(worker["name"], now - worker["last_seen"]) for worker in workers]
    return sorted((pair for pair in silent if pair[1] > least), key=lambda pair: -pair[1])


def _still_running(running: list[str], n_workers: int, reads: Reads | None) -> str:
    where = f"on {_count(n_workers, 'worker')}"
    if not running:
        return f"no task is running {where}, which may be busy with others. Look at the dashboard. {_WAIT_CURE}"
    order = {key: i for i, key in enumerate(reads.groups)} if reads else {}
    oldest = min(running, key=lambda key: order.get(key, len(order)))
    verb = "is" if len(running) == 1 else "are"
    return f"{_count(len(running), 'task')} {verb} running {where}; the first {_place(oldest, reads)}. {_WAIT_CURE}"


def _place(key: Any, reads: Reads | None) -> str:
    return f"is called {key}" if reads is None else reads.place_of(str(key))


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
