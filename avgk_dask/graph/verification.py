"""Verifying stores: every chunk read once, in tasks of several chunks."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np

from ..store.manifest import chunk_grid
from ..store.verifying import Verification, verify_listing, verify_run
from .engine import Compute

#: Chunks a task checks, one after the other.
_RUN = 16


def verify_array(array: Any, compute: Compute) -> Verification:
    """Verify an array: first which chunks are there, then the bytes of those that are."""
    listed = verify_listing(array)
    known = {key for key, _ in listed.damaged}
    places = list(np.ndindex(*chunk_grid(array)))
    run = dask.delayed(verify_run, pure=False)
    shared = dask.delayed(array, traverse=False)
    tasks = [run(shared, places[i : i + _RUN]) for i in range(0, len(places), _RUN)]
    read = Verification.merge(compute(tasks, "verify")) if tasks else Verification(0, 0, (), True)
    fresh = tuple((key, what) for key, what in read.damaged if key not in known)
    return Verification(read.n_chunks, read.n_bytes, listed.damaged + fresh, read.has_manifest)
