"""Scores that came in batches, and are gone: their shape and labels' kind are known, and nothing can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import dask.array as da
import numpy as np

from ..arrays import Array, Dtype
from .reading import Argument
from .row_values import Labels
from .source import Source


class PastSource(Source):
    """Scores that are gone; ``labels`` is an empty array of their kind, and ``numbers`` those of samples that can be named."""

    def __init__(
        self, shape: tuple[int, int], dtype: Dtype, labels: Array | None, numbers: Array | None = None
    ) -> None:
        self.shape, self.lead = shape, shape[:1]
        self.dtype = self.stored_dtype = dtype
        self.rows, self.classes, self.columns = [0, shape[0]], [0, shape[1]], [0, shape[1]]
        self.location, self.labels = "", labels
        self._numbers = np.arange(0) if numbers is None else numbers

    def sample(self, band: int, row: int) -> int:  # noqa: D102
        return int(self._numbers[row])

    def held_bytes(self) -> int:  # noqa: D102
        return 0

    @property
    def token(self) -> str:  # noqa: D102
        _refuse()

    def with_labels(self, labels: Labels) -> Source:  # noqa: D102
        _refuse()

    def with_rows(self, rows: Sequence[int]) -> Source:  # noqa: D102
        _refuse()

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        _refuse()

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        _refuse()

    def dask_array(self) -> da.Array:  # noqa: D102
        _refuse()


def _refuse() -> NoReturn:
    raise AssertionError("scores that are gone cannot be read")
