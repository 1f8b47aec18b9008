"""Row outcomes: a statistic is a state and a reduction, and the one in DESIGN.md is what it says."""

from __future__ import annotations

import importlib
import pathlib
import re
from dataclasses import dataclass
from typing import Annotated

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask import records
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.bands.rows import outcome_pass
from avgk_dask.engine.run import Run
from avgk_dask.kernels.keys import first_key_above
from avgk_dask.records import Merging, State
from avgk_dask.statistics.rules import ThresholdRule, TopRule
from avgk_dask.testing import CountingStore, oracle_top_k_sets, strategies

DESIGN = pathlib.Path(__file__).parents[2] / "DESIGN.md"


@dataclass(frozen=True)
class AllRows(State):
    """Everything, to be compared: a test may keep N of something."""

    parts: Annotated[
        tuple[tuple[int, np.ndarray, np.ndarray], ...], Merging(lambda parts: sum(parts, ()), lambda _: ())
    ]


records.Record._KINDS.pop("AllRows")  # no kind of the package


def keep_all(outcomes):
    return AllRows(((outcomes.first_row, outcomes.sizes, outcomes.weights),))


def outcomes_of(source, rules, reduce=keep_all, state=AllRows, **options):
    shape = {"dtype": source.dtype, "n_classes": source.shape[1], "first_rows": source.rows}
    run = Run(source, nan_policy="lowest")
    checks, found = run.read(outcome_pass(rules, reduce, state, **shape, **options)).parts
    assert run.reads == 1
    return checks, found


@given(data=st.data())
def test_row_outcomes__are_the_sizes_and_hits_of_the_sets(data):
    scores = data.draw(strategies.score_matrices(max_samples=9, nan=True))
    n, c = scores.shape
    labels = data.draw(strategies.hard_labels((n, c)))
    chunks = data.draw(st.integers(1, n)), data.draw(st.integers(1, c))
    array = da.from_array(scores, chunks=chunks)
    k, t = data.draw(st.integers(1, c)), data.draw(st.sampled_from(scores.reshape(-1).tolist()))
    t = 0 if t != t else t
    rules = [ThresholdRule.from_first_key(first_key_above(t, scores.dtype)), TopRule(k)]
    with dask.config.set({"scheduler": "synchronous", "avgk.slab-bytes": 1}):
        checks, found = outcomes_of(as_source(array, labels), rules, tile_scores=data.draw(st.integers(1, 9)))
    with np.errstate(invalid="ignore"):  # NumPy warns of a bfloat16 NaN
        members = [scores > t, oracle_top_k_sets(scores, k)]
    parts = sorted(found.parts, key=lambda part: part[0])
    sizes, weights = (np.concatenate([part[i] for part in parts], axis=1) for i in (1, 2))
    assert sizes.tolist() == [m.sum(1).tolist() for m in members]
    hits = [[bool(label >= 0 and row[label]) for row, label in zip(m, labels.tolist(), strict=True)] for m in members]
    assert weights.tolist() == np.array(hits, float).tolist()
    assert (checks.n_rows, checks.n_nan, checks.n_labelled) == (n, (scores != scores).sum(), (labels >= 0).sum())


def test_row_outcomes__weigh_soft_labels_exactly():
    rng = np.random.default_rng(3)
    scores, soft = rng.random((50, 7)), rng.dirichlet(np.ones(7), 50)
    _, found = outcomes_of(as_source(scores, soft), [TopRule(3)])
    from fractions import Fraction

    inside = oracle_top_k_sets(scores, 3)
    exact = [float(sum(map(Fraction, row[m].tolist()), Fraction(0))) for row, m in zip(soft, inside, strict=True)]
    assert found.parts[0][2][0].tolist() == exact


def test_row_outcomes__refuse_bad_labels_and_nan():
    scores = np.random.default_rng(0).random((6, 3))
    with pytest.raises(avgk.LabelsError, match="the first at sample 4"):
        outcomes_of(as_source(scores, np.array([0, 1, 2, 0, 3, 1])), [TopRule(1)])
    scores[3, 2] = np.nan
    source = as_source(scores)
    what = outcome_pass([TopRule(1)], keep_all, AllRows, dtype=source.dtype, n_classes=3, first_rows=source.rows)
    with pytest.raises(avgk.ScoresError, match="the first at sample 3, class 2"):
        Run(source).read(what)


def test_design__adds_a_statistic_in_under_40_lines_and_one_read(tmp_path, monkeypatch):
    section = DESIGN.read_text().partition("### Adding a statistic")[2]
    code = re.search(r"```python\n(.*?)```", section, re.S)[1]
    body = code[code.index("@dataclass") :]
    assert len([line for line in body.splitlines() if line.strip()]) < 40
    (tmp_path / "squared_sizes.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        statistic = importlib.import_module("squared_sizes")
        scores = np.random.default_rng(1).random((300, 20)).astype(np.float32)
        store = CountingStore(zarr.storage.MemoryStore())
        zarr.create_array(store, data=scores, chunks=(40, 6), config={"write_empty_chunks": True})
        store.reads.clear()
        found = statistic.sum_squared_sizes(zarr.open_array(store, mode="r"), 0.7, 3)
    finally:
        records.Record._KINDS.pop("SquaredSizes", None)
    assert found == [int(((scores > 0.7).sum(1) ** 2).sum()), 300 * 9]
    assert set(store.chunk_reads().values()) == {1}
