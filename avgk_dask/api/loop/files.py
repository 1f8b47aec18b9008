"""Files of evaluators: their state as plain arrays and JSON, with a hash.

The hash proves that a file is unchanged, not who wrote it. Hence all indices into compiled loops and all sizes of allocated
memory are checked. Other inconsistencies raise errors later, which ``naming_file`` turns into a ``ReadError``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

import numpy as np

from ...arrays import Array, Dtype
from ...bands.passes import SampleGroups
from ...engine.events import ROW_BITS
from ...engine.plan import N_BINS, ScanPlan, ScanShape, Wave, ZoneTable, shift_to_fit
from ...engine.ranked import KeyHistogram, RankedTally
from ...engine.tally import BinCounts, ScanTally
from ...errors import AvgkError, OptionError, ReadError
from ...exact.budgets import parse_budgets
from ...exact.sums import ExactSums
from ...kernels.keys import KEY_MAX, check_dtype, key_range, narrow_dtype
from ...records import Record
from ...store.where.addresses import redact
from ...store.write.batches import check_labels
from ...store.write.hashed_folder import HashedFolder
from ..options import check_nan_policy
from .open_scan import ALL_BANDS, OpenScan
from .streaming import (
    CLUSTERED,
    HARD,
    NO_LABELS,
    SOFT,
    Batch,
    EvaluatorSpec,
    EvaluatorState,
    FirstTies,
    Hints,
    StreamingScan,
)

#: The largest number of bands in a file: more than 30 TB of scores.
_MAX_BANDS = 1 << 22
#: Fields of a shape that depend on settings, which may have changed since, or on the number of bands.
_SETTINGS = {"n_chunks", "max_events", "all_events", "tile_scores", "n_bins", "max_held", "max_apart", "n_bands", "band_rows",
             "n_together", "strata_bytes", "looked", "ranked_bins"}  # fmt: skip


@dataclass(frozen=True)
class SavedScan(Record):
    """An open scan in plain values, with the plans of its waves."""

    plan: Wave
    windowed: bool
    n_groups: int
    n_bands: int
    parts: tuple[ScanTally, ...]
    so_far: tuple[ScanTally, ...]
    wave_plans: tuple[Wave, ...]
    wave_counts: tuple[BinCounts, ...]
    n_narrowed: int
    certain: bool

    @classmethod
    def from_scan(cls, scan: OpenScan) -> SavedScan:
        """Return a scan in plain values."""
        so_far = () if scan.so_far is None else (scan.so_far,)
        waves = tuple(Wave.from_plan(replace(scan.plan, zones=zones), ()) for zones, _ in scan.waves)
        counts = tuple(counts for _, counts in scan.waves)
        sizes = scan.windowed, scan.n_groups, scan.n_bands
        return cls(
            Wave.from_plan(scan.plan, ()), *sizes, scan.parts, so_far, waves, counts, scan.n_narrowed, scan.certain
        )

    def restore(self, owner: StreamingScan) -> OpenScan:
        """Return the checked scan of its owner's samples."""
        shape = _shape(self.plan, owner.open_shape())
        low, top = key_range(shape.dtype)
        _require(low <= self.plan.highest <= top, "invalid highest score")
        sample = low, shift_to_fit(top - low + 1, N_BINS)
        _require((self.plan.sample_base, self.plan.sample_shift) == sample, "a sample with other bins")
        zones = _zones(self.plan, shape, self.plan.highest)
        plan = ScanPlan(shape, zones, *sample, self.plan.highest, self.plan.expected_events)
        waves = [
            (_zones(wave, shape, plan.highest), n) for wave, n in zip(self.wave_plans, self.wave_counts, strict=True)
        ]
        for table, counts in waves:
            _check_bins(counts, (table.floors.size, table.n_bins))
        _require(self.windowed == owner.windowed, "windows that do not fit the labels")
        _require(self.n_groups > 0 and 0 < self.n_bands <= _MAX_BANDS, "an invalid number of bands")
        tallies = *self.so_far, *self.parts
        _require(tallies and len(self.so_far) <= 1, "an invalid number of tallies")
        for tally in tallies:
            _check_tally(tally, plan, self.n_bands)
        _require(self.n_narrowed >= 0, "a negative number of rows")
        sizes = self.windowed, self.n_groups, self.n_bands
        so_far = self.so_far[0] if self.so_far else None
        budgets = owner.spec.budgets
        return OpenScan(plan, budgets, *sizes, self.parts, so_far, tuple(waves), self.n_narrowed, self.certain)


