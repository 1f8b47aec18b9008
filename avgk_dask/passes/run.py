"""Runs: the one place where passes are read, checked and counted, and the one driver of all searches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import dask
from dask.delayed import Delayed

from ..errors import NAN_CURE, LabelsError, ScoresError, range_cure
from ..kernels.chosen import work_on
from ..masks import outside_error, sum_error
from ..records import Several, State
from ..scans.band_pass import Pass, Search
from ..searches.scripts import Script
from ..sources.source import Source
from ..states.checks import CheckedTally
from ..threads import give_back_memory, local_scheduler
from .checkpoint import Checkpoint
from .memory import check_pass_memory
from .reads import Reads
from .tree import pass_task

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
            with self.source.reading():
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
