"""``Evaluator``: whatever the batches, the result is that of ``evaluate``, or a refusal that a second run answers."""

from __future__ import annotations

import pickle
import random
from contextlib import contextmanager
from itertools import pairwise

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.testing import strategies

pytestmark = pytest.mark.filterwarnings("ignore::avgk_dask.ResultWarning")

#: Settings with which a few rows are many: brackets, narrowing, ties counted together and dropped intervals are all met.
TINY = {"avgk.small-scores": 8, "avgk.task-bytes": 16, "avgk.least-events": 4, "avgk.tie-groups": 2}


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


def settled(make, runs: int = 12):
    """Return the result of the first run that settles; each failed run passes its hints to the next."""
    like, unsettled = None, ("all",)
    for _ in range(runs):
        assert unsettled
        evaluator = make(like)
        try:
            return evaluator.result()
        except avgk.UnsettledError as error:
            like, unsettled = evaluator, error.budgets
    raise AssertionError("every run was refused")


def same(result, expected) -> None:
    """Compare every variable, coordinate and description of two results, and their attributes about samples."""
    for name in expected.variables:
        assert result[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(result[name].values, expected[name].values, err_msg=str(name))
    report = ("n_samples", "n_classes", "n_labelled", "n_left_out")
    assert {n: result.attrs.get(n) for n in report} == {n: expected.attrs.get(n) for n in report}
    assert result.assign_attrs(expected.attrs).identical(expected)


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
    return scores, labels, budgets, bounds, draw(st.sampled_from([8, 16, 40, 1 << 20]))


@pytest.mark.slow
@given(loops(), st.booleans())
def test_results__are_those_of_evaluate_for_any_batches(loop, straddle):
    scores, labels, k, bounds, max_events = loop
    expected = avgk.evaluate(scores, labels, k=k, straddle=straddle)
    with tiny(max_events):
        n_classes = scores.shape[1]
        make = lambda like: feed(avgk.Evaluator(n_classes, k, straddle=straddle, like=like), scores, labels, bounds)  # noqa: E731
        same(settled(make), expected)


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


@given(loops(nan=True))
def test_results__by_class_are_those_of_breakdown(loop):
    scores, labels, k, bounds, max_events = loop
    labels = np.arange(len(scores)) % scores.shape[1] if labels is None else labels
    expected = avgk.breakdown(scores, labels, k=k, nan_policy="lowest")
    with tiny(max_events):
        n_classes = scores.shape[1]
        make = lambda like: feed(  # noqa: E731
            avgk.Evaluator(n_classes, k, nan_policy="lowest", by="class", like=like), scores, labels, bounds
        )
        same(settled(make), expected)


@pytest.mark.slow
@given(loops(nan=True), st.data(), st.sampled_from([0, 2**31 - 4]))
def test_results__with_clusters_are_those_of_evaluate(loop, data, first):
    scores, labels, k, bounds, max_events = loop
    labels = np.arange(len(scores)) % scores.shape[1] if labels is None else labels
    clusters = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(scores), max_size=len(scores))))
    expected = avgk.evaluate(scores, labels, k=k, straddle=False, nan_policy="lowest", clusters=clusters)
    numbers = clusters + first  # any numbers will do
    split = data.draw(st.integers(1, 40))

    def make(like):
        options = {"nan_policy": "lowest", "like": like}
        whole = avgk.Evaluator(scores.shape[1], k, **options)
        if like is not None or split >= len(scores):
            return feed(whole, scores, labels, bounds, clusters=numbers)
        feed(whole, scores[:split], labels[:split], bounds, clusters=numbers[:split])
        rest = avgk.Evaluator(scores.shape[1], k, **options)
        return whole.merge(feed(rest, scores[split:], labels[split:], [3], clusters=numbers[split:]))

    with tiny(max_events):
        result = settled(make)
    same(result, expected)
    assert result.attrs["n_clusters"] == np.unique(clusters).size