@dataclass(frozen=True)
class SavedRows(Record):
    """A streaming scan in plain values: its waiting rows, as bytes, and the scan of all earlier rows."""

    dtype: str
    kind: str
    scores: Array
    labels: tuple[Array, ...]
    numbers: Array
    scan: tuple[SavedScan, ...]
    ties: tuple[FirstTies, ...]
    hints: tuple[Hints, ...]

    @classmethod
    def from_scan(cls, owner: StreamingScan) -> SavedRows:
        """Return a streaming scan in plain values."""
        rows = owner.waiting.rows
        labels = () if rows.labels is None else (rows.labels,)
        scan = () if owner.scan is None else (SavedScan.from_scan(owner.scan),)
        hints = () if owner.hints is None else (owner.hints,)
        as_bytes = np.ascontiguousarray(rows.scores).view(np.uint8)
        return cls(owner.dtype.name, owner.kind, as_bytes, labels, rows.numbers, scan, owner.ties, hints)

    def restore(self, spec: EvaluatorSpec) -> StreamingScan:
        """Return the checked scan of an evaluator with these options."""
        kinds = (HARD,) if spec.by_class else (NO_LABELS, HARD, SOFT, CLUSTERED)
        _require(self.kind in kinds, f"labels of another kind than {' or '.join(kinds)}")
        dtype, hints = check_dtype(self.dtype), self.hints[0] if self.hints else None
        _check_ties(self.ties, spec, dtype)
        _check_hints(hints, spec, dtype)
        scan = StreamingScan(spec, dtype, self.kind, hints)
        batch = self._batch(spec.n_classes, dtype)
        scan.scan, scan.ties = self.scan[0].restore(scan) if self.scan else None, self.ties
        scan.add(batch)
        return scan

    def _batch(self, n_classes: int, dtype: Dtype) -> Batch:
        """Return the checked waiting rows."""
        n, labels = len(self.numbers), self.labels[0] if self.labels else None
        _require(self.numbers.shape == (n,) and self.numbers.dtype == np.int64, "invalid numbers of rows")
        is_matrix = self.scores.dtype == np.uint8 and self.scores.shape == (n, n_classes * dtype.itemsize)
        _require(is_matrix, f"rows without {n_classes} scores each")
        _require((labels is None) == (self.kind == NO_LABELS), "labels of another kind")
        if labels is not None:
            n_axes = 2 if self.kind == SOFT else 1
            _require(labels.ndim == n_axes and labels.dtype.itemsize == 8, "labels of another kind")
            hard = SampleGroups(n_classes, self.kind == CLUSTERED).split(labels)[0]
            assert hard is not None
            check_labels(hard, n, n_classes)
        return Batch(np.ascontiguousarray(self.scores).view(dtype), labels, self.numbers, self.kind)


@dataclass(frozen=True)
class SavedEvaluator(Record):
    """The options and the state of an evaluator in plain values."""

    n_classes: int
    budgets: tuple[str, ...]
    straddle: bool
    nan_policy: str
    by_class: bool
    n_given: int
    is_masked: bool
    known: tuple[SavedRows, ...]
    hints: tuple[Hints, ...]
    class_names: tuple[str, ...] = ()


def write_state(path: object, state: EvaluatorState) -> None:
    """Write an evaluator atomically, replacing an existing file."""
    hashed_folder, name = _parse_path(path)
    spec = state.spec
    saved = SavedEvaluator(
        spec.n_classes,
        tuple(map(str, spec.budgets)),
        spec.straddle,
        spec.nan_policy,
        spec.by_class,
        state.n_given,
        state.is_masked,
        () if state.scan is None else (SavedRows.from_scan(state.scan),),
        () if state.hints is None else (state.hints,),
        state.class_names or (),
    )
    hashed_folder.write(name, saved.to_parts())


