"""Lazy sets: ``average_k_sets``, ``top_k_sets`` and ``predict_sets``, boolean matrices chunked like the scores.

A rule decides which scores are in the sets. One task finds the rule of a budget; all others wait for it (``wait_for``)
and apply it to one block each. ``set_windows`` computes lazy sets a few bands at a time, as bits, for ``write_sets``.
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
from ..engine.run import Run, open_compute
from ..engine.search import cut_pass
from ..engine.tasks import GraphNode, clone_key
from ..engine.ties import Selection
from ..errors import NAN_HINT, BudgetError, ScoresError
from ..exact.budgets import parse_budgets, show
from ..kernels.dispatch import set_problem_size
from ..kernels.keys import KEY_MAX, NAN_KEY, check_dtype, first_key_above, is_float
from ..results.registry import Ties
from ..settings import DEFAULTS, setting
from ..sources.row_values import SampleMask, first_samples
from ..sources.source import Source, reorder_ties, scatter_slots
from ..statistics.rules import ThresholdRule, TopRule
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import certify_ranks, refuse_spread
from ..store.write.stored_sets import SetBand, pack_block
from .inputs.lazy_scores import restore_sample_axes
from .inputs.sources import as_lazy
from .options import BudgetsLike, LabelsLike, NanPolicy, ScanOptions, ScoresLike, ThresholdsLike
from .thresholds import find_selections, parse_threshold

#: Part of the names of copied tasks, which must differ from the names in the original array.
_SEED = "avgk-waiting"


def wait_for(array: da.Array, task: Delayed) -> da.Array:
    """Return the same array, computed only after a task.

    Dask's ``bind`` does this, but keeps the old names inside tasks of Dask's newer classes, such as those of
    ``from_delayed`` (dask/dask#12127): they are renamed here.
    """
    bound = bind(array, task, seed=_SEED)
    names = {key: clone_key(key, _SEED) for key in array.__dask_graph__()}
    graph = bound.__dask_graph__()
    layers = {
        name: MaterializedLayer({key: _rename(part, names) for key, part in layer.items()})
        if isinstance(layer, MaterializedLayer)
        else layer
        for name, layer in graph.layers.items()
    }
    return da.Array(HighLevelGraph(layers, graph.dependencies), bound.name, bound.chunks, meta=bound)


def _rename(part: Any, names: dict[Any, Any]) -> Any:
    """Return a part of a task with the new names of its dependencies."""
    if isinstance(part, GraphNode):
        return part.substitute({key: names[key] for key in part.dependencies if key in names})
    if type(part) in (tuple, list):
        return type(part)(_rename(inner, names) for inner in part)
    return part


class _OpaqueSource:
    """A source whose blocks Dask does not see, and so does not compute before the search; with the settings."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.settings = {f"avgk.{name}": setting(name) for name in DEFAULTS}  # workers may have others


def _find_rule(opaque: _OpaqueSource, budget: Fraction, nan_policy: str, ties: str) -> ThresholdRule:
    with _scheduler_inside_task(), dask.config.set(opaque.settings):
        return settle_rule(Run(opaque.source, nan_policy=nan_policy), budget, ties)[1]


def settle_rule(run: Run, budget: Fraction, ties: str) -> tuple[Selection, ThresholdRule]:
    """Find the selection of a budget, and the rule of its sets."""
    source = run.source
    refuse_spread(source, ties)
    (selection,) = find_selections(run, [budget])
    if ties == "first" or not selection.is_cut:
        return selection, _rule(run, selection)
    refined = run.over(reorder_ties(source, [selection.key], ties), "lowest")
    reordered = find_thresholds(refined, [selection.budget]).selections[0]
    return selection, replace(_rule(refined, reordered), tied=selection.key, ties=ties)


def _rule(run: Run, selection: Selection) -> ThresholdRule:
    """Return the rule whose sets contain exactly the scores of a selection."""
    cut = selection.cut
    if selection.n_kept == 0:
        return ThresholdRule(selection.key)
    if cut is None:
        return ThresholdRule(selection.key, run.source.shape[0], 0)
    if selection.last_tie is None:  # read the band of the cut again
        (ties,) = run.read(cut_pass(Caps.configured().scan_shape(run.source), {0: selection})).cuts
        row, last_class = ties.row, ties.last_class
    else:
        row, last_class = selection.last_tie
    return ThresholdRule(selection.key, run.source.rows[cut.band] + row, last_class)


@contextmanager
def _scheduler_inside_task() -> Iterator[None]:
    """Let a task on a distributed worker compute on the same cluster; elsewhere do nothing."""
    if "distributed" not in sys.modules:  # not on a worker
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
    """Return the lazy boolean array of a rule, or of the task that finds a threshold rule; empty sets if left out.

    Blocks that were computed before the rule would pile up in memory, so they wait for it. With a mask they wait for
    the task that counts samples, which waits for the rule: both compute blocks of the mask, under the same names. A
    rule of groups needs the group of each sample, including those left out, as a column of integers.
    """
    array, mask = source.dask_array(), source.mask
    # A task finds only threshold rules, which do not need whole rows.
    blocks = array.rechunk({1: -1}) if not isinstance(rule, Delayed) and rule.needs_rows else array
    sizes, firsts, kept = blocks.chunks[0], None, None
    if mask is not None:
        firsts = delayed(_first_samples, pure=False)(mask, sizes, rule)
        blocks, kept = wait_for(blocks, firsts), wait_for(mask.dask_array(sizes), firsts)
    elif isinstance(rule, Delayed):
        blocks = wait_for(blocks, rule)
    column = None if groups is None else groups.rechunk((sizes,))[:, None]
    sets = da.map_blocks(
        _apply, blocks, kept, column, firsts, rule, nan_policy, source.shape[1],
        dtype=bool, meta=np.empty((0, 0), bool),
    )  # fmt: skip
    if source.truncation is not None:
        return scatter_slots(sets, source.truncation, by_threshold=not isinstance(rule, TopRule))
    return sets.rechunk(array.chunks)


def _first_samples(mask: SampleMask, sizes: Sequence[int], rule: Rule) -> Ints:
    """Return the number of the first sample of each block, not counting those left out; after the rule is known."""
    with _scheduler_inside_task():
        return first_samples(mask, sizes)


def _apply(
    block: Array, kept: Bools | None, groups: Ints | None, firsts: Ints | None, rule: Any, nan_policy: str,
    n_classes: int, block_info: Any = None,
) -> Array:  # fmt: skip
    """Return the sets of a block; empty ones for samples left out, which do not count in the numbers of the others."""
    set_problem_size(math.prod(block_info[0]["shape"]))
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    rows = np.arange(len(block)) if kept is None else np.flatnonzero(kept)
    row_rule: Rule = rule if groups is None else rule.for_rows(groups[rows, 0])
    scores = np.ascontiguousarray(block if kept is None else block[rows], check_dtype(block.dtype))
    if nan_policy == "raise" and is_float(scores.dtype):
        refuse_nan(scores != scores, first_row + rows, first_class)
    if firsts is None:
        return row_rule.choose(scores, first_row, first_class, n_classes)
    sets = np.zeros(block.shape, bool)
    if rows.size:
        first = int(firsts[block_info[0]["chunk-location"][0]])
        sets[rows] = row_rule.choose(scores, first, first_class, n_classes)
    return sets


def refuse_nan(is_nan: Array, samples: Ints, first_class: int) -> None:
    """Raise for the first NaN of a block, naming its sample and class."""
    if not is_nan.any():
        return
    row, class_ = (int(i[0]) for i in np.nonzero(is_nan))
    raise ScoresError(
        f"scores must not contain NaN; got one at sample {samples[row]}, class {first_class + class_}. {NAN_HINT}"
    )


def set_windows(sets: da.Array) -> Iterator[list[SetBand]]:
    """Return the bands of lazy sets in the order of their rows, in windows of ``avgk.window-bytes`` as bits.

    A window consists of whole bands, at least one, so that each chunk is read for a single window.
    """
    rows, columns = ([0, *accumulate(sizes)] for sizes in sets.chunks)
    pack = dask.delayed(pack_block, pure=False)
    first = 0
    while first < len(rows) - 1:
        last, most = first + 1, rows[first] + 8 * setting("window-bytes") // columns[-1]
        while last < len(rows) - 1 and rows[last + 1] <= most:
            last += 1
        blocks: Any = sets.blocks[first:last].to_delayed()
        with open_compute(progress=False) as compute:  # the writer of the bands reports progress
            bits = compute([pack(block) for block in blocks.ravel()], "sets")
        n = len(columns) - 1
        yield [
            SetBand(rows[i], rows[i + 1] - rows[i], tuple(columns), tuple(bits[(i - first) * n : (i - first + 1) * n]))
            for i in range(first, last)
        ]
        first = last


def average_k_sets(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    ties: Ties = "first",
) -> da.Array | xr.DataArray:
    """Return the average-k sets: every label above one global threshold, floor(N k) in total, exactly.

    A class is in the set of a sample if its score is greater than lambda, the (B + 1)-th largest of all scores with
    B = floor(N k), or if it is one of the B - n_above ties with lambda that are kept. Lazy: reads metadata
    only, until computed.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Budget in (0, C].
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    ties
        Which ties at the threshold are kept if not all fit: ``"first"`` the first ones in row-major order;
        ``"spread"`` the first ones in a fixed pseudo-random order of (sample, class), which spreads them over the
        samples and is the same for any chunking.

    Returns
    -------
    DataArray or dask Array
        Boolean, lazy, of the shape and chunks of the scores; a DataArray if the scores are one. Samples left out have
        empty sets.

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
    Cost: computing it takes one read for the threshold, after a pilot, and one for the sets; if ties are cut, also one
    band again, or with ``ties="spread"`` one more read. The sets take one byte per score, so that unlike other results
    they are as large as the matrix. A stored or lazy ``where`` is read first.

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
    refuse_spread(source, ties)
    rule = delayed(_find_rule, pure=False)(_OpaqueSource(source), budget, nan_policy, ties)  # a search of its own
    return like_scores(apply_rule(source, rule, nan_policy), source, frame, "average_k_sets", k=show(budget))


def top_k_sets(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
) -> da.Array | xr.DataArray:
    """Return the top-k sets: each row's k highest scores; ties go to the lowest class index.

    Lazy: reads metadata only, until computed.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Integer budget in 1..C.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.

    Returns
    -------
    DataArray or dask Array
        Boolean, lazy, of the shape and chunks of the scores; a DataArray if the scores are one. Samples left out have
        empty sets.

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
    Cost: computing it reads the scores once. A task holds whole rows; the sets take one byte per score.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.top_k_sets(np.array([[0.4, 0.2, 0.4, 0.4]]), 2).compute().astype(int)
    array([[1, 0, 1, 0]])
    """
    options = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy)
    source, frame = as_lazy(scores, **options.opening)
    (budget,) = parse_budgets([k], source.n_classes)
    return like_scores(
        apply_rule(source, top_rule(budget, source), nan_policy), source, frame, "top_k_sets", k=show(budget)
    )


def predict_sets(
    scores: ScoresLike,
    *,
    threshold: ThresholdsLike,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
) -> da.Array | xr.DataArray:
    """Return the sets {score > threshold} for a threshold from other scores, such as a calibration set.

    The comparison is exact: the threshold is not rounded to the scores' dtype. Ties with it are excluded, so that on
    tied data the sets can be smaller than those of ``average_k_sets``, which keeps some ties. Lazy: reads metadata
    only, until computed.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    threshold
        Number, or a result of ``threshold``, ``best_threshold`` or ``evaluate`` for one k.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.

    Returns
    -------
    DataArray or dask Array
        Boolean, lazy, of the shape and chunks of the scores; a DataArray if the scores are one. Samples left out have
        empty sets.

    Raises
    ------
    OptionError
        If the threshold is not a single number.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: computing it reads the scores once. The sets take one byte per score.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.predict_sets(np.array([[0.6, 0.3, 0.1]]), threshold=0.3).compute().astype(int)
    array([[1, 0, 0]])
    """
    options = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy)
    source, frame = as_lazy(scores, **options.opening)
    value, rule = parse_threshold(threshold), rule_above(threshold, source)
    return like_scores(apply_rule(source, rule, nan_policy), source, frame, "predict_sets", threshold=float(value))


def top_rule(budget: Fraction, source: Source) -> TopRule:
    """Return the rule of the top-k sets of a source; refuse a budget that is fractional, or uncertain if truncated."""
    if budget.denominator != 1:
        raise BudgetError(
            f"k must be an integer for top-k sets; got {show(budget)}. Use average_k_sets for a fractional k."
        )
    certify_ranks(source, int(budget), "k")
    return TopRule(int(budget))


def rule_above(threshold: ThresholdsLike, source: Source) -> ThresholdRule:
    """Return the rule of the sets above one threshold."""
    first = first_key_above(parse_threshold(threshold), source.dtype)
    return ThresholdRule(min(first - 1, KEY_MAX)) if first > NAN_KEY else ThresholdRule(NAN_KEY, everything=True)


def like_scores(
    sets: da.Array, source: Source, frame: xr.DataArray | None, name: str, **attrs: object
) -> da.Array | xr.DataArray:
    """Return sets with the sample axes of their scores, and as a DataArray if the scores are one."""
    sets = restore_sample_axes(sets, source.sample_shape)
    return sets if frame is None else xr.DataArray(sets, frame.coords, frame.dims, name, attrs)
