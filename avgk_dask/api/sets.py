"""Lazy sets: ``average_k_sets``, ``top_k_sets`` and ``predict_sets``, boolean matrices chunked like the scores.

A rule decides which scores are in the sets. The rule of a budget is found by one task; all others wait for it
(``wait_for``) and apply it to a block each. ``set_windows`` computes lazy sets a few bands at a time, as bits, for
``write_sets``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.delayed import Delayed, delayed
from dask.graph_manipulation import bind
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from ..arrays import Array, Bools, Ints
from ..bands.rows import Rule
from ..engine.memory import Caps
from ..engine.run import Run, computing
from ..engine.search import cut_pass
from ..engine.tasks import GraphNode, clone_key
from ..engine.ties import Selection
from ..errors import NAN_CURE, BudgetError, ScoresError
from ..exact.budgets import parse_budgets, show
from ..kernels.dispatch import work_on
from ..kernels.keys import check_dtype, first_key_above, is_float
from ..settings import DEFAULTS, setting
from ..sources.row_values import SampleMask, first_samples
from ..sources.source import Source, scatter_slots, spread_source
from ..statistics.rules import ThresholdRule, TopRule
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import certify_ranks, refuse_spread
from ..store import SetBand, pack_block
from .inputs.lazy_scores import with_lead
from .inputs.sources import as_lazy
from .options import BudgetsLike, LabelsLike, NanPolicy, ScanOptions, ScoresLike, ThresholdsLike, Ties
from .thresholds import check_threshold, find_selections

#: Names the copies of an array's tasks; the same array may be used beside its copy.
_SEED = "avgk-waiting"


def wait_for(array: da.Array, task: Delayed) -> da.Array:
    """Return the same array, computed only after a task.

    Dask's ``bind`` does this, but leaves the old names inside tasks that its newer classes describe, such as
    those of ``from_delayed`` (dask/dask#12127): they are renamed here.
    """
    bound = bind(array, task, seed=_SEED)
    names = {key: clone_key(key, _SEED) for key in array.__dask_graph__()}
    graph = bound.__dask_graph__()
    layers = {
        name: MaterializedLayer({key: _renamed(part, names) for key, part in layer.items()})
        if isinstance(layer, MaterializedLayer)
        else layer
        for name, layer in graph.layers.items()
    }
    return da.Array(HighLevelGraph(layers, graph.dependencies), bound.name, bound.chunks, meta=bound)


def _renamed(part: Any, names: dict[Any, Any]) -> Any:
    """Return a part of a task with the new names of what it depends on."""
    if isinstance(part, GraphNode):
        return part.substitute({key: names[key] for key in part.dependencies if key in names})
    if type(part) in (tuple, list):
        return type(part)(_renamed(inner, names) for inner in part)
    return part


class _Held:
    """Hides a source from Dask, so that its blocks are not computed before the search.

    It carries the settings, which a worker process would not have.
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
    (selection,) = find_selections(run, [budget])
    if ties == "first" or not selection.is_cut:
        return selection, _rule(run, selection)
    refined = run.over(spread_source(source, [selection.key]), "lowest")
    return selection, replace(
        _rule(refined, find_thresholds(refined, [selection.budget]).found[0]), spread=selection.key
    )


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

    The blocks wait for the rule: computed earlier, they would pile up in memory. A rule of groups needs the group of
    each sample, including those left out, as a column of whole numbers.
    """
    array = source.dask_array()
    if source.mask is not None:
        sets = _filtered_sets(source.mask, array, rule, nan_policy, groups)
    else:
        blocks = wait_for(array, rule) if isinstance(rule, Delayed) else _fitting(array, rule)
        sets = da.map_blocks(
            _apply, blocks, _like_rows(groups, blocks), rule, nan_policy, source.shape[1],
            dtype=bool, meta=np.empty((0, 0), bool),
        )  # fmt: skip
    if source.truncation is not None:
        return scatter_slots(sets, source.truncation, by_threshold=not isinstance(rule, TopRule))
    return sets.rechunk(array.chunks)


def _fitting(array: da.Array, rule: Any) -> da.Array:
    """Return blocks of whole rows where a rule needs them; one that a task finds is of a threshold, and needs none."""
    return array.rechunk({1: -1}) if not isinstance(rule, Delayed) and rule.needs_rows else array


def _like_rows(groups: da.Array | None, blocks: da.Array) -> da.Array | None:
    """Return groups in blocks like those of the rows."""
    return None if groups is None else groups.rechunk((blocks.chunks[0],))[:, None]


def _filtered_sets(mask: SampleMask, array: da.Array, rule: Any, nan_policy: str, groups: da.Array | None) -> da.Array:
    """Return the sets of all samples, empty for those left out.

    Blocks wait for the task that counts samples, and that one for the rule: both compute blocks of the mask, under the
    same names.
    """
    blocks = _fitting(array, rule)
    sizes = blocks.chunks[0]
    firsts = delayed(_first_samples, pure=False)(mask, sizes, rule)
    blocks, kept = wait_for(blocks, firsts), wait_for(mask.dask_array(sizes), firsts)
    return da.map_blocks(
        _apply_kept, blocks, kept, _like_rows(groups, blocks), firsts, rule, nan_policy, array.shape[1],
        dtype=bool, meta=np.empty((0, 0), bool),
    )  # fmt: skip


def _first_samples(mask: SampleMask, sizes: Sequence[int], rule: Rule) -> Ints:
    with _scheduler_inside_a_task():
        return first_samples(mask, sizes)


def _apply_kept(
    block: Array, kept: Bools, groups: Ints | None, firsts: Ints, rule: Any, nan_policy: str, n_classes: int,
    block_info: Any = None,
) -> Array:  # fmt: skip
    """Return the sets of the samples of a block that count, numbered without the others, and empty sets for those."""
    work_on(math.prod(block_info[0]["shape"]))
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    rows = np.flatnonzero(kept)
    mine: Rule = rule if groups is None else rule.for_rows(groups[rows, 0])
    scores = np.ascontiguousarray(block[rows], check_dtype(block.dtype))
    if nan_policy == "raise" and is_float(scores.dtype):
        refuse_nan(scores != scores, first_row + rows, first_class)
    sets = np.zeros(block.shape, bool)
    if rows.size:
        first = int(firsts[block_info[0]["chunk-location"][0]])
        sets[rows] = mine.choose(scores, first, first_class, n_classes)
    return sets


def _apply(
    block: Array, groups: Ints | None, rule: Any, nan_policy: str, n_classes: int, block_info: Any = None
) -> Array:
    """Return the sets of a block."""
    mine: Rule = rule if groups is None else rule.for_rows(groups[:, 0])
    work_on(math.prod(block_info[0]["shape"]))
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    scores = np.ascontiguousarray(block, check_dtype(block.dtype))
    if nan_policy == "raise" and is_float(scores.dtype):
        refuse_nan(scores != scores, first_row + np.arange(len(scores)), first_class)
    return mine.choose(scores, first_row, first_class, n_classes)


def refuse_nan(is_nan: Array, samples: Ints, first_class: int) -> None:
    """Raise for the first NaN of a block, naming its sample and class."""
    if not is_nan.any():
        return
    row, class_ = (int(i[0]) for i in np.nonzero(is_nan))
    raise ScoresError(
        f"scores must not hold NaN; got one at sample {samples[row]}, class {first_class + class_}. {NAN_CURE}"
    )


def set_windows(sets: da.Array) -> Iterator[list[SetBand]]:
    """Return the bands of lazy sets in the order of their rows, as many at once as a window's bytes hold in bits.

    A window has whole bands, at least one, so that no chunk is read for two of them.
    """
    rows, columns = ([0, *accumulate(sizes)] for sizes in sets.chunks)
    pack = dask.delayed(pack_block, pure=False)
    first = 0
    while first < len(rows) - 1:
        last = _window_end(rows, first, columns[-1])
        blocks: Any = sets.blocks[first:last].to_delayed()
        with computing(progress=False) as compute:  # whoever writes the bands tells of them
            bits = compute([pack(block) for block in blocks.ravel()], "sets")
        n = len(columns) - 1
        yield [
            SetBand(rows[i], rows[i + 1] - rows[i], tuple(columns), tuple(bits[(i - first) * n : (i - first + 1) * n]))
            for i in range(first, last)
        ]
        first = last


def _window_end(rows: list[int], first: int, n_classes: int) -> int:
    """Return the band at which a window ends: the bits of its rows fit the setting."""
    most = rows[first] + 8 * setting("window-bytes") // n_classes
    last = first + 1
    while last < len(rows) - 1 and rows[last + 1] <= most:
        last += 1
    return last


def average_k_sets(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    ties: Ties = "first",
) -> da.Array | xr.DataArray:
    """Return the average-k sets: every label above one global threshold, floor(N k) in all, exactly.

    A class is in the set of a sample if its score > lambda, the (B + 1)-th largest of all scores with
    B = floor(N k), or if it is one of the B - n_above ties with lambda that are kept. Lazy: reads metadata
    only, until computed.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Budget in (0, C].
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    ties
        Which ties at the threshold are kept where not all fit: ``"first"`` the first ones in row-major order;
        ``"spread"`` those that come first in a fixed pseudo-random order of (sample, class), which spreads
        them over the samples and is the same for any chunking.

    Returns
    -------
    DataArray or dask Array
        Boolean, N x C, lazy, chunked like the scores; a DataArray where the scores are one. Scores of more dimensions
        give sets of their shape. Samples left out have empty sets.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    OptionError
        If an option is not one of the values it may take.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: computing it finds the threshold (one read, and a pilot before) and then reads the scores once more;
    where ties are cut, one band again, and with ``ties="spread"`` one more read. The sets are as many bytes as
    there are scores: the one thing here as large as the matrix. With a stored or lazy ``where``, that is counted first.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.average_k_sets(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), 1.5).compute().astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])

    """
    options = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy, ties=ties)
    source, frame = as_lazy(scores, **options.opening)
    (budget,) = parse_budgets([k], source.n_classes)
    rule = find_rule(source, budget, nan_policy, ties)
    return _wrap(apply_rule(source, rule, nan_policy), source, frame, "average_k_sets", k=show(budget))


def top_k_sets(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
) -> da.Array | xr.DataArray:
    """Return the top-k sets: each row's k highest scores, among equals the lowest class index first.

    Lazy: reads metadata only, until computed.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Integer budget in 1..C.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.

    Returns
    -------
    DataArray or dask Array
        Boolean, N x C, lazy, chunked like the scores; a DataArray where the scores are one. Scores of more dimensions
        give sets of their shape. Samples left out have empty sets.

    Raises
    ------
    BudgetError
        If k is not an integer in 1..C.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: computing it reads the scores once. A task holds whole rows; the sets are as many bytes as there are scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.top_k_sets(np.array([[0.4, 0.2, 0.4, 0.4]]), 2).compute().astype(int)
    array([[1, 0, 1, 0]])

    """
    options = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy)
    source, frame = as_lazy(scores, **options.opening)
    (budget,) = parse_budgets([k], source.n_classes)
    return _wrap(apply_rule(source, top_rule(budget, source), nan_policy), source, frame, "top_k_sets", k=show(budget))


def predict_sets(
    scores: ScoresLike,
    *,
    threshold: ThresholdsLike,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
) -> da.Array | xr.DataArray:
    """Return the sets {score > threshold} for a threshold found elsewhere, such as on a calibration set.

    The comparison is exact: the threshold is not rounded to the scores' dtype. Ties with it are out, so that on tied
    data the sets can be smaller than those of ``average_k_sets``, which keeps some. Lazy: reads metadata only, until
    computed.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    threshold
        Number, or what ``threshold``, ``best_threshold`` or ``evaluate`` gave for one k.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.

    Returns
    -------
    DataArray or dask Array
        Boolean, N x C, lazy, chunked like the scores; a DataArray where the scores are one. Scores of more dimensions
        give sets of their shape. Samples left out have empty sets.

    Raises
    ------
    OptionError
        If the threshold is not a number, or is several.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: computing it reads the scores once. The sets are as many bytes as there are scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.predict_sets(np.array([[0.6, 0.3, 0.1]]), threshold=0.3).compute().astype(int)
    array([[1, 0, 0]])

    """
    options = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy)
    source, frame = as_lazy(scores, **options.opening)
    value, rule = check_threshold(threshold), rule_above(threshold, source)
    return _wrap(apply_rule(source, rule, nan_policy), source, frame, "predict_sets", threshold=float(value))


def top_rule(budget: Fraction, source: Source) -> TopRule:
    """Return the rule of the top-k sets of a source; refuse a budget that is not an integer, or not certain."""
    if budget.denominator != 1:
        raise BudgetError(
            f"k must be an integer for top-k sets; got {show(budget)}. Use average_k_sets for a fractional k."
        )
    certify_ranks(source, int(budget), "k")
    return TopRule(int(budget))


def rule_above(threshold: ThresholdsLike, source: Source) -> ThresholdRule:
    """Return the rule of the sets above one threshold."""
    return ThresholdRule.from_first_key(first_key_above(check_threshold(threshold), source.dtype))


def _wrap(
    sets: da.Array, source: Source, frame: xr.DataArray | None, name: str, **attrs: object
) -> da.Array | xr.DataArray:
    sets = with_lead(sets, source.lead)
    return sets if frame is None else xr.DataArray(sets, frame.coords, frame.dims, name, attrs)