def read_state(path: object) -> EvaluatorState:
    """Return the evaluator in a file; ReadError if it does not exist, is damaged, or its content is invalid."""
    hashed_folder, name = _parse_path(path)
    data = hashed_folder.read(name)
    if data is None:
        raise ReadError(f"no readable evaluator in {redact(path)}: the file is absent or damaged. Check the path.")
    with naming_file(redact(path), AvgkError):
        return _restore(SavedEvaluator.from_bytes(data))


@contextmanager
def naming_file(path: str, kind: type[AvgkError] = ReadError) -> Iterator[None]:
    """Turn errors into one that names the file of an evaluator; without a file they stay.

    Errors of this package are converted only if they are of class ``kind``; errors about batches or lost thresholds are
    not.
    """
    try:
        yield
    except Exception as error:
        if not path or (isinstance(error, AvgkError) and not isinstance(error, kind)):
            raise
        reason = str(error).removesuffix(" Compute it again.").rstrip(".") or type(error).__name__
        raise ReadError(
            f"{path} is not a valid evaluator: {reason}. Run the loop again, and save the evaluator again."
        ) from error


def _restore(saved: SavedEvaluator) -> EvaluatorState:
    """Return the checked state of an evaluator."""
    are_numbers = all(re.fullmatch(r"\d{1,1000}(/\d{1,1000})?", text) for text in saved.budgets)
    _require(are_numbers, "budgets that are not numbers")
    _require(1 <= saved.n_classes < 1 << 48, "an invalid number of classes")
    budgets = tuple(map(Fraction, saved.budgets))
    check_nan_policy(saved.nan_policy)
    _require(parse_budgets(budgets, saved.n_classes) == budgets, "duplicate budgets")
    _require(not (saved.straddle and saved.by_class), "straddle by class")
    spec = EvaluatorSpec(saved.n_classes, budgets, saved.straddle, saved.nan_policy, saved.by_class)
    hints, names = saved.hints[0] if saved.hints else None, saved.class_names or None
    scan = saved.known[0].restore(spec) if saved.known else None
    _check_hints(hints, spec, np.dtype(np.float64) if scan is None else scan.dtype)
    state = EvaluatorState(spec, hints, scan, saved.n_given, saved.is_masked, names)
    n_missing = state.n_given - state.n_samples
    _require(n_missing == 0 or (state.is_masked and n_missing > 0), "an invalid number of samples")
    _require(names is None or len(names) == spec.n_classes, "an invalid number of class names")
    return state


def _require(is_valid: object, problem: str) -> None:
    if not is_valid:
        raise ValueError(problem)


def _in_range(low: int, high: int, *columns: Array) -> bool:
    """Return whether columns of equal length hold integers in a range."""
    return all(
        column.ndim == 1
        and column.size == columns[0].size
        and column.dtype.kind in "iu"
        and (not column.size or low <= int(column.min()) <= int(column.max()) <= high)
        for column in columns
    )


def _shape(wave: Wave, shape: ScanShape) -> ScanShape:
    """Return the current shape of scans with the ``n_together`` of a file; refuse a file with another shape."""
    saved, fields = json.loads(wave.shape), asdict(shape) | {"dtype": shape.dtype.name, "looked": ""}
    _require(isinstance(saved, dict) and saved.keys() == fields.keys(), "a scan of another form")
    wrong = [name for name, value in fields.items() if name not in _SETTINGS and saved[name] != value]
    _require(not wrong, f"a scan with another {', '.join(wrong)}")
    together = saved["n_together"]
    _require(type(together) is int and 1 <= together <= ALL_BANDS, "an invalid number of bands counted together")
    return replace(shape, n_together=together)


def _zones(wave: Wave, shape: ScanShape, highest: int) -> ZoneTable:
    """Return the zones of a wave, rebuilt from their floors."""
    floors, (lowest, top) = wave.floors, key_range(shape.dtype)
    are_pairs = floors.dtype == np.int64 and floors.ndim == 1 and floors.size >= 2 and not floors.size % 2
    _require(are_pairs, "invalid zones")
    ends = floors.tolist()
    highs = [floor - 1 for floor in ends[::2]]
    if ends[0] == KEY_MAX == top and wave.starts[-1:] == 1:  # no key is beyond
        highs[0] = KEY_MAX
    keys = [key for low, high in zip(ends[1::2], highs, strict=True) for key in (high, low)]
    descend = all(high >= low for high, low in zip(keys[::2], keys[1::2], strict=True)) and all(
        low > high for low, high in zip(keys[1::2], keys[2::2], strict=False)
    )
    _require(descend and lowest <= keys[-1] and keys[0] <= top, "overlapping zones")
    intervals = list(zip(keys[1::2], keys[::2], strict=True))
    zones = ZoneTable.from_intervals(intervals, top, shape.n_bins, usual_top=highest)
    is_same = wave.n_bins == zones.n_bins and np.array_equal(wave.shifts, zones.shifts.view(np.int64))
    _require(is_same, "zones with other bins")
    return zones


