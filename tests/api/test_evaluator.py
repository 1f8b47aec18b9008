"""``Evaluator``: whatever the batches, the result is that of ``evaluate``, or a refusal that a second run answers."""

from __future__ import annotations

import random
from contextlib import contextmanager
from itertools import pairwise

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.testing import strategies

pytestmark = pytest.mark.filterwarnings("ignore::avgk_dask.ResultWarning")

#: Settings with which a few rows are many: brackets, narrowing, ties counted together and dropped intervals are all met.
TINY = {"avgk.small-scores": 8, "avgk.band-bytes": 16, "avgk.least-events": 4, "avgk.tie-groups": 2}


@contextmanager
def tiny(max_events: int = 1 << 20, **more):
    with dask.config.set({**TINY, "avgk.max-events": max_events, **more}):
        yield


def feed(evaluator, scores, labels=None, bounds=(), **more):
    """Update an evaluator with the rows of an array, split at some of them."""
    edges = sorted({0, len(scores), *(b for b in bounds if b < len(scores))})
    for a, b in pairwise(edges):
        rows = {name: values[a:b] for name, values in more.items()}
        evaluator.update(scores[a:b], None if labels is None else labels[a:b], **rows)
    return evaluator


def settled(make, runs: int = 8):
    """Return the result of the first run that is not refused; each refused one tells the next where to look."""
    like = None
    for _ in range(runs):
        evaluator = make(like)
        try:
            return evaluator.result()
        except avgk.UnsettledError as error:
            assert error.budgets
            like = evaluator
    raise AssertionError("every run was refused")


def same(found, expected) -> None:
    """Hold two results equal in every variable, coordinate and description, and in the attributes that tell of the samples."""
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=str(name))
    told = ("n_samples", "n_classes", "n_labelled", "n_left_out")
    assert {n: found.attrs.get(n) for n in told} == {n: expected.attrs.get(n) for n in told}
    assert found.assign_attrs(expected.attrs).identical(expected)


def probabilities(n, n_classes, seed=0, sharpness=2.0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((n, n_classes))
    scores = np.exp(logits - logits.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    return scores.astype(dtype), rng.integers(-1, n_classes, n)


@st.composite
def loops(draw, nan=False):
    """Draw scores, labels or none, budgets, bounds of batches, and how many events may be held."""
    scores = draw(strategies.score_matrices(max_samples=40, max_classes=6, nan=nan))
    labels = draw(st.none() | strategies.hard_labels(scores.shape))
    budgets = draw(strategies.budgets(scores.shape[1], None if nan else scores))
    bounds = draw(st.lists(st.integers(1, 40), max_size=6))
    return scores, labels, budgets, bounds, draw(st.sampled_from([4, 12, 40, 1 << 20]))


@settings(max_examples=400)
@given(loops(), st.booleans())
def test_results__are_those_of_evaluate_for_any_batches(loop, straddle):
    scores, labels, k, bounds, max_events = loop
    expected = avgk.evaluate(scores, labels, k=k, straddle=straddle)
    with tiny(max_events):
        n_classes = scores.shape[1]
        make = lambda like: feed(avgk.Evaluator(n_classes, k, straddle=straddle, like=like), scores, labels, bounds)  # noqa: E731
        same(settled(make), expected)


@settings(max_examples=100)
@given(loops(nan=True))
def test_results__with_nan_lowest_are_those_of_evaluate(loop):
    scores, labels, k, bounds, max_events = loop
    expected = avgk.evaluate(scores, labels, k=k, straddle=False, nan_policy="lowest")
    with tiny(max_events):
        n_classes = scores.shape[1]
        make = lambda like: feed(  # noqa: E731
            avgk.Evaluator(n_classes, k, nan_policy="lowest", like=like), scores, labels, bounds
        )
        same(settled(make), expected)


def merged_in_a_tree(evaluators, seed):
    """Merge evaluators with their neighbours, in a tree of random shape."""
    rng, left = random.Random(seed), list(evaluators)
    while len(left) > 1:
        i = rng.randrange(len(left) - 1)
        left[i : i + 2] = [left[i].merge(left[i + 1])]
    return left[0]


@settings(max_examples=200)
@given(loops(), st.integers(0, 1 << 16), st.booleans())
def test_merges__in_any_tree_give_what_one_loop_gives(loop, seed, straddle):
    scores, labels, k, bounds, max_events = loop
    expected = avgk.evaluate(scores, labels, k=k, straddle=straddle)
    edges = sorted({0, len(scores), *(b for b in bounds if b < len(scores))})

    def make(like):
        if like is not None:  # a second run is one loop
            return feed(avgk.Evaluator(scores.shape[1], k, straddle=straddle, like=like), scores, labels, bounds)
        parts = []
        for a, b in pairwise(edges):
            part = avgk.Evaluator(scores.shape[1], k, straddle=straddle)
            parts.append(feed(part, scores[a:b], None if labels is None else labels[a:b], [3]))
        return merged_in_a_tree(parts, seed)

    with tiny(max_events):
        same(settled(make), expected)
