"""The compiled kernels equal their plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.bands.rows import Listing, ranking_space
from avgk_dask.engine.events import Split
from avgk_dask.engine.plan import ZoneTable
from avgk_dask.kernels import ROW_LANES as LANES
from avgk_dask.kernels import keys, lanes_for, row_scratch
from avgk_dask.kernels.compiled import rows as row_scans
from avgk_dask.kernels.compiled.events import _find_edge
from avgk_dask.kernels.compiled.ranks import _order_top, _row_floor
from avgk_dask.kernels.dispatch import compiled_kernel, numpy_kernel
from avgk_dask.statistics.label_ranks import EdgeTable
from avgk_dask.testing import strategies

NATIVE = ("float32", "float64", "uint8", "int16", "int32", "int64")


def matrices():
    """Tiny matrices, and some with rows long enough for a first look at lanes."""
    return st.one_of(strategies.score_matrices(NATIVE, nan=True), strategies.wide_matrices(NATIVE, nan=True))


def arrays_in(arguments):
    """Give all arrays among arguments, those in tuples included."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from arrays_in(argument)
        elif isinstance(argument, np.ndarray):
            yield argument


def run_both(name, make):
    """Run a kernel and its twin on equal arguments; return both results and all arrays they were passed."""
    outcomes = []
    for function in (compiled_kernel(name), numpy_kernel(name)):
        arguments = make()
        result = function(*arguments)
        outcomes.append((result, list(arrays_in(arguments))))
    return outcomes


def assert_same(left, right):
    """Assert that arrays, or tuples of them, are equal in values and dtypes; NaN equals NaN."""
    if isinstance(left, tuple | list):
        for x, y in zip(left, right, strict=True):
            assert_same(x, y)
        return
    left, right = np.asarray(left), np.asarray(right)
    assert left.dtype == right.dtype
    assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


@given(data=st.data())
def test_gather_above__equals_its_twin(data):
    scores = data.draw(matrices())
    floor = data.draw(st.sampled_from(list(scores.reshape(-1))))
    if floor != floor:
        floor = scores.dtype.type(0)
    room = data.draw(st.integers(scores.shape[1], scores.size + 5))
    n_rows = data.draw(st.integers(1, scores.shape[0]))
    first = data.draw(st.integers(0, scores.shape[0] - 1))
    n_ranks = data.draw(st.integers(0, scores.shape[1]))
    width = lanes_for(n_ranks, scores.shape[1])
    missing = scores.dtype.type(np.nan if scores.dtype.kind == "f" else 0)

    def make():
        outputs = np.zeros(n_rows + 1, np.int64), np.zeros(room, np.int32), np.zeros(room, np.int64)
        ranked = np.zeros((len(scores), n_ranks), scores.dtype)
        scratch = row_scratch(scores.shape[1], width, scores.dtype)
        tile = scores, *keys.carrier_bits(scores), floor
        return tile, first, (*outputs, scratch), (ranked, width, missing)

    (a, left), (b, right) = run_both("gather_above", make)
    assert tuple(a) == tuple(b)
    (stop, *_), n_listed = a, int(left[2][a[0] - first])
    for x, y in zip([*left[:5], left[-1]], [*right[:5], right[-1]], strict=True):  # all but the scratch
        # Entries after the last listed score have no meaning.
        meant = n_listed if x.shape == (room,) else stop if x.shape == (len(scores), n_ranks) else None
        assert np.array_equal(x[:meant], y[:meant], equal_nan=x.dtype.kind == "f")


@pytest.mark.slow
@given(data=st.data())
def test_find_labels_and_rank_labels__equal_their_twins(data):
    scores = data.draw(strategies.score_matrices(NATIVE, nan=True))
    labels = data.draw(strategies.hard_labels(scores.shape))
    n_ranks = data.draw(st.integers(1, scores.shape[1]))
    floor = data.draw(st.sampled_from(list(scores.reshape(-1))))
    offsets, classes = np.zeros(len(scores) + 1, np.int64), np.zeros(scores.size, np.int32)
    listed = np.zeros(scores.size, np.int64)
    floor = scores.dtype.type(0) if floor != floor else floor
    numpy_kernel("gather_above")(
        (scores, *keys.carrier_bits(scores), floor),
        0,
        (offsets, classes, listed, ()),
        (np.zeros((len(scores), 0)), 0, 0),
    )

    def make():
        return labels, 0, offsets, classes, np.zeros(len(scores), np.int32)

    (_, left), (_, right) = run_both("find_labels", make)
    assert np.array_equal(left[-1], right[-1])
    places = left[-1]

    def make_ranks():
        return scores, labels, places, 0, offsets, listed, n_ranks, np.zeros(len(scores), np.int32)

    (_, left), (_, right) = run_both("rank_labels", make_ranks)
    assert np.array_equal(left[-1], right[-1])


