"""Runs: every pass over the scores is read, checked and counted here, and every search is driven from here.

``open_run`` opens the run of one public call, with its progress and its checkpoint. ``Run.read`` reads one pass: it checks the
memory, loads states from the checkpoint, computes the rest, and refuses bad data. ``drive`` reads the passes of a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import dask
from dask.callbacks import Callback
from dask.delayed import Delayed

from ..bands.passes import CheckedTally, Pass, Search
from ..errors import NAN_HINT, LabelsError, ScoresError, range_hint
from ..kernels.dispatch import set_problem_size, watch_compiling
from ..masks import outside_error, sum_error
from ..records import Several, State
from ..sources.source import Source
from ..threads import cluster_client, give_back_memory, local_scheduler
from .checkpoint import Checkpoint, CheckpointKey, open_checkpoint
from .graph import Reads, pass_task
from .memory import check_pass_memory
from .progress import Bar, LogLines, Progress, current_progress, report_to

AnySearch = TypeVar("AnySearch", bound=Search)


class Compute(Protocol):
    """Computes tasks."""

    def __call__(self, tasks: list[Delayed], stage: str, reads: Reads | None = None) -> list[Any]:
        """Return the values of the tasks of a stage; a pass, given by its ``reads``, has none if its state was kept."""


def compute_quietly(tasks: list[Delayed], stage: str, reads: Reads | None = None) -> list[Any]:
    """Compute with the scheduler that Dask would use, without progress."""
    return list(dask.compute(*tasks, scheduler=local_scheduler()))


@dataclass
class _ReadCount:
    n: int = 0
    #: Whether scores were read since the last read ended.
    has_begun: bool = False

    def add(self, pass_: Pass, has_read: bool) -> None:
        """Count a pass, given whether any scores were read."""
        if pass_.is_wave or pass_.ends_read:
            self.has_begun |= has_read
        if pass_.ends_read:
            self.n, self.has_begun = self.n + self.has_begun, False


@dataclass(frozen=True)
class Run:
    """One call: the source, the way to compute, the policy for NaN, the checkpoint, and the reads so far."""

    source: Source
    compute: Compute = compute_quietly
    nan_policy: str = "raise"
    checkpoint: Checkpoint | None = None
    _count: _ReadCount = field(default_factory=_ReadCount)

    def __post_init__(self) -> None:
        set_problem_size(math.prod(self.source.shape))

    @property
    def reads(self) -> int:
        """The number of reads of all bands, without those that a checkpoint had kept completely."""
        return self._count.n

    def over(self, source: Source, nan_policy: str | None = None) -> Run:
        """Return the run over another source, with a common count of reads."""
        return replace(self, source=source, nan_policy=nan_policy or self.nan_policy)

    def read(self, pass_: Pass) -> Any:
        """Read a pass and return its state; refuse bad scores or labels."""
        check_pass_memory(self.source, pass_)
        kept = state = None
        if self.checkpoint is not None and (kept := self.checkpoint.of_pass(self.source, pass_)) is not None:
            self.checkpoint.note(pass_)
            state = kept.load()
        if state is not None:
            has_read = False
            self.compute([], pass_.name, Reads(self.source, pass_))  # for progress
        else:
            with self.source.reader.reading():
                task, reads = pass_task(self.source, pass_, kept)
                (state,) = self.compute([task], pass_.name, reads)
            has_read = kept is None or state.n_readers > 0
            if kept is not None:
                (state,) = state.state
                kept.save(state)
        self._check(state, pass_)
        self._count.add(pass_, has_read)
        return state

    def _check(self, state: State, pass_: Pass) -> None:
        if isinstance(state, Several):
            for part in state.parts:
                self._check(part, pass_)
        if isinstance(state, CheckedTally):
            refuse_bad_data(state, self.source, self.nan_policy)
            bounds, bands = self.source.rows, pass_.bands
            n_rows = self.source.shape[0] if bands is None else sum(bounds[b + 1] - bounds[b] for b in bands)
            if state.n_rows != n_rows:
                raise ScoresError(
                    f"scores must have {n_rows} rows, as in their metadata; got {state.n_rows} when read. Correct the "
                    "shape and chunks of the array."
                )


def drive(search: AnySearch, run: Run) -> AnySearch:
    """Read the passes of a search until it knows its answer."""
    while (pass_ := search.next_pass()) is not None:
        state = run.read(pass_)
        if pass_.is_wave:  # the memory of its tasks
            give_back_memory()
        search = search.advance(state)
        del state
        if pass_.is_wave:
            give_back_memory()
    return search


def refuse_bad_data(tally: CheckedTally, source: Source, nan_policy: str) -> None:
    """Raise for NaN and bad labels in the rows of a tally, naming the first place."""
    if tally.n_nan and nan_policy == "raise":
        band, row, class_ = tally.first_nan
        raise ScoresError(
            f"scores must not contain NaN; got {tally.n_nan}, the first at sample {source.sample_number(band, row)}, "
            f"class {class_}. {NAN_HINT}"
        )
    if tally.n_bad_labels:
        band, row, _ = tally.first_bad_label
        if source.has_soft_labels:
            raise outside_error(tally.n_bad_labels, source.sample_number(band, row))
        n_classes = source.shape[1]
        raise LabelsError(
            f"labels must lie in 0..{n_classes - 1} (or be negative: unlabelled); got {tally.n_bad_labels:,} that "
            f"{'does' if tally.n_bad_labels == 1 else 'do'} not, the first at sample {source.sample_number(band, row)}. "
            f"{range_hint(tally.least_label, tally.most_label, n_classes)}"
        )
    if tally.n_bad_sums:
        band, row, total = tally.first_bad_sum
        raise sum_error(tally.n_bad_sums, source.sample_number(band, row), total, tally.n_multi_hot)


@contextmanager
def show_progress(progress: bool | None) -> Iterator[Progress]:
    """Show the progress of a call: the bar of an outer call or a new one if True, log lines if None, nothing if False."""
    outer = current_progress(mine=True)
    if progress and isinstance(outer, Bar):
        yield outer
        return
    with report_to(Bar() if progress else LogLines() if progress is None else Progress()) as shown:
        yield shown


@contextmanager
def count_progress(stage: str, unit: str, total: int | None, progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """Lend a function that reports the number of units done."""
    with show_progress(progress) as shown:
        shown.begin(stage, unit, total)
        yield shown.advance


@contextmanager
def open_compute(progress: bool | None) -> Iterator[Compute]:
    """Lend a function that computes tasks, with one bar for all stages; faults of a cluster become errors of the package."""
    faults: AbstractContextManager[None] = nullcontext()
    if (client := cluster_client()) is not None:
        from .cluster import translate_faults

        faults = translate_faults(client)
    with show_progress(progress) as shown, watch_compiling(shown.compiling), faults:

        def compute(tasks: list[Delayed], stage: str, reads: Reads | None = None) -> list[Any]:
            client, name = cluster_client(), stage.replace("-", " and ")
            if reads is None:
                shares = {str(task.key): 1 for task in tasks}
                shown.begin(name, "task", len(tasks))
            else:
                shares = reads.shares
                shown.begin(name, "B", reads.total, reads.pass_.is_wave)
            if not tasks:
                shown.advance(0 if reads is None else reads.n_bytes)
                return []
            if client is None:
                with _TaskProgress(shares, shown):
                    values = compute_quietly(tasks, stage)
            else:
                from .cluster import Watch  # late: it imports distributed

                values = Watch(client, shown, shares, reads).compute(tasks)
            shown.enter("settling")
            return values

        yield compute


class _TaskProgress(Callback):
    """Reports the tasks that a local scheduler finishes."""

    def __init__(self, shares: dict[str, int], shown: Progress) -> None:
        self._shares, self._shown = shares, shown

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        self._shown.advance(self._shares.get(key, 0))


@contextmanager
def open_run(
    source: Source, progress: bool | None = None, nan_policy: str = "raise", checkpoint: CheckpointKey | None = None
) -> Iterator[Run]:
    """Open the run of one call over a source; with a checkpoint, it uses the bands of the run that created the checkpoint."""
    with open_compute(progress) as compute:
        kept = None
        if checkpoint is not None:
            kept, source = open_checkpoint(checkpoint, source, compute)
        yield Run(source, compute, nan_policy, kept)