def test_clusters__of_many_batches_are_saved_and_padding_has_none(tmp_path):
    scores, labels = probabilities(900, 5)
    clusters = np.arange(900) // 7
    exists = clusters % 3 > 0
    expected = avgk.evaluate(scores, labels, k=[1, 2.5], straddle=False, where=exists, clusters=clusters)
    assert not expected.equals(avgk.evaluate(scores, labels, k=[1, 2.5], straddle=False, where=exists))
    result = np.where(exists, clusters, -9)
    with tiny():
        evaluator = avgk.Evaluator(5, [1, 2.5])
        for first in range(0, 900, 90):
            part = np.s_[first : first + 90]
            lead = (9, 10)
            rows = {"where": exists[part].reshape(lead), "clusters": result[part].reshape(lead)}
            evaluator.update(scores[part].reshape(*lead, 5), labels[part].reshape(lead), **rows)
            evaluator.save(tmp_path / "saved")
            evaluator = avgk.Evaluator.load(tmp_path / "saved")
        same(evaluator.result(), expected)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"labels": None}, avgk.LabelsError, "labels must be class numbers for clusters; got none"),
        ({"labels": np.eye(3, 5)}, avgk.LabelsError, "labels must be class numbers for clusters; got a matrix"),
        ({"clusters": [0.5, 1, 2]}, avgk.DtypeError, "clusters must be integers; got dtype float64"),
        ({"clusters": [1, 2]}, avgk.LabelsError, r"clusters must have the samples' shape \(3,\); got shape \(2,\)"),
        ({"clusters": [1, -2, 3]}, avgk.LabelsError, r"clusters must be from 0 to 2\*\*31 - 1; got -2"),
        ({"clusters": [1, 2, 1 << 31]}, avgk.LabelsError, r"clusters must be from 0 to 2\*\*31 - 1; got 2147483648"),
        ({"clusters": None}, avgk.LabelsError, "got hard labels after hard labels with clusters"),
    ],
)
def test_clusters__that_do_not_fit_are_refused(given, error, text):
    evaluator = avgk.Evaluator(5, 2)
    usual = {"labels": [0, 1, 2], "clusters": [0, 0, 1]}
    evaluator.update(np.ones((3, 5)), **usual)
    with pytest.raises(error, match=text):
        evaluator.update(np.ones((3, 5)), **usual | given)
    assert evaluator.n_samples == 3


def merged_in_a_tree(evaluators, seed):
    """Merge evaluators with their neighbours, in a tree of random shape."""
    rng, left = random.Random(seed), list(evaluators)
    while len(left) > 1:
        i = rng.randrange(len(left) - 1)
        left[i : i + 2] = [left[i].merge(left[i + 1])]
    return left[0]


@pytest.mark.slow
@given(loops(), st.integers(0, 1 << 16), st.booleans())
def test_merges__in_any_tree_give_the_result_of_one_loop(loop, seed, straddle):
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


@pytest.mark.slow
@given(st.data(), st.sampled_from([6, 40, 1 << 20]))
def test_results__with_soft_labels_are_those_of_evaluate_or_refused(data, max_events):
    scores = data.draw(strategies.score_matrices(("float32", "float64"), max_samples=25, max_classes=5))
    labels = data.draw(strategies.soft_labels(scores.shape))
    k = data.draw(strategies.budgets(scores.shape[1]))
    expected = avgk.evaluate(scores, labels, k=k, straddle=False)
    with tiny(max_events):
        evaluator = feed(avgk.Evaluator(scores.shape[1], k), scores, labels, [3, 11, 12])
        try:
            same(evaluator.result(), expected)
        except avgk.UnsettledError:
            assert max_events < 1 << 20 or len(np.unique(scores)) < scores.size


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
def test_results__of_many_batches_take_one_loop(dtype):
    scores, labels = probabilities(3000, 40)
    scores = (250 * scores).astype(np.uint8) if dtype == "uint8" else scores.astype(dtype)
    with tiny(**{"avgk.task-bytes": 4000, "avgk.small-scores": 1000}):
        for straddle in (False, True):
            evaluator = feed(avgk.Evaluator(40, straddle=straddle), scores, labels, range(0, 3000, 64))
            expected = avgk.evaluate(scores, labels, straddle=straddle)
            assert evaluator._state.scan.scan.n_bands > 20
            same(evaluator.result(), expected)


def test_results__can_be_asked_for_at_any_time():
    scores, labels = probabilities(900, 20)
    with tiny(**{"avgk.task-bytes": 4000}):
        evaluator = avgk.Evaluator(20, [1, 2.5])
        for first in range(0, 900, 100):
            feed(evaluator, scores[first : first + 100], labels[first : first + 100])
            n = first + 100
            assert evaluator.n_samples == n
            same(evaluator.result(), avgk.evaluate(scores[:n], labels[:n], k=[1, 2.5], straddle=False))