@given(data=st.data())
def test_rank_top__equals_its_twin(data):
    scores = data.draw(matrices())
    r = data.draw(st.integers(1, scores.shape[1] + 2))
    cut = data.draw(st.integers(0, scores.shape[1]))
    results = []
    for function in (compiled_kernel("rank_top"), numpy_kernel("rank_top")):
        n = len(scores)
        top, classes, filled = np.zeros((n, r), scores.dtype), np.full((n, r), -1), np.zeros(n, np.int64)
        for first, slab in ((0, scores[:, :cut]), (cut, scores[:, cut:])):
            width = lanes_for(r, slab.shape[1])
            function(np.ascontiguousarray(slab), first, top, classes, filled, width)
        results.append((top, classes, filled))
    assert_same(*results)


@st.composite
def intervals(draw, low, high):
    """Draw disjoint intervals of keys, descending."""
    ends = sorted(draw(st.sets(st.integers(low, high) | st.just(high), min_size=2, max_size=8)), reverse=True)
    ends = ends[: len(ends) // 2 * 2]
    actual = [(ends[i + 1], ends[i]) for i in range(0, len(ends), 2)]
    return [(b, b) if draw(st.booleans()) else (a, b) for a, b in actual]


@given(data=st.data())
def test_split_rows__equals_its_twin(data):
    edge = data.draw(st.sampled_from([5, 1000, 2**62, keys.KEY_MAX]))
    usual_top = data.draw(st.none() | st.integers(-edge, edge))
    zones = ZoneTable.from_intervals(data.draw(intervals(-edge, edge)), edge, usual_top=usual_top)
    floor = int(zones.floors[-1])
    near = [k for f in zones.floors.tolist() for k in (f - 1, f, f + 1) if floor <= k <= edge]
    key = st.one_of(st.sampled_from([*near, edge]), st.integers(floor, edge))
    rows = data.draw(st.lists(st.lists(key, max_size=60), min_size=1, max_size=4))
    offsets = np.cumsum([0, *map(len, rows)])
    listed = np.array([k for row in rows for k in row], np.int64)
    classes = np.array([j for row in rows for j in range(len(row))], np.int32)
    labels = np.array(data.draw(st.lists(st.integers(-1, 5), min_size=len(rows), max_size=len(rows))), np.int64)

    n_before = data.draw(st.integers(0, 3))
    outcomes = []
    for function in (compiled_kernel("split_rows"), numpy_kernel("split_rows")):
        above = np.zeros((len(rows), zones.n_intervals), np.int32)
        histogram, label_zones = zones.no_histogram(), np.zeros(len(rows), np.int32)
        dtypes = (np.int32, np.int64, np.int32, np.int32, np.int32, np.uint8)
        events = tuple(np.zeros(listed.size + n_before, dtype) for dtype in dtypes)
        arguments = (above, label_zones, histogram), labels, 7, n_before, events
        n = function((listed, classes, offsets), zones.arrays(), *arguments)
        outcomes.append([n, above, histogram, label_zones, *(column[:n] for column in events)])
    for x, y in zip(*outcomes, strict=True):
        assert np.array_equal(x, y)


@given(st.lists(st.integers(0, 4), max_size=40))
def test_group_order__equals_its_twin(groups):
    def make():
        return np.array(groups, np.int32), np.zeros(6, np.int64), np.zeros(len(groups), np.int64)

    (_, left), (_, right) = run_both("group_order", make)
    for x, y in zip(left, right, strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("room", [40, 1000])
@given(data=st.data())
def test_scans__stop_where_room_ends_and_go_on(room, data):
    """Both scans, row runs by row runs, keep what gathering and splitting all rows at once gives."""
    scores = data.draw(strategies.score_matrices(("float32", "uint8"), max_samples=12))
    labels = data.draw(strategies.hard_labels(scores.shape))
    n_rows, n_classes = scores.shape
    tile = (scores, *keys.carrier_bits(scores), scores.min())
    encoded = keys.encode(scores)
    low, high = int(encoded.min()), int(encoded.max())
    zones = ZoneTable.from_intervals([(low, high)], 2**40)
    listing = Listing(n_classes, 0, scores.dtype, 1, 2).arrays()
    places, ranking = np.empty(n_rows, np.int32), (np.zeros((n_rows, 0), scores.dtype), 0, scores.dtype.type(0))
    mine = (labels, places, np.zeros(n_rows, np.int32), n_classes)
    kept = np.empty(room, np.int32), np.empty(n_rows, np.int32)
    row, actual = 0, []
    while row < n_rows:
        histogram = zones.no_histogram()
        row, _, _, n = row_scans.hold_rows(tile, row, listing, kept, zones.arrays(), mine, histogram, ranking)
        actual.append(kept[0][:n].copy())
    assert np.array_equal(np.concatenate(actual), encoded.reshape(-1))
    assert np.array_equal(places, labels)
    events, row, actual = Split(room, np.dtype(np.int32)).columns, 0, []
    ranks, above, label_zones = mine[2].copy(), np.zeros((n_rows, 1), np.int32), np.zeros(n_rows, np.int32)
    while row < n_rows:
        tallies = above, label_zones, zones.no_histogram()
        row, _, _, n = row_scans.scan_rows(tile, row, listing, events, zones.arrays(), mine, tallies, ranking)
        actual.append([column[:n].copy() for column in events])
    _, event_keys, rows, _, classes, hits = (np.concatenate(column) for column in zip(*actual, strict=True))
    assert np.array_equal(event_keys, encoded.reshape(-1))
    assert np.array_equal(rows * n_classes + classes, np.arange(scores.size))
    assert np.array_equal(hits, classes == labels[rows])
    assert np.array_equal(ranks, mine[2])
    assert np.array_equal(label_zones == 1, labels >= 0)


@st.composite
def scans(draw):
    """Draw what both scans take, with little room: a tile, zones, labels, and what makes listing and ranking."""
    scores = draw(matrices())
    n_rows, n_classes = scores.shape
    encoded = np.unique(keys.encode(scores))
    real = encoded[encoded != keys.NAN_KEY].tolist() or [0]
    ends = sorted(draw(st.lists(st.sampled_from(real), min_size=2, max_size=2)))
    labels = draw(strategies.hard_labels(scores.shape))
    n_ranked, n_ranks = draw(st.integers(0, n_classes)), draw(st.integers(0, n_classes))
    zones = ZoneTable.from_intervals([(ends[0], ends[1])], keys.key_range(scores.dtype)[1])
    tile = (scores, *keys.carrier_bits(scores), keys.carrier_floor(ends[0], scores.dtype))

    def make():
        listing = Listing(n_classes, lanes_for(n_ranked, n_classes), scores.dtype, 1, 2).arrays()
        places, ranks = np.zeros((2, n_rows), np.int32)
        return listing, (labels, places, ranks, n_ranks), ranking_space(scores.shape, n_ranked, scores.dtype)

    return tile, zones, make


@pytest.mark.slow
@given(scan=scans(), more=st.integers(0, 40))
def test_keep_rows__equals_its_twin(scan, more):
    tile, zones, make = scan
    outcomes = []
    for function in (compiled_kernel("hold_rows"), numpy_kernel("hold_rows")):
        listing, labels, ranking = make()
        histogram, row, actual = zones.no_histogram(), 0, []
        kept = np.zeros(listing[2].size + more, np.int64), np.zeros(len(tile[0]), np.int32)
        while row < len(tile[0]):
            row, *nan, n = function(tile, row, listing, kept, zones.arrays(), labels, histogram, ranking)
            actual.append((row, nan, n, kept[0][:n].copy()))
        outcomes.append((actual, kept[1], labels[1], labels[2], histogram, ranking[0]))
    assert_same(*outcomes)


@pytest.mark.slow
@given(scan=scans(), more=st.integers(0, 40))
def test_scan_rows__equals_its_twin(scan, more):
    tile, zones, make = scan
    outcomes = []
    for function in (compiled_kernel("scan_rows"), numpy_kernel("scan_rows")):
        listing, labels, ranking = make()
        histogram, label_zones, row, actual = zones.no_histogram(), np.zeros(len(tile[0]), np.int32), 0, []
        above = np.zeros((len(tile[0]), zones.n_intervals), np.int32)
        tallies, events = (above, label_zones, histogram), Split(listing[2].size + more, np.dtype(np.int64)).columns
        while row < len(tile[0]):
            row, *nan, n = function(tile, row, listing, events, zones.arrays(), labels, tallies, ranking)
            actual.append((row, nan, n, [column[:n].copy() for column in events]))
        outcomes.append((actual, labels[1], labels[2], tallies, ranking[0]))
    assert_same(*outcomes)


@pytest.mark.slow
@given(data=st.data())
def test_row_floor__is_reached_by_enough_scores(data):
    row = data.draw(strategies.wide_matrices(NATIVE, nan=True))[0]
    n_ranks = data.draw(st.integers(1, row.size))
    width = lanes_for(n_ranks, row.size)
    lanes, ranks = row_scratch(row.size, width, row.dtype)[2], np.empty(row.size + LANES, np.int32)
    floor, sure = _row_floor(row, n_ranks, width, lanes, ranks)
    maxima = np.array([np.fmax.reduce(row[lane::width]) for lane in range(width)], row.dtype)
    maxima = np.sort(maxima[maxima == maxima])[::-1]
    assert sure == (maxima.size >= n_ranks > 0)
    if sure:
        assert floor == maxima[n_ranks - 1]
        assert np.count_nonzero(row >= floor) >= n_ranks


@given(data=st.data())
def test_order_top__sorts_the_highest(data):
    scores = data.draw(matrices())
    real = scores[scores == scores]
    n, r = data.draw(st.integers(0, real.size)), data.draw(st.integers(1, 20))

    near, ranks = np.zeros(real.size + LANES, real.dtype), np.empty(real.size + LANES, np.int32)
    near[: real.size] = real
    top, taken = np.zeros((2, r), real.dtype), np.zeros(real.size, np.bool_)
    _order_top(near, n, real.dtype.type(7), ranks, np.empty(real.size, real.dtype), taken, top, 1)
    highest = np.sort(real[:n])[::-1][:r].tolist()
    assert top[1].tolist() == highest + [7] * (r - len(highest))
    assert not top[0].any()
    assert not taken.any()


@pytest.mark.slow
@given(data=st.data())
def test_count_sets__equals_its_twin(data):
    dtype, last = data.draw(st.sampled_from([(np.int32, 2**31 - 1), (np.int64, keys.KEY_MAX)]))
    near = st.integers(-3, 3) | st.integers(last - 2, last)
    thresholds = sorted(data.draw(st.sets(near, min_size=1)), reverse=True)
    zones = ZoneTable.from_intervals([(t, t) for t in thresholds], last, usual_top=data.draw(st.integers(-3, 3)))
    listed = data.draw(st.lists(st.lists(st.integers(-4, 4) | near, max_size=9), min_size=1, max_size=5))
    flat, lengths = np.array([k for row in listed for k in row], dtype), np.array([len(r) for r in listed], np.int32)
    places = np.array([data.draw(st.integers(-1, len(row) - 1)) for row in listed], np.int32)
    budgets = np.array(sorted(data.draw(st.lists(st.integers(0, len(thresholds) - 1), min_size=1, max_size=9))))
    left = np.array([data.draw(st.integers(0, 6)) for _ in budgets])
    strata = np.array([data.draw(st.integers(0, 2)) for _ in listed], np.int32)

    def make():
        n = len(budgets)
        outputs = np.zeros((n, 20), np.int64), np.zeros(2 * len(thresholds), np.int64)
        sums = np.zeros((2, 3, n), np.int64)
        return (flat, lengths, places), zones.arrays(), budgets, left.copy(), *outputs, (strata, *sums)

    (_, left_arrays), (_, right_arrays) = run_both("count_sets", make)
    assert_same(left_arrays, right_arrays)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9) | st.just(-(2**63)), max_size=30),
    st.integers(-9, 9) | st.sampled_from([-(2**63), 2**63 - 1]),
    st.integers(0, 3),
    st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_collect_near__equals_its_twin(listed, base, shift, wanted):
    def make():
        return np.array(listed, np.int64), base, shift, np.array(wanted, np.uint8), np.zeros(len(listed), np.int64)

    (a, actual), (b, expected) = run_both("collect_near", make)
    assert a == b
    assert np.array_equal(actual[-1][:a], expected[-1][:a])


