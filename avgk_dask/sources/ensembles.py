"""The mean of several matrices, made while they are read: nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.tokenize import tokenize

from ..arrays import Array, Dtype
from ..settings import setting
from ..store.read.grids import Axis
from ..store.read.listing import join_stamps
from .readers import Reader
from .reading import Argument, Key, MixedForm, Mixture, add_weighed, rounded
from .source import Source
from .transforms import Softmax

#: Bytes of the sums of a band, up to which chunks of different matrices are read in bands that end where they all do.
_MOST_COMMON = 64 << 20
#: Bands that joined chunks leave at least.
_LEAST_BANDS = 32


class EnsembleReader(Reader):
    """The weighted mean of several sources of the same shape: each task reads all of them, band by band.

    Bands begin where chunks of all members do, so that each chunk is read once. Where such bands would be too large, they
    are those of the member with the largest chunks, and chunks of others that reach into two bands are read for both.
    The mean is rounded to ``mean_dtype``, unless it is kept in float64.
    """

    def __init__(
        self,
        members: Sequence[Source],
        weights: Sequence[float],
        rows: Sequence[int] | None = None,
        *,
        in_float64: bool = False,
    ) -> None:
        self.shape, self.lead, self.weights = members[0].shape, members[0].lead, tuple(weights)
        self.in_float64 = in_float64
        self.dtype = np.dtype(np.float64) if in_float64 else mean_dtype(members)
        self.rows = list(_common_rows(members) if rows is None else rows)
        self.members = tuple(m if list(m.rows) == self.rows else m.with_rows(self.rows) for m in members)
        self.classes = _common([member.classes for member in self.members])
        self.columns = [0, self.shape[1]]
        self.location = " + ".join(member.location for member in members if member.location)
        self.score_bytes = sum(member.reader.score_bytes for member in members)
        parts = [f"{w!r} {m.made_by}".rstrip() for w, m in zip(self.weights, members, strict=True)]
        rounding = " in float64" if self.dtype != mean_dtype(members) else ""
        self.made_by = f"mean of {len(parts)}{rounding}, weights {', '.join(parts)}"
        arrays = [member.reader.stored_array for member in members]
        self.stored_array = None if None in arrays else arrays[0]
        forms = [MixedForm(w, m.dtype, m.preparations) for w, m in zip(self.weights, self.members, strict=True)]
        inner = [member.token for member in self.members]
        self.token = str(tokenize(inner, self.weights, self.rows, self.classes, self.dtype))
        name = f"avgk-mixture-{self.token}"
        self.key = Key(name)
        mixture = delayed(Mixture(forms, self.classes, self.dtype), name=name, traverse=False)
        self.collections = [mixture, *(each for member in self.members for each in member.collections())]

    def held_bytes(self) -> int:  # noqa: D102
        sums = self.slab_bytes() * 8 // self.dtype.itemsize + self.slab_bytes()
        return sums + sum(member.held_bytes() for member in self.members)

    def ahead_bytes(self) -> int:  # noqa: D102
        return max(member.reader.ahead_bytes() for member in self.members)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.reader.reading())
            yield

    def reading(self) -> AbstractContextManager[None]:  # noqa: D102
        return self._reading()

    @property
    def row_bounds(self) -> Sequence[int] | None:  # noqa: D102
        known = _bounds_of(self.members)
        return _common(known) if known else None

    def over(self, members: Sequence[Source], rows: Sequence[int]) -> EnsembleReader:
        """Return the same mean of other members, in other bands."""
        return EnsembleReader(members, self.weights, rows, in_float64=self.in_float64)

    def with_rows(self, rows: Sequence[int]) -> EnsembleReader:  # noqa: D102
        return self.over(self.members, rows)

    def row_stamps(self) -> Array:  # noqa: D102
        stamps = np.stack([member.row_stamps() for member in self.members], axis=1).tolist()
        return np.array([int(join_stamps([self.made_by, *each])[:16], 16) for each in stamps], np.uint64)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return [self.key, *(member.bands(numbers) for member in self.members)]

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        return [band, *(member.bands([band]) for member in self.members)]

    def dask_array(self) -> da.Array:  # noqa: D102
        chunks: Any = tuple(tuple(np.diff(bounds).tolist()) for bounds in (self.rows, self.classes))
        arrays = [member.dask_array().rechunk(chunks) for member in self.members]
        meta = np.empty((0, 0), self.dtype)
        return da.map_blocks(_mean, *arrays, weights=self.weights, rounded_to=self.dtype, dtype=self.dtype, meta=meta)


def _mean(*blocks: Array, weights: Sequence[float], rounded_to: Dtype) -> Array:
    total = np.empty(blocks[0].shape)
    for number, (block, weight) in enumerate(zip(blocks, weights, strict=True)):
        add_weighed(total, block, weight, begun=number > 0)
    return rounded(total, rounded_to)


def mean_dtype(members: Sequence[Source]) -> Dtype:
    """Return the dtype that a mean is rounded to: float64 if any score has 64 bits, else float32."""
    return np.dtype(np.float64 if any(member.dtype.itemsize == 8 for member in members) else np.float32)


def _common(bounds: Sequence[Sequence[int]]) -> list[int]:
    """Return the bounds that all have."""
    found: list[int] = reduce(np.intersect1d, [np.asarray(each, np.int64) for each in bounds]).tolist()
    return found


def _bounds_of(members: Sequence[Source]) -> list[Sequence[int]]:
    """Return the rows at which the chunks of each member begin whose bands should begin there, too."""
    return [bounds for member in members if (bounds := member.reader.row_bounds) is not None]


def _common_rows(members: Sequence[Source]) -> Sequence[int]:
    """Return the rows at which bands begin, and where the last one ends."""
    known = _bounds_of(members)
    if not known:
        return members[0].rows
    common, row_bytes = _common(known), 8 * members[0].shape[1]
    largest = max(known, key=_widest)
    if _widest(common) * row_bytes > _MOST_COMMON and _widest(common) > _widest(largest):
        common = list(largest)  # of the others some chunks are read twice, and none more often
    n_samples = members[0].shape[0]
    most = min(setting("band-bytes") // row_bytes, n_samples // _LEAST_BANDS)
    return Axis(n_samples, _widest(common), tuple(common[1:])).joined(most)


def _widest(bounds: Sequence[int]) -> int:
    return int(np.diff(bounds).max())


def lenient(source: Source) -> Source:
    """Return the same source, whose softmaxes give NaN where a row has none: perhaps its sample does not exist."""
    reader = source.reader
    if isinstance(reader, EnsembleReader):
        reader = reader.over([lenient(member) for member in reader.members], reader.rows)
    transforms = (replace(t, is_lenient=True) if isinstance(t, Softmax) else t for t in source.transforms)
    return replace(source, reader=reader, transforms=tuple(transforms))
