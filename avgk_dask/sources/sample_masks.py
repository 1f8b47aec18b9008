"""Which samples there are: those of padding do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.tokenize import tokenize

from ..arrays import Array, Bools, Ints
from .lazy_arrays import lazy_array
from .reading import Argument, count_kept, masks_of
from .row_values import Labels, RowValues, fit_rows

#: Bands whose samples a task counts.
_COUNTED = 1 << 10


class Condition(NamedTuple):
    """Samples exist where ``values`` are True or, with a label to be ignored, where they are not that label."""

    values: Labels
    ignored: int | None = None


class SampleMask:
    """The samples that exist: those that meet all conditions. Tasks read the conditions of their bands, as they read labels."""

    def __init__(self, conditions: Sequence[Condition], rows: Sequence[int]) -> None:
        self.conditions, self.rows = tuple(conditions), rows
        self._columns = [RowValues(fit_rows(condition.values, rows), rows) for condition in self.conditions]

    @property
    def ignored(self) -> tuple[int | None, ...]:
        """The label that each condition ignores; None where its values are what it says."""
        return tuple(condition.ignored for condition in self.conditions)

    @property
    def token(self) -> str:
        """A name of the mask, the same only where the mask is."""
        return str(tokenize([column.token for column in self._columns], self.ignored))

    def of(self, bands: Sequence[int]) -> list[Argument]:
        """Return the conditions of some bands, as an argument of a task."""
        return [column.of(bands) for column in self._columns]

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys name."""
        return list(chain.from_iterable(column.collections() for column in self._columns))

    def with_rows(self, rows: Sequence[int]) -> SampleMask:
        """Return the same mask in other bands."""
        return SampleMask(self.conditions, rows)

    def count(self, ends: Sequence[int]) -> Ints:
        """Return for each band how many samples exist before one of its rows, how many in all, and a hash of which ones.

        ``ends`` are those rows. Computed at once, in tasks where not all is in memory: three numbers for each band.
        """
        sizes = [end - first for end, first in zip(ends, self.rows[:-1], strict=True)]
        n_bands = len(self.rows) - 1
        groups = [range(i, min(i + _COUNTED, n_bands)) for i in range(0, n_bands, _COUNTED)]
        count = delayed(count_kept, pure=False) if self.collections() else count_kept
        parts = [
            count(
                [column.given(group) for column in self._columns], self.ignored, group, sizes[group.start : group.stop]
            )
            for group in groups
        ]
        return np.concatenate(dask.compute(*parts))

    def band(self, number: int) -> Bools:
        """Return which samples of one band exist."""
        (found,) = dask.compute([column.given([number]) for column in self._columns])
        (kept,) = masks_of(found, self.ignored, [number])
        assert kept is not None
        return kept

    def samples(self) -> Bools:
        """Return which samples exist, of all of them."""
        return np.asarray(self.dask_array([self.rows[-1]])[:, 0].compute())

    def dask_array(self, sizes: Sequence[int]) -> da.Array:
        """Return the mask as a Dask column with blocks of these sizes."""
        parts = [_lazy_condition(condition, tuple(sizes)) for condition in self.conditions]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        return whole[:, None]


def _lazy_condition(condition: Condition, sizes: tuple[int, ...]) -> da.Array:
    values: Any = condition.values
    if isinstance(values, np.ndarray):
        column = da.from_array(values, chunks=(sizes,), name=False)
    else:
        column = (values if isinstance(values, da.Array) else lazy_array(values)).rechunk((sizes,))
    return column if condition.ignored is None else column != condition.ignored


def blank(array: da.Array, mask: SampleMask, value: Array | int = 0) -> da.Array:
    """Return a matrix, or a column, with a harmless value in the rows of samples that do not exist."""
    kept = mask.dask_array(array.chunks[0])
    return da.map_blocks(
        _blank, array, kept if array.ndim == 2 else kept[:, 0], value, dtype=array.dtype, meta=array._meta
    )


def _blank(block: Array, kept: Bools, value: Array | int) -> Array:
    rows = kept.reshape(-1)
    if rows.all():
        return block
    found = block.copy()
    found[~rows] = value
    return found


def first_samples(mask: SampleMask, sizes: Sequence[int]) -> Ints:
    """Return how many samples exist before each of the blocks of these sizes."""
    bounds = [0, *np.cumsum(sizes).tolist()]
    counts = mask.with_rows(bounds).count([last for _, last in pairwise(bounds)])[:, 1]
    return np.concatenate([[0], np.cumsum(counts)[:-1]])
