"""Tools for tests: the definitions as oracles, data with known answers, hypothesis strategies, and a counting store.

``strategies`` needs hypothesis and is imported separately.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from zarr.abc.store import Store

from ..store.read.checked import StoreWrapper
from ..store.where.addresses import redact
from .oracle import (
    oracle_average_k_sets,
    oracle_evaluate,
    oracle_smallest_k,
    oracle_straddle,
    oracle_supports,
    oracle_threshold,
    oracle_tie_sensitivity,
    oracle_top_k_sets,
    oracle_transfer,
)
from .simulation import Simulation, simulate, simulate_store
from .statistics import oracle_breakdown, oracle_conformal, oracle_conformal_costs, oracle_influences, oracle_stderr


class CountingStore(StoreWrapper):
    """Wraps a Zarr store and counts the reads of each store key.

    Parameters
    ----------
    store
        The store to wrap.
    reads
        Counter to increment; by default a new one.

    Attributes
    ----------
    reads
        How often each store key was read, metadata included.

    Examples
    --------
    >>> import numpy as np, zarr, avgk_dask as avgk
    >>> from zarr.storage import MemoryStore
    >>> store = CountingStore(MemoryStore())
    >>> array = zarr.create_array(store, name="scores", data=np.eye(4), chunks=(2, 4))
    >>> store.reads.clear()
    >>> result = avgk.evaluate(store, k=1)
    >>> sorted(store.chunk_reads().items())
    [('scores/c/0/0', 1), ('scores/c/1/0', 1)]
    """

    def __init__(self, store: Store, reads: Counter[str] | None = None) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter() if reads is None else reads

    def __repr__(self) -> str:
        return f"CountingStore({redact(self._store)!r})"

    def __str__(self) -> str:
        return f"counting {redact(self._store)}"

    def _with_store(self, store: Store) -> CountingStore:
        """Wrap a form of the store that zarr creates, such as a read-only one, with the same counter."""
        return type(self)(store, self.reads)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Read a store key and count the read."""
        self.reads[key] += 1
        return await super().get(key, prototype, byte_range)

    def chunk_reads(self, array: str = "scores") -> Counter[str]:
        """Return how often each chunk of an array was read, without metadata.

        Parameters
        ----------
        array
            Name of the array inside the store.
        """
        return Counter({key: n for key, n in self.reads.items() if key.startswith((f"{array}/c/", "c/"))})


__all__ = [
    "CountingStore",
    "Simulation",
    "oracle_average_k_sets",
    "oracle_breakdown",
    "oracle_conformal",
    "oracle_conformal_costs",
    "oracle_evaluate",
    "oracle_influences",
    "oracle_smallest_k",
    "oracle_stderr",
    "oracle_straddle",
    "oracle_supports",
    "oracle_threshold",
    "oracle_tie_sensitivity",
    "oracle_top_k_sets",
    "oracle_transfer",
    "simulate",
    "simulate_store",
]