def rows_of_events(max_size=12):
    """Draw rows, each a list of keys."""
    return st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=max_size), min_size=1, max_size=6)


@given(data=st.data())
def test_tell_sets__equals_its_twin(data):
    listed = data.draw(st.lists(st.lists(st.integers(-3, 3), max_size=9), min_size=1, max_size=5))
    flat, lengths = np.array([k for row in listed for k in row], np.int32), np.array([len(r) for r in listed], np.int32)
    places = np.array([data.draw(st.integers(-1, len(row) - 1)) for row in listed], np.int32)
    thresholds = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=1, max_size=4)), np.int64)
    left = np.array([data.draw(st.integers(0, 6)) for _ in thresholds])

    def make():
        shape = len(listed), thresholds.size
        return flat, lengths, places, thresholds, left.copy(), np.zeros(shape, np.int32), np.zeros(shape, bool)

    (_, left_arrays), (_, right_arrays) = run_both("measure_sets", make)
    assert_same(left_arrays, right_arrays)


def hits_of(events):
    """Return which events are labels: one in some rows."""
    return np.array([t == i % 4 for i, row in enumerate(events) for t in range(len(row))], np.uint8)


@given(st.data())
def test_add_strata__equals_its_twin(data):
    n_rows, n = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    above, strata = rng.integers(0, 9, (n_rows, n)).astype(np.int32), rng.integers(0, 3, n_rows).astype(np.int32)
    zones = rng.integers(0, 2 * n + 1, n_rows).astype(np.int32)

    def make():
        return above, zones, strata, *np.zeros((2, 3, n), np.int64)

    (_, left), (_, right) = run_both("add_strata", make)
    assert_same(left, right)