@pytest.mark.slow
def test_results__of_narrowed_brackets_are_those_of_evaluate():
    scores, labels = probabilities(20_000, 20)
    with tiny(20_000, **{"avgk.task-bytes": 8000}):
        evaluator = feed(avgk.Evaluator(20, [1, 2]), scores, labels, range(0, 20_000, 500))
        assert len(evaluator._state.scan.scan.waves) > 1
        same(evaluator.result(), avgk.evaluate(scores, labels, k=[1, 2], straddle=False))


def test_results__with_few_ranked_bytes_have_the_bins_of_evaluate():
    scores, labels = probabilities(12_000, 20)
    with dask.config.set({"avgk.ranked-bytes": 20_000, "avgk.ranked-bins": 1 << 9}):
        expected = avgk.evaluate(scores, labels, k=[1, 2])
        assert (expected.straddle_strength_error > 0).any()
        with tiny(**{"avgk.task-bytes": 8000}):
            evaluator = feed(avgk.Evaluator(20, [1, 2], straddle=True), scores, labels, range(0, 12_000, 300))
            same(evaluator.result(), expected)


@pytest.mark.sample(1)
@pytest.mark.parametrize("order", ["falling", "rising"])
def test_drift__is_refused_and_a_second_run_succeeds(order):
    scores, labels = probabilities(4000, 30, sharpness=3.0)
    by_confidence = np.argsort(scores.max(1))[:: -1 if order == "falling" else 1]
    scores, labels = scores[by_confidence], labels[by_confidence]
    with tiny(8000, **{"avgk.task-bytes": 6000}):
        first = feed(avgk.Evaluator(30, [1, 2, 5]), scores, labels, range(0, 4000, 100))
        with pytest.raises(avgk.UnsettledError, match=r"k = .* was not retained .*like=first") as caught:
            first.result()
        assert set(caught.value.budgets) <= {1.0, 2.0, 5.0}
        second = feed(avgk.Evaluator(30, [1, 2, 5], like=first), scores, labels, range(0, 4000, 77))
        same(second.result(), avgk.evaluate(scores, labels, k=[1, 2, 5], straddle=False))


def test_drift__between_processes_is_answered_by_second_runs_in_both():
    scores, labels = probabilities(4000, 30, sharpness=3.0)
    by_confidence = np.argsort(scores.max(1))
    scores, labels = scores[by_confidence], labels[by_confidence]
    halves = [(scores[part], labels[part]) for part in (np.s_[:2000], np.s_[2000:])]
    with tiny(8000, **{"avgk.task-bytes": 6000}):

        def make(like):
            first, second = (avgk.Evaluator(30, [1, 5], like=like) for _ in halves)
            return feed(first, *halves[0], range(0, 2000, 90)).merge(feed(second, *halves[1]))

        with pytest.raises(avgk.UnsettledError):
            make(None).result()
        same(settled(make), avgk.evaluate(scores, labels, k=[1, 5], straddle=False))


def test_ties__too_many_to_hold_are_refused_and_a_second_run_takes_them_in_order():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 4, (5000, 10), np.uint8), rng.integers(0, 10, 5000)
    expected = avgk.evaluate(scores, labels, k=[2.2, 4], straddle=False)
    assert (expected.n_kept > 0).all()
    with tiny(1000, **{"avgk.task-bytes": 2000}):
        first = feed(avgk.Evaluator(10, [2.2, 4]), scores, labels, range(0, 5000, 100))
        with pytest.raises(avgk.UnsettledError, match="ends among ties that were counted together"):
            first.result()
        second = feed(avgk.Evaluator(10, [2.2, 4], like=first), scores, labels, range(0, 5000, 1234))
        same(second.result(), expected)
        halves = [avgk.Evaluator(10, [2.2, 4], like=first) for _ in range(2)]
        parts = [
            feed(half, scores[part], labels[part])
            for half, part in zip(halves, (np.s_[:2500], np.s_[2500:]), strict=True)
        ]
        with pytest.raises(avgk.UnsettledError):  # which of the second half's ties are kept, its process cannot know
            parts[0].merge(parts[1]).result()


@pytest.mark.slow
def test_memory__does_not_grow_with_the_number_of_samples():
    sizes = []
    with tiny(60_000, **{"avgk.task-bytes": 1 << 16}):
        evaluator, n = avgk.Evaluator(50, [1, 5]), 0
        for expected in (20_000, 80_000, 320_000):
            most = 0
            while n < expected:
                evaluator.update(*probabilities(2000, 50, seed=n))
                most, n = max(most, evaluator.n_bytes), n + 2000
            sizes.append(most)
    assert max(sizes) < 2 * sizes[0]  # tallies of bands come on top, by the logarithm of their number
    assert max(sizes) < 60_000 * 17 + (1 << 20)


