"""A guard: a kernel that becomes much slower fails here, on a busy machine or an idle one.

The unit is a step of a loop in which each step waits for the last: a fixed number of processor cycles, whatever
the clock's speed. Kernels work on data that stays in cache, and the least ratio of several trials counts, so
that other load can only delay the answer. The limits are some 1.6 times what was measured.
"""

from __future__ import annotations

import time

import dask
import numpy as np
import pytest
from numba import njit

from avgk_dask.bands.candidates import Listing, ranking_space
from avgk_dask.engine.events import Split
from avgk_dask.engine.pilot import ScanShape, plan_rows, plan_scan
from avgk_dask.engine.rows import HeldRows, SetCounts
from avgk_dask.kernels.compiled import ranks as pairs
from avgk_dask.kernels.compiled import rows as row_scans
from avgk_dask.kernels.constants import lanes_for
from avgk_dask.kernels.keys import carrier_bits, encode
from avgk_dask.kernels.zones import ZoneTable
from avgk_dask.testing import Simulation

pytestmark = pytest.mark.slow

N_ROWS, N_CLASSES = 64, 1000
STEPS = 20_000


@njit
def steps(x, n):
    """Take n steps, each of six operations that wait for one another."""
    for _ in range(n):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return x


def fastest(function, n_trials=30):
    best = float("inf")
    for _ in range(n_trials):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def cost(function, n_items, limit):
    """Give the least number of steps an item takes, over trials up to the first that keeps the limit."""
    function()
    steps(np.uint64(1), 1)
    least = float("inf")
    for _ in range(20):
        unit = fastest(lambda: steps(np.uint64(88172645463325252), STEPS)) / STEPS
        least = min(least, fastest(function) / n_items / unit)
        if least <= limit:
            break
    return least


@pytest.fixture(scope="module")
def block():
    scores, labels, _ = Simulation(N_ROWS, N_CLASSES).rows(0, N_ROWS)
    return scores, labels


def threshold_keys(scores, budgets):
    ordered = np.sort(encode(scores.reshape(-1)))[::-1]
    return [int(ordered[k * len(scores)]) for k in budgets]


def scan_arguments(scores, labels, zones, n_ranked, n_ranks=10):
    floor = np.array([zones.floors[-1]], np.int64).astype(np.int32).view(np.float32)[0]
    width = lanes_for(n_ranked, N_CLASSES)
    listing = Listing.small(N_CLASSES, width, scores.dtype)
    tile = (scores, *carrier_bits(scores), floor)
    return tile, 0, listing.arrays(), (labels, *np.empty((2, len(scores)), np.int32), n_ranks)


@pytest.mark.parametrize("k_max, n_ranked, limit", [(10, 0, 260), (10, 20, 600), (100, 0, 720)])
def test_keep_rows__stays_fast(block, k_max, n_ranked, limit):
    scores, labels = block
    (floor,) = threshold_keys(scores, [k_max])
    shape = ScanShape(N_ROWS, N_CLASSES, scores.dtype, 10, 1, 1 << 20, 1 << 20, 1 << 20, max_held=1 << 20)
    zones = plan_rows(shape, floor, floor, int(encode(scores.reshape(-1)).max())).zones
    tile, first, listing, mine = scan_arguments(scores, labels, zones, n_ranked)
    kept = np.empty(N_ROWS * N_CLASSES, np.int32), np.empty(N_ROWS, np.int32)
    histogram = zones.no_histogram()
    ranking = ranking_space(scores.shape, n_ranked, scores.dtype)

    def run():
        row_scans.hold_rows(tile, first, listing, kept, zones.arrays(), mine, histogram, ranking)

    assert cost(run, N_ROWS, limit) <= limit


def test_scan_rows__stays_fast(block):
    scores, labels = block
    near = [(key - 50_000, key + 50_000) for key in threshold_keys(scores, range(1, 11))]
    shape = ScanShape(N_ROWS, N_CLASSES, scores.dtype, 10, 1, 1 << 20, 1 << 20, 1 << 20)
    zones = plan_scan(shape, near, near[-1][0], near[0][1]).zones
    tile, first, listing, mine = scan_arguments(scores, labels, zones, 0)
    events = Split(N_ROWS * N_CLASSES, np.dtype(np.int32)).columns
    above = np.empty((N_ROWS, zones.n_intervals), np.int32)
    tallies = above, np.empty(N_ROWS, np.int32), zones.no_histogram()
    ranking = ranking_space(scores.shape, 0, scores.dtype)

    def run():
        row_scans.scan_rows(tile, first, listing, events, zones.arrays(), mine, tallies, ranking)

    assert cost(run, N_ROWS, 430) <= 430


def test_count_sets__stays_fast(block):
    scores, _ = block
    keys = encode(scores.reshape(-1)).astype(np.int32)
    found = threshold_keys(scores, range(1, 101))
    mask = (keys >= found[-1]).reshape(scores.shape)
    lengths = mask.sum(1).astype(np.int32)
    part = HeldRows(0, keys[mask.reshape(-1)], lengths, np.full(N_ROWS, -1, np.int32), np.zeros(N_ROWS, np.int32))
    zones = ZoneTable.from_intervals([(key, key) for key in sorted(set(found), reverse=True)], 2**31)
    ties = np.zeros((1, zones.n_intervals), np.int64)

    def run():
        SetCounts.count([part], zones, np.arange(zones.n_intervals), ties)

    with dask.config.set({"avgk.plain-scores": 0}):  # the compiled kernel, not its twin
        assert cost(run, part.keys.size, 9) <= 9


def test_count_lower__stays_fast():
    rng = np.random.default_rng(0)
    a, b = (np.sort(rng.integers(0, 1 << 30, 20_000).astype(np.int32)) for _ in range(2))
    below, above = np.empty(a.size, np.int32), np.empty(b.size, np.int32)
    assert cost(lambda: pairs.count_lower(a, b, below, above), 40_000, 1.15) <= 1.15
