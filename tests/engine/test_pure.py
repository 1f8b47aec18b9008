"""Searches are pure: driven by hand over bands of a matrix in memory, without Dask, their results are those of the definition."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avgk_dask.bands.conformal import Lac
from avgk_dask.engine.plan import ScanShape
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.engine.ties import ExtremesSearch
from avgk_dask.kernels.keys import decode, encode
from avgk_dask.statistics.costs import CostPlan, QuantileSearch
from avgk_dask.statistics.label_ranks import LabelRankSearch, RiskSearch
from avgk_dask.testing import oracle_threshold, strategies


def by_hand(search, scores, labels, cuts):
    """Drive a search over the rows between cuts; return it with the number of passes."""
    n_passes = 0
    while (what := search.next_pass()) is not None:
        bands = range(len(cuts) - 1) if what.bands is None else what.bands
        parts = [(i, slice(cuts[i], cuts[i + 1])) for i in bands]
        states = [
            what.work([scores[rows]], None if labels is None else labels[rows], i, what.plan) for i, rows in parts
        ]
        search, n_passes = search.advance(what.state.merge(states[::-1])), n_passes + 1
        assert n_passes < 40
    return search, n_passes


@st.composite
def matrices(draw):
    scores = draw(strategies.score_matrices(dtypes=("float32",), max_samples=8))
    cuts = sorted({0, len(scores), *draw(st.sets(st.integers(0, len(scores)), max_size=3))})
    return scores, draw(strategies.hard_labels(scores.shape)), cuts


@settings(max_examples=settings().max_examples // 3)
@given(matrices(), st.data(), st.sampled_from([(1000, 0), (2, 0), (1000, 1000)]))
def test_threshold_search__finds_the_definition(drawn, data, room):
    scores, labels, cuts = drawn
    n, c = scores.shape
    ks = sorted({Fraction(data.draw(st.integers(0, n * c)), n) for _ in range(2)} - {Fraction(0)}) or [Fraction(c)]
    max_events, max_held = room
    shape = ScanShape(n, c, scores.dtype, 1, len(cuts) - 1, max_events, max_events, 16, max_held=max_held)
    search, n_passes = by_hand(ThresholdSearch.begin(shape, [int(k * n) for k in ks]), scores, labels, cuts)
    for i, k in enumerate(ks):
        actual, expected = search.selections[i], oracle_threshold(scores, k)
        value = decode([actual.key], scores.dtype)[0]
        assert (value, actual.n_above, actual.n_ties, actual.n_kept) == tuple(expected)[:4]
        assert (actual.set_sizes * np.arange(actual.set_sizes.size)).sum() == int(k * n)
    assert n_passes >= search.n_scans


@settings(max_examples=settings().max_examples // 3)
@given(matrices())
def test_label_ranks__are_those_among_all_scores(drawn):
    scores, labels, cuts = drawn
    search, n_passes = by_hand(LabelRankSearch(scores.dtype, scores.shape[1]), scores, labels, cuts)
    order = np.argsort(-encode(scores).reshape(-1).astype(object), kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(1, order.size + 1)
    labelled = np.flatnonzero(labels >= 0)
    assert sorted(search.ranks()) == sorted(rank.reshape(scores.shape)[labelled, labels[labelled]])
    assert n_passes <= 2


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
@given(matrices(), st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 3), Fraction(2)]))
def test_risk_search__finds_the_least_risk_of_all_thresholds(drawn, cost):
    scores, labels, cuts = drawn
    labels = np.maximum(labels, 0)
    search, _ = by_hand(RiskSearch.begin(cost, scores.dtype, scores.shape[1], soft=False), scores, labels, cuts)
    keys, n = encode(scores), len(scores)
    own = keys[np.arange(n), labels]
    lowest = int(encode(np.array([-np.inf], scores.dtype))[0]) if scores.dtype.kind == "f" else None
    risks = [
        1 - Fraction(int((own >= first).sum()), n) + cost * Fraction(int((keys >= first).sum()), n)
        for first in [*np.unique(keys).tolist(), 2**62]
        if first != lowest
    ]
    assert search.best.risk == min(risks)


def test_extremes__are_those_of_the_lightest_and_heaviest_ties():
    rng = np.random.default_rng(0)
    scores, soft = np.full((30, 4), 0.5), rng.random((30, 4))
    shape = ScanShape(30, 4, scores.dtype, 0, 3, 4, 4, 16)
    cuts = [0, 7, 20, 30]
    actual = by_hand(ThresholdSearch.begin(shape, [50]), scores, soft, cuts)[0].selections
    assert actual[0].extremes is None  # too many ties to keep
    extremes, _ = by_hand(ExtremesSearch.begin(scores.dtype, 4, 4096, actual), scores, soft, cuts)
    weights = sorted(map(Fraction, soft.reshape(-1).tolist()))
    assert extremes.settle(actual)[0].extremes == (sum(weights[:50]), sum(weights[-50:]))


def test_bands__of_any_cut_give_the_same_selection():
    scores = np.random.default_rng(1).integers(0, 9, (40, 5)).astype(np.uint8)
    shape = ScanShape(40, 5, scores.dtype, 0, 1, 1000, 1000, 16)
    outcomes = set()
    for cuts in ([0, 40], [0, 1, 40], list(range(41))):
        search, _ = by_hand(ThresholdSearch.begin(shape, [33, 80]), scores, None, cuts)
        outcomes.add(
            tuple((s.key, s.n_above, s.n_kept, tuple(s.set_sizes)) for _, s in sorted(search.selections.items()))
        )
    assert len(outcomes) == 1


@settings(max_examples=settings().max_examples // 3)
@given(matrices(), st.sampled_from(["", "class"]), st.sampled_from([2, 1000]))
def test_quantile_search__finds_the_label_score_of_a_rank_with_few_bins_too(drawn, by, most_bins):
    scores, labels, cuts = drawn
    n, c = scores.shape
    alpha, n_groups = Fraction(3, 10), c if by else 1
    plan = CostPlan(scores.dtype, c, Lac(scores.dtype), by, most_bins * n_groups, tuple(cuts))
    search, n_passes = by_hand(QuantileSearch(plan, n, n_groups, alpha), scores, labels, cuts)
    levels = search.levels()
    for group in range(n_groups):
        own = sorted(
            (float(scores[i, y]) for i, y in enumerate(labels) if y >= 0 and y == (group if by else y)), reverse=True
        )
        rank = -(-7 * (len(own) + 1) // 10)
        assert (search.counts[group], search.ranks[group]) == (len(own), rank)
        if rank <= len(own):
            assert float(decode([~levels[group]], scores.dtype)[0]) == own[rank - 1]
        else:
            assert levels[group] == plan.method.everything
    assert n_passes == 1 or most_bins == 2
