"""The weighted mean of several matrices, inside the tasks. Apart from what plans it: a worker imports no Dask arrays."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..scans.entries import checked_slabs
from .reading import Combining, Preparation, slabs_of

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
