"""Tasks on a cluster: stalls are diagnosed while they last, and faults of the cluster become errors of the package.

``Watch`` submits the tasks of a pass and waits for them. If no task finishes for a while, it asks the scheduler for the cause
(``diagnose_stall``) and reports it. Tasks that distributed gives up because their workers died are tried again unless they are
the cause (``Suspects``). ``translate_faults`` turns distributed's own errors into a ``ClusterError`` with advice. This module is
imported late, since it imports distributed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any
from weakref import WeakSet

import distributed
from dask.delayed import Delayed
from distributed import KilledWorker, scheduler
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from ..errors import AvgkError, ClusterError
from ..settings import setting
from .graph import Reads
from .progress import LOGGER, Progress

_MEMORY_HINT = (
    "Use workers with more memory or fewer threads, or store the scores in smaller chunks; "
    "avgk info shows the memory that a worker needs."
)
_WAIT_HINT = "The setting avgk.stall-limit says how long a run waits."
#: How often a task that distributed has given up is retried: if it may have killed its workers, and if other workers died too.
_MORE_DEATHS, _MORE_OF_OTHERS = 2, 20
#: Seconds that a scheduler has to answer.
_ANSWER_SECONDS = 10
#: The errors of distributed if the connection is lost, and if no worker may take a task.
_LOST = (CommClosedError, ClosedClientError, CancelledError, asyncio.CancelledError)
_UNWORKED = tuple(
    getattr(scheduler, name) for name in ("NoWorkerError", "NoValidWorkerError") if hasattr(scheduler, name)
)
#: The clients whose dashboard has been reported.
_REPORTED: WeakSet[Any] = WeakSet()
#: Minimum seconds between two looks at a stalled cluster.
_LEAST_PAUSE = 0.05
_LOST_TEXT = (
    "the cluster has cancelled its tasks: its scheduler was lost or restarted. Check that it runs, and start again."
)


def fault_text(error: BaseException, client: Any, reads: Reads | None) -> str | None:
    """Return the meaning of an error of distributed, or None for errors of tasks and of the package."""
    if isinstance(error, AvgkError):
        return None
    if isinstance(error, KilledWorker):
        # Distributed suspects all tasks that a dead worker had, and names the first that was there too often.
        return (
            f"more than {_count(error.allowed_failures, 'worker')} died, one after the other, in the task that "
            f"{_place(error.task, reads)}, or in a task that ran at the same time. {_MEMORY_HINT}"
        )
    if isinstance(error, _UNWORKED):
        return f"the cluster has no workers that may take the tasks. Start some. {_WAIT_HINT}"
    if isinstance(error, _LOST) or (isinstance(error, OSError) and client.status != "running"):
        return _LOST_TEXT
    return None


@dataclass(frozen=True)
class Death:
    """The unexpected end of a worker: its tasks, and whether its nanny ended it because its memory was full."""

    tasks: frozenset[str]
    by_memory: bool = False


def find_deaths(client: Any) -> list[Death]:
    """Return the deaths of workers in the log of a scheduler, in order."""
    with suppress(OSError, *_LOST):  # TimeoutError is an OSError
        return deaths_of(*(_ask(client, "events", topic=topic) for topic in ("all", "worker-restart-memory")))
    return []


def deaths_of(events: Iterable[tuple[float, Any]], restarts: Iterable[tuple[float, Any]]) -> list[Death]:
    """Return the deaths among the events of a scheduler, given the restarts by nannies because of memory."""
    full = {event.get("worker") for _, event in restarts}
    return [
        Death(frozenset(map(str, event.get("processing-tasks", ()))), event.get("worker") in full)
        for _, event in events
        if isinstance(event, dict) and event.get("action") == "remove-worker" and not event.get("expected")
    ]


class Suspects:
    """Decides which tasks to try again after distributed has given them up because their workers died.

    Distributed lets a few workers die in a task, whatever the cause. A task that is the cause kills every worker that runs it. If
    other workers die with other tasks and memory left, something outside may be killing workers. This is certain if all tasks
    of such a worker have finished since.
    """

    def __init__(self, steps: Collection[str] | None) -> None:
        #: The tasks that read or merge, one of which may be the cause; None if any task may be.
        self._steps = steps
        self._n_tries: Counter[str] = Counter()
        self._n_outside: Counter[str] = Counter()

    def try_again(self, task: str, deaths: Sequence[Death], finished: Collection[str]) -> bool:
        """Return whether to try a task again, given all deaths so far and the finished tasks."""
        first = next((i for i, death in enumerate(deaths) if task in death.tasks), len(deaths))
        deaths_with_task = [death for death in deaths[first:] if task in death.tasks]
        others = [death for death in deaths[first:] if task not in death.tasks and not death.by_memory]
        n_outside = sum(all(other in finished for other in death.tasks) for death in others)
        may_be_innocent = bool(others) and not any(death.by_memory for death in deaths_with_task)
        if may_be_innocent and n_outside > self._n_outside[task]:  # kills go on: each proof allows one more try
            self._n_outside[task] = n_outside
            return True
        self._n_tries[task] += 1
        is_step = self._steps is None or task in self._steps
        return self._n_tries[task] <= (_MORE_OF_OTHERS if may_be_innocent or not is_step else _MORE_DEATHS)


@dataclass(frozen=True)
class StallDiagnosis:
    """The cause of a stall with advice, and the running tasks of users' own arrays."""

    text: str
    others: frozenset[str] = frozenset()


