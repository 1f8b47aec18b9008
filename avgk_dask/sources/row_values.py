"""Values with a row for each sample, beside the scores: labels, and which samples there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from dask.tokenize import tokenize

from ..arrays import Array
from ..store.read.opening import array_token
from ..store.where.array_kinds import StoredArray
from .lazy_arrays import lazy_array
from .reading import Argument, Key, StoredLabels

#: Labels as a source has them: in memory, stored, or the blocks of a Dask array.
Labels: TypeAlias = "Array | StoredArray | da.Array | None"


class RowValues:
    """Values with a row for each sample: tasks are given, or read, those of their bands."""

    def __init__(self, values: Labels, rows: Sequence[int]) -> None:
        self.values, self.rows = values, rows

    def of(self, bands: Sequence[int]) -> Argument:
        """Return the values of some bands, as an argument of a task: the key of what reads them, the keys of blocks, or arrays."""
        values = self.values
        if values is None:
            return None
        if isinstance(values, da.Array):
            return [Key((values.name, band, *(0,) * (values.ndim - 1))) for band in bands]
        if isinstance(values, np.ndarray):
            return [values[self.rows[band] : self.rows[band + 1]] for band in bands]
        return Key(self.reader.key)

    def given(self, bands: Sequence[int]) -> Any:
        """Return the values of some bands, or the lazy objects of Dask that give them."""
        if isinstance(self.values, da.Array):
            return [self._blocks[band] for band in bands]
        return self.of(bands) if self.values is None or isinstance(self.values, np.ndarray) else self.reader

    @cached_property
    def _blocks(self) -> list[Delayed]:
        assert isinstance(self.values, da.Array)
        blocks: list[Delayed] = self.values.to_delayed().ravel().tolist()
        return blocks

    @cached_property
    def reader(self) -> Delayed:
        """What reads stored values inside tasks."""
        assert self.values is not None
        assert not isinstance(self.values, (np.ndarray, da.Array))
        reader = StoredLabels(self.values, tuple(self.rows))
        return delayed(reader, name=f"avgk-labels-{tokenize(self.token, self.rows)}", traverse=False)

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys name."""
        values = self.values
        if values is None or isinstance(values, np.ndarray):
            return []
        return [values] if isinstance(values, da.Array) else [self.reader]

    @cached_property
    def token(self) -> str:
        """A name of the values, the same only where they are."""
        values = self.values
        if isinstance(values, da.Array):
            return str(values.name)
        return str(tokenize(values) if values is None or isinstance(values, np.ndarray) else array_token(values))


def fit_rows(values: Labels, rows: Sequence[int]) -> Labels:
    """Return values with one block for each band if they are a Dask array, as small as they fit if in memory."""
    if isinstance(values, np.ndarray):
        return narrowed(values)
    if not isinstance(values, da.Array):
        return values
    sizes: Any = tuple(np.diff(rows).tolist())
    (fitted,) = dask.optimize(values.rechunk((sizes, *(-1,) * (values.ndim - 1))))
    return fitted


def narrowed(labels: Array) -> Array:
    """Return class numbers in the smallest integers that hold them all: they travel with the tasks."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        return labels
    least = np.promote_types(np.min_scalar_type(labels.min()), np.min_scalar_type(labels.max()))
    return labels.astype(least) if least.kind in "iu" and least.itemsize < labels.dtype.itemsize else labels


def labels_in_memory(labels: Labels) -> Array | None:
    """Return labels as an array in memory, read now if they are not."""
    if labels is None or isinstance(labels, np.ndarray):
        return labels
    lazy: Any = labels if isinstance(labels, da.Array) else lazy_array(labels)
    return np.asarray(lazy.compute())
