"""The state of an ``Evaluator``: rows that wait, and a scan of all before them that is open at its end.

A second run, with hints of a first one, also takes the first ties at each threshold in row-major order as they come.

The first piece is the pilot. Its brackets are those of shares, k / C of all scores, from half to twice as many scores
above. They stay until they retain half of ``avgk.max-events``; then they are narrowed as between waves, but toward
2**40 samples, and as little as needed. A second run (``like=``) takes the keys it knows, brackets for the others, and,
for ties that were counted together, how many to take in order.
"""

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
from ...engine.plan import ScanShape
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
from .open_scan import ALL_BANDS, UNLIMITED, OpenScan, first_plan, plan_brackets

#: Rows of a piece that are looked at whole.
_LOOKED = 4

AnySearch = TypeVar("AnySearch", bound=Search)


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
        if not cuts:
            return replace(self, cuts=())
        changes = np.zeros(max(cut.changes.size for cut in cuts), np.int64)
        for cut in cuts:
            changes[: cut.changes.size] += cut.changes
        n_taken, last = sum(cut.n_taken for cut in cuts), cuts[-1]
        strata = StrataSums.merge([cut.strata for cut in cuts])
        weight = ExactSums.merge([cut.weight for cut in cuts]).settled()
        joined = TieCut(0, last.budget, n_taken, last.row, last.last_class, changes, strata, weight)
        return replace(self, cuts=(joined,))

    @staticmethod
    def chained(first: Sequence[FirstTies], second: Sequence[FirstTies]) -> Iterator[FirstTies]:
        """Return the ties of two processes, one after the other, as far as they are known.

        If only some of the second process are wanted, which ones is unknown.
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


@dataclass(frozen=True)
class EvaluatorSpec:
    """The options of an evaluator."""

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
    """What a first run passes to a second one: brackets, and ties to take one by one."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    ties: tuple[FirstTies, ...]


