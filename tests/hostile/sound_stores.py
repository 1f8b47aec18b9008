"""Sound stores for tests to damage: sealed ones in each form, and foreign ones."""

from __future__ import annotations

import numpy as np
import zarr

import avgk_dask as avgk

# Sharp enough for certain results at k = 1 from a truncated store.
SCORES = np.random.default_rng(11).dirichlet(np.full(5, 0.2), 60).astype(np.float32)
LABELS = np.random.default_rng(12).integers(0, 5, 60)


def write_ours(path, **options):
    with avgk.ScoreWriter(path, 5, chunk_rows=16, **options) as writer:
        writer.append(SCORES, LABELS)


def write_draft(path):
    """Write a store whose writer is interrupted after three records."""
    writer = avgk.ScoreWriter(path, 5, chunk_rows=16)
    writer.append(SCORES, LABELS)
    writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)


def write_foreign(path, zarr_format):
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("scores", data=SCORES, chunks=(16, 5))
    group.create_array("labels", data=LABELS, chunks=(60,))
