"""Lazy sets: a rule found by one task, applied to every block by the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from ..errors import NAN_CURE, ScoresError
from ..kernels.keys import KEY_MAX, NAN_KEY, carrier, check_dtype, encode
from ..kernels.order import spread_keys
from ..selection.selection import Selection
from ..settings import DEFAULTS, setting
from ..summaries.entries import TopRanks
from ..summaries.kept import Cut
from .engine import Compute, compute_plainly, cut_task, run_search
from .source import Source
from .tie_order import spread_source
from .waiting import wait_for

Array = NDArray[Any]


@dataclass(frozen=True)
class SetRule:
    """Which scores are in: keys above ``key``, and those equal to it up to a place, row-major."""

    key: int
    last_row: int = -1
    last_class: int = -1
    everything: bool = False
    #: The score whose ties are spread, as a key: the rule is then one of refined keys.
    spread: int | None = None

    @classmethod
    def from_first_key(cls, first: int) -> SetRule:
        """Give the rule of all keys from ``first`` up."""
        return cls(min(first - 1, KEY_MAX)) if first > NAN_KEY else cls(NAN_KEY, everything=True)

    def choose(self, keys: NDArray[np.int64], first_row: int, first_class: int, n_classes: int) -> NDArray[np.bool_]:
        """Give the members among a block of keys that starts at this place of a matrix of so many classes."""
        if self.everything:
            return np.ones(keys.shape, bool)
        if self.spread is not None:
            keys = spread_keys(keys, np.array([self.spread], np.int64), first_row, first_class, n_classes)
        chosen = keys > self.key
        rows = first_row + np.arange(keys.shape[0])[:, None]
        if first_row <= self.last_row:
            classes = first_class + np.arange(keys.shape[1])
            kept = (rows < self.last_row) | ((rows == self.last_row) & (classes <= self.last_class))
            chosen |= (keys == self.key) & kept
        return chosen


class _Held:
    """Keeps a source out of Dask's sight, so that its blocks are not computed before the search.

    It takes the settings along, which a worker process would not have.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.settings = {f"avgk.{name}": setting(name) for name in DEFAULTS}


def find_rule(source: Source, budget: int, nan_policy: str, ties: str) -> Any:
    """Give the task that finds the rule of a budget's sets, by a search of its own."""
    return delayed(_find_rule, pure=False)(_Held(source), budget, nan_policy, ties)


def _find_rule(held: _Held, budget: int, nan_policy: str, ties: str) -> SetRule:
    with _scheduler_inside_a_task(), dask.config.set(held.settings):
        return settle_rule(held.source, budget, nan_policy, ties)[1]


def settle_rule(
    source: Source, budget: int, nan_policy: str, ties: str, compute: Compute = compute_plainly
) -> tuple[Selection, SetRule]:
    """Find the selection of a budget, by a search of its own, and the rule of its sets."""
    selection = find_selection(source, budget, nan_policy, compute)
    if ties == "first" or not selection.is_cut:
        return selection, _rule(source, selection)
    refined = spread_source(source, [selection.key])
    return selection, replace(_rule(refined, find_selection(refined, budget, "lowest", compute)), spread=selection.key)


def find_selection(source: Source, budget: int, nan_policy: str, compute: Compute = compute_plainly) -> Selection:
    """Find the selection of one budget, by a search of its own."""
    return run_search(source, [budget], nan_policy=nan_policy, compute=compute).found[0]


def _rule(source: Source, selection: Selection) -> SetRule:
    """Give the rule that takes what a selection takes."""
    cut = selection.cut
    if selection.n_kept == 0:
        return SetRule(selection.key)
    if cut is None:
        return SetRule(selection.key, source.shape[0], 0)
    row, last_class = selection.last_tie or _last_tie(source, selection, cut)
    return SetRule(selection.key, source.rows[cut.band] + row, last_class)


def _last_tie(source: Source, selection: Selection, cut: Cut) -> tuple[int, int]:
    """Read the band of the cut for the place of the last kept tie."""
    ((ties,),) = compute_plainly([cut_task(source, cut.band, [selection])], "cut")
    return ties.row, ties.last_class


@contextmanager
def _scheduler_inside_a_task() -> Iterator[None]:
    """Let a task on a distributed worker compute on the same cluster; elsewhere nothing is needed."""
    try:
        from distributed import get_worker, worker_client

        get_worker()
    except (ImportError, ValueError):
        yield
        return
    with worker_client():
        yield


def apply_rule(source: Source, rule: Any, nan_policy: str) -> da.Array:
    """Give the lazy boolean array of a rule, or of the task that finds one.

    The blocks wait for the rule: computed earlier, they would pile up in memory.
    """
    array = source.dask_array()
    if isinstance(rule, Delayed):
        array = wait_for(array, rule)
    return array.map_blocks(_apply, rule, nan_policy, source.shape[1], dtype=bool, meta=np.empty((0, 0), bool))


def _apply(block: Array, rule: SetRule, nan_policy: str, n_classes: int, block_info: Any = None) -> Array:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    keys = encode(np.ascontiguousarray(block, check_dtype(block.dtype)))
    refuse_nan(
        keys == NAN_KEY if nan_policy == "raise" and block.dtype.kind not in "iu" else None, first_row, first_class
    )
    return rule.choose(keys, first_row, first_class, n_classes)


def top_rule(source: Source, k: int, nan_policy: str) -> da.Array:
    """Give the lazy boolean array of each row's k highest scores."""
    array = source.dask_array()
    rows = array.rechunk({1: -1})
    sets = rows.map_blocks(_top_sets, k, nan_policy, dtype=bool, meta=np.empty((0, 0), bool))
    return sets.rechunk(array.chunks)


def _top_sets(block: Array, k: int, nan_policy: str, block_info: Any = None) -> Array:
    block = np.ascontiguousarray(block, check_dtype(block.dtype))
    first_row = int(block_info[0]["array-location"][0][0])
    refuse_nan(np.isnan(block) if nan_policy == "raise" and block.dtype.kind not in "iu" else None, first_row, 0)
    top = TopRanks(block.shape[0], k, block.dtype)
    top.insert(carrier(block), 0, 0)
    chosen = np.zeros(block.shape, bool)
    rows, ranks = np.nonzero(top.classes >= 0)
    chosen[rows, top.classes[rows, ranks]] = True
    return chosen


def refuse_nan(is_nan: Array | None, first_row: int, first_class: int) -> None:
    """Raise for the first NaN of a block, naming its place in the matrix."""
    if is_nan is None or not is_nan.any():
        return
    row, class_ = (int(i[0]) for i in np.nonzero(is_nan))
    raise ScoresError(
        f"scores must not hold NaN; got one at sample {first_row + row}, class {first_class + class_}. {NAN_CURE}"
    )
