"""The pilot: a few chunks of scores, sorted, and the brackets of keys that are estimated from them.

5 % of the chunks are read, at least 4 and at most 16 (``settings.py``). A bracket reaches 4.5 standard errors to each side of the
estimate, from the spread between strips of rows, or between chunks if those differ by more. A bracket that fails costs a second
scan, never a wrong answer: the counts of the scan prove where the threshold lies. Matrices of up to 2**18 scores need no pilot,
since one bracket holds everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..bands.rows import checked_slabs
from ..kernels.keys import HALF_NAN, carrier, check_dtype, encode, is_half, key_range
from ..records import OWN, State
from .plan import N_BINS, ScanPlan, ScanShape, ZoneTable, shift_to_fit
from .tally import ScanTally

#: Strips of a chunk, whose spread shows how much counts vary from one stretch of rows to the next.
_STRIPS = 8
#: Maximum number of keys in the sample of a chunk; of more keys, it has every n-th.
_TAKEN = 1 << 13
#: Standard errors that a bracket reaches to either side. With 4.5, one search in some thousands needs a second scan. From few
#: unlike chunks, the estimate of the spread is itself uncertain, hence the larger numbers.
REACH = 4.5
_FEW = {2: 12.0, 3: 8.0, 4: 6.5}
#: Shares of the keys beyond the pilot's highest at which bins of another width begin.
_BEYOND = (2**40, 64, 8)
#: Keys that each occur this often in the pilot's sample are ties.
_TIED = 16
#: The factor by which the share of later scores above a threshold may differ from the share of the first scores.
_GENEROUS = 2.0

Column = Annotated[Ints, OWN]
#: The first and the last of some ranks of one budget, whose scores are needed.
Span = tuple[int, int]


@dataclass(frozen=True)
class PilotSample(State):
    """Keys of sampled chunks in descending order, each with the weight of several scores of its strip."""

    keys: Column
    weights: Column
    strips: Column
    #: Scores in each strip, and the chunk it belongs to.
    strip_scores: Column
    strip_chunks: Column
    lowest: Annotated[int, OWN]
    highest: Annotated[int, OWN]

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the union of the samples: strips in the order of their chunks, keys descending."""
        if len(states) == 1:
            return states[0]
        firsts = np.cumsum([0, *(s.strip_scores.size for s in states)])
        chunks = np.concatenate([s.strip_chunks for s in states])
        order = np.argsort(chunks, kind="stable")
        number = np.empty(order.size, np.int64)
        number[order] = np.arange(order.size)
        strips = number[np.concatenate([s.strips + first for s, first in zip(states, firsts[:-1], strict=True)])]
        keys = np.concatenate([s.keys for s in states])
        descending = np.lexsort((strips, keys))[::-1]
        return cls(
            keys[descending],
            np.concatenate([s.weights for s in states])[descending],
            strips[descending],
            np.concatenate([s.strip_scores for s in states])[order],
            chunks[order],
            min(s.lowest for s in states),
            max(s.highest for s in states),
        )

    def nothing(self) -> Self:
        """Return the empty sample."""
        none = np.zeros(0, np.int64)
        return type(self)(none, none, none, none, none, 2**63 - 1, -(2**63))

    @property
    def n_scores(self) -> int:
        """The number of scores in the sampled chunks."""
        return int(self.strip_scores.sum())


@dataclass(frozen=True)
class PilotPlan:
    """The share of each strip's scores in the sample, from the top, and the shapes of the chunks by number."""

    fraction: float
    dtype: Dtype
    shapes: tuple[tuple[int, int], ...]


def sample_chunk(slabs: Iterable[Array], labels: Array | None, number: int, plan: PilotPlan) -> PilotSample:
    """Return the sample of one chunk."""
    n_rows, n_classes = plan.shapes[number]
    blocks = checked_slabs(slabs, plan.dtype, n_classes, np.empty(n_rows))
    return _sample_slabs(blocks, (n_rows, n_classes), number, plan.fraction)