def _check_tally(tally: ScanTally, plan: ScanPlan, n_bands: int) -> None:
    zones, n, max_size = plan.zones, plan.zones.n_intervals, 2 * plan.shape.n_classes + 1
    _require(np.array_equal(tally.floors, zones.floors), "tallies of other zones")
    is_folded = not tally.rows and tally.n_together == plan.shape.n_together and tally.max_events > 0
    _require(is_folded, "tallies with rows")
    _require(0 <= tally.n_labelled <= tally.n_rows > 0 and 0 <= tally.n_bands <= n_bands, "invalid numbers of rows")
    lengths = (tally.hits.shape, tally.dropped.shape, tally.band_sums.shape, tally.band_squares.shape)
    _require(lengths == ((2 * n,), (n,), (n,), (n,)), "tallies of another number of zones")
    _require(tally.rank_counts.ndim == 1 and tally.rank_counts.size >= plan.shape.n_ranks + 2, "labels without ranks")
    _require(_in_range(0, max_size, tally.cells, tally.cell_counts * 0, tally.cell_intervals), "invalid set sizes")
    _require(_in_range(0, n - 1, tally.cell_intervals), "sets of unknown zones")
    _require(_in_range(1, tally.n_rows, tally.cell_counts), "invalid counts of sets")
    _check_events(tally, plan, n_bands)
    strata, m = tally.strata, tally.strata.strata.size
    _require(
        strata.sizes.shape == strata.hits.shape == (m, n) and _in_range(0, KEY_MAX, strata.strata), "invalid strata"
    )
    ranks = tally.strata_ranks
    _require(_in_range(0, KEY_MAX, ranks.strata, ranks.ranks, ranks.counts), "strata without ranks")
    _require(len(tally.weight_above) in (0, n), "labels with other weights")
    for sums in (tally.weight_above, tally.weight_at_rank, tally.distance.higher, tally.distance.lower):
        _check_sums(sums)
    _check_bins(tally.histogram, (zones.floors.size, zones.n_bins))
    _check_bins(tally.sample, (N_BINS,))
    _check_ranked(tally.ranked, plan.shape, tally.n_rows)


def _check_events(tally: ScanTally, plan: ScanPlan, n_bands: int) -> None:
    low, top = plan.floor, key_range(plan.shape.dtype)[1]
    events, counted, max_size = tally.events, tally.counted, 2 * plan.shape.n_classes + 1
    held = events.keys, events.rows, events.bases, events.weights, events.strata
    _require(all(column.shape == events.keys.shape for column in held), "events of different lengths")
    _require(_in_range(low, top, events.keys) and _in_range(0, max_size, events.bases), "events outside the zones")
    _require(_in_range(0, (n_bands << ROW_BITS) - 1, events.rows), "events of unknown bands")
    _require(events.weights.dtype.kind in "uf" and _in_range(0, KEY_MAX, events.strata), "events without strata")
    for column in (counted.keys, counted.weight_keys, counted.stratum_keys):
        _require(_in_range(low, top, column), "counted events outside the zones")
    counts = counted.keys, counted.groups, counted.steps, counted.counts
    weights = counted.weight_keys, counted.weight_groups, counted.weight_limbs, counted.weight_amounts
    strata = counted.stratum_keys, counted.stratum_groups, counted.strata, counted.stratum_counts, counted.stratum_hits
    for columns in (counts, weights, strata):
        _require(all(column.shape == columns[0].shape for column in columns), "counted events of different lengths")
        _require(_in_range(0, n_bands, columns[1]), "counted events of unknown bands")
    _require(_in_range(0, 2 * max_size + 1, counted.steps), "counted sets that are too large")
    _require(_in_range(1, KEY_MAX, counted.counts), "counted events without counts")
    _require(_in_range(0, ExactSums.zeros(0).limbs.shape[1] - 1, counted.weight_limbs), "invalid weights")
    _require(_in_range(0, KEY_MAX, *strata[2:]), "invalid counted strata")


