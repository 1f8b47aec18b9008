"""The state of an ``Evaluator``: the rows of its batches, a buffer where they wait, and an open scan of all earlier rows.

``as_batch`` turns the arguments of ``update`` into rows, which are scanned piece by piece. The first piece is the pilot.
A bracket contains the thresholds for half to twice the share k / C of all scores. Brackets stay until they retain half
of ``avgk.max-events`` events. Then they are narrowed as between waves, but for 2**40 samples, and as little as needed.
A second run (``like=``) knows some thresholds and has brackets for the others. For ties that were counted together, it
knows how many of the first ties in row-major order to keep, and collects these as they arrive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ...arrays import Array, Bools, Dtype, Ints
from ...bands.passes import CheckedTally, Search, pack
from ...engine.memory import Caps, Strata
from ...engine.plan import ScanShape
from ...engine.run import refuse_bad_data
from ...engine.scan import scan_band
from ...engine.search import ThresholdSearch
from ...engine.strata import StrataSums
from ...engine.ties import CutPlan, ExtremesSearch, TieCut, TieCuts, WantedTies, cut_band
from ...errors import DtypeError, LabelsError, UnsettledError
from ...exact.budgets import count_labels, largest_integer, window_start
from ...exact.sums import ExactSums
from ...kernels.dispatch import set_problem_size
from ...kernels.keys import check_dtype, key_range
from ...masks import to_ndarray
from ...records import Record
from ...settings import setting
from ...sources.readers import ShapeOnlyReader
from ...sources.source import Source
from ...statistics.outcome import Grouping, Outcome
from ...statistics.straddle import n_ranked
from ...store.write.batches import as_labels, as_numpy, as_scores, check_labels, check_scores
from ...threads import give_back_memory
from ..inputs.lazy_scores import flat_labels, sample_conditions
from .open_scan import ALL_BANDS, UNLIMITED, OpenScan, first_plan, plan_brackets

NO_LABELS, HARD, SOFT, CLUSTERED = "no labels", "hard labels", "soft labels", "hard labels with clusters"
#: Clusters must be below this number.
_MAX_CLUSTERS = 1 << 31
#: Number of rows per piece that are sampled for ``score_kind``.
_SAMPLE_ROWS = 4

AnySearch = TypeVar("AnySearch", bound=Search)


@dataclass(frozen=True)
class Batch:
    """Rows of scores, their labels (packed with clusters, if any), and their numbers among all samples passed."""

    scores: Array
    labels: Array | None
    numbers: Ints
    kind: str

    def select(self, rows: Bools | slice) -> Batch:
        """Return some of the rows."""
        labels = None if self.labels is None else self.labels[rows]
        return Batch(self.scores[rows], labels, self.numbers[rows], self.kind)


def as_batch(
    scores: object, labels: object, where: object, ignore_index: int | None, clusters: object, *, n_classes: int, first: int
) -> tuple[Batch, int]:  # fmt: skip
    """Return the samples of a batch that count, and the number of all its samples, which are numbered from ``first``."""
    array = as_scores(scores)
    lead = array.shape[:-1]
    block = array.reshape(-1, array.shape[-1]) if array.ndim > 2 else array
    check_scores(block, n_classes)
    column = None if labels is None else as_labels(labels)
    if column is not None and array.ndim > 2:
        column = np.asarray(flat_labels(column, array.shape))
    exists: Bools | None = None
    if where is not None or ignore_index is not None:
        exists = np.ones(math.prod(lead), bool)
        mask = None if where is None else as_numpy(where)
        for values, ignored in sample_conditions(mask, ignore_index, column, lead):
            exists &= np.asarray(values) if ignored is None else np.asarray(values) != ignored
    if column is not None:
        if exists is not None and column.ndim == 1 and column.dtype.kind in "iu":
            column = np.where(exists, column, -1)  # the labels of padding are not checked
        column = check_labels(column, len(block), n_classes, first, exists)
    kind = NO_LABELS if column is None else HARD if column.ndim == 1 else SOFT
    if clusters is not None:
        column, kind = _with_clusters(column, clusters, exists, lead, n_classes), CLUSTERED
    batch = Batch(block, column, np.arange(first, first + len(block)), kind)
    return batch if exists is None else batch.select(exists), len(block)


def _with_clusters(
    labels: Array | None, clusters: object, exists: Bools | None, lead: tuple[int, ...], n_classes: int
) -> Ints:
    """Return labels and clusters in one column."""
    if labels is None or labels.ndim != 1:
        got = "none" if labels is None else "a matrix"
        raise LabelsError(
            f"labels must be class numbers for clusters; got {got}. Pass one for each sample, or leave clusters out."
        )
    column = to_ndarray(as_numpy(clusters), "clusters", LabelsError)
    numbering = "Number them, for example with numpy.unique(clusters, return_inverse=True)[1], for all batches at once."
    if column.dtype.kind not in "iu":
        raise DtypeError(f"clusters must be integers; got dtype {column.dtype}. {numbering}")
    if column.shape != lead:
        raise LabelsError(
            f"clusters must have the samples' shape {lead}; got shape {column.shape}. Give the cluster of each sample."
        )
    column = column.reshape(-1) if exists is None else np.where(exists, column.reshape(-1), 0)
    outside = column[(column < 0) | (column >= _MAX_CLUSTERS)]
    if outside.size:
        raise LabelsError(f"clusters must be from 0 to 2**31 - 1; got {outside[0]}. {numbering}")
    return pack(labels, column.astype(np.int64), n_classes)


class WaitingRows:
    """A reused buffer of rows that wait until they fill a piece to be scanned."""

    def __init__(self, n_rows: int, n_classes: int, dtype: Dtype, kind: str) -> None:
        self.n, self.n_most, self.kind = 0, n_rows, kind
        self._n_classes, self._dtype = n_classes, dtype
        self._allocate(0)

    def _allocate(self, n_rows: int) -> None:
        self._scores = np.empty((n_rows, self._n_classes), self._dtype)
        shape, dtype = ((n_rows, self._n_classes), np.float64) if self.kind == SOFT else ((n_rows,), np.int64)
        self._labels: Array | None = None if self.kind == NO_LABELS else np.empty(shape, dtype)
        self._numbers = np.empty(n_rows, np.int64)

    @property
    def n_bytes(self) -> int:
        """Bytes of the waiting rows."""
        return sum(part.nbytes for part in (self.rows.scores, self.rows.labels, self.rows.numbers) if part is not None)

    def add(self, batch: Batch) -> None:
        """Add rows, at most as many as there is space for."""
        if not len(self._numbers):  # not before there are rows: a file may claim any number
            self._allocate(self.n_most)
        rows = slice(self.n, self.n + len(batch.scores))
        self._scores[rows], self._numbers[rows] = batch.scores, batch.numbers
        if self._labels is not None and batch.labels is not None:
            self._labels[rows] = batch.labels
        self.n = rows.stop

    @property
    def rows(self) -> Batch:
        """The waiting rows as views, valid until others are added."""
        return Batch(self._scores, self._labels, self._numbers, self.kind).select(slice(0, self.n))


@dataclass(frozen=True)
class FirstTies(Record):
    """The first ``n_wanted`` scores equal to a key, for the budget at a position, and those that have arrived."""

    budget: int
    key: int
    n_wanted: int
    #: One cut, or none.
    cuts: tuple[TieCut, ...]

    @property
    def n_taken(self) -> int:
        """How many have arrived."""
        return sum(cut.n_taken for cut in self.cuts)

    def then(self, more: Sequence[TieCut]) -> FirstTies:
        """Append more of these ties."""
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
    def chain(first: Sequence[FirstTies], second: Sequence[FirstTies]) -> Iterator[FirstTies]:
        """Yield the ties of two processes, one after the other, if they are known.

        They are unknown if only some ties of the second process are needed.
        """
        for a, b in zip(first, second, strict=False):
            if (a.budget, a.key, a.n_wanted) == (b.budget, b.key, b.n_wanted) and a.n_taken + b.n_taken <= a.n_wanted:
                yield a.then(b.cuts)
            elif a.n_taken == a.n_wanted:
                yield a


def take_ties(
    wanted: Sequence[FirstTies], scores: Array, labels: Array | None, shape: ScanShape
) -> tuple[FirstTies, ...]:
    """Append the ties in some more rows."""
    missing = [WantedTies(range(1), t.budget, t.key, t.n_wanted - t.n_taken) for t in wanted if t.n_taken < t.n_wanted]
    if not missing:
        return tuple(wanted)
    plan = CutPlan(tuple(missing), shape.dtype, shape.n_classes, shape.tile_scores, shape.n_ranks, shape.strata)
    cuts = cut_band([scores], labels, 0, plan).cuts
    return tuple(t.then([cut for cut in cuts if cut.budget == t.budget]) for t in wanted)


def with_first_ties(search: ThresholdSearch, ties: Sequence[FirstTies]) -> ThresholdSearch:
    """Settle the pending cuts of a search with the ties that have arrived."""
    cuts: list[TieCut] = []
    for first in ties:
        selection = search.selections.get(first.budget)
        if selection is None or selection.cut is None or not selection.cut.pending or selection.key != first.key:
            continue
        if selection.cut.n_ties == selection.n_kept == first.n_taken:
            cuts += first.cuts
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
        """Number of ranks whose scores are retained."""
        return n_ranked(self.budgets, self.n_classes) if self.straddle else 0

    def __str__(self) -> str:
        budgets = ", ".join(f"{float(budget):g}" for budget in self.budgets)
        by = ", by='class'" if self.by_class else ""
        return (
            f"n_classes={self.n_classes}, k=[{budgets}], straddle={self.straddle}, nan_policy={self.nan_policy!r}{by}"
        )


@dataclass(frozen=True)
class Hints(Record):
    """The hints of a first run for a second one: brackets, and the ties to collect one by one."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    ties: tuple[FirstTies, ...]


