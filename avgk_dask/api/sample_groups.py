"""Groups of samples, as users say them: an integer a sample, in memory, in blocks or stored."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array, Ints
from ..errors import DtypeError, LabelsError, StoreError
from ..masks import plain_array, plain_block
from ..scans.label_columns import pack
from ..sources.lazy_arrays import lazy_array
from ..sources.row_values import labels_in_memory
from ..sources.source import Source
from ..store import is_zarr
from .dimensions import flat_column
from .given import LabelsLike, Matrix, ScoresLike, is_stored
from .input_names import check_inputs, compute_frame, names_of
from .inputs import aligned, find_labels


@dataclass(frozen=True)
class Groups:
    """The group of each sample, those that do not exist included, as a column in memory or in blocks."""

    column: Array | da.Array

    @classmethod
    def of(
        cls,
        given: LabelsLike,
        scores: ScoresLike,
        source: Source,
        what: str,
        missing: str | None = None,
        **others: LabelsLike,
    ) -> Groups:
        """Return the groups of a source's samples; ``what`` is how the argument is called, ``missing`` as in ``as_source``.

        ``others`` are inputs of the same call that may name samples, such as labels.

        Raises
        ------
        DtypeError, LabelsError
            Where they are no integers, or not one a sample.

        """
        given = compute_frame(given)
        found = _found(given, scores, what, missing)
        is_place = isinstance(given, (str, os.PathLike))
        others = {name: values for name, values in others.items() if not isinstance(values, (str, os.PathLike))}
        named = {**others, what: found if is_place else given}
        check_inputs(partial(names_of, scores, "scores"), len(source.lead), **named)
        if found.dtype.kind not in "iu":
            raise DtypeError(
                f"{what} must be integers; got dtype {found.dtype}. Number them, for example with "
                f"numpy.unique({what}, return_inverse=True)[1]."
            )
        if tuple(found.shape) != tuple(source.lead):
            raise LabelsError(
                f"{what} must have the samples' shape {tuple(source.lead)}; got shape {tuple(found.shape)}. "
                "Give the group of each sample."
            )
        column: Any = flat_column(found, source.whole.shape[0])
        return cls(lazy_array(column) if is_stored(column) else column)

    def names(self) -> Ints:
        """Return the numbers of the groups there are, ascending; groups in blocks are computed."""
        lazy = not isinstance(self.column, np.ndarray)
        found = da.unique(self.column).compute() if lazy else np.unique(self.column)
        if found.size and found[-1] > np.iinfo(np.int64).max:
            raise DtypeError(
                f"groups must be integers below 2**63; got {found[-1]}. Number them, for example with "
                "numpy.unique(groups, return_inverse=True)[1]."
            )
        return np.asarray(found, np.int64)

    def codes(self, names: Ints) -> Array | da.Array:
        """Return for each sample the place of its group among these; one past the last for others."""
        if isinstance(self.column, np.ndarray):
            return _codes(self.column, names)
        return self.column.map_blocks(_codes, names, dtype=np.int64, meta=np.empty(0, np.int64))

    def numbered(self) -> tuple[Ints, Ints]:
        """Return the groups there are, ascending, and the number of each sample's among them, in memory."""
        names = self.names()
        numbers = labels_in_memory(self.codes(names))
        assert numbers is not None
        return names, numbers

    def beside_labels(self, source: Source, names: Ints) -> Source:
        """Return the source with labels and groups in one column."""
        labels: Any = source.labels
        codes: Any = self.codes(names)
        if labels is None:
            labels = np.full(codes.shape[0], -1, np.int8)
        if isinstance(labels, np.ndarray) and isinstance(codes, np.ndarray):
            return source.with_slots(pack(labels, codes, source.shape[1]))
        column = lazy_array(labels) if is_stored(labels) else da.asarray(labels)
        codes = da.asarray(codes).rechunk(column.chunks)
        made = da.map_blocks(pack, column, codes, source.shape[1], dtype=np.int64, meta=np.empty(0, np.int64))
        return source.with_slots(made)


def _found(given: LabelsLike, scores: ScoresLike, what: str, missing: str | None) -> Matrix:
    if isinstance(given, xr.DataArray):
        frame = scores["scores"] if isinstance(scores, xr.Dataset) and "scores" in scores else scores
        given = aligned(frame, given, what) if isinstance(frame, xr.DataArray) else given
        given = given.data if isinstance(given, xr.DataArray) else given
    if isinstance(given, (str, os.PathLike)) or is_zarr(given):
        try:
            return find_labels(given, missing=missing)
        except StoreError as error:
            raise StoreError(f"{what} must be integers, one a sample, or where they are stored: {error}") from None
    if isinstance(given, da.Array):
        plain_block(given._meta, what, LabelsError)
        return given
    return plain_array(given, what, LabelsError)


def _codes(column: Array, names: Ints) -> Ints:
    values = column.astype(np.int64)
    if not names.size:
        return np.zeros(values.shape, np.int64)
    places = np.minimum(np.searchsorted(names, values), names.size - 1)
    met = (names[places] == values) & ((values < 0) == (column < 0))  # unsigned ones from 2**63 on turn negative
    return np.where(met, places, names.size)
