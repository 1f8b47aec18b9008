"""Values with a row per sample, as arguments of tasks: labels and masks; and stored arrays as Dask arrays and back."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Sequence
from functools import cached_property, reduce
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.tokenize import tokenize

from ..arrays import Array, Bools, Dtype, Ints
from ..bands.rows import check_block, check_labels, check_where
from ..errors import LabelsError
from ..masks import block_to_ndarray, check_label_dtype, refuse_other_kinds
from ..store.read.bands import read_array
from ..store.read.encoding import decoded_dtype
from ..store.read.grids import grid_of
from ..store.read.opening import array_token
from ..store.where.addresses import StoredArray
from .reading import Argument, Key, StoredLabels, count_kept, iterate_masks


class StoreLayer(MaterializedLayer):
    """The tasks that read a stored array as Dask blocks. The layer knows the array."""

    def __init__(self, tasks: dict[Any, Any], stored: Any) -> None:
        super().__init__(tasks)
        self.stored = stored


def lazy_array(array: StoredArray) -> da.Array:
    """Return a stored array as a Dask array: one task for each stored chunk (or shard)."""
    bounds = [axis.bounds() for axis in grid_of(array)]
    sizes: Any = tuple(tuple(last - first for first, last in pairwise(b)) for b in bounds)
    name = f"avgk-read-{uuid.uuid4().hex[:12]}"
    dtype = decoded_dtype(array)
    shared = delayed(StoredBlocks(array), name=f"{name}-store", traverse=False)
    tasks: dict[Any, Any] = {
        (name, *index): (StoredBlocks.read, shared.key, [(b[i], b[i + 1]) for b, i in zip(bounds, index, strict=True)])
        for index in np.ndindex(*map(len, sizes))
    }
    layers = {name: StoreLayer(tasks, array), **shared.dask.layers}
    graph = HighLevelGraph(layers, {name: set(shared.__dask_layers__()), **shared.dask.dependencies})
    return da.Array(graph, name, sizes, dtype=dtype)


def stored_array(blocks: Any) -> Any | None:
    """Return the stored array that a Dask array reads unchanged, or None if it is anything else."""
    layer = blocks.dask.layers.get(blocks.name) if isinstance(blocks, da.Array) else None
    return layer.stored if isinstance(layer, StoreLayer) else None


class StoredBlocks:
    """Reads blocks of a stored array. Sent to each worker once."""

    def __init__(self, array: StoredArray) -> None:
        self.array = array

    def read(self, bounds: list[tuple[int, int]]) -> Array:
        """Return the values between the bounds of each axis."""
        return read_array(self.array, tuple(slice(*ends) for ends in bounds))


# Dask arrays of users. Their blocks are checked when they are computed.


def checked_matrix(array: da.Array, dtype: Dtype, argument: str = "scores") -> da.Array:
    """Return a matrix whose blocks are checked: NumPy arrays of the dtype and shape that the metadata promise."""
    block_to_ndarray(array._meta, argument)
    return array.map_blocks(check_block, dtype, argument, dtype=dtype, meta=np.empty((0, 0), dtype))


def checked_labels(labels: da.Array) -> da.Array:
    """Return labels whose blocks are checked; masked hard labels become -1."""
    hard = labels.ndim == 1
    if not (hard and isinstance(labels._meta, np.ma.MaskedArray)):
        refuse_other_kinds(labels._meta, "labels", LabelsError)
    if not (hard and labels.dtype == object):  # nullable columns of dask.dataframe are checked block by block
        check_label_dtype(labels.dtype, labels.ndim)
    if labels.ndim not in (1, 2) or any(n != n for n in labels.shape):
        return labels
    dtype = np.dtype(np.int64) if hard else labels.dtype
    return labels.map_blocks(check_labels, dtype=dtype, meta=np.empty((0,) * labels.ndim, dtype))


def checked_where(where: da.Array) -> da.Array:
    """Return a boolean column whose blocks are checked."""
    block_to_ndarray(where._meta, "where")
    return where.map_blocks(check_where, dtype=bool, meta=np.empty(0, bool))


#: The labels of a source: in memory, stored, or a Dask array.
Labels: TypeAlias = "Array | StoredArray | da.Array | None"


class RowValues:
    """Values with a row per sample. Tasks receive or read the values of their bands."""

    def __init__(self, values: Labels, rows: Sequence[int]) -> None:
        self.values, self.rows = values, rows

    def argument(self, bands: Sequence[int]) -> Argument:
        """Return the values of some bands, as an argument of a task: arrays, the keys of blocks, or that of a reader."""
        values = self.values
        if values is None:
            return None
        if isinstance(values, da.Array):
            return [Key((values.name, band, *(0,) * (values.ndim - 1))) for band in bands]
        if isinstance(values, np.ndarray):
            return [values[self.rows[band] : self.rows[band + 1]] for band in bands]
        return Key(self.reader.key)

    def lazy_argument(self, bands: Sequence[int]) -> Any:
        """Return the values of some bands, as an argument of a delayed function."""
        if isinstance(self.values, da.Array):
            return [self._blocks[band] for band in bands]
        arguments = self.argument(bands)
        return self.reader if isinstance(arguments, Key) else arguments

    @cached_property
    def _blocks(self) -> list[Delayed]:
        assert isinstance(self.values, da.Array)
        blocks: list[Delayed] = self.values.to_delayed().ravel().tolist()
        return blocks

    @cached_property
    def reader(self) -> Delayed:
        """The object that reads stored values inside tasks."""
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
        """A name that distinguishes these values from any others."""
        values = self.values
        if isinstance(values, da.Array):
            return str(values.name)
        return str(tokenize(values) if values is None or isinstance(values, np.ndarray) else array_token(values))


def fit_rows(values: Labels, rows: Sequence[int]) -> Labels:
    """Return values with one block per band if they are a Dask array, in the smallest dtype if in memory."""
    if isinstance(values, np.ndarray):
        return narrowed(values)
    if not isinstance(values, da.Array):
        return values
    sizes: Any = tuple(np.diff(rows).tolist())
    (fitted,) = dask.optimize(values.rechunk((sizes, *(-1,) * (values.ndim - 1))))
    return fitted


def narrowed(labels: Array) -> Array:
    """Return class numbers in the smallest integer dtype that holds them: they are sent with the tasks."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        return labels
    least = np.promote_types(np.min_scalar_type(labels.min()), np.min_scalar_type(labels.max()))
    return labels.astype(least) if least.kind in "iu" and least.itemsize < labels.dtype.itemsize else labels


