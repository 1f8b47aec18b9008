"""Runs: the one place where passes are read, checked and counted, and the one driver of all searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Protocol, TypeVar

import dask
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed

from ..bands.passes import CheckedTally, Pass, Search
from ..errors import NAN_CURE, LabelsError, ScoresError, range_cure
from ..kernels.dispatch import watching, work_on
from ..masks import outside_error, sum_error
from ..records import Several, State
from ..sources.planning import group_bands
from ..sources.source import Source
from ..store.read.listing import band_stamps, hash_rows
from ..threads import cluster_client, give_back_memory, local_scheduler
from .checkpoint import Asked, Checkpoint, open_checkpoint
from .graph import Reads, pass_task
from .memory import check_pass_memory
from .plan import Script
from .progress import Bar, LogLines, Telling, now_telling, told_by
from .tasks import as_delayed, hash_labels, task, token_of

AnySearch = TypeVar("AnySearch", bound=Search)


class Compute(Protocol):
    """Computes tasks."""

    def __call__(self, tasks: list[Delayed], stage: str, reads: Reads | None = None) -> list[Any]:
        """Return the values of tasks; the text names the stage, and ``reads`` tells what each task of a pass reads.

        No tasks stand for a pass of which all was read before.
        """


def compute_plainly(tasks: list[Delayed], stage: str, reads: Reads | None = None) -> list[Any]:
    """Compute with whatever scheduler Dask would use."""
    return list(dask.compute(*tasks, scheduler=local_scheduler()))


@dataclass
class _Reads:
    n: int = 0
    #: Whether scores were read since the last read ended.
    has_begun: bool = False

    def count(self, what: Pass, has_read: bool) -> None:
        """Count a pass, of which scores were read or all was kept."""
        if what.is_wave or what.ends_read:
            self.has_begun |= has_read
        if what.ends_read:
            self.n, self.has_begun = self.n + self.has_begun, False


@dataclass(frozen=True)
class Run:
    """What all passes of one call have in common: the source, how to compute, what NaN means, and the reads so far."""

    source: Source
    compute: Compute = compute_plainly
    nan_policy: str = "raise"
    checkpoint: Checkpoint | None = None
    _reads: _Reads = field(default_factory=_Reads)

    def __post_init__(self) -> None:
        work_on(math.prod(self.source.shape))

    @property
    def reads(self) -> int:
        """How often all bands were read; a read of which a checkpoint had kept a part counts, and one of which it had all does not."""
        return self._reads.n

    def over(self, source: Source, nan_policy: str | None = None) -> Run:
        """Return the run over another source, whose reads count together with these."""
        return replace(self, source=source, nan_policy=nan_policy or self.nan_policy)

    def read(self, what: Pass) -> Any:
        """Read a pass, and return its state; what the data must not hold is refused."""
        check_pass_memory(self.source, what)
        kept = None if self.checkpoint is None else self.checkpoint.of_pass(self.source, what)
        if self.checkpoint is not None and kept is not None:
            self.checkpoint.note(what)
        state, has_read = None if kept is None else kept.load(), False
        if state is None:
            with self.source.reader.reading():
                task = pass_task(self.source, what, kept)
                (state,) = self.compute([task], what.name, Reads.of(self.source, what, task.dask))
            has_read = kept is None or state.n_readers > 0
            if kept is not None:
                (state,) = state.state
                kept.save(state)
        else:
            self.compute([], what.name, Reads.of(self.source, what, ()))  # for progress
        self._check(state, what)
        self._reads.count(what, has_read)
        return state

    def begin_search(self) -> Script:
        """Begin a search; return its waves in an earlier run, as far as a checkpoint has kept them."""
        return () if self.checkpoint is None else self.checkpoint.begin_search()

    def _check(self, state: State, what: Pass) -> None:
        if isinstance(state, Several):
            for part in state.parts:
                self._check(part, what)
        if isinstance(state, CheckedTally):
            bounds, bands = self.source.rows, what.bands
            n_rows = self.source.shape[0] if bands is None else sum(bounds[b + 1] - bounds[b] for b in bands)
            refuse_bad_data(state, self.source, self.nan_policy)
            refuse_other_rows(state, n_rows)


def drive(search: AnySearch, run: Run) -> AnySearch:
    """Read what a search asks for, until it knows the answer."""
    while (what := search.next_pass()) is not None:
        state = run.read(what)
        if what.is_wave:  # what its tasks took is not needed any more
            give_back_memory()
        search = search.advance(state)
        del state
        if what.is_wave:
            give_back_memory()
    return search


def refuse_bad_data(tally: CheckedTally, source: Source, nan_policy: str) -> None:
    """Raise for NaN and bad labels met in a pass, naming the first place."""
    if tally.n_nan and nan_policy == "raise":
        band, row, class_ = tally.first_nan
        raise ScoresError(
            f"scores must not hold NaN; got {tally.n_nan} of them, the first at sample "
            f"{source.sample(band, row)}, class {class_}. {NAN_CURE}"
        )
    if tally.n_bad_labels:
        band, row, _ = tally.first_bad_label
        n_classes = source.shape[1]
        if source.has_soft_labels:
            raise outside_error(tally.n_bad_labels, source.sample(band, row))
        cure = range_cure(tally.least_label, tally.most_label, n_classes)
        raise LabelsError(
            f"labels must lie in 0..{n_classes - 1} (or be negative: unlabelled); got {tally.n_bad_labels:,} that {'does' if tally.n_bad_labels == 1 else 'do'} not, the first at sample {source.sample(band, row)}. {cure}"
        )
    if tally.n_bad_sums:
        band, row, total = tally.first_bad_sum
        raise sum_error(tally.n_bad_sums, source.sample(band, row), total, tally.n_multi_hot)


def refuse_other_rows(tally: CheckedTally, n_rows: int) -> None:
    """Raise where a pass met more or fewer rows than the metadata say."""
    if tally.n_rows != n_rows:
        raise ScoresError(
            f"scores must have the {n_rows} rows their metadata say; got {tally.n_rows} when read. "
            "Correct the shape and chunks of the array."
        )


# Hashes of labels: they tell a band's labels from any others, whatever their chunks.


#: Tasks that hash class numbers: they are few bytes.
_MOST_TASKS = 32


def label_hashes(compute: Compute, source: Source) -> list[int]:
    """Return a hash of the labels of each band: of their values, or of stored probabilities that of their chunks."""
    found = _hashes(compute, source.whole)
    return [found[place] for place in source.places]


def _hashes(compute: Compute, source: Source) -> list[int]:
    labels: Any = source.labels
    if labels is None:
        return [0] * source.n_bands
    if isinstance(labels, np.ndarray):
        return [hash_rows(labels[first:last]) for first, last in pairwise(source.rows)]
    if labels.ndim == 2 and hasattr(labels, "store_path"):
        return [int(stamp) for stamp in band_stamps(labels, source.rows)]
    groups = group_bands(source, _MOST_TASKS if labels.ndim == 1 else None)
    name = f"avgk-stamps-{token_of(source.token, groups)}"
    tasks = {}
    for numbers in groups:
        key = f"{name}-{numbers[0]}"
        tasks[key] = task(key, hash_labels, source.labels_of(numbers), numbers)
    found = compute(as_delayed(list(tasks), tasks, source.collections(), name), "labels")
    return list(chain.from_iterable(found))


# Computing, told of as it goes: under Dask's own schedulers and under distributed alike.


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
                from .cluster import Watch  # late: it brings distributed along

                found = Watch(client, telling, shares, reads).compute(tasks)
            telling.enter("settling")
            return found

        yield compute


def _cluster_faults() -> AbstractContextManager[None]:
    """Return what turns the faults of the cluster that Dask would use into errors of ours."""
    client = cluster_client()
    if client is None:
        return nullcontext()
    from .cluster import naming_faults

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


# A run of one call: what it computes with begins and ends with it.


@contextmanager
def running(
    source: Source, progress: bool | None = None, nan_policy: str = "raise", checkpoint: Asked | None = None
) -> Iterator[Run]:
    """Lend the run of a call over a source, with a bar where progress is asked for, and a checkpoint.

    The source of the run may have other bands: those of the run that began the checkpoint.
    """
    with computing(progress) as compute:
        kept = None
        if checkpoint is not None and checkpoint.place is not None:
            kept, source = open_checkpoint(checkpoint, source, partial(label_hashes, compute))
        yield Run(source, compute, nan_policy, kept)