def retry_tasks(client: Any, keys: list[str]) -> None:
    """Let a cluster try failed tasks again, with their dependencies; ``Client.retry`` needs a future for each of these."""

    async def retry() -> None:
        for key in await client.scheduler.retry(keys=keys, client=client.id):
            if key in client.futures:
                client.futures[key].retry()

    client.sync(retry)


def diagnose_stall(client: Any, seconds: float, reads: Reads | None) -> StallDiagnosis:
    """Ask a cluster for the cause of a stall."""
    try:
        workers = list(_ask(client, "identity", n_workers=-1)["workers"].values())
        running = [str(key) for keys in _ask(client, "processing").values() for key in keys]
    except (OSError, *_LOST):  # TimeoutError is an OSError
        return StallDiagnosis("the scheduler does not answer. Check that it runs, and that its machine can be reached.")
    others = frozenset(key for key in running if not key.startswith("avgk-"))
    return StallDiagnosis(_worker_fault(workers, seconds) or _still_running(running, len(workers), reads), others)


def _ask(client: Any, question: str, **arguments: Any) -> Any:
    return client.sync(getattr(client.scheduler, question), **arguments, callback_timeout=_ANSWER_SECONDS)


def _worker_fault(workers: list[dict[str, Any]], seconds: float) -> str | None:
    """Return a fault of the workers, which may be absent, paused or silent."""
    if not workers:
        return f"the cluster has no workers. Start some. {_WAIT_HINT}"
    paused = [worker for worker in workers if worker["status"] == "paused"]
    if len(paused) == len(workers):
        who = "the one worker is" if len(workers) == 1 else f"all {len(workers)} workers are"
        return f"{who} paused because the memory is full. {_MEMORY_HINT}"
    now = max(time.time(), *(worker["last_seen"] for worker in workers))  # clocks may differ
    least = max(seconds / 2, len(workers) / 50)  # heartbeats are rarer in large clusters
    silent = [(worker["name"], now - worker["last_seen"]) for worker in workers if now - worker["last_seen"] > least]
    if silent:
        (name, since), n = max(silent, key=lambda pair: pair[1]), len(silent)
        more = f", nor have {n - 1} others" if n > 1 else ""
        return f"worker {name} has sent no heartbeat for {since:.0f} s{more}. Look at its machine and its log."
    return None


def _still_running(running: list[str], n_workers: int, reads: Reads | None) -> str:
    workers = _count(n_workers, "worker")
    if not running:
        return f"no task is running on {workers}, which may be busy with others. Look at the dashboard. {_WAIT_HINT}"
    order = {key: i for i, key in enumerate(reads.groups)} if reads else {}
    oldest = min(running, key=lambda key: order.get(key, len(order)))
    verb = "is" if len(running) == 1 else "are"
    return (
        f"{_count(len(running), 'task')} {verb} running on {workers}; the first {_place(oldest, reads)}. {_WAIT_HINT}"
    )


def _place(key: Any, reads: Reads | None) -> str:
    return f"is called {key}" if reads is None else reads.place_of(str(key))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def new_dashboard(client: Any) -> str | None:
    """Return the address of a cluster's dashboard the first time, afterwards None; also None without a dashboard."""
    if client in _REPORTED:
        return None
    _REPORTED.add(client)
    with suppress(Exception):  # no dashboard, or an unknown one
        return client.dashboard_link or None
    return None


