"""Computing, told of as it goes: under Dask's own schedulers and under distributed alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from dask.callbacks import Callback
from dask.delayed import Delayed

from ..kernels.compiling import watching
from ..threads import cluster_client
from .reads import Reads
from .run import Compute, compute_plainly
from .telling import Bar, LogLines, Telling, now_telling, told_by


@contextmanager
def showing(progress: bool | None) -> Iterator[Telling]:
    """Lend what tells of a call: a bar with True, log lines with None, nothing with False. Within a call, its own bar goes on."""
    mine = now_telling(mine=True)
    if progress and isinstance(mine, Bar):
        yield mine
        return
    with told_by(Bar() if progress else LogLines() if progress is None else Telling()) as telling:
        yield telling


@contextmanager
def computing(progress: bool | None) -> Iterator[Compute]:
    """Lend the function that computes tasks, with one bar for all stages where progress is asked for.

    What a cluster does wrong is an error of ours, with and without a bar.
    """
    with showing(progress) as telling, watching(telling.compiling), _cluster_faults():

        def compute(tasks: list[Delayed], stage: str, reads: Reads | None = None) -> list[Any]:
            client = cluster_client()
            shares = {str(task.key): 1 for task in tasks} if reads is None else reads.shares
            _begin(telling, stage, reads, len(tasks))
            if not tasks:
                telling.advance(0 if reads is None else reads.n_bytes)
                return []
            if client is None:
                with _Finished(shares, telling):
                    found = compute_plainly(tasks, stage)
            else:
                from .watching import Watch  # late: it brings distributed along

                found = Watch(client, telling, shares, reads).compute(tasks)
            telling.enter("settling")
            return found

        yield compute


def _cluster_faults() -> AbstractContextManager[None]:
    """Return what turns the faults of the cluster that Dask would use into errors of ours."""
    client = cluster_client()
    if client is None:
        return nullcontext()
    from .watching import naming_faults

    return naming_faults(client)


def _begin(telling: Telling, stage: str, reads: Reads | None, n_tasks: int) -> None:
    words = stage.replace("-", " and ")
    if reads is None:
        telling.begin(words, "task", n_tasks)
    else:
        telling.begin(words, "B", reads.total, reads.what.is_wave)


@contextmanager
def counting(stage: str, unit: str, total: int | None, progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """Lend a function that tells of a number of units done."""
    with showing(progress) as telling:
        telling.begin(stage, unit, total)
        yield telling.advance


class _Finished(Callback):
    """Tells of the tasks that a local scheduler finishes."""

    def __init__(self, shares: dict[str, int], telling: Telling) -> None:
        self._shares, self._telling = shares, telling

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        self._telling.advance(self._shares.get(key, 0))