class Tensor:
    """A tensor as torch and JAX have them, which NumPy reads through DLPack."""

    def __init__(self, values):
        self._values = values

    def detach(self):
        return self

    cpu = detach

    def __array__(self, dtype=None, copy=None):
        raise TypeError("only through DLPack")

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


def test_batches__are_taken_as_they_are_given():
    scores, labels = probabilities(60, 5)
    expected = avgk.evaluate(scores, labels, k=2, straddle=False)
    evaluator = avgk.Evaluator(5, 2)
    evaluator.update(Tensor(scores[:20]), Tensor(labels[:20]))
    evaluator.update(np.asfortranarray(scores[20:40]), labels[20:40].tolist())
    evaluator.update(scores[40:].reshape(4, 5, 5), labels[40:].reshape(4, 5))
    evaluator.update(scores[:0], labels[:0])
    assert pickle.loads(pickle.dumps(evaluator)).n_samples == 60
    same(evaluator.result(), expected)


def test_batches__may_be_changed_afterwards():
    scores, labels = probabilities(60, 5)
    evaluator, space = avgk.Evaluator(5, 2), np.empty((20, 5), np.float32)
    for first in range(0, 60, 20):
        space[:] = scores[first : first + 20]
        evaluator.update(space, labels[first : first + 20])
    same(evaluator.result(), avgk.evaluate(scores, labels, k=2, straddle=False))


@pytest.mark.parametrize("settings_", [{}, TINY])
def test_samples__that_do_not_exist_are_left_out(settings_):
    scores, labels = probabilities(200, 6)
    exists = np.random.default_rng(1).random(200) < 0.6
    scores[~exists], labels[~exists] = np.nan, 99
    labels[5], exists[5] = -100, True
    scores[5] = 0.1
    expected = avgk.evaluate(scores, labels, k=[1, 3], straddle=False, where=exists, ignore_index=-100)
    with dask.config.set(settings_):
        evaluator = avgk.Evaluator(6, [1, 3])
        for a in range(0, 200, 17):
            part = slice(a, a + 17)
            evaluator.update(scores[part], labels[part], where=exists[part], ignore_index=-100)
        same(evaluator.result(), expected)


@pytest.mark.slow
@given(loops(), st.integers(0, 40))
def test_files__hold_all_that_is_known(tmp_path_factory, loop, cut):
    scores, labels, k, bounds, max_events = loop
    path = tmp_path_factory.mktemp("saved") / "evaluator.avgk"
    with tiny(max_events):
        whole = feed(avgk.Evaluator(scores.shape[1], k, straddle=True), scores, labels, bounds)
        begun = avgk.Evaluator(scores.shape[1], k, straddle=True)
        if cut:
            feed(begun, scores[:cut], None if labels is None else labels[:cut], bounds)
        begun.save(path)
        rest = avgk.Evaluator.load(path)
        assert (rest.n_samples, repr(rest)) == (begun.n_samples, repr(begun))
        feed(rest, scores[cut:], None if labels is None else labels[cut:]) if cut < len(scores) else None
        results = []
        for evaluator in (whole, rest):
            try:
                results.append(evaluator.result())
            except avgk.UnsettledError as error:
                results.append(error.budgets)
        if isinstance(results[0], tuple):
            assert isinstance(results[1], tuple)
        else:
            same(results[1], results[0])


def test_files__of_a_second_run_go_on(tmp_path):
    scores = np.random.default_rng(0).integers(0, 4, (2000, 10), np.uint8)
    with tiny(500, **{"avgk.task-bytes": 2000}):
        first = feed(avgk.Evaluator(10, 2.2), scores, None, range(0, 2000, 100))
        with pytest.raises(avgk.UnsettledError):
            first.result()
        first.save(tmp_path / "first")
        second = avgk.Evaluator(10, 2.2, like=avgk.Evaluator.load(tmp_path / "first"))
        second.save(tmp_path / "second")
        second = feed(avgk.Evaluator.load(tmp_path / "second"), scores[:700])
        second.save(tmp_path / "second")
        same(
            feed(avgk.Evaluator.load(tmp_path / "second"), scores[700:]).result(),
            avgk.evaluate(scores, k=2.2, straddle=False),
        )


