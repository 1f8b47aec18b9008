"""Lazy sets: a rule found by one task, applied to every block by the others."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed

from ..arrays import Array, Bools, Ints
from ..errors import NAN_CURE, ScoresError
from ..exact.budgets import count_labels
from ..kernels.chosen import work_on
from ..kernels.keys import check_dtype, is_float
from ..passes.caps import Caps
from ..passes.certifying import certify_budgets, refuse_budgets, refuse_spread
from ..passes.finding import find_thresholds
from ..passes.run import Run
from ..passes.waiting import wait_for
from ..scans.row_outcomes import Rule
from ..searches.selection import Selection
from ..searches.threshold_search import cut_pass
from ..settings import DEFAULTS, setting
from ..sources.sample_masks import SampleMask, first_samples
from ..sources.source import Source
from ..sources.transformed import spread_source
from ..sources.truncated import scatter_slots
from .threshold_rule import ThresholdRule
from .top_rule import TopRule


class _Held:
    """Keeps a source out of Dask's sight, so that its blocks are not computed before the search.

    It takes the settings along, which a worker process would not have.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.settings = {f"avgk.{name}": setting(name) for name in DEFAULTS}


def find_rule(source: Source, budget: Fraction, nan_policy: str, ties: str) -> Any:
    """Return the task that finds the rule of a budget's sets, by a search of its own."""
    refuse_spread(source, ties)
    return delayed(_find_rule, pure=False)(_Held(source), budget, nan_policy, ties)


def _find_rule(held: _Held, budget: Fraction, nan_policy: str, ties: str) -> ThresholdRule:
    with _scheduler_inside_a_task(), dask.config.set(held.settings):
        return settle_rule(Run(held.source, nan_policy=nan_policy), budget, ties)[1]


def settle_rule(run: Run, budget: Fraction, ties: str) -> tuple[Selection, ThresholdRule]:
    """Find the selection of a budget, by a search of its own, and the rule of its sets."""
    source = run.source
    refuse_spread(source, ties)
    refuse_budgets(run, [budget])
    n_labels = count_labels(budget, source.shape[0])
    selection = find_thresholds(run, [n_labels]).found[0]
    certify_budgets(run, [budget], [selection.key])
    if ties == "first" or not selection.is_cut:
        return selection, _rule(run, selection)
    refined = run.over(spread_source(source, [selection.key]), "lowest")
    return selection, replace(_rule(refined, find_thresholds(refined, [n_labels]).found[0]), spread=selection.key)


def _rule(run: Run, selection: Selection) -> ThresholdRule:
    """Return the rule that takes what a selection takes."""
    cut = selection.cut
    if selection.n_kept == 0:
        return ThresholdRule(selection.key)
    if cut is None:
        return ThresholdRule(selection.key, run.source.shape[0], 0)
    row, last_class = selection.last_tie or _last_tie(run, selection)
    return ThresholdRule(selection.key, run.source.rows[cut.band] + row, last_class)


def _last_tie(run: Run, selection: Selection) -> tuple[int, int]:
    """Read the band of the cut for the row and class of the last kept tie."""
    (cut,) = run.read(cut_pass(Caps.configured().scan_shape(run.source), {0: selection})).cuts
    return cut.row, cut.last_class


@contextmanager
def _scheduler_inside_a_task() -> Iterator[None]:
    """Let a task on a distributed worker compute on the same cluster; elsewhere nothing is needed."""
    if "distributed" not in sys.modules:  # no worker
        yield
        return
    from distributed import get_worker, worker_client

    try:
        get_worker()
    except ValueError:
        yield
        return
    with worker_client():
        yield


def apply_rule(source: Source, rule: Any, nan_policy: str, groups: da.Array | None = None) -> da.Array:
    """Return the lazy boolean array of a rule, or of the task that finds one (of a threshold).

    The blocks wait for the rule: computed earlier, they would pile up in memory. A rule of groups needs the group of each
    sample, also of those that do not exist, as a column of whole numbers.
    """
    array = source.dask_array()
    if source.mask is not None:
        sets = _filtered_sets(source.mask, array, rule, nan_policy, groups)
    else:
        blocks = wait_for(array, rule) if isinstance(rule, Delayed) else _fitting(array, rule)
        work, more = (_apply, ()) if groups is None else (_apply_grouped, (_beside(groups, blocks),))
        sets = da.map_blocks(
            work, blocks, *more, rule, nan_policy, source.shape[1], dtype=bool, meta=np.empty((0, 0), bool)
        )
    if source.truncation is not None:
        return scatter_slots(sets, source.truncation, by_threshold=not isinstance(rule, TopRule))
    return sets.rechunk(array.chunks)


