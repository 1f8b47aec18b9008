"""Verifying stores: every chunk read once, in tasks of several chunks."""

from __future__ import annotations

import math
from typing import Any

import dask
import numpy as np

from ..store.read.listing import chunk_key
from ..store.read.manifest import chunk_grid
from ..store.read.verifying import Verification, verify_listing, verify_metadata, verify_stretch
from .run import Compute

#: Chunks a task checks, one after the other.
_STRETCH = 16


def verify_array(array: Any, compute: Compute) -> Verification:
    """Verify an array: first its metadata and which chunks are there, then the bytes of those that are."""
    listed = Verification.merge([verify_metadata(array), verify_listing(array)])
    known = {key for key, _ in listed.damaged}
    chunks = [chunk for chunk in np.ndindex(*chunk_grid(array)) if chunk_key(array, chunk) not in known]
    verify = dask.delayed(verify_stretch, pure=False)
    shared = dask.delayed(array, traverse=False)
    tasks = [verify(shared, chunks[i : i + _STRETCH]) for i in range(0, len(chunks), _STRETCH)]
    read = Verification.merge(compute(tasks, "verify")) if tasks else Verification(0, 0, (), True)
    n_chunks = math.prod(chunk_grid(array))
    return Verification(n_chunks, read.n_bytes, listed.damaged + read.damaged, listed.has_manifest)