def test_files__may_be_anywhere():
    scores, labels = probabilities(60, 5)
    feed(avgk.Evaluator(5, 2), scores, labels).save("memory://evaluators/first.avgk")
    same(
        avgk.Evaluator.load("memory://evaluators/first.avgk").result(),
        avgk.evaluate(scores, labels, k=2, straddle=False),
    )


def test_files__that_are_damaged_or_absent_are_refused(tmp_path):
    path = tmp_path / "evaluator.avgk"
    feed(avgk.Evaluator(5, 2), *probabilities(60, 5)).save(path)
    data = path.read_bytes()
    for bad in (data[:-1], data[:100] + b"x" + data[101:], b"", b"PK"):
        path.write_bytes(bad)
        with pytest.raises(avgk.ReadError, match="damaged"):
            avgk.Evaluator.load(path)
    with pytest.raises(avgk.ReadError, match="absent or damaged"):
        avgk.Evaluator.load(tmp_path / "none")
    with pytest.raises(avgk.OptionError, match="path must be a file path"):
        avgk.Evaluator(5, 2).save("")


def test_merges__leave_the_other_as_it_was_and_refuse_other_options():
    scores, labels = probabilities(100, 5)
    a, b = (feed(avgk.Evaluator(5, 2), scores[part], labels[part]) for part in (np.s_[:30], np.s_[30:]))
    before = b.result()
    assert a.merge(b) is a
    same(a.result(), avgk.evaluate(scores, labels, k=2, straddle=False))
    assert b.result().identical(before)
    for other in (avgk.Evaluator(5, 3), avgk.Evaluator(4, 2), avgk.Evaluator(5, 2, straddle=True)):
        with pytest.raises(avgk.OptionError, match="other must have the same options; got n_classes="):
            a.merge(other)
        with pytest.raises(avgk.OptionError, match="like must have the same options; got n_classes="):
            avgk.Evaluator(5, 2, like=other)
    with pytest.raises(avgk.DtypeError, match="scores must be float32, as in the first batch; got float64"):
        a.merge(feed(avgk.Evaluator(5, 2), scores.astype(float), labels))
    with pytest.raises(avgk.LabelsError, match="of one kind"):
        a.merge(feed(avgk.Evaluator(5, 2), scores))
    with pytest.raises(avgk.OptionError, match="other must be an Evaluator; got int"):
        a.merge(3)
    with pytest.raises(avgk.OptionError, match="other must be a different Evaluator"):
        a.merge(a)
    with pytest.raises(avgk.OptionError, match="like must be an Evaluator; got str"):
        avgk.Evaluator(5, 2, like="a")
    same(a.merge(avgk.Evaluator(5, 2)).result(), avgk.evaluate(scores, labels, k=2, straddle=False))


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        ((np.ones((3, 4)),), avgk.ScoresError, r"a batch of scores must have the shape \(samples, 5\)"),
        ((np.ones((3, 5), complex),), avgk.DtypeError, "real numbers"),
        ((np.ones((3, 5), np.float32), [0, 1, 5]), avgk.LabelsError, "got 5 at sample 12"),
        ((np.ones((3, 5), np.float32), [0, 1]), avgk.LabelsError, "labels must be 3 integers"),
        ((np.ones((3, 5), np.float32),), avgk.LabelsError, "got no labels after hard labels"),
        ((np.ones((3, 5)), [0, 1, 2]), avgk.DtypeError, "scores must be float32, as in the first batch"),
    ],
)
def test_batches__that_do_not_fit_are_refused_and_change_nothing(batch, error, text):
    scores, labels = probabilities(10, 5)
    evaluator = feed(avgk.Evaluator(5, 2), scores, labels)
    with pytest.raises(error, match=text):
        evaluator.update(*batch)
    assert evaluator.n_samples == 10
    same(evaluator.result(), avgk.evaluate(scores, labels, k=2, straddle=False))


@pytest.mark.parametrize("settings_", [{}, TINY])
def test_nan__is_refused_by_the_number_of_its_sample(settings_):
    scores, labels = probabilities(100, 5)
    scores[71, 3] = np.nan
    with dask.config.set(settings_), pytest.raises(avgk.ScoresError, match="the first at sample 71, class 3"):
        feed(avgk.Evaluator(5, 2), scores, labels, range(0, 100, 20)).result()


