"""The first ties at a threshold that an earlier run has found: taken in row-major order as they come, however many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ...arrays import Array, Dtype
from ...bands.passes import CheckedTally, Search
from ...engine.memory import Caps, Strata
from ...engine.plan import ScanPlan, ScanShape
from ...engine.run import refuse_bad_data
from ...engine.scan import scan_band
from ...engine.search import ThresholdSearch
from ...engine.strata import StrataSums
from ...engine.ties import CutPlan, ExtremesSearch, TieCut, TieCuts, WantedTies, cut_band
from ...errors import UnsettledError
from ...exact.budgets import count_labels, largest_integer, window_start
from ...exact.sums import ExactSums
from ...kernels.dispatch import work_on
from ...kernels.keys import check_dtype, key_range
from ...records import Record
from ...settings import setting
from ...sources.readers import ShapeOnlyReader
from ...sources.source import Source
from ...threads import give_back_memory
from ..outcome import Grouping, Outcome
from ..straddle import n_ranked
from .batches import CLUSTERED, HARD, NO_LABELS, SOFT, Batch, WaitingRows
from .search import ALL_BANDS, UNLIMITED, OpenScan, first_plan, plan_brackets


@dataclass(frozen=True)
class FirstTies(Record):
    """The first ``n_wanted`` scores that equal a key, for the budget of a position, and what of them has come."""

    budget: int
    key: int
    n_wanted: int
    #: One cut, or none.
    cuts: tuple[TieCut, ...]

    @property
    def n_taken(self) -> int:
        """How many have come."""
        return sum(cut.n_taken for cut in self.cuts)

    def then(self, more: Sequence[TieCut]) -> FirstTies:
        """Return these and more of them."""
        cuts = [*self.cuts, *(cut for cut in more if cut.n_taken)]
        return replace(self, cuts=(_joined(cuts),) if cuts else ())

    @staticmethod
    def chained(first: Sequence[FirstTies], second: Sequence[FirstTies]) -> Iterator[FirstTies]:
        """Return the ties of two processes, one after the other, as far as they are known.

        Where only some of the second one's are wanted, nobody knows which those are.
        """
        for a, b in zip(first, second, strict=False):
            if (a.budget, a.key, a.n_wanted) == (b.budget, b.key, b.n_wanted) and a.n_taken + b.n_taken <= a.n_wanted:
                yield a.then(b.cuts)
            elif a.n_taken == a.n_wanted:
                yield a


def take_ties(
    wanted: Sequence[FirstTies], scores: Array, labels: Array | None, shape: ScanShape
) -> tuple[FirstTies, ...]:
    """Return the ties with those of some more rows."""
    asked = [WantedTies(range(1), t.budget, t.key, t.n_wanted - t.n_taken) for t in wanted if t.n_taken < t.n_wanted]
    if not asked:
        return tuple(wanted)
    of_scan = shape.dtype, shape.n_classes, shape.tile_scores, shape.n_ranks, shape.strata
    found = cut_band([scores], labels, 0, CutPlan(tuple(asked), *of_scan))
    return tuple(t.then([cut for cut in found.cuts if cut.budget == t.budget]) for t in wanted)


def with_first_ties(search: ThresholdSearch, ties: Sequence[FirstTies]) -> ThresholdSearch:
    """Return a search whose pending cuts are settled with the ties that it waits for, and that have come."""
    cuts: list[TieCut] = []
    for mine in ties:
        selection = search.found.get(mine.budget)
        if selection is None or selection.cut is None or not selection.cut.pending or selection.key != mine.key:
            continue
        if selection.cut.n_ties == selection.n_kept == mine.n_taken:
            cuts += mine.cuts
    return search.advance(TieCuts(tuple(cuts))) if cuts else search


def _joined(cuts: Sequence[TieCut]) -> TieCut:
    changes = np.zeros(max(cut.changes.size for cut in cuts), np.int64)
    for cut in cuts:
        changes[: cut.changes.size] += cut.changes
    last = cuts[-1]
    strata = StrataSums.merge([cut.strata for cut in cuts])
    weight = ExactSums.merge([cut.weight for cut in cuts]).settled()
    return TieCut(0, last.budget, sum(c.n_taken for c in cuts), last.row, last.last_class, changes, strata, weight)


# What an ``Evaluator`` knows: rows that wait, and a scan of all before them that is open at its end.


#: Rows of a piece that are looked at whole.
_LOOKED = 4

AnySearch = TypeVar("AnySearch", bound=Search)


@dataclass(frozen=True)
class Asked:
    """What an evaluator is asked for."""

    n_classes: int
    budgets: tuple[Fraction, ...]
    straddle: bool
    nan_policy: str
    by_class: bool = False

    @property
    def n_ranked(self) -> int:
        """Ranks whose scores are held."""
        return n_ranked(self.budgets, self.n_classes) if self.straddle else 0

    def __str__(self) -> str:
        budgets = ", ".join(f"{float(budget):g}" for budget in self.budgets)
        by = ", by='class'" if self.by_class else ""
        return (
            f"n_classes={self.n_classes}, k=[{budgets}], straddle={self.straddle}, nan_policy={self.nan_policy!r}{by}"
        )


@dataclass(frozen=True)
class Hints(Record):
    """What a first run knows for a second one: brackets, and ties to take one by one."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    ties: tuple[FirstTies, ...]


