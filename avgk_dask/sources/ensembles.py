"""The weighted mean of several matrices, inside the tasks. Apart from what plans it: a worker imports no Dask arrays."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.tokenize import tokenize

from ..arrays import Array, Dtype, Floats
from ..bands.candidates import checked_slabs
from ..settings import setting
from ..store.read.grids import Axis
from ..store.read.listing import join_stamps
from ..store.where.addresses import StoredArray
from .activations import Softmax
from .derived import TransformedSource
from .reading import Argument, Combining, Key, Preparation, slabs_of
from .row_values import Labels, fit_rows
from .source import Source

#: Scores that are added at once: so many stay in a core's cache.
_STRIP = 1 << 15


@dataclass(frozen=True)
class MixedForm:
    """What one of several matrices is like as it is mixed: its weight, its dtype, and what happens to it before."""

    weight: float
    dtype: Dtype
    preparations: tuple[Preparation, ...]

    def prepared(self, slabs: Iterable[Array], band: int) -> Iterable[Array]:
        """Return the slabs of a band as they are mixed."""
        for preparation in self.preparations:
            slabs = preparation.prepare(slabs, band)
        return slabs


class Mixture(Combining):
    """Mixes bands of several matrices of the same shape; travels to each worker once."""

    # Not a dataclass: Dask would look for tasks inside one, field by field.
    def __init__(self, forms: Sequence[MixedForm], classes: Sequence[int], dtype: Dtype) -> None:
        self.forms, self.classes, self.dtype = tuple(forms), tuple(classes), dtype

    def bands(self, arguments: Sequence[Any], numbers: Sequence[int]) -> Generator[Iterable[Array]]:
        """Return the slabs of the mean of each of some bands, given those of each matrix as an argument of a task."""
        with ExitStack() as stack:
            readers = [stack.enter_context(closing(slabs_of(argument, numbers))) for argument in arguments]
            for number in numbers:
                found = zip(self.forms, readers, strict=True)
                yield self._slabs([form.prepared(next(reader), number) for form, reader in found])

    def _slabs(self, members: Sequence[Iterable[Array]]) -> Iterator[Array]:
        """Return the mean between the class bounds that all have, one after the other. The last member is asked last."""
        n_classes = self.classes[-1]
        streams = [checked_slabs(m, f.dtype, n_classes, None) for m, f in zip(members, self.forms, strict=True)]
        for first, last in pairwise(self.classes):
            total: Floats | None = None
            for stream, form in zip(streams, self.forms, strict=True):
                total = _add(total, stream, last - first, form.weight)
            assert total is not None
            yield rounded(total, self.dtype)
        for stream in streams:
            next(stream, None)  # which refuses what is too short


def _add(total: Floats | None, stream: Iterator[Array], n_classes: int, weight: float) -> Floats | None:
    """Add the next slabs of a matrix, as many as have so many classes, to a sum; begin one where there is none."""
    begun, done = total is not None, 0
    while done < n_classes:
        slab = next(stream, None)
        if slab is None:
            break
        total = np.empty((len(slab), n_classes)) if total is None else total
        add_weighed(total[:, done : done + slab.shape[1]], slab, weight, begun=begun)
        done += slab.shape[1]
    return total


def add_weighed(total: Floats, block: Array, weight: float, *, begun: bool) -> None:
    """Add the weight times a block to a sum, or begin it with that: in float64, score by score."""
    step = max(1, _STRIP // max(1, block.shape[1]))
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, which is told of where it is met
        for first in range(0, len(block), step):
            part = block[first : first + step].astype(np.float64)
            part *= weight
            if begun:
                total[first : first + step] += part
            else:
                total[first : first + step] = part


def rounded(total: Floats, dtype: Dtype) -> Array:
    """Return sums in the dtype of the mean, rounded once."""
    with np.errstate(over="ignore"):
        return total.astype(dtype, copy=False)


# The mean of several matrices, made while they are read: nothing of it is stored.


#: Bytes of the sums of a band, up to which chunks of different matrices are read in bands that end where they all do.
_MOST_COMMON = 64 << 20
#: Bands that joined chunks leave at least.
_LEAST_BANDS = 32


class EnsembleSource(Source):
    """The weighted mean of several sources of the same shape: each task reads all of them, band by band.

    Bands begin where chunks of all members do, so that each chunk is read once. Where such bands would be too large, they
    are those of the member with the largest chunks, and chunks of others that reach into two bands are read for both.
    The mean is rounded to ``mean_dtype``, unless it is kept in float64.
    """

    def __init__(
        self,
        members: Sequence[Source],
        weights: Sequence[float],
        labels: Labels,
        rows: Sequence[int] | None = None,
        *,
        in_float64: bool = False,
    ) -> None:
        self.shape, self.lead, self.weights = members[0].shape, members[0].lead, tuple(weights)
        self.in_float64 = in_float64
        self.dtype = self.stored_dtype = np.dtype(np.float64) if in_float64 else mean_dtype(members)
        self.rows = list(_common_rows(members) if rows is None else rows)
        self.members = tuple(m if list(m.rows) == self.rows else m.with_rows(self.rows) for m in members)
        self.classes = _common([member.classes for member in self.members])
        self.columns = [0, self.shape[1]]
        self.location = " + ".join(member.location for member in members if member.location)
        self.labels = fit_rows(labels, self.rows)
        forms = [MixedForm(w, m.dtype, m.preparations) for w, m in zip(self.weights, self.members, strict=True)]
        inner = [member.token for member in self.members]
        self._token = tokenize(inner, self.weights, self.rows, self.classes, self.dtype)
        mixture = Mixture(forms, self.classes, self.dtype)
        self._shared = delayed(mixture, name=f"avgk-mixture-{self._token}", traverse=False)

    def held_bytes(self) -> int:  # noqa: D102
        sums = self.slab_bytes() * 8 // self.dtype.itemsize + self.slab_bytes()
        return sums + sum(member.held_bytes() for member in self.members)

    @property
    def score_bytes(self) -> int:  # noqa: D102
        return sum(member.score_bytes for member in self.members)

    @property
    def is_made(self) -> bool:  # noqa: D102
        return True

    @property
    def made_by(self) -> str:  # noqa: D102
        parts = [f"{w!r} {m.made_by}".rstrip() for w, m in zip(self.weights, self.members, strict=True)]
        rounding = "" if self.dtype == mean_dtype(self.members) else " in float64"
        return f"mean of {len(parts)}{rounding}, weights {', '.join(parts)}"

    def ahead_bytes(self) -> int:  # noqa: D102
        return max(member.ahead_bytes() for member in self.members)

    def reading(self) -> AbstractContextManager[None]:  # noqa: D102
        return self._reading()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.reading())
            yield

    @property
    def token(self) -> str:  # noqa: D102
        return f"{self._token} {self.labels_token}"

    @property
    def stored_array(self) -> StoredArray | None:  # noqa: D102
        arrays = [member.stored_array for member in self.members]
        return None if None in arrays else arrays[0]

    @property
    def row_bounds(self) -> Sequence[int] | None:  # noqa: D102
        known = _bounds_of(self.members)
        return _common(known) if known else None

    def over(self, members: Sequence[Source], labels: Labels, rows: Sequence[int]) -> EnsembleSource:
        """Return the same mean of other members, with other labels and bands."""
        return EnsembleSource(members, self.weights, labels, rows, in_float64=self.in_float64)

    def with_labels(self, labels: Labels) -> EnsembleSource:  # noqa: D102
        return self.over(self.members, labels, self.rows)

    def with_rows(self, rows: Sequence[int]) -> EnsembleSource:  # noqa: D102
        return self.over(self.members, self.labels, rows)

    def row_stamps(self) -> Array:  # noqa: D102
        stamps = np.stack([member.row_stamps() for member in self.members], axis=1).tolist()
        return np.array([int(join_stamps([self.made_by, *each])[:16], 16) for each in stamps], np.uint64)

    def reader_key(self) -> Key | None:  # noqa: D102
        return Key(self._shared.key)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return [self.reader_key(), *(member.bands(numbers) for member in self.members)]

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        return [band, *(member.bands([band]) for member in self.members)]

    def collections(self) -> list[Any]:  # noqa: D102
        inner = [collection for member in self.members for collection in member.collections()]
        return [self._shared, *inner, *super().collections()]

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
    return [bounds for member in members if (bounds := member.row_bounds) is not None]


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
    if isinstance(source, EnsembleSource):
        return source.over([lenient(m) for m in source.members], source.labels, source.rows)
    if not isinstance(source, TransformedSource):
        return source
    transform = source.transform
    kinder = replace(transform, is_lenient=True) if isinstance(transform, Softmax) else transform
    return TransformedSource(lenient(source.inner), kinder)