@given(rows_of_events(), st.integers(-4, 4), st.integers(0, 20))
def test_move_cells__equals_its_twin(events, key, n_ties):
    listed = np.array([k for row in events for k in row], np.int32)
    places = np.array([i << 40 for i, row in enumerate(events) for _ in row], np.int64)
    bases = np.array([2 * (i % 3) for i, row in enumerate(events) for _ in row], np.int32)

    def make():
        return listed, places, bases, hits_of(events), key, n_ties, np.zeros(40, np.int64)

    (_, left), (_, right) = run_both("move_cells", make)
    for x, y in zip(left, right, strict=True):
        assert np.array_equal(x, y)


@pytest.mark.slow
@given(rows_of_events(max_size=300), st.data())
def test_step_events__equals_its_twin(events, data):
    listed = np.array([k for row in events for k in row], np.int32)
    row_of = np.array([i for i, row in enumerate(events) for _ in row], np.int32)
    bases = np.array([2 * (i % 3) for i, row in enumerate(events) for _ in row], np.int32)
    cut = data.draw(st.integers(0, listed.size))

    def make():
        starts = np.array([0, cut, listed.size])
        return starts, listed, row_of, bases, hits_of(events), np.zeros(listed.size, np.int64)

    (_, left), (_, right) = run_both("step_events", make)
    for x, y in zip(left, right, strict=True):
        assert np.array_equal(x, y)