def sample_block(block: Array, number: int, fraction: float) -> PilotSample:
    """Return the sample of a block."""
    return _sample_slabs([block], (block.shape[0], block.shape[1]), number, fraction)


def _sample_slabs(slabs: Iterable[Array], shape: tuple[int, int], number: int, fraction: float) -> PilotSample:
    """Sample the slabs of a block: the highest ``fraction`` of the scores in each strip of rows, thinned if there are many."""
    n_rows, n_classes = shape
    bounds = np.linspace(0, n_rows, min(_STRIPS, n_rows) + 1).astype(np.int64)
    scores = np.diff(bounds) * n_classes
    n_top = np.minimum(scores, (fraction * scores).astype(np.int64) + 64)
    tops = [np.zeros(0, np.int64)] * scores.size
    lowest, highest = 2**63 - 1, -(2**63)
    for slab in slabs:
        for strip, (first, last) in enumerate(pairwise(bounds)):
            low, ordered = _lowest_and_top(slab[first:last].reshape(-1), int(n_top[strip]))
            if ordered.size:
                lowest, highest = min(lowest, low), max(highest, int(ordered[0]))
            if tops[strip].size:
                ordered = np.sort(np.concatenate([tops[strip], ordered]))[::-1][: n_top[strip]]
            tops[strip] = ordered
    steps = np.maximum(1, n_top * _STRIPS // _TAKEN)
    tops = [top[::step] for top, step in zip(tops, steps.tolist(), strict=True)]
    keys, sizes = np.concatenate(tops), [top.size for top in tops]
    strips = np.repeat(np.arange(scores.size), sizes)
    descending = np.lexsort((strips, keys))[::-1]
    return PilotSample(
        keys[descending],
        np.repeat(steps, sizes)[descending],
        strips[descending],
        scores,
        np.full(scores.size, number),
        lowest,
        highest,
    )


def _lowest_and_top(values: Array, n_top: int) -> tuple[int, Ints]:
    """Return the key of the lowest number, and the ``n_top`` highest keys, descending."""
    half = is_half(check_dtype(values.dtype))
    values = carrier(values)
    low = values.min()
    if low != low or (half and low == HALF_NAN):
        values = values[values != HALF_NAN] if half else values[~np.isnan(values)]
    if not values.size:
        return 0, np.zeros(0, np.int64)
    n_top = min(n_top, values.size)
    top = np.sort(np.partition(values, values.size - n_top)[values.size - n_top :])[::-1]
    keys = encode(top) if top.dtype.kind == "f" else top.astype(np.int64)
    return int(encode(values.min(keepdims=True))[0]), keys


def reach_of(n: int) -> float:
    """Return the standard errors that a bracket reaches to either side if they are estimated from n chunks or bands."""
    return _FEW.get(n, 5.0)


def plan_from_pilot(shape: ScanShape, sample: PilotSample, spans: Sequence[Span]) -> ScanPlan:
    """Plan the first scan: hold all scores from the lowest bracket up if they fit, else those in brackets."""
    ((floor, _),) = guess_brackets(sample, shape, [max(last for _, last in spans)])
    n_listed = int(sample.weights[sample.keys >= floor].sum()) * shape.n_scores // sample.n_scores
    if floor > key_range(shape.dtype)[0] and n_listed <= shape.max_held:
        return plan_rows(shape, floor, sample.lowest, sample.highest)
    highs, lows = (guess_brackets(sample, shape, ranks) for ranks in zip(*spans, strict=True))
    brackets = [(low, high) for (low, _), (_, high) in zip(lows, highs, strict=True)]
    expected = sum(_count_stored(sample, low, high) for low, high in join_brackets(brackets))
    plan = plan_scan(shape, brackets, sample.lowest, sample.highest)
    return replace(plan, expected_events=expected * shape.n_scores / sample.n_scores)


def plan_rows(shape: ScanShape, floor: int, lowest: int, highest: int) -> ScanPlan:
    """Return the plan of a scan that holds all scores from a floor up."""
    plan = plan_scan(shape, [(floor, max(floor, highest))], lowest, highest)
    zones = ZoneTable.from_intervals([(floor, max(floor, highest))], key_range(shape.dtype)[1], shape.n_bins)
    return replace(plan, zones=zones, with_rows=True)


def plan_scan(shape: ScanShape, brackets: Sequence[tuple[int, int]], lowest: int, highest: int) -> ScanPlan:
    """Return the plan of a scan that holds the scores inside the brackets (keys, both ends included).

    Brackets that overlap are divided half-way between their middles. ``lowest`` and ``highest`` are estimates of the scores' range,
    which only place the bins.
    """
    top = key_range(shape.dtype)[1]
    # Bins for scores beyond the highest known key, finer close to it.
    beyond = {highest + 1 + (top - highest) // share for share in _BEYOND} if highest < top else set()
    brackets = [*brackets, *((key, key) for key in beyond if key <= top)]
    intervals = _split_brackets(brackets)
    zones = ZoneTable.from_intervals(intervals, top, shape.n_bins, usual_top=highest)
    floor = intervals[-1][0]
    lowest = min(lowest, floor)
    return ScanPlan(shape, zones, lowest, shift_to_fit(max(floor - lowest, 1), N_BINS), highest)


def join_brackets(brackets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return brackets from the top down, with overlapping ones joined."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(brackets, reverse=True, key=lambda bracket: (bracket[1], bracket[0])):
        if joined and high >= joined[-1][0]:
            joined[-1] = min(joined[-1][0], low), joined[-1][1]
        else:
            joined.append((low, high))
    return joined


def _split_brackets(brackets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return disjoint intervals from the top down that cover the brackets, about one per bracket."""
    middles = sorted({(low + high) // 2 for low, high in brackets}, reverse=True)
    intervals: list[tuple[int, int]] = []
    for low, high in join_brackets(brackets):
        borders = [(a + b) // 2 for a, b in pairwise(m for m in middles if low <= m <= high)]
        intervals += zip([*(border + 1 for border in borders), low], [high, *borders], strict=True)
    return intervals


def _count_stored(sample: PilotSample, low: int, high: int) -> int:
    """Return the weight of a bracket's keys in the sample; ties count as if they were counted together."""
    is_inside = (sample.keys >= low) & (sample.keys <= high)
    n, n_distinct = int(is_inside.sum()), np.unique(sample.keys[is_inside]).size
    return int(sample.weights[is_inside].sum()) // (n // n_distinct if n >= _TIED * n_distinct else 1) if n else 0


def guess_brackets(sample: PilotSample, shape: ScanShape, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Estimate, for the score at each rank among all N * C, a bracket of keys that holds it."""
    chunks = np.unique(sample.strip_chunks)
    cumulative, thinning = _cumulate(sample)
    left_out = math.sqrt(1 - chunks.size / max(shape.n_chunks, chunks.size))
    low_end, high_end = key_range(shape.dtype)
    brackets = []
    for rank in ranks:
        target = rank / shape.n_scores * sample.n_scores
        n_before = int(np.searchsorted(cumulative, target))
        error = _margin(sample, n_before) * left_out if left_out else 0.0
        margin = error * sample.n_scores + 1 + thinning
        high = _key_at(sample, cumulative, target - margin, high_end)
        low = _key_at(sample, cumulative, target + margin, low_end)
        brackets.append((low, max(low, high)))
    return brackets


def generous_brackets(sample: PilotSample, shares: Sequence[float], dtype: Dtype) -> list[tuple[int, int]]:
    """Estimate, for the score that a share of all scores reach, a bracket of keys that allows for unlike scores to come."""
    cumulative, thinning = _cumulate(sample)
    low_end, high_end = key_range(dtype)
    brackets = []
    for share in shares:
        target = share * sample.n_scores
        error = max(_margin(sample, end) for end in _find_ties(sample, _key_at(sample, cumulative, target, low_end)))
        margin = error * sample.n_scores + 1 + thinning
        high = _key_at(sample, cumulative, target / _GENEROUS - margin, high_end)
        low = _key_at(sample, cumulative, target * _GENEROUS + margin, low_end)
        first, last = _find_ties(sample, low)
        n_before = int(cumulative[first - 1]) if first else 0
        n_tied = int(cumulative[last - 1]) - n_before if last > first else 0
        if n_tied > target and n_before >= target + margin:  # very many ties, such as zeros, which are not needed
            low = int(sample.keys[first - 1])
        brackets.append((low, max(low, high)))
    return brackets


def _cumulate(sample: PilotSample) -> tuple[Ints, int]:
    """Return the cumulative weights of the keys, and the error of positions by thinning."""
    return np.cumsum(sample.weights), int(sample.weights.max(initial=1) - 1) * sample.strip_scores.size


def _find_ties(sample: PilotSample, key: int) -> tuple[int, int]:
    """Return the start and end of the sample's keys that equal a key."""
    ascending = sample.keys[::-1]
    last, first = (int(np.searchsorted(ascending, key, side)) for side in ("left", "right"))
    return ascending.size - first, ascending.size - last


def _key_at(sample: PilotSample, cumulative: Ints, position: float, beyond: int) -> int:
    """Return the sample's key at a position from the top, or ``beyond`` past either end."""
    if position < 1 or position >= sample.n_scores or not sample.keys.size:
        return beyond
    return int(sample.keys[min(int(np.searchsorted(cumulative, position)), sample.keys.size - 1)])


def _margin(sample: PilotSample, n_before: int) -> float:
    """Return the error of the fraction of scores above the sample's key number ``n_before``.

    It follows from the spread between strips of rows, or between chunks if this is larger than that of their strips explains.
    """
    counts = np.bincount(sample.strips[:n_before], sample.weights[:n_before], sample.strip_scores.size)
    fraction = max(counts.sum(), 1) / sample.n_scores
    by_score = 2 * math.sqrt(fraction / sample.n_scores)
    by_strip = _standard_error(counts, sample.strip_scores)
    _, chunk_of = np.unique(sample.strip_chunks, return_inverse=True)
    n_chunks = int(chunk_of.max()) + 1
    by_chunk = _standard_error(np.bincount(chunk_of, counts), np.bincount(chunk_of, sample.strip_scores))
    margin = REACH * max(by_score, by_strip)
    return max(margin, reach_of(n_chunks) * by_chunk) if by_chunk > 1.5 * by_strip else margin


def _standard_error(counts: Array, totals: Array) -> float:
    shares = counts / totals
    return float(shares.std(ddof=1)) / math.sqrt(shares.size) if shares.size > 1 else 0.0


def bracket_below(tally: ScanTally, plan: ScanPlan, shape: ScanShape, rank: int, n_listed: int) -> tuple[int, int]:
    """Estimate a bracket for a score below the floor of a scan, from the scan's sample of all bands."""
    low_end = key_range(shape.dtype)[0]
    n_floor_bins = min(N_BINS, ((plan.floor - plan.sample_base) >> plan.sample_shift) + 1)
    sample = tally.sample.table()
    from_floor = np.cumsum(sample[:n_floor_bins][::-1])
    if from_floor[-1] == 0:
        return low_end, plan.floor - 1
    missing = (rank - n_listed) / max(tally.n_rows * shape.n_classes - n_listed, 1) * float(from_floor[-1])
    k = max(rank / shape.n_samples, 1e-3)
    everything = tally.n_sampled == tally.n_rows * shape.n_classes
    share = k / shape.n_classes
    spread = 0.0 if everything else 8 / math.sqrt(tally.n_sampled * share) * share * float(sample.sum())
    # The first of these bins holds the floor: some of it was listed, so that the score may lie one bin's count lower.
    first, last = (int(np.searchsorted(from_floor, missing + d)) for d in (-spread, spread + float(from_floor[0])))
    high_bin, low_bin = n_floor_bins - 1 - first, n_floor_bins - 1 - last
    low = low_end if low_bin <= 0 else plan.sample_base + (low_bin << plan.sample_shift)
    high = plan.floor - 1 if first == 0 else plan.sample_base + ((high_bin + 1) << plan.sample_shift) - 1
    return low, max(low, min(high, plan.floor - 1))