@contextmanager
def translate_faults(client: Any, reads: Reads | None = None) -> Iterator[None]:
    """Turn errors of distributed when a cluster fails into a ``ClusterError``; leave errors of tasks unchanged."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        text = fault_text(error, client, reads)
        if text is None:
            raise
        raise ClusterError(text) from error


class Watch:
    """Computes tasks on a cluster and watches them."""

    def __init__(self, client: Any, progress: Progress, shares: dict[str, int], reads: Reads | None) -> None:
        self._client, self._progress, self._shares, self._reads = client, progress, shares, reads
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._last = self._said = monotonic()
        self._others: frozenset[str] | None = None
        self._suspects = Suspects(None if reads is None else reads.steps)
        self._finished: set[str] = set()

    def compute(self, tasks: list[Delayed]) -> list[Any]:
        """Return the values of tasks; cancel all of them on an error or interrupt."""
        if (address := new_dashboard(self._client)) is not None:
            LOGGER.info("dashboard %s", address)
        with translate_faults(self._client, self._reads), _secede():
            futures = self._client.compute([*tasks, *self._steps(tasks)])
            try:
                self._await(futures, results={task.key for task in tasks})
                return self._gather(futures[: len(tasks)])
            except BaseException:
                with suppress(Exception):  # the cluster may be gone
                    self._client.cancel(futures)
                raise
            finally:
                for future in futures:
                    future.release()

    def _steps(self, tasks: list[Delayed]) -> list[Delayed]:
        if self._reads is None:
            return []
        (root,) = tasks
        keys = self._reads.steps - {root.key}
        return [Delayed(key, root.dask, layer=root.__dask_layers__()[0]) for key in sorted(keys)]

    def _await(self, futures: list[Any], results: set[str]) -> None:
        """Wait for all futures, and release futures that are not results, to free memory."""
        waiting = {future.key: future for future in futures}
        for future in futures:
            future.add_done_callback(self._events.put)
        while waiting:
            future = self._next()
            if future.key not in waiting:
                continue
            if future.status == "error":
                self._try_again(future, waiting)
            elif future.status == "cancelled":
                raise ClusterError(_LOST_TEXT)
            elif future.status == "finished":
                del waiting[future.key]
                self._finished.add(str(future.key))
                self._progress.advance(self._shares.get(future.key, 0))
                if future.key not in results:
                    future.release()

    def _try_again(self, future: Any, waiting: dict[str, Any]) -> None:
        """Try a task again whose workers died, unless it is the cause; raise the error of any other task."""
        error = future.exception()
        if not isinstance(error, distributed.KilledWorker) or not self._suspects.try_again(
            str(error.task), find_deaths(self._client), self._finished
        ):
            future.result()  # raises its error
        self._progress.say(f"workers died in task {error.task}; retrying it")
        retry_tasks(self._client, [key for key, one in waiting.items() if one.status == "error"])
        for one in waiting.values():
            one.add_done_callback(self._events.put)

    def _gather(self, futures: list[Any]) -> list[Any]:
        """Return the results; one that is lost during the transfer is computed again."""

        async def gather() -> list[Any]:
            return list(await self._client.gather(futures, asynchronous=True))

        gathering = asyncio.run_coroutine_threadsafe(gather(), self._client.loop.asyncio_loop)
        gathering.add_done_callback(self._events.put)
        try:
            self._next()
            return gathering.result()
        finally:
            gathering.cancel()

    def _next(self) -> Any:
        while True:
            try:
                event = self._events.get(timeout=self._pause())
            except Empty:
                self._look()
                continue
            self._last = self._said = monotonic()
            return event

    def _pause(self) -> float:
        due = min(self._said + setting("stall-seconds"), self._last + setting("stall-limit"))
        return float(max(_LEAST_PAUSE, min(due - monotonic(), self._progress.look())))

    def _look(self) -> None:
        """Report the cause of a stall, repeatedly; end the run if it lasts too long."""
        now = monotonic()
        at_end = now - self._last >= setting("stall-limit")
        if not at_end and now - self._said < setting("stall-seconds"):
            return
        stall = diagnose_stall(self._client, now - self._last, self._reads)
        if self._others is not None and stall.others != self._others:  # tasks of a user's array are finished
            self._last = self._said = now
            self._others = stall.others
            return
        self._others, self._said = stall.others, now
        if at_end:
            raise ClusterError(f"the cluster has finished no task for {now - self._last:.0f} s: {stall.text}")
        self._progress.say(f"no task has finished for {now - self._last:.0f} s: {stall.text}")


@contextmanager
def _secede() -> Iterator[None]:
    """Within the block, let other tasks use the thread if it is the thread of a task."""
    try:
        distributed.secede()
    except (KeyError, ValueError, AttributeError):  # not the thread of a task
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()