@given(data=st.data())
def test_place_scores__equals_its_twin(data):
    scores = data.draw(matrices())
    labels = data.draw(strategies.hard_labels(scores.shape))
    own = keys.encode(scores.reshape(-1))
    own = own[own != keys.NAN_KEY]
    more = data.draw(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=3))
    chosen = data.draw(st.lists(st.sampled_from([*own.tolist(), *more]), min_size=1, max_size=12))
    table = EdgeTable.from_edges(np.array(sorted(set(chosen)), np.int64))

    def make():
        counts, orders = np.zeros(table.n_cells, np.int64), np.zeros(len(scores), np.int64)
        arguments = table.edges, table.starts, table.shift, labels, counts, orders
        return (scores, *keys.carrier_bits(scores), *arguments)

    (a, left), (b, right) = run_both("count_at_edges", make)
    assert tuple(a) == tuple(b)
    assert np.array_equal(left[-1], right[-1])
    assert np.array_equal(left[-2], right[-2])


@given(st.data())
def test_find_edge__counts_the_edges_below(data):
    near = st.integers(-9, 9) | st.integers(keys.KEY_MIN, keys.KEY_MAX) | st.sampled_from([keys.KEY_MIN, keys.KEY_MAX])
    edges = np.array(sorted(data.draw(st.sets(near, min_size=1, max_size=9))), np.int64)
    table, key = EdgeTable.from_edges(edges), data.draw(near | st.sampled_from(edges.tolist()))
    assert _find_edge(table.edges, table.starts, table.shift, np.int64(key)) == np.searchsorted(edges, key)