def labels_in_memory(labels: Labels) -> Array | None:
    """Return labels as an array in memory, reading them if necessary."""
    if labels is None or isinstance(labels, np.ndarray):
        return labels
    lazy: Any = labels if isinstance(labels, da.Array) else lazy_array(labels)
    return np.asarray(lazy.compute())


#: Bands per task that counts samples.
_COUNTED = 1 << 10


class Condition(NamedTuple):
    """A sample exists if its value is True or, with ``ignored``, if its value is not that label."""

    values: Labels
    ignored: int | None = None


class SampleMask:
    """The samples that exist: those that meet all conditions, which tasks read for their bands as they read labels.

    ``rows`` are the bounds of bands, and ``ends`` the row of each up to which the pilot reads it.
    """

    def __init__(self, conditions: Sequence[Condition], rows: Sequence[int], ends: Sequence[int] | None = None) -> None:
        self.conditions, self.rows = tuple(conditions), rows
        self._ends = rows[1:] if ends is None else ends
        self._columns = [RowValues(fit_rows(condition.values, rows), rows) for condition in self.conditions]

    @property
    def ignored(self) -> tuple[int | None, ...]:
        """The label that each condition ignores, or None if its values are boolean."""
        return tuple(condition.ignored for condition in self.conditions)

    @property
    def token(self) -> str:
        """A name that distinguishes this mask from any others."""
        return str(tokenize([column.token for column in self._columns], self.ignored))

    @cached_property
    def counts(self) -> Ints:
        """For each band, the number of samples that exist before its ``end``, their number in all, and a hash of the mask."""
        sizes = [end - first for end, first in zip(self._ends, self.rows[:-1], strict=True)]
        n_bands = len(self.rows) - 1
        groups = [range(i, min(i + _COUNTED, n_bands)) for i in range(0, n_bands, _COUNTED)]
        count = delayed(count_kept, pure=False) if self.collections() else count_kept
        parts = [
            count(
                [column.lazy_argument(group) for column in self._columns],
                self.ignored, group, sizes[group.start : group.stop],
            )
            for group in groups
        ]  # fmt: skip
        return np.concatenate(dask.compute(*parts))

    @cached_property
    def nonempty_bands(self) -> list[int]:
        """The numbers of the bands that have samples."""
        numbers: list[int] = np.flatnonzero(self.counts[:, 1]).tolist()
        return numbers

    def argument(self, bands: Sequence[int]) -> list[Argument]:
        """Return the conditions of some bands, as an argument of a task."""
        return [column.argument(bands) for column in self._columns]

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys name."""
        return list(chain.from_iterable(column.collections() for column in self._columns))

    def band(self, number: int) -> Bools:
        """Return which samples of one band exist."""
        (columns,) = dask.compute([column.lazy_argument([number]) for column in self._columns])
        (kept,) = iterate_masks(columns, self.ignored, [number])
        assert kept is not None
        return kept

    def samples(self) -> Bools:
        """Return the mask of all samples."""
        return np.asarray(self.dask_array([self.rows[-1]])[:, 0].compute())

    def dask_array(self, sizes: Sequence[int]) -> da.Array:
        """Return the mask as a Dask column with blocks of these sizes."""
        parts = [_lazy_condition(condition, tuple(sizes)) for condition in self.conditions]
        mask: da.Array = reduce(operator.and_, parts)
        return mask[:, None]


def _lazy_condition(condition: Condition, sizes: tuple[int, ...]) -> da.Array:
    values: Any = condition.values
    if isinstance(values, np.ndarray):
        column = da.from_array(values, chunks=(sizes,), name=False)
    else:
        column = (values if isinstance(values, da.Array) else lazy_array(values)).rechunk((sizes,))
    return column if condition.ignored is None else column != condition.ignored


def blank(array: da.Array, mask: SampleMask, value: Array | int = 0) -> da.Array:
    """Return a matrix or a column with ``value`` in the rows of samples that do not exist."""
    kept = mask.dask_array(array.chunks[0])
    return da.map_blocks(
        _blank, array, kept if array.ndim == 2 else kept[:, 0], value, dtype=array.dtype, meta=array._meta
    )


def _blank(block: Array, kept: Bools, value: Array | int) -> Array:
    rows = kept.reshape(-1)
    if rows.all():
        return block
    block = block.copy()
    block[~rows] = value
    return block


def first_samples(mask: SampleMask, sizes: Sequence[int]) -> Ints:
    """Return how many samples exist before each block, given the sizes of the blocks."""
    bounds = [0, *np.cumsum(sizes).tolist()]
    counts = SampleMask(mask.conditions, bounds).counts[:, 1]
    return np.concatenate([[0], np.cumsum(counts)[:-1]])
