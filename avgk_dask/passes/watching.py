"""Tasks on a cluster, watched: what goes wrong there is said while it lasts, and ends the run with an error of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any
from weakref import WeakSet

import distributed
from dask.delayed import Delayed

from ..errors import ClusterError
from ..settings import setting
from .cluster_faults import Suspects, fault_text, find_deaths, find_trouble, lost_text, retry_tasks
from .reads import Reads
from .telling import LOGGER, Telling

#: The clients whose dashboard was told of.
_TOLD: WeakSet[Any] = WeakSet()
#: The least seconds between two looks at a cluster on which nothing is finished.
_LEAST_PAUSE = 0.05


def new_dashboard(client: Any) -> str | None:
    """Return the address of a cluster's dashboard, the first time that it is asked for; None where there is none."""
    if client in _TOLD:
        return None
    _TOLD.add(client)
    with suppress(Exception):  # no dashboard, or nobody who tells
        return client.dashboard_link or None
    return None


@contextmanager
def naming_faults(client: Any, reads: Reads | None = None) -> Iterator[None]:
    """Turn what distributed raises when a cluster fails into an error of ours; what tasks raise stays as it is."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        text = fault_text(error, client, reads)
        if text is None:
            raise
        raise ClusterError(text) from error


class Watch:
    """Computes tasks on a cluster and watches them: each is submitted once, and tells when it is finished."""

    def __init__(self, client: Any, telling: Telling, shares: dict[str, int], reads: Reads | None) -> None:
        self._client, self._telling, self._shares, self._reads = client, telling, shares, reads
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._last = self._said = monotonic()
        self._others: frozenset[str] | None = None
        self._suspects = Suspects(None if reads is None else reads.steps)
        self._finished: set[str] = set()

    def compute(self, tasks: list[Delayed]) -> list[Any]:
        """Return the values of tasks. With an error or an interrupt, all that is under way is cancelled."""
        if (address := new_dashboard(self._client)) is not None:
            LOGGER.info("dashboard %s", address)
        with naming_faults(self._client, self._reads), _seceded():
            futures = self._client.compute([*tasks, *self._steps(tasks)])
            try:
                self._await(futures, {task.key for task in tasks})
                return self._gather(futures[: len(tasks)])
            except BaseException:
                with suppress(Exception):  # the cluster may be gone
                    self._client.cancel(futures)
                raise
            finally:
                for future in futures:
                    future.release()

    def _steps(self, tasks: list[Delayed]) -> list[Delayed]:
        """Return the tasks on the way to those of a pass."""
        if self._reads is None:
            return []
        (root,) = tasks
        keys = self._reads.steps - {root.key}
        return [Delayed(key, root.dask, layer=root.__dask_layers__()[0]) for key in sorted(keys)]

    def _await(self, futures: list[Any], wanted: set[str]) -> None:
        """Wait for all. A result that is merged stays nowhere: a future that is held would keep it in memory."""
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
                raise ClusterError(lost_text())
            elif future.status == "finished":
                del waiting[future.key]
                self._finished.add(str(future.key))
                self._telling.advance(self._shares.get(future.key, 0))
                if future.key not in wanted:
                    future.release()

    def _try_again(self, future: Any, waiting: dict[str, Any]) -> None:
        """Try a task again whose workers died, unless it is the cause; raise what any other task raised."""
        error = future.exception()
        if not isinstance(error, distributed.KilledWorker) or not self._suspects.try_again(
            str(error.task), find_deaths(self._client), self._finished
        ):
            future.result()  # raises what the task raised
        self._telling.say(f"workers died in the task {error.task}: it is tried again")
        retry_tasks(self._client, [key for key, one in waiting.items() if one.status == "error"])
        for one in waiting.values():
            one.add_done_callback(self._events.put)

    def _gather(self, futures: list[Any]) -> list[Any]:
        """Return the results; where one is lost on its way, it is computed again."""

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
        """Wait for the next event."""
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
        return float(max(_LEAST_PAUSE, min(due - monotonic(), self._telling.look())))

    def _look(self) -> None:
        """Say why nothing is finished, each time that it has lasted; end the run once it has lasted too long."""
        now = monotonic()
        at_end = now - self._last >= setting("stall-limit")
        if not at_end and now - self._said < setting("stall-seconds"):
            return
        trouble = find_trouble(self._client, now - self._last, self._reads)
        if self._others is not None and trouble.others != self._others:  # the tasks of somebody's array are finished
            self._last = self._said = now
            self._others = trouble.others
            return
        self._others, self._said = trouble.others, now
        if at_end:
            raise ClusterError(f"the cluster must finish tasks; got none in {now - self._last:.0f} s: {trouble.text}")
        self._telling.say(f"no task has finished for {now - self._last:.0f} s: {trouble.text}")


@contextmanager
def _seceded() -> Iterator[None]:
    """Leave the thread of a task, where this is one, to other tasks while it waits for some."""
    try:
        distributed.secede()
    except (KeyError, ValueError, AttributeError):  # no task
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()
