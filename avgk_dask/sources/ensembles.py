"""The mean of several matrices, computed while they are read and not stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
from .planning import held_bytes
from .readers import Reader
from .reading import Argument, Key, MixedForm, Mixture, add_weighted, round_sums
from .source import Source
from .transforms import Softmax

#: Bands end at chunk bounds that all matrices share, as long as the sums of a band have at most this many bytes.
_MOST_COMMON = 64 << 20
#: Small chunks are joined into bands as long as there are at least this many bands.
_LEAST_BANDS = 32


class EnsembleReader(Reader):
    """The weighted mean of several sources of the same shape. Each task reads all of them, band by band.

    Bands begin at chunk bounds that all members share, so that each chunk is read once. If such bands would be too large,
    they follow the member with the largest chunks, and chunks of others that reach into two bands are read twice.
    The mean is rounded to ``mean_dtype`` unless ``in_float64``.
    """

    def __init__(
        self,
        members: Sequence[Source],
        weights: Sequence[float],
        rows: Sequence[int] | None = None,
        *,
        in_float64: bool = False,
    ) -> None:
        self.shape, self.sample_shape, self.weights = members[0].shape, members[0].sample_shape, tuple(weights)
        self.in_float64 = in_float64
        self.dtype = np.dtype(np.float64) if in_float64 else mean_dtype(members)
        self.rows = list(_common_rows(members) if rows is None else rows)
        self.members = tuple(m if list(m.rows) == self.rows else m.with_rows(self.rows) for m in members)
        self.classes = _common([member.classes for member in self.members])
        self.columns = [0, self.shape[1]]
        self.location = " + ".join(member.location for member in members if member.location)
        self.score_bytes = sum(member.reader.score_bytes for member in members)
        parts = [f"{w!r} {m.provenance}".rstrip() for w, m in zip(self.weights, members, strict=True)]
        rounding = " in float64" if self.dtype != mean_dtype(members) else ""
        self.provenance = f"mean of {len(parts)}{rounding}, weights {', '.join(parts)}"
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
        return sums + sum(map(held_bytes, self.members))

    def ahead_bytes(self) -> int:  # noqa: D102
        return max(member.reader.ahead_bytes() for member in self.members)

    @contextmanager
    def reading(self) -> Iterator[None]:  # noqa: D102
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.reader.reading())
            yield

    @property
    def row_bounds(self) -> Sequence[int] | None:  # noqa: D102
        bounds = _bounds_of(self.members)
        return _common(bounds) if bounds else None

    def with_members(self, members: Sequence[Source], rows: Sequence[int]) -> EnsembleReader:
        """Return the same mean of other members, in other bands."""
        return EnsembleReader(members, self.weights, rows, in_float64=self.in_float64)

    def with_rows(self, rows: Sequence[int]) -> EnsembleReader:  # noqa: D102
        return self.with_members(self.members, rows)

    def row_stamps(self) -> Array:  # noqa: D102
        stamps = np.stack([member.row_stamps() for member in self.members], axis=1).tolist()
        return np.array([int(join_stamps([self.provenance, *each])[:16], 16) for each in stamps], np.uint64)

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
        add_weighted(total, block, weight, is_first=number == 0)
    return round_sums(total, rounded_to)


def mean_dtype(members: Sequence[Source]) -> Dtype:
    """Return the dtype that a mean is rounded to: float64 if any score has 64 bits, else float32."""
    return np.dtype(np.float64 if any(member.dtype.itemsize == 8 for member in members) else np.float32)


def _common(bounds: Sequence[Sequence[int]]) -> list[int]:
    """Return the bounds that all sequences share."""
    common: list[int] = reduce(np.intersect1d, [np.asarray(each, np.int64) for each in bounds]).tolist()
    return common


def _bounds_of(members: Sequence[Source]) -> list[Sequence[int]]:
    """Return the chunk bounds of each member that has any."""
    return [bounds for member in members if (bounds := member.reader.row_bounds) is not None]


def _common_rows(members: Sequence[Source]) -> Sequence[int]:
    """Return the bounds of the bands."""
    bounds = _bounds_of(members)
    if not bounds:
        return members[0].rows
    common, row_bytes = _common(bounds), 8 * members[0].shape[1]
    largest = max(bounds, key=_widest)
    if _widest(common) * row_bytes > _MOST_COMMON and _widest(common) > _widest(largest):
        common = list(largest)  # some chunks of the other members are read twice, and none more often
    n_samples = members[0].shape[0]
    most = min(setting("band-bytes") // row_bytes, n_samples // _LEAST_BANDS)
    return Axis(n_samples, _widest(common), tuple(common[1:])).join_chunks(most)


def _widest(bounds: Sequence[int]) -> int:
    return int(np.diff(bounds).max())


def tolerate_bad_rows(source: Source) -> Source:
    """Return the source with softmaxes that give NaN for a bad row: an error could concern a sample that does not exist."""
    reader = source.reader
    if isinstance(reader, EnsembleReader):
        reader = reader.with_members([tolerate_bad_rows(member) for member in reader.members], reader.rows)
    transforms = (replace(t, is_lenient=True) if isinstance(t, Softmax) else t for t in source.transforms)
    return replace(source, reader=reader, transforms=tuple(transforms))