def _fitting(array: da.Array, rule: Any) -> da.Array:
    """Return blocks of whole rows where a rule needs them; one that a task finds is of a threshold, and needs none."""
    return array.rechunk({1: -1}) if not isinstance(rule, Delayed) and rule.needs_rows else array


def _beside(groups: da.Array, blocks: da.Array) -> da.Array:
    """Return groups in blocks like those of the rows."""
    return groups.rechunk((blocks.chunks[0],))[:, None]


def _filtered_sets(mask: SampleMask, array: da.Array, rule: Any, nan_policy: str, groups: da.Array | None) -> da.Array:
    """Return the sets of all samples, empty for those that do not exist.

    Blocks wait for the task that counts samples, and that one for the rule: both compute blocks of the mask, under the
    same names.
    """
    blocks = _fitting(array, rule)
    sizes = blocks.chunks[0]
    firsts = delayed(_first_samples, pure=False)(mask, sizes, rule)
    blocks, kept = wait_for(blocks, firsts), wait_for(mask.dask_array(sizes), firsts)
    work, more = (_apply_kept, ()) if groups is None else (_apply_kept_grouped, (_beside(groups, blocks),))
    return da.map_blocks(
        work, blocks, kept, *more, firsts, rule, nan_policy, array.shape[1], dtype=bool, meta=np.empty((0, 0), bool)
    )


def _first_samples(mask: SampleMask, sizes: Sequence[int], rule: Rule) -> Ints:
    with _scheduler_inside_a_task():
        return first_samples(mask, sizes)


def _apply_kept(
    block: Array, kept: Bools, firsts: Ints, rule: Rule, nan_policy: str, n_classes: int, block_info: Any = None
) -> Array:
    """Return the sets of the samples of a block that exist, counted without the others, and empty ones for those."""
    work_on(math.prod(block_info[0]["shape"]))
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    rows = np.flatnonzero(kept)
    scores = np.ascontiguousarray(block[rows], check_dtype(block.dtype))
    if nan_policy == "raise" and is_float(scores.dtype):
        refuse_nan(scores != scores, first_row + rows, first_class)
    sets = np.zeros(block.shape, bool)
    if rows.size:
        first = int(firsts[block_info[0]["chunk-location"][0]])
        sets[rows] = rule.choose(scores, first, first_class, n_classes)
    return sets


def _apply_kept_grouped(
    block: Array, kept: Bools, groups: Ints, firsts: Ints, rule: Any, nan_policy: str, n_classes: int,
    block_info: Any = None,
) -> Array:  # fmt: skip
    mine = rule.for_rows(groups[np.flatnonzero(kept), 0])
    return _apply_kept(block, kept, firsts, mine, nan_policy, n_classes, block_info)


def _apply_grouped(
    block: Array, groups: Ints, rule: Any, nan_policy: str, n_classes: int, block_info: Any = None
) -> Array:
    return _apply(block, rule.for_rows(groups[:, 0]), nan_policy, n_classes, block_info)


def _apply(block: Array, rule: Rule, nan_policy: str, n_classes: int, block_info: Any = None) -> Array:
    work_on(math.prod(block_info[0]["shape"]))
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    scores = np.ascontiguousarray(block, check_dtype(block.dtype))
    if nan_policy == "raise" and is_float(scores.dtype):
        refuse_nan(scores != scores, first_row + np.arange(len(scores)), first_class)
    return rule.choose(scores, first_row, first_class, n_classes)


def refuse_nan(is_nan: Array, samples: Ints, first_class: int) -> None:
    """Raise for the first NaN of a block, naming its sample and class."""
    if not is_nan.any():
        return
    row, class_ = (int(i[0]) for i in np.nonzero(is_nan))
    raise ScoresError(
        f"scores must not hold NaN; got one at sample {samples[row]}, class {first_class + class_}. {NAN_CURE}"
    )