def _check_bins(counts: BinCounts, shape: tuple[int, ...]) -> None:
    _require(counts.shape == shape, "histograms of another shape")
    _require(_in_range(0, int(np.prod(shape)) - 1, counts.cells), "histograms with other bins")
    _require((np.diff(counts.cells) > 0).all() and counts.counts.shape == counts.cells.shape, "duplicate bins")
    _require(_in_range(1, KEY_MAX, counts.counts), "histograms without counts")


def _check_ranked(ranked: RankedTally, shape: ScanShape, n_rows: int) -> None:
    keys = ranked.keys
    _require(keys.ndim == 2 and {len(keys), len(ranked.histograms)} <= {0, shape.n_ranked}, "other ranks")
    _require(keys.shape[1] <= n_rows and 0 <= ranked.n_bins < 1 << 32, "more ranked scores than rows")
    _require(not keys.size or keys.dtype == narrow_dtype(shape.dtype), "ranked scores of another dtype")
    for one in ranked.histograms:
        _check_histogram(one)


def _check_histogram(one: KeyHistogram) -> None:
    is_table = one.bins.ndim == 1 and one.sums.shape == (3, one.bins.size) and (np.diff(one.bins) > 0).all()
    are_counts = one.sums.dtype == one.bins.dtype == np.int64 and (one.sums >= 0).all()
    _require(is_table and are_counts, "invalid bins of ranked scores")
    _require(one.bins.size <= one.most_bins and 2 <= one.most_bins < 1 << 32 and 0 <= one.shift < 64, "too many bins")
    _require(one.lowest >= -KEY_MAX - 1 and one.highest <= KEY_MAX, "invalid ranked scores")


def _check_sums(sums: ExactSums) -> None:
    _require(sums.limbs.ndim == 2 and sums.limbs.shape[1:] == ExactSums.zeros(0).limbs.shape[1:], "invalid weights")


def _check_hints(hints: Hints | None, spec: EvaluatorSpec, dtype: Dtype) -> None:
    if hints is None:
        return
    low, high = key_range(dtype)
    _require(hints.lows and len(hints.lows) == len(hints.highs), "brackets without ends")
    are_inside = all(low <= a <= b <= high for a, b in zip(hints.lows, hints.highs, strict=True))
    _require(are_inside, "brackets outside the range of scores")
    _check_ties(hints.ties, spec, dtype)


def _check_ties(ties: tuple[FirstTies, ...], spec: EvaluatorSpec, dtype: Dtype) -> None:
    low, high = key_range(dtype)
    for one in ties:
        _require(0 <= one.budget < len(spec.budgets) and low <= one.key <= high, "ties of an unknown budget")
        _require(len(one.cuts) <= 1 and 0 <= one.n_taken <= one.n_wanted <= KEY_MAX, "too many ties")
        for cut in one.cuts:
            _require(cut.changes.ndim == 1 and cut.changes.size <= 2 * spec.n_classes + 2, "ties without sets")
            _check_sums(cut.weight)
            m, strata = cut.strata.strata.size, cut.strata
            _require(strata.sizes.shape == strata.hits.shape == (m, 1), "invalid strata of ties")
            _require(_in_range(0, KEY_MAX, strata.strata), "invalid strata of ties")


def _parse_path(path: object) -> tuple[HashedFolder, str]:
    """Return the folder of a file, and its name there."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.basename(os.fspath(path)):
        raise OptionError(f"path must be a file path; got {redact(path)!r}. Name a file, such as evaluator.avgk.")
    text = str(os.fspath(path))
    if "://" not in text:
        text = os.path.abspath(text)
    elif "#" in text or "?" in text:
        raise OptionError(f"path must be a file path without query or fragment; got {redact(path)!r}. Name a file.")
    return HashedFolder.at(text[: -len(os.path.basename(text)) - 1] or os.sep), os.path.basename(text)
