"""Histograms of keys: any order of merging gives the same, and sums over pairs are certified."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.engine.ranked import KeyHistogram
from avgk_dask.kernels.keys import encode
from avgk_dask.statistics.straddle import BinnedColumn, SortedColumn

keys = st.lists(st.integers(-(2**40), 2**40) | st.integers(-20, 20), min_size=1, max_size=60)


def parts_of(values, cuts):
    return [part for part in np.split(np.array(values, np.int64), sorted(cuts)) if part.size]


@given(keys, st.lists(st.integers(0, 60), max_size=5), st.integers(2, 12), st.randoms(use_true_random=False))
def test_key_histogram__does_not_depend_on_the_order_of_merging(values, cuts, room, random):
    whole = KeyHistogram.from_keys(np.array(values, np.int64), room)
    parts = [KeyHistogram.from_keys(part, room) for part in parts_of(values, cuts)]
    random.shuffle(parts)
    while len(parts) > 1:
        parts = [KeyHistogram.merge(parts[:2]), *parts[2:]]
        random.shuffle(parts)
    merged = parts[0]
    assert (merged.shift, merged.lowest, merged.highest) == (whole.shift, whole.lowest, whole.highest)
    for name in ("bins", "sums"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name)), name
    starts = (merged.bins << merged.shift).astype(object)
    assert (starts * merged.counts + merged.offset_sums()).sum() == sum(values)
    assert merged.bins.size <= room


def by_definition(a, b):
    return sum((max(Fraction(x) - Fraction(y), Fraction(0)) for x in a for y in b), Fraction(0))


@given(st.data())
def test_pair_sum__of_bins_is_within_its_certified_error(data):
    dtype = np.dtype(data.draw(st.sampled_from(["int64", "float32", "float64"])))
    # Floats within one power of two, where any bins are linear; integers are so everywhere.
    element = st.integers(-500, 500) if dtype.kind == "i" else st.floats(1, 2, exclude_max=True, width=32)
    a, b = (np.array(data.draw(st.lists(element, min_size=1, max_size=25)), dtype) for _ in range(2))
    room = data.draw(st.integers(2, 30))
    binned = [BinnedColumn(KeyHistogram.from_keys(encode(x), room), dtype) for x in (a, b)]
    actual = binned[0].pairs_above(binned[1])
    total, n_pairs = by_definition(a.tolist(), b.tolist()), sum(x > y for x in a.tolist() for y in b.tolist())
    assert abs(actual.total - total) <= actual.total_error
    assert abs(actual.n_pairs - n_pairs) <= actual.n_pairs_error
    exact = SortedColumn(np.sort(encode(a)), dtype).pairs_above(SortedColumn(np.sort(encode(b)), dtype))
    assert (exact.total, exact.n_pairs, exact.total_error) == (total, n_pairs, 0)


def test_pair_sum__of_negative_and_subnormal_floats():
    values = np.array([-1.5, -1.0, -5e-324, 0.0, 5e-324, 2.2250738585072014e-308, 1.0, 1.7976931348623157e308])
    expected = by_definition(values.tolist(), values.tolist())
    column = SortedColumn(encode(values), values.dtype)
    assert column.pairs_above(column).total == expected
    binned = BinnedColumn(KeyHistogram.from_keys(encode(values), 4096), values.dtype)
    assert binned.pairs_above(binned).total == expected


@pytest.mark.parametrize("room", [2, 3, 5000])
def test_key_histogram__sums_of_the_widest_bins_do_not_overflow(room):
    """Offsets of up to 63 bits, thousands of them in one bin."""
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20_000)
    parts = [KeyHistogram.from_keys(part, room) for part in np.array_split(keys, 3)]
    for actual in (KeyHistogram.from_keys(keys, room), KeyHistogram.merge(parts)):
        starts = (actual.bins << actual.shift).astype(object)
        assert (starts * actual.counts.astype(object) + actual.offset_sums()).sum() == sum(keys.tolist())
