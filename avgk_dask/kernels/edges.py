"""Tables that find where a key lies among ascending ones, as the kernels take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .zones import shift_to_fit

Ints = NDArray[np.int64]

#: Runs of keys in the table that finds an edge.
_N_STARTS = 1 << 16


@dataclass(frozen=True)
class EdgeTable:
    """Ascending, distinct keys, at least one, that scores are placed among."""

    edges: Ints
    starts: Ints
    shift: np.uint64

    @classmethod
    def from_edges(cls, edges: Ints) -> EdgeTable:
        """Return the table of some keys."""
        low, high = int(edges[0]), int(edges[-1])
        shift = shift_to_fit(high - low + 1, _N_STARTS)
        n_stretches = ((high - low) >> shift) + 1
        stretch_of = ((edges.view(np.uint64) - np.uint64(low % 2**64)) >> np.uint64(shift)).astype(np.int64)
        starts = np.searchsorted(stretch_of, np.arange(n_stretches))
        return cls(edges, starts, np.uint64(shift))

    @property
    def n_cells(self) -> int:
        """Number of cells: before, at and behind the edges."""
        return 2 * self.edges.size + 1