def test_options__out_of_range_are_refused():
    for n_classes in (0, 2.5, "3", True):
        with pytest.raises(avgk.OptionError, match="n_classes must be a positive integer"):
            avgk.Evaluator(n_classes)
    with pytest.raises(avgk.BudgetError):
        avgk.Evaluator(5, 6)
    with pytest.raises(avgk.OptionError, match="nan_policy"):
        avgk.Evaluator(5, nan_policy="drop")
    for options in ({"by": "group"}, {"by": "class", "straddle": True}):
        with pytest.raises(avgk.OptionError, match="by must be None, or 'class' with straddle=False"):
            avgk.Evaluator(5, **options)
    with pytest.raises(avgk.LabelsError, match="class numbers without clusters for by='class'; got no labels"):
        avgk.Evaluator(5, by="class").update(np.ones((2, 5)))
    with pytest.raises(
        avgk.LabelsError, match="class numbers without clusters for by='class'; got hard labels with clusters"
    ):
        avgk.Evaluator(5, by="class").update(np.ones((2, 5)), [0, 1], clusters=[0, 1])
    with pytest.raises(avgk.ScoresError, match="at least one sample; got none"):
        avgk.Evaluator(5).result()


def test_evaluator__shows_samples_budgets_and_memory():
    evaluator = avgk.Evaluator(5, [1, 2.5])
    assert repr(evaluator) == "<avgk_dask.Evaluator: 0 samples of 5 classes, k = 1, 2.5; retains all scores, 0.0 MB>"
    feed(evaluator, *probabilities(100, 5))
    assert evaluator.n_bytes == 100 * (20 + 8 + 8)
    with tiny():
        near = feed(avgk.Evaluator(5, 1), *probabilities(100, 5))
    assert "near the thresholds" in repr(near)


def test_evaluator__on_imagenet_equals_evaluate_of_the_whole(data):
    scores, labels = np.load(data / "imagenet5k" / "scores.npy"), np.load(data / "imagenet5k" / "labels.npy")
    by_class = np.argsort(labels, kind="stable")
    for order in (np.arange(len(labels)), by_class):
        rows, theirs = scores[order], labels[order]
        with dask.config.set({"avgk.task-bytes": 1 << 19, "avgk.small-scores": 1 << 16}):
            evaluator = feed(avgk.Evaluator(1000, straddle=True), rows, theirs, range(0, 5000, 64))
            assert evaluator._state.scan.scan.n_bands > 20
            same(evaluator.result(), avgk.evaluate(rows, theirs))


@pytest.mark.parametrize("setting", ["kept-bytes", "max-events", "tile-scores"])
def test_load__with_other_settings_than_those_of_save(tmp_path, setting):
    scores, labels = probabilities(60, 5)
    with tiny():
        expected = feed(avgk.Evaluator(5, 2), scores, labels, range(0, 60, 7)).result()
        with dask.config.set({f"avgk.{setting}": 1 << 16}):
            evaluator = feed(avgk.Evaluator(5, 2), scores[:30], labels[:30], range(0, 30, 7))
            assert evaluator._state.scan.scan is not None
            evaluator.save(tmp_path / "saved")
        evaluator = feed(avgk.Evaluator.load(tmp_path / "saved"), scores[30:], labels[30:], range(0, 30, 7))
        same(evaluator.result(), expected)


def test_update__that_met_nan_ends_the_evaluator(tmp_path):
    """Rows of a refused piece are lost: no result may be given for the others."""
    rng = np.random.default_rng(0)
    with dask.config.set({"avgk.task-bytes": 1 << 16, "avgk.small-scores": 0}):
        evaluator = avgk.Evaluator(100, k=2)
        evaluator.update(rng.random((2_000, 100)), np.zeros(2_000, int))
        bad = rng.random((4_000, 100))
        bad[1_000, 3] = np.nan
        with pytest.raises(avgk.ScoresError, match="must not contain NaN"):
            evaluator.update(bad, np.zeros(4_000, int))
        other = avgk.Evaluator(100, k=2)
        for use in (
            lambda: evaluator.update(rng.random((100, 100)), np.zeros(100, int)),
            evaluator.result,
            lambda: evaluator.merge(other),
            lambda: other.merge(evaluator),
            lambda: evaluator.save(tmp_path / "a.avgk"),
        ):
            with pytest.raises(avgk.ScoresError, match="must not contain NaN"):
                use()


def test_evaluator__refuses_groups_in_place_of_classes():
    with pytest.raises(avgk.OptionError, match=r"by must be None, or 'class'.*got array\(\[0, 1, 2\]\)"):
        avgk.Evaluator(5, 1, by=np.arange(3))