class LoopScan:
    """Samples of one dtype, with labels of one kind, scanned a piece at a time as they come."""

    def __init__(self, asked: Asked, dtype: Dtype, kind: str, hints: Hints | None = None) -> None:
        self.asked, self.dtype, self.kind, self.hints = asked, check_dtype(dtype), kind, hints
        row_bytes = asked.n_classes * self.dtype.itemsize
        n_rows = max(setting("task-bytes") // row_bytes, setting("small-scores") // asked.n_classes, 1)
        self.waiting = WaitingRows(n_rows, asked.n_classes, self.dtype, kind)
        self.scan: OpenScan | None = None
        self.ties: tuple[FirstTies, ...] = () if hints is None else hints.ties

    @property
    def n_samples(self) -> int:
        """Samples so far."""
        return self.waiting.n + (0 if self.scan is None else self.scan.n_rows)

    @property
    def n_bytes(self) -> int:
        """Bytes of all that is held."""
        if self.scan is None:
            return self.waiting.n_bytes
        waves = sum(counts.__sizeof__() for _, counts in self.scan.waves)
        return self.waiting.n_bytes + waves + sum(tally.__sizeof__() for tally in self.scan.tallies)

    def add(self, batch: Batch) -> None:
        """Take in rows, and scan each full piece."""
        most = self.waiting.n_most
        while len(batch.scores):
            if self.waiting.n == most:
                self._scan_waiting()
            if not self.waiting.n and len(batch.scores) >= most and self.scan is not None:  # as they are
                mine, batch = batch.select(slice(0, most)), batch.select(slice(most, None))
                self.scan, self.ties = self._scanned(mine)
                continue
            space = most - self.waiting.n
            self.waiting.add(batch.select(slice(0, space)))
            batch = batch.select(slice(space, None))

    def _scan_waiting(self) -> None:
        if self.waiting.n:
            self.scan, self.ties = self._scanned(self.waiting.rows)
            self.waiting.n = 0

    def _scanned(self, rows: Batch) -> tuple[OpenScan, tuple[FirstTies, ...]]:
        """Return the scan with one more piece, and the ties."""
        scan = self._begun(rows.scores) if self.scan is None else self.scan
        n_rows = len(rows.scores)
        work_on((scan.n_rows + n_rows) * self.asked.n_classes)
        plan = self._plan(scan, n_rows)
        tally = scan_band([rows.scores], rows.labels, scan.n_bands, plan)
        refuse_bad_data(tally, self._source(n_rows, rows.numbers), self.asked.nan_policy)
        ties = take_ties(self.ties, rows.scores, rows.labels, plan.shape)
        after = scan.take(tally)
        if after.n_narrowed > scan.n_narrowed:  # which takes a few times what is held
            give_back_memory()
        return after, ties

    def open_shape(self) -> ScanShape:
        """Return what all scans of such samples have in common."""
        shape = self._shape(self._source(self.waiting.n_most))
        return replace(shape, n_samples=UNLIMITED, max_events=shape.all_events, ranked_bins=0, looked=b"")

    def _begun(self, block: Array) -> OpenScan:
        shape = self.open_shape()
        asked = self.asked.budgets, self.windowed, setting("tie-groups")
        if self.hints is None:
            return OpenScan(first_plan(shape, block, self.asked.budgets), *asked)
        brackets = list(zip(self.hints.lows, self.hints.highs, strict=True))
        plan = plan_brackets(replace(shape, n_together=ALL_BANDS), brackets)
        return OpenScan(plan, *asked, certain=True)

    def _plan(self, scan: OpenScan, n_more: int) -> ScanPlan:
        """Return the plan of the next piece: it looks at some rows, and has histograms once ranked scores are too many."""
        rows = np.unique((2 * np.arange(_LOOKED) + 1) * n_more // (2 * _LOOKED))
        looked = np.stack([np.full_like(rows, scan.n_bands), rows]).tobytes()
        bins = self._ranked_bins(scan.n_rows + n_more)
        return replace(scan.plan, shape=replace(scan.plan.shape, looked=looked, ranked_bins=bins))

    def _ranked_bins(self, n_samples: int) -> int:
        ranked = self.asked.n_ranked
        return Caps.configured().rank_bins(self._source(n_samples), ranked) if ranked else 0

    def _source(self, n_samples: int, numbers: Array | None = None) -> Source:
        n_dims = 2 if self.kind == SOFT else 1
        labels = None if self.kind == NO_LABELS else np.zeros((0,) * n_dims)
        return Source(ShapeOnlyReader((n_samples, self.asked.n_classes), self.dtype, numbers), labels)

    @property
    def windowed(self) -> bool:
        """Whether standard errors are wanted, for which the scores above each threshold are looked at."""
        return self.kind in (HARD, CLUSTERED) and not self.asked.by_class

    def _shape(self, source: Source) -> ScanShape:
        n_ranks = 0 if source.labels is None else largest_integer(self.asked.budgets)
        strata = "classes" if self.asked.by_class else {HARD: "ranks", CLUSTERED: "groups"}.get(self.kind, "")
        return Caps.configured().scan_shape(
            source, n_ranks, self.asked.n_ranked, source.has_soft_labels, Strata(strata)
        )

    def outcome(self) -> Outcome:
        """Return what is known of all budgets; what was not held is refused."""
        source = self._source(self.n_samples)
        work_on(math.prod(source.shape))
        if self.scan is None:
            return self._told(source, self._small(source))
        scan, ties = self._scanned(self.waiting.rows) if self.waiting.n else (self.scan, self.ties)
        search = with_first_ties(scan.settle(), ties)
        refuse_unsettled(search, self.asked.budgets)
        assert search.first_tally is not None
        ranked = search.first_tally.ranked
        ranked = replace(ranked, n_bins=max(ranked.n_bins, self._ranked_bins(self.n_samples)))
        return self._told(source, replace(search, first_tally=replace(search.first_tally, ranked=ranked)))

    def _told(self, source: Source, search: ThresholdSearch) -> Outcome:
        grouping = Grouping("classes", self.asked.n_classes + 1) if self.asked.by_class else Grouping()
        if self.kind == CLUSTERED:
            assert search.first_tally is not None
            names = np.unique(search.first_tally.strata_ranks.strata)
            grouping = Grouping("groups", names.size, names)
        return Outcome(source, self.asked.budgets, search, grouping)

    def _small(self, source: Source) -> ThresholdSearch:
        """Return what the waiting rows tell, where there are no others."""
        rows = self.waiting.rows
        named = self._source(self.n_samples, rows.numbers)
        counts = [count_labels(budget, source.shape[0]) for budget in self.asked.budgets]
        windows = [window_start(count) for count in counts] if self.windowed else []
        search = ThresholdSearch.begin(self._shape(source), counts, windows=windows)
        search = self._driven(search, rows, named)
        extremes = ExtremesSearch.begin(self.dtype, self.asked.n_classes, setting("ranked-bins"), search.found)
        return replace(search, found=self._driven(extremes, rows, named).settle(search.found))

    def _driven(self, search: AnySearch, rows: Batch, source: Source) -> AnySearch:
        """Give a search the rows as often as it asks for them."""
        while (what := search.next_pass()) is not None:
            state: Any = what.work([rows.scores], rows.labels, 0, what.plan)
            if isinstance(state, CheckedTally):
                refuse_bad_data(state, source, self.asked.nan_policy)
            search = search.advance(state)
        return search

    def as_hints(self) -> Hints | None:
        """Return what a second run over the same samples needs; None where it needs nothing."""
        if self.scan is None:
            return None
        scan = self._scanned(self.waiting.rows)[0] if self.waiting.n else self.scan
        search = scan.settle()
        low = key_range(self.dtype)[0]
        floors = scan.plan.zones.interval(scan.plan.zones.n_intervals - 1)
        brackets = [(s.key, s.key) if s.key >= low else floors for s in search.found.values()] + scan.window_brackets()
        if search.plan is not None:
            zones = search.plan.zones
            brackets += [zones.interval(j) for j in range(zones.n_intervals)]
        lows, highs = zip(*brackets, strict=True)
        ties = [
            FirstTies(i, s.key, s.n_kept, ()) for i, s in search.found.items() if s.cut is not None and s.cut.pending
        ]
        return Hints(lows, highs, tuple(ties))

    def merge(self, other: LoopScan, first: int) -> None:
        """Take in the samples of another, whose numbers go on from ``first``."""
        if other.scan is not None:
            if self.scan is None:
                self.hints, self.ties = other.hints, () if other.hints is None else other.hints.ties
                self.scan = replace(other.scan, n_bands=0, parts=(), so_far=None, waves=(), n_narrowed=0)
            self._scan_waiting()
            self.scan = self.scan.merged(other.scan)
            self.ties = tuple(FirstTies.chained(self.ties, other.ties))
        rows = other.waiting.rows
        self.add(replace(rows, numbers=rows.numbers + first))


def refuse_unsettled(search: ThresholdSearch, budgets: Sequence[Fraction]) -> None:
    """Refuse what was not held, by the cause."""
    outside = sorted({float(budgets[i % len(budgets)]) for i in search.open})
    found = {float(budgets[i]): s for i, s in search.found.items()}
    cut = [k for k, s in found.items() if s.cut is not None and s.cut.pending]
    soft = [k for k, s in found.items() if s.extremes is None and k not in cut]
    if outside or cut or soft:
        raise _refusal(outside, cut, soft)


def _refusal(outside: list[float], cut: list[float], soft: list[float]) -> UnsettledError:
    """Return the refusal of budgets whose thresholds lie outside, that end among counted ties, or that need their soft labels."""
    causes = []
    if outside:
        causes.append(f"k = {_listed(outside)} outside of it (later batches are unlike the first ones)")
    if cut:
        causes.append(f"k = {_listed(cut)} that ends among ties that were counted together")
    if soft:
        causes.append(f"k = {_listed(soft)} with soft labels of ties that were counted together")
    cure = "Run the loop again, the same batches in the same order, with Evaluator(n_classes, k, like=first)."
    if soft:
        cure = "Write the scores with ScoreWriter, and evaluate the store."
    error = UnsettledError(
        f"thresholds must lie within what was held of the batches; got {', and '.join(causes)}. {cure}"
    )
    error.budgets = tuple(sorted({*outside, *cut, *soft}))
    return error


def _listed(budgets: list[float]) -> str:
    return ", ".join(f"{k:g}" for k in budgets)
