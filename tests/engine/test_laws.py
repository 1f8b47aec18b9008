"""All states are monoids: empty ones change nothing, and any grouping and order of merging gives the same result.

And all are records: they have their true size, and come back unchanged from bytes.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
from fractions import Fraction
from hashlib import sha256
from itertools import pairwise, permutations

import cloudpickle
import numpy as np
import pytest
from dask.sizeof import sizeof
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask
from avgk_dask import records
from avgk_dask.bands.conformal import Lac, TopK
from avgk_dask.bands.passes import SampleGroups, pack
from avgk_dask.engine.pilot import sample_block
from avgk_dask.engine.plan import ScanShape
from avgk_dask.engine.ranked import KeyHistogram, RankedTally
from avgk_dask.engine.rows import SetCounts
from avgk_dask.engine.scan import scan_band
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.engine.strata import StrataRanks
from avgk_dask.engine.tally import DistanceTally
from avgk_dask.engine.tasks import KeptState
from avgk_dask.engine.ties import CutPlan, TieWindow, WantedTies, WeightPlan, cut_band, tally_weights
from avgk_dask.exact.sums import ExactSums
from avgk_dask.kernels.keys import encode, narrow_keys
from avgk_dask.records import Record, Several
from avgk_dask.statistics.above import AbovePlan, BesidePlan, scan_beside
from avgk_dask.statistics.costs import CostHistogram, CostPlan, CoveragePlan, tally_costs, tally_coverage
from avgk_dask.statistics.group_scan import CellCounts, scan_groups
from avgk_dask.statistics.group_search import GroupSearch
from avgk_dask.statistics.label_ranks import EdgePlan, EdgeTable, LabelPlan, tally_edges, tally_labels
from avgk_dask.statistics.losses import BinPlan, LossPlan, tally_bins, tally_losses
from avgk_dask.statistics.paired_rows import BudgetSets, row_set_pass, tally_row_sets
from avgk_dask.statistics.pairs import PairPlan, count_pairs
from avgk_dask.statistics.regrets import RegretPlan, tally_tops
from avgk_dask.statistics.rules import CostRule, ThresholdRule
from avgk_dask.statistics.scaling import AffinePlan, Scale, ScalePlan, tally_gradient, tally_scales
from avgk_dask.statistics.smallest_budget import TargetPlan, tally_target
from avgk_dask.statistics.truncated import SlotPlan, tally_group_slots, tally_last_slots
from avgk_dask.testing import strategies


def content(record):
    return b"".join(record.to_parts())


#: Weights as order keys, from 0 to 1.
ENDS = [int(key) for key in encode(np.array([0.0, 1.0]))]


@dataclasses.dataclass(frozen=True)
class Bands:
    """A drawn matrix of probabilities cut into bands, with hard and soft labels."""

    scores: list
    hard: list
    soft: list
    key: int
    n_classes: int

    @property
    def n_samples(self):
        return sum(map(len, self.scores))

    def search(self, **options):
        shape = ScanShape(self.n_samples, self.n_classes, np.dtype("f8"), 1, len(self.scores), 1000, 1000, 64)
        return ThresholdSearch.begin(dataclasses.replace(shape, **options), [0, self.n_samples])


@st.composite
def bands(draw):
    n, c = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    ties = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1)
    scores = np.array(draw(st.lists(ties, min_size=n * c, max_size=n * c))).reshape(n, c)
    soft = np.array(draw(st.lists(ties, min_size=n * c, max_size=n * c))).reshape(n, c)
    labels = draw(strategies.hard_labels((n, c)))
    cuts = sorted({0, n, *draw(st.sets(st.integers(1, n - 1), min_size=1, max_size=3))})
    parts = [[array[a:b] for a, b in pairwise(cuts)] for array in (scores, labels, soft)]
    return Bands(*parts, int(encode(np.array([draw(st.sampled_from(scores.reshape(-1).tolist()))]))[0]), c)


def scans(drawn, labels, **options):
    plan = drawn.search(**options).next_pass().plan
    return [scan_band([s], lab, i, plan) for i, (s, lab) in enumerate(zip(drawn.scores, labels, strict=True))]


def strata_of(sums):
    """Return the sums of the strata that have any."""
    rows = zip(sums.strata.tolist(), sums.sizes.tolist(), sums.hits.tolist(), strict=True)
    return [row for row in rows if any(row[1])]


def scan_outcome(drawn, options):
    def read(tally):
        after = drawn.search(**options).advance(tally)
        return [
            (i, dataclasses.replace(s, cells=s.cells.tolist(), strata=strata_of(s.strata)))
            for i, s in sorted(after.selections.items())
        ]

    return read


def row_sets(drawn):
    shape = dataclasses.replace(drawn.search().shape, max_held=1 << 40, strata="ranks")
    return row_set_pass(shape, [BudgetSets(drawn.key, 1, 1)])


def numbered(drawn, work, labels, plan):
    labels = labels or [None] * len(drawn.scores)
    return [work([s], lab, i, plan) for i, (s, lab) in enumerate(zip(drawn.scores, labels, strict=True))]


def kept(drawn):
    return [tally.rows for tally in scans(drawn, drawn.hard, max_held=1000)]


def counts_of(drawn):
    from avgk_dask.engine.plan import ZoneTable
    from avgk_dask.kernels.keys import KEY_MAX

    zones = ZoneTable.from_intervals([(drawn.key, drawn.key)], KEY_MAX)
    one, ties = np.zeros(1, np.int64), np.full((9, 1), 2**40)
    return [SetCounts.count(parts, zones, one, ties[: len(parts)]) for parts in kept(drawn)]


F8 = np.dtype("f8")


def beside_plan(drawn):
    scan = drawn.search(max_held=0).next_pass()
    return BesidePlan(scan.work, scan.plan, AbovePlan(F8, drawn.n_classes, (drawn.key, drawn.key + 1)))


def ranked_in_bins(scores, in_bins):
    tally = RankedTally(narrow_keys(np.sort(scores, 1)[:, ::-1], F8).T, (), 2)
    return tally.binned() if in_bins else tally


def first_rows(drawn):
    return tuple(np.cumsum([0, *map(len, drawn.scores)]).tolist())


def cost_plan(drawn, most_bins=2, by=""):
    return CostPlan(F8, drawn.n_classes, Lac(F8), by, most_bins, first_rows(drawn))


def coverages(drawn):
    groups = SampleGroups(drawn.n_classes)
    rule = CostRule(TopK(F8), np.array([1, 2]), "group")
    plan = CoveragePlan(F8, drawn.n_classes, rule, groups, 2, first_rows(drawn))
    labels = [pack(hard, np.arange(len(hard)) % 2, drawn.n_classes) for hard in drawn.hard]
    return numbered(drawn, tally_coverage, labels, plan)


def in_two_groups(drawn):
    return [pack(hard, np.arange(len(hard)) % 2, drawn.n_classes) for hard in drawn.hard]


def group_search(drawn, max_held):
    shape = dataclasses.replace(drawn.search().shape, max_held=max_held, strata="groups")
    return GroupSearch.begin(shape, [Fraction(1, 2), Fraction(1)], first_rows(drawn), 2, range(2))


def group_outcome(search):
    return [getattr(search.targets, field.name).tolist() for field in dataclasses.fields(search.targets)]


#: For each kind of state: the states of some drawn bands, and the values that are read from a state.
KINDS = {
    "ScanTally": (
        lambda d: scans(d, d.hard, max_held=0, strata="ranks"), lambda d: scan_outcome(d, {"max_held": 0, "strata": "ranks"})
    ),
    "ScanTally, rows": (
        lambda d: scans(d, d.hard, max_held=1000, strata="ranks"),
        lambda d: scan_outcome(d, {"max_held": 1000, "strata": "ranks"}),
    ),
    "StrataSums": (
        lambda d: [t.strata for t in scans(d, d.hard, max_held=0, strata="ranks")],
        lambda d: lambda t: (strata_of(t), content(t)),
    ),
    "StrataRanks": (
        lambda d: [StrataRanks.from_rows(labels % 3, labels + 1) for labels in d.hard],
        lambda d: lambda t: content(t),
    ),
    "ScanTally, soft": (
        lambda d: scans(d, d.soft, max_held=0, with_distance=True, n_ranked=d.n_classes),
        lambda d: scan_outcome(d, {"max_held": 0}),
    ),
    "HeldEvents": (
        lambda d: [t.events for t in scans(d, d.soft, max_held=0)],
        lambda d: lambda t: content(t.in_order()),
    ),
    "BinCounts": (
        lambda d: [t.histogram for t in scans(d, d.hard, max_held=0)],
        lambda d: lambda t: content(t),
    ),
    "EventTally": (
        lambda d: [t.events.counted(t.floors) for t in scans(d, d.soft, max_held=0)],
        lambda d: lambda t: (t.n_scores, t.total_weight(), content(t)),
    ),
    "DistanceTally": (
        lambda d: [DistanceTally.from_block(s, w) for s, w in zip(d.scores, d.soft, strict=True)],
        lambda d: lambda t: t.mean(d.n_samples),
    ),
    "LookedRows": (
        lambda d: [t.looked for t in scans(d, d.hard, max_held=0)],
        lambda d: lambda t: content(t),
    ),
    "RankedTally": (
        lambda d: [t.ranked for t in scans(d, d.hard, n_ranked=d.n_classes)],
        lambda d: lambda t: np.sort(t.keys, axis=1).tolist(),
    ),
    "RankedTally, bins": (
        lambda d: [ranked_in_bins(s, in_bins=i % 2) for i, s in enumerate(d.scores)],
        lambda d: lambda t: content(t.binned()),
    ),
    "KeyHistogram": (
        lambda d: [KeyHistogram.from_keys(encode(s).reshape(-1), 3) for s in d.scores],
        lambda d: lambda t: content(t),
    ),
    "PilotSample": (
        lambda d: [sample_block(s, i, 0.5) for i, s in enumerate(d.scores)],
        lambda d: lambda t: content(t),
    ),
    "LabelTally": (
        lambda d: numbered(d, tally_labels, d.hard, LabelPlan(F8, d.n_classes)),
        lambda d: lambda t: (t.keys.tolist(), t.key_counts.tolist(), t.rank_counts.tolist(), t.n_labelled),
    ),
    "EdgeTally": (
        lambda d: numbered(
            d, tally_edges, d.soft, EdgePlan(F8, d.n_classes, EdgeTable.from_edges(np.array([d.key])), 0.5)
        ),
        lambda d: lambda t: content(t),
    ),
    "TargetTally": (
        lambda d: numbered(d, tally_target, d.hard, TargetPlan(F8, d.n_classes, d.key)),
        lambda d: (
            lambda t: (
                t.n_above, t.highest_below, sorted(zip(t.bands.tolist(), t.n_ties.tolist(), t.n_hits.tolist(), strict=True)),
            )
        ),
    ),
    "EdgeTally, hard": (
        lambda d: numbered(
            d, tally_edges, d.hard, EdgePlan(F8, d.n_classes, EdgeTable.from_edges(np.array([d.key])), with_labels=True)
        ),
        lambda d: lambda t: (t.label_ranks().tolist(), content(t)),
    ),
    "AboveTally": (
        lambda d: [t.parts[1] for t in numbered(d, scan_beside, d.hard, beside_plan(d))],
        lambda d: lambda t: (content(t), t.weight_from(0)),
    ),
    "AboveTally, soft": (
        lambda d: [t.parts[1] for t in numbered(d, scan_beside, d.soft, beside_plan(d))],
        lambda d: lambda t: (t.n_labels.tolist(), t.squares.tolist(), t.weight_from(0), t.weight_from(1)),
    ),
    "WeightTally": (
        lambda d: numbered(d, tally_weights, d.soft, WeightPlan(F8, d.n_classes, (TieWindow(d.key, *ENDS),), 4)),
        lambda d: lambda t: content(t),
    ),
    "LastSlots": (
        lambda d: numbered(d, tally_last_slots, d.hard, SlotPlan(F8, d.n_classes, d.n_classes - 1)),
        lambda d: lambda t: t.highest,
    ),
    "GroupSlots": (
        lambda d: numbered(
            d, tally_group_slots, in_two_groups(d), SlotPlan(F8, d.n_classes, d.n_classes - 1, np.array([d.key, d.key + 1]))
        ),
        lambda d: lambda t: content(t),
    ),
    "GroupTally": (
        lambda d: numbered(d, scan_groups, in_two_groups(d), group_search(d, 1000).next_pass().plan),
        lambda d: lambda t: (content(t.strata_ranks), group_outcome(group_search(d, 1000).advance(t))),
    ),
    "GroupTally, cells": (
        lambda d: numbered(d, scan_groups, in_two_groups(d), group_search(d, 0).next_pass().plan),
        lambda d: lambda t: (content(t), group_outcome(group_search(d, 0).advance(t))),
    ),
    "CellCounts": (
        lambda d: [CellCounts.from_cells(np.arange(s.size) % 3, encode(s).reshape(-1), s.reshape(-1) > 0) for s in d.scores],
        lambda d: lambda t: content(t),
    ),
    "TieCuts": (
        lambda d: numbered(
            d, cut_band, d.soft,
            CutPlan(tuple(WantedTies(range(i, i + 1), 0, d.key, 2) for i in range(len(d.scores))), F8, d.n_classes, 64),
        ),
        lambda d: lambda t: content(t),
    ),
    "RegretTallies": (
        lambda d: numbered(d, tally_tops, d.hard, RegretPlan(F8, d.n_classes, (0.25,), (1,))),
        lambda d: lambda t: [one.symmetric_difference(0) for one in t.tallies],
    ),
    "LossTally": (
        lambda d: numbered(d, tally_losses, d.hard, LossPlan(F8, d.n_classes, ("nll", "exponential"))),
        lambda d: lambda t: content(t),
    ),
    "GradientTally": (
        lambda d: numbered(d, tally_gradient, d.hard, AffinePlan(F8, d.n_classes, np.eye(d.n_classes), np.zeros(d.n_classes), 1)),
        lambda d: lambda t: content(t),
    ),
    "ScaleTally": (
        lambda d: numbered(d, tally_scales, d.hard, ScalePlan(F8, d.n_classes, (Scale(1.0), Scale(0.5)), only_finite=True)),
        lambda d: lambda t: content(t),
    ),
    "LossSums": (
        lambda d: [tally_losses([s], w, 0, LossPlan(F8, d.n_classes, ("logistic", "exponential"))).losses for s, w in zip(d.scores, d.soft, strict=True)],
        lambda d: lambda t: content(t),
    ),
    "BinTally": (
        lambda d: numbered(d, tally_bins, d.soft, BinPlan(F8, d.n_classes, (0.0, 0.25, 1.0), only_tops=True)),
        lambda d: lambda t: content(t),
    ),
    "CostTally": (
        lambda d: numbered(d, tally_costs, d.hard, cost_plan(d)),
        lambda d: lambda t: content(t),
    ),
    "CostHistogram": (
        lambda d: [CostHistogram.from_costs(encode(s).reshape(-1) % 3, encode(s).reshape(-1), 7) for s in d.scores],
        lambda d: lambda t: (content(t), t.totals(3).tolist(), t.find(np.array([1, 2, 1]))[0].tolist()),
    ),
    "CoverageTally": (coverages, lambda d: lambda t: content(t)),
    "CoverageCounts": (lambda d: [t.by_size for t in coverages(d)], lambda d: lambda t: content(t)),
    "SetCounts": (counts_of, lambda d: lambda t: (t.hits.tolist(), strata_of(t.strata), np.trim_zeros(t.cells[0], "b").tolist())),
    "PairTally": (
        lambda d: numbered(d, count_pairs, None, PairPlan(F8, d.n_classes, ThresholdRule(d.key), (0,) * 9, 64)),
        lambda d: lambda t: content(t),
    ),
    "RowSetTally": (
        lambda d: numbered(d, tally_row_sets, d.hard, row_sets(d).plan),
        lambda d: lambda t: [content(row) for row in t.rows],
    ),
    "ExactSums": (lambda d: [ExactSums.from_values(s.reshape(-1)) for s in d.scores], lambda d: lambda t: t.fractions()),
    "Several": (
        lambda d: [Several((ExactSums.from_values(s.reshape(-1)), KeyHistogram.from_keys(encode(s).reshape(-1), 3))) for s in d.scores],
        lambda d: lambda t: content(t),
    ),
    "KeptState": (
        lambda d: [KeptState((KeyHistogram.from_keys(encode(s).reshape(-1), 3),), s.shape[0] % 2) for s in d.scores],
        lambda d: lambda t: content(t),
    ),
}  # fmt: skip


def test_kinds__are_all_there_are():
    for path in pathlib.Path(avgk_dask.__file__).parent.glob("*/*.py"):  # a state may be declared in any room
        if "State" in path.read_text():
            __import__(f"avgk_dask.{path.parent.name}.{path.stem}")
    tested = {name.split(",")[0] for name in KINDS} | {
        "CheckedTally",
        "ProbabilityTally",
        "RegretTally",
    }  # part of others
    kinds = [kind for kind in records.Record._KINDS.values() if kind.__module__.startswith("avgk_dask.")]
    declared = {kind.__name__ for kind in kinds if issubclass(kind, records.State) and kind is not records.State}
    assert declared == tested


@pytest.mark.sample(11)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 3)
@given(drawn=bands())
def test_states__merge_in_any_order_and_grouping(kind, drawn):
    make, reader = KINDS[kind]
    states, read = make(drawn), reader(drawn)
    merge = type(states[0]).merge
    whole = read(merge(states))
    for order in permutations(states):
        assert read(merge(list(order))) == whole
    assert read(merge([merge(states[:1]), merge(states[1:])])) == whole
    assert read(merge([merge(states[:-1]), merge(states[-1:])])) == whole
    nothing = states[0].nothing()
    for with_nothing in ([nothing, *states], [*states, nothing], [nothing, nothing, merge(states)]):
        assert read(merge(with_nothing)) == whole


@pytest.mark.sample(19)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 3)
@given(drawn=bands())
def test_states__come_back_from_bytes(kind, drawn):
    state = (actual := KINDS[kind][0](drawn))[0].merge(actual)
    data = content(state)
    back = type(state).from_bytes(data)
    assert content(back) == data
    assert KINDS[kind][1](drawn)(back) == KINDS[kind][1](drawn)(state)
    with pytest.raises(avgk_dask.ReadError, match="Compute it again"):
        type(state).from_bytes(b"")


@pytest.mark.parametrize("rest", [b"", b"\x05" + bytes(7) + b"[1,2]", b"\x07" + bytes(7) + b"[{},[]]"])
def test_from_bytes__refuses_what_is_no_such_state(rest):
    with pytest.raises(avgk_dask.ReadError, match="Compute it again"):
        ExactSums.from_bytes(rest)


def n_bytes(value):
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(n_bytes, value))
    return sum(n_bytes(getattr(value, f.name)) for f in dataclasses.fields(value)) if isinstance(value, Record) else 0


@pytest.mark.sample(21)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 3)
@given(drawn=bands())
def test_states__tell_dask_their_true_size(kind, drawn):
    state = (actual := KINDS[kind][0](drawn))[0].merge(actual)
    assert n_bytes(state) <= sizeof(state) <= n_bytes(state) + 20_000


def test_to_parts__give_the_same_bytes_on_every_machine():
    sums = ExactSums.from_values(np.array([0.5]))
    swapped = ExactSums(sums.limbs.astype(sums.limbs.dtype.newbyteorder()))
    assert content(swapped) == content(sums) != content(ExactSums.from_values(np.array([0.25])))
    assert sha256(content(sums)).hexdigest() == "eaa2dd88645f611b926a9820db00aab63518d41039b36bfa1e0123b010220685"


@pytest.mark.parametrize(
    "before, after",
    [
        (b"ExactSums", b"os.system"),
        (b'"version": 1', b'"version": 2'),
        (b'"limbs"', b'"wings"'),
        (b'[["limbs"', b'[["wings"'),
        (b'"<i8"', b'"|O8"'),
        (b"ExactSums", b"BinCounts"),
    ],
)
def test_from_bytes__refuses_other_kinds_versions_and_fields(before, after):
    data = content(ExactSums.zeros(1))
    assert before in data
    with pytest.raises(avgk_dask.ReadError, match="Compute it again"):
        ExactSums.from_bytes(data.replace(before, after, 1))


def test_from_bytes__refuses_a_state_of_another_kind():
    with pytest.raises(avgk_dask.ReadError, match="is a KeyHistogram instead of a ExactSums"):
        ExactSums.from_bytes(content(KeyHistogram.empty(3)))


@pytest.mark.parametrize(
    "name, fields, complaint",
    [
        ("Undeclared", {"n": int}, "Undeclared.n does not say how it merges"),
        ("ExactSums", {"n": records.Count}, "ExactSums must have a name of its own"),
    ],
)
def test_states__must_say_how_each_field_merges_and_have_a_name_of_their_own(name, fields, complaint):
    try:
        with pytest.raises(TypeError, match=complaint):
            type(name, (records.State,), {"__annotations__": fields, "__module__": "elsewhere"})
    finally:
        if name != "ExactSums":
            records.Record._KINDS.pop(name, None)


def test_states__merge_where_their_module_is_not_known():
    """A class that travelled by value to a worker has its rules with it."""
    source = """from __future__ import annotations
from dataclasses import dataclass
from avgk_dask.records import Counts, State
import numpy as np

@dataclass(frozen=True)
class Travelled(State):
    counts: Counts

import cloudpickle, sys
sys.stdout.buffer.write(cloudpickle.dumps([Travelled(np.arange(3)), Travelled(np.arange(3))]))
"""
    sent = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True).stdout
    try:
        states = cloudpickle.loads(sent)
        assert type(states[0]).merge(states).counts.tolist() == [0, 2, 4]
    finally:
        records.Record._KINDS.pop("Travelled", None)