class StreamingScan:
    """Samples of one dtype, with labels of one kind, scanned piece by piece as they arrive."""

    def __init__(self, spec: EvaluatorSpec, dtype: Dtype, kind: str, hints: Hints | None = None) -> None:
        self.spec, self.dtype, self.kind, self.hints = spec, check_dtype(dtype), kind, hints
        row_bytes = spec.n_classes * self.dtype.itemsize
        n_rows = max(setting("task-bytes") // row_bytes, setting("small-scores") // spec.n_classes, 1)
        self.waiting = WaitingRows(n_rows, spec.n_classes, self.dtype, kind)
        self.scan: OpenScan | None = None
        self.ties: tuple[FirstTies, ...] = () if hints is None else hints.ties

    @property
    def n_samples(self) -> int:
        """Number of samples so far."""
        return self.waiting.n + (0 if self.scan is None else self.scan.n_rows)

    @property
    def n_bytes(self) -> int:
        """Bytes of all retained rows, scores and counts."""
        if self.scan is None:
            return self.waiting.n_bytes
        waves = sum(counts.__sizeof__() for _, counts in self.scan.waves)
        return self.waiting.n_bytes + waves + sum(tally.__sizeof__() for tally in self.scan.tallies)

    def check_alike(self, batch: Batch) -> None:
        """Refuse a batch with another dtype or kind of labels than the batches before it."""
        if batch.scores.dtype != self.dtype and check_dtype(batch.scores.dtype) != self.dtype:
            raise DtypeError(
                f"scores must be {self.dtype}, as in the first batch; got {batch.scores.dtype}. Convert them with astype."
            )
        if batch.kind != self.kind:
            raise LabelsError(
                f"labels must be of one kind in all batches; got {batch.kind} after {self.kind}. "
                "Pass the same kind with every batch."
            )

    def add(self, batch: Batch) -> None:
        """Add rows, and scan each full piece."""
        n_most = self.waiting.n_most
        while len(batch.scores):
            if self.waiting.n == n_most:
                self._scan_waiting()
            if not self.waiting.n and len(batch.scores) >= n_most and self.scan is not None:  # without a copy
                piece, batch = batch.select(slice(0, n_most)), batch.select(slice(n_most, None))
                self.scan, self.ties = self._scan_piece(piece)
                continue
            space = n_most - self.waiting.n
            self.waiting.add(batch.select(slice(0, space)))
            batch = batch.select(slice(space, None))

    def _scan_waiting(self) -> None:
        if self.waiting.n:
            self.scan, self.ties = self._scan_piece(self.waiting.rows)
            self.waiting.n = 0

    def _scan_piece(self, rows: Batch) -> tuple[OpenScan, tuple[FirstTies, ...]]:
        """Return the scan and the ties after one more piece."""
        scan = self._begin(rows.scores) if self.scan is None else self.scan
        n_rows, n_samples = len(rows.scores), scan.n_rows + len(rows.scores)
        set_problem_size(n_samples * self.spec.n_classes)
        sample_rows = np.unique((2 * np.arange(_SAMPLE_ROWS) + 1) * n_rows // (2 * _SAMPLE_ROWS))
        looked = np.stack([np.full_like(sample_rows, scan.n_bands), sample_rows]).tobytes()
        shape = replace(scan.plan.shape, looked=looked, ranked_bins=self._ranked_bins(n_samples))
        plan = replace(scan.plan, shape=shape)
        tally = scan_band([rows.scores], rows.labels, scan.n_bands, plan)
        refuse_bad_data(tally, self._source(n_rows, rows.numbers), self.spec.nan_policy)
        ties = take_ties(self.ties, rows.scores, rows.labels, plan.shape)
        after = scan.add(tally)
        if after.n_narrowed > scan.n_narrowed:  # narrowing takes a few times the memory of the retained scores
            give_back_memory()
        return after, ties

    def open_shape(self) -> ScanShape:
        """Return the common shape of all scans of such samples."""
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
        """Whether to compute standard errors, which need the scores above each threshold."""
        return self.kind in (HARD, CLUSTERED) and not self.spec.by_class

    def _shape(self, source: Source) -> ScanShape:
        n_ranks = 0 if source.labels is None else largest_integer(self.spec.budgets)
        strata = "classes" if self.spec.by_class else {HARD: "ranks", CLUSTERED: "groups"}.get(self.kind, "")
        return Caps.configured().scan_shape(source, n_ranks, self.spec.n_ranked, source.has_soft_labels, Strata(strata))

    def outcome(self) -> Outcome:
        """Return the outcome for all budgets; thresholds that were not retained are refused."""
        source = self._source(self.n_samples)
        set_problem_size(math.prod(source.shape))
        if self.scan is None:
            search = self._settle_small(source)
        else:
            scan, ties = self._scan_piece(self.waiting.rows) if self.waiting.n else (self.scan, self.ties)
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
        """Return the settled search if all rows are waiting."""
        counts = [count_labels(budget, source.shape[0]) for budget in self.spec.budgets]
        windows = [window_start(count) for count in counts] if self.windowed else []
        search = self._drive(ThresholdSearch.begin(self._shape(source), counts, windows=windows))
        extremes = ExtremesSearch.begin(self.dtype, self.spec.n_classes, setting("ranked-bins"), search.selections)
        return replace(search, selections=self._drive(extremes).settle(search.selections))

    def _drive(self, search: AnySearch) -> AnySearch:
        """Run all passes of a search over the waiting rows."""
        rows = self.waiting.rows
        while (step := search.next_pass()) is not None:
            state: Any = step.work([rows.scores], rows.labels, 0, step.plan)
            if isinstance(state, CheckedTally):
                refuse_bad_data(state, self._source(self.n_samples, rows.numbers), self.spec.nan_policy)
            search = search.advance(state)
        return search

    def as_hints(self) -> Hints | None:
        """Return the hints for a second run over the same samples, or None if all rows are waiting."""
        if self.scan is None:
            return None
        scan = self._scan_piece(self.waiting.rows)[0] if self.waiting.n else self.scan
        search = scan.settle()
        low = key_range(self.dtype)[0]
        floors = scan.plan.zones.interval(scan.plan.zones.n_intervals - 1)
        brackets = [
            (s.key, s.key) if s.key >= low else floors for s in search.selections.values()
        ] + scan.window_brackets()
        if search.plan is not None:
            zones = search.plan.zones
            brackets += [zones.interval(j) for j in range(zones.n_intervals)]
        lows, highs = zip(*brackets, strict=True)
        ties = [
            FirstTies(i, s.key, s.n_kept, ())
            for i, s in search.selections.items()
            if s.cut is not None and s.cut.pending
        ]
        return Hints(lows, highs, tuple(ties))

    def merge(self, other: StreamingScan, first: int) -> None:
        """Append the samples of another scan, which are numbered from ``first``."""
        if other.scan is not None:
            if self.scan is None:
                self.hints, self.ties = other.hints, () if other.hints is None else other.hints.ties
                self.scan = replace(other.scan, n_bands=0, parts=(), so_far=None, waves=(), n_narrowed=0)
            self._scan_waiting()
            self.scan = self.scan.merge(other.scan)
            self.ties = tuple(FirstTies.chain(self.ties, other.ties))
        rows = other.waiting.rows
        self.add(replace(rows, numbers=rows.numbers + first))


@dataclass
class EvaluatorState:
    """The state of an evaluator."""

    spec: EvaluatorSpec
    #: The hints of the evaluator passed as ``like``.
    hints: Hints | None = None
    #: None before the first sample.
    scan: StreamingScan | None = None
    #: Number of samples passed, including those left out; and whether any batch had ``where`` or ``ignore_index``.
    n_given: int = 0
    is_masked: bool = False
    class_names: tuple[str, ...] | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples so far, without those left out."""
        return 0 if self.scan is None else self.scan.n_samples


def refuse_unsettled(search: ThresholdSearch, budgets: Sequence[Fraction]) -> None:
    """Raise if a threshold was not retained, or a budget ends among counted ties or needs their soft labels."""
    outside = sorted({float(budgets[i % len(budgets)]) for i in search.open})
    selections = {float(budgets[i]): s for i, s in search.selections.items()}
    cut = [k for k, s in selections.items() if s.cut is not None and s.cut.pending]
    soft = [k for k, s in selections.items() if s.extremes is None and k not in cut]
    reasons = (
        (outside, "has a threshold that was not retained (later batches differ from the first ones)"),
        (cut, "ends among ties that were counted together"),
        (soft, "needs the soft labels of ties that were counted together"),
    )
    causes = [f"k = {', '.join(f'{k:g}' for k in ks)} {reason}" for ks, reason in reasons if ks]
    if not causes:
        return
    hint = "Run the loop again with the same batches in the same order, using Evaluator(n_classes, k, like=first)."
    if soft:
        hint = "Write the scores with ScoreWriter, and evaluate the store."
    error = UnsettledError(f"some thresholds cannot be settled: {'; '.join(causes)}. {hint}")
    error.budgets = tuple(sorted({*outside, *cut, *soft}))
    raise error