@given(data=st.data())
def test_rank_in_row__equals_its_twin(data):
    scores = data.draw(matrices())
    labels = data.draw(strategies.hard_labels(scores.shape))
    (a, left), (b, right) = run_both("rank_in_row", lambda: (scores, labels, np.zeros(len(scores), np.int64)))
    assert tuple(a) == tuple(b)
    assert np.array_equal(left[-1], right[-1])


columns = st.lists(st.integers(-8, 8), max_size=40).map(lambda values: np.array(sorted(values), np.int32))


@given(columns, columns)
def test_count_lower__equals_its_twin(a, b):
    (x, left), (y, right) = run_both(
        "count_lower", lambda: (a, b, np.zeros(a.size, np.int32), np.zeros(b.size, np.int32))
    )
    assert x == y
    for mine, other in zip(left, right, strict=True):
        assert np.array_equal(mine, other)


@given(st.data())
def test_add_products__equals_its_twin(data):
    mantissa_bits, top = data.draw(st.sampled_from([(0, keys.KEY_MAX), (10, 0x7BFF), (23, 0x7F7FFFFF), (52, 2**62)]))
    near = [0, 1, 1 << mantissa_bits, (1 << mantissa_bits) - 1, top]
    key = st.one_of(st.sampled_from(near), st.integers(0, top)).flatmap(lambda k: st.sampled_from([k, -k]))
    column = np.array(sorted(data.draw(st.lists(key, max_size=30))), np.int64)
    counts = np.array(data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=column.size, max_size=column.size)))
    base = np.int64(column[0] if column.size else 0)

    def make():
        return (column, counts.astype(np.int32), mantissa_bits, base, np.zeros((60, 2), np.int64),
                np.zeros((60, 4), np.uint64))  # fmt: skip

    (n, left), (m, right) = run_both("add_products", make)
    assert n == m
    assert np.array_equal(left[-2][:n], right[-2][:n])
    assert np.array_equal(left[-1][:n], right[-1][:n])


@given(st.lists(st.integers(keys.KEY_MIN, keys.KEY_MAX), max_size=30), st.integers(-(2**40), 2**40), st.integers(0, 60))
def test_count_bins__equals_its_twin(values, base, shift):
    values = np.array(values, np.int64)
    (_, left), (_, right) = run_both("count_bins", lambda: (values, base, shift, np.zeros(16, np.int64)))
    assert np.array_equal(left[-1], right[-1])


@pytest.mark.parametrize("infinity", [0x7C00, 0x7F80])
def test_half_keys__equals_its_twin_on_every_half_float(infinity):
    bits = np.arange(-(2**15), 2**15, dtype=np.int16)
    (_, left), (_, right) = run_both("half_keys", lambda: (bits, np.int16(infinity), np.int16(-(2**15)), bits.copy()))
    assert np.array_equal(left[-1], right[-1])


