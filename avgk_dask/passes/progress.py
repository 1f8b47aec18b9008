"""Progress: a bar on stderr, under Dask's own schedulers and under distributed alike."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dask.callbacks import Callback
from dask.delayed import Delayed

from ..threads import cluster_client
from .run import Compute, compute_plainly


@contextmanager
def computing(progress: bool | None) -> Iterator[Compute]:
    """Lend the function that computes tasks, with a bar for each stage where progress is asked for."""
    yield _with_bar if progress else compute_plainly


def _with_bar(tasks: list[Delayed], stage: str) -> list[Any]:
    client = cluster_client()
    with _bar(desc=f"avgk {stage}", unit="task") as bar:
        if client is None:
            with _Bar(bar):
                return compute_plainly(tasks, stage)
        return _watch(client, tasks, bar)


def _bar(**options: Any) -> Any:
    """Return a bar: a widget in a notebook that can show one, else text on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets is none to warn about: it gets text
        from tqdm.auto import tqdm
    if any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__):
        return tqdm(**options)
    screen = shutil.get_terminal_size()  # 80 x 24 where the terminal does not tell
    return tqdm(file=sys.stderr, ncols=screen.columns, nrows=screen.lines, **options)


@contextmanager
def counting(stage: str, unit: str, total: int | None, progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """Return a function that moves a bar by a number of units; without progress it does nothing."""
    with _bar(desc=f"avgk {stage}", unit=unit, total=total, disable=not progress) as bar:
        yield bar.update


class _Bar(Callback):
    """Moves the bar as a local scheduler finishes tasks."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def _start_state(self, dsk: Any, state: Any) -> None:
        self._bar.reset(total=sum(len(state[s]) for s in ("ready", "waiting", "running", "finished")))

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        self._bar.update()


def _watch(client: Any, tasks: list[Delayed], bar: Any) -> list[Any]:
    """Compute on a cluster, moving the bar as its tasks finish. A result that is merged stays nowhere."""
    from distributed import as_completed

    wanted = {task.key for task in tasks}
    steps = [
        Delayed(key, task.dask, layer=task.__dask_layers__()[0])
        for task in tasks[:1]
        for key in task.dask
        if str(key).startswith("avgk-") and key not in wanted
    ]
    futures = client.compute([*tasks, *steps])
    results, watched = futures[: len(tasks)], as_completed(futures[len(tasks) :])
    bar.reset(total=len(steps) + len(results))
    del futures  # a future that is held keeps its result in memory
    for future in watched:
        bar.update()
        future.release()
    found = list(client.gather(results))
    bar.update(len(results))
    return found