class StreamingScan:
    """Samples of one dtype, with labels of one kind, scanned a piece at a time as they come."""

    def __init__(self, spec: EvaluatorSpec, dtype: Dtype, kind: str, hints: Hints | None = None) -> None:
        self.spec, self.dtype, self.kind, self.hints = spec, check_dtype(dtype), kind, hints
        row_bytes = spec.n_classes * self.dtype.itemsize
        n_rows = max(setting("task-bytes") // row_bytes, setting("small-scores") // spec.n_classes, 1)
        self.waiting = WaitingRows(n_rows, spec.n_classes, self.dtype, kind)
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
            if not self.waiting.n and len(batch.scores) >= most and self.scan is not None:  # without a copy
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
        scan = self._begin(rows.scores) if self.scan is None else self.scan
        n_rows, n_samples = len(rows.scores), scan.n_rows + len(rows.scores)
        work_on(n_samples * self.spec.n_classes)
        # It looks at some of the rows, and has histograms once ranked scores are too many.
        looked_rows = np.unique((2 * np.arange(_LOOKED) + 1) * n_rows // (2 * _LOOKED))
        looked = np.stack([np.full_like(looked_rows, scan.n_bands), looked_rows]).tobytes()
        shape = replace(scan.plan.shape, looked=looked, ranked_bins=self._ranked_bins(n_samples))
        plan = replace(scan.plan, shape=shape)
        tally = scan_band([rows.scores], rows.labels, scan.n_bands, plan)
        refuse_bad_data(tally, self._source(n_rows, rows.numbers), self.spec.nan_policy)
        ties = take_ties(self.ties, rows.scores, rows.labels, plan.shape)
        after = scan.add(tally)
        if after.n_narrowed > scan.n_narrowed:  # which takes a few times the memory of the retained scores
            give_back_memory()
        return after, ties

    def open_shape(self) -> ScanShape:
        """Return what all scans of such samples have in common."""
        shape = self._shape(self._source(self.waiting.n_most))
        return replace(shape, n_samples=UNLIMITED, max_events=shape.all_events, ranked_bins=0, looked=b"")

    def _begin(self, block: Array) -> OpenScan:
        shape = self.open_shape()
        if self.hints is None:
            plan = first_plan(shape, block, self.spec.budgets)
        else:
            brackets = list(zip(self.hints.lows, self.hints.highs, strict=True))
            plan = plan_brackets(replace(shape, n_together=ALL_BANDS), brackets)
        certain = self.hints is not None
        return OpenScan(plan, self.spec.budgets, self.windowed, setting("tie-groups"), certain=certain)

    def _ranked_bins(self, n_samples: int) -> int:
        ranked = self.spec.n_ranked
        return Caps.configured().rank_bins(self._source(n_samples), ranked) if ranked else 0

    def _source(self, n_samples: int, numbers: Array | None = None) -> Source:
        n_dims = 2 if self.kind == SOFT else 1
        labels = None if self.kind == NO_LABELS else np.zeros((0,) * n_dims)
        return Source(ShapeOnlyReader((n_samples, self.spec.n_classes), self.dtype, numbers), labels)

    @property
    def windowed(self) -> bool:
        """Whether standard errors are wanted, for which the scores above each threshold are looked at."""
        return self.kind in (HARD, CLUSTERED) and not self.spec.by_class

    def _shape(self, source: Source) -> ScanShape:
        n_ranks = 0 if source.labels is None else largest_integer(self.spec.budgets)
        strata = "classes" if self.spec.by_class else {HARD: "ranks", CLUSTERED: "groups"}.get(self.kind, "")
        return Caps.configured().scan_shape(source, n_ranks, self.spec.n_ranked, source.has_soft_labels, Strata(strata))

    def outcome(self) -> Outcome:
        """Return the outcome for all budgets; thresholds that were not retained are refused."""
        source = self._source(self.n_samples)
        work_on(math.prod(source.shape))
        if self.scan is None:
            search = self._settle_small(source)
        else:
            scan, ties = self._scanned(self.waiting.rows) if self.waiting.n else (self.scan, self.ties)
            search = with_first_ties(scan.settle(), ties)
            refuse_unsettled(search, self.spec.budgets)
            assert search.first_tally is not None
            ranked = search.first_tally.ranked
            ranked = replace(ranked, n_bins=max(ranked.n_bins, self._ranked_bins(self.n_samples)))
            search = replace(search, first_tally=replace(search.first_tally, ranked=ranked))
        grouping = Grouping("classes", self.spec.n_classes + 1) if self.spec.by_class else Grouping()
        if self.kind == CLUSTERED:
            assert search.first_tally is not None
            names = np.unique(search.first_tally.strata_ranks.strata)
            grouping = Grouping("groups", names.size, names)
        return Outcome(source, self.spec.budgets, search, grouping)

    def _settle_small(self, source: Source) -> ThresholdSearch:
        """Return the search that read the waiting rows, if there are no others."""
        counts = [count_labels(budget, source.shape[0]) for budget in self.spec.budgets]
        windows = [window_start(count) for count in counts] if self.windowed else []
        search = self._drive(ThresholdSearch.begin(self._shape(source), counts, windows=windows))
        extremes = ExtremesSearch.begin(self.dtype, self.spec.n_classes, setting("ranked-bins"), search.found)
        return replace(search, found=self._drive(extremes).settle(search.found))

    def _drive(self, search: AnySearch) -> AnySearch:
        """Give a search the waiting rows as often as it asks for them."""
        rows = self.waiting.rows
        while (what := search.next_pass()) is not None:
            state: Any = what.work([rows.scores], rows.labels, 0, what.plan)
            if isinstance(state, CheckedTally):
                refuse_bad_data(state, self._source(self.n_samples, rows.numbers), self.spec.nan_policy)
            search = search.advance(state)
        return search

    def as_hints(self) -> Hints | None:
        """Return the hints for a second run over the same samples; None if it needs none."""
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

    def merge(self, other: StreamingScan, first: int) -> None:
        """Take in the samples of another, whose numbers go on from ``first``."""
        if other.scan is not None:
            if self.scan is None:
                self.hints, self.ties = other.hints, () if other.hints is None else other.hints.ties
                self.scan = replace(other.scan, n_bands=0, parts=(), so_far=None, waves=(), n_narrowed=0)
            self._scan_waiting()
            self.scan = self.scan.merge(other.scan)
            self.ties = tuple(FirstTies.chained(self.ties, other.ties))
        rows = other.waiting.rows
        self.add(replace(rows, numbers=rows.numbers + first))


@dataclass
class EvaluatorState:
    """All that an evaluator knows."""

    spec: EvaluatorSpec
    #: Those of the evaluator that it is ``like``.
    hints: Hints | None = None
    #: None before the first sample.
    scan: StreamingScan | None = None
    #: Samples passed to it, also those that do not exist; and whether any batch said that some do not.
    n_given: int = 0
    is_masked: bool = False
    class_names: tuple[str, ...] | None = None

    @property
    def n_samples(self) -> int:
        """Samples so far; those that do not exist do not count."""
        return 0 if self.scan is None else self.scan.n_samples


def refuse_unsettled(search: ThresholdSearch, budgets: Sequence[Fraction]) -> None:
    """Refuse budgets whose thresholds were not retained, that end among counted ties, or that need their soft labels."""
    outside = sorted({float(budgets[i % len(budgets)]) for i in search.open})
    selections = {float(budgets[i]): s for i, s in search.found.items()}
    cut = [k for k, s in selections.items() if s.cut is not None and s.cut.pending]
    soft = [k for k, s in selections.items() if s.extremes is None and k not in cut]
    reasons = (
        (outside, "outside of it (later batches are unlike the first ones)"),
        (cut, "that ends among ties that were counted together"),
        (soft, "with soft labels of ties that were counted together"),
    )
    causes = [f"k = {', '.join(f'{k:g}' for k in ks)} {reason}" for ks, reason in reasons if ks]
    if not causes:
        return
    cure = "Run the loop again, the same batches in the same order, with Evaluator(n_classes, k, like=first)."
    if soft:
        cure = "Write the scores with ScoreWriter, and evaluate the store."
    error = UnsettledError(
        f"thresholds must lie within what was held of the batches; got {', and '.join(causes)}. {cure}"
    )
    error.budgets = tuple(sorted({*outside, *cut, *soft}))
    raise error