def ascending():
    """Keys of either sign, close together and far apart, some of them equal."""
    near = st.integers(-20, 20)
    return st.lists(st.one_of(near, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30).map(sorted)


@given(ascending())
def test_count_apart__equals_its_twin(actual):
    (_, left), (_, right) = run_both("count_apart", lambda: (np.array(actual, np.int64), np.zeros(65, np.int64)))
    assert np.array_equal(left[1], right[1])


@given(ascending(), st.integers(0, 20), st.integers(0, 40), st.booleans(), st.randoms(use_true_random=False))
def test_join_bins__equals_its_twin(actual, old_shift, more, counted, random):
    bins = sorted(key >> old_shift for key in actual)
    order = random.sample(range(len(bins)), len(bins)) if counted else []

    def make():
        sums = np.arange(3 * len(order), dtype=np.int64).reshape(3, -1)
        room = np.zeros(len(bins), np.int64), np.zeros((3, len(bins)), np.int64)
        return np.array(bins, np.int64), np.array(order, np.int64), sums, old_shift, old_shift + more, 26, *room

    (n, left), (m, right) = run_both("join_bins", make)
    assert n == m
    assert np.array_equal(left[-2][:n], right[-2][:n])
    assert np.array_equal(left[-1][:, :n], right[-1][:, :n])


@given(st.integers(1, 5), st.lists(st.integers(0, 7), max_size=40))
def test_count_cells__equals_its_twin(width, actual):
    above = np.array(actual[: len(actual) // width * width], np.int32).reshape(-1, width)
    zones = np.arange(len(above), dtype=np.int32) % (2 * width + 1)
    (_, left), (_, right) = run_both("count_cells", lambda: (above.copy(), zones, np.zeros((width, 16), np.int64)))
    assert np.array_equal(left[2], right[2])


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1) | st.sampled_from([5e-324, 2.0**-1022])), max_size=20))
def test_add_exact__equals_its_twin(added):
    groups, values = np.array([g for g, _ in added], np.int64), np.array([x for _, x in added], np.float64)
    (_, left), (_, right) = run_both("add_exact", lambda: (values.view(np.int64), groups, np.zeros((3, 36), np.int64)))
    assert_same(left[-1], right[-1])


@pytest.mark.parametrize("find", [compiled_kernel, numpy_kernel])
@given(values=st.lists(st.one_of(st.floats(0, 1), st.sampled_from([5e-324, 1.0, 0.0])), max_size=20))
def test_add_exact__sums_without_rounding(find, values):
    from fractions import Fraction

    limbs = np.zeros((1, 36), np.int64)
    find("add_exact")(np.array(values, np.float64).view(np.int64), np.zeros(len(values), np.int64), limbs)
    total = sum(int(limb) << (32 * i) for i, limb in enumerate(limbs[0]))
    assert Fraction(total, 1 << 1074) == sum(map(Fraction, values), Fraction(0))


@given(data=st.data())
def test_find_brackets__equals_its_twin(data):
    n = data.draw(st.integers(1, 6))
    lengths = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.int32)
    keys = np.array(
        data.draw(st.lists(st.integers(-9, 9), min_size=int(lengths.sum()), max_size=int(lengths.sum()))), np.int32
    )
    groups, samples = np.arange(n, dtype=np.int32) % 3, np.arange(n) + 5
    # The first group has stretches of keys, the second one key in stretches of samples, the third none.
    low, high = np.array([[-9, -3, 2, 2], [-5, 4, 2, 2]])
    first, last = np.array([[0, 0, 0, 7], [99, 99, 6, 8]])
    actual = [np.full(keys.size, -7) for _ in range(2)]
    for kernel, out in zip((compiled_kernel, numpy_kernel), actual, strict=True):
        kernel("find_brackets")(keys, lengths, groups, samples, np.array([0, 2, 4, 4]), (low, high, first, last), out)
    assert actual[0].tolist() == actual[1].tolist()


@given(data=st.data())
def test_scatter_rows__equals_its_twin(data):
    n = data.draw(st.integers(1, 6))
    lengths = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.int32)
    labels = np.array([data.draw(st.integers(-1, max(length - 1, -1))) for length in lengths.tolist()], np.int32)
    groups = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups, lengths, 3))]).astype(np.int64)
    keys, actual = np.arange(lengths.sum(), dtype=np.int32), []
    for kernel in (compiled_kernel, numpy_kernel):
        nexts, scattered, places = starts[:-1].copy(), np.full(keys.size, -1, np.int32), np.zeros(n, np.int64)
        kernel("scatter_rows")(keys, lengths, labels, groups, nexts, scattered, places)
        actual.append([of.tolist() for of in (nexts, scattered, places)])
    assert actual[0] == actual[1]
    assert actual[0][0] == starts[1:].tolist()
    assert sorted(actual[0][1]) == keys.tolist()
