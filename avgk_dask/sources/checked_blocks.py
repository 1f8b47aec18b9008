"""The users' own Dask arrays, with blocks that are checked as they come."""

from __future__ import annotations

import dask.array as da
import numpy as np

from ..arrays import Dtype
from ..errors import LabelsError
from ..masks import check_label_dtype, plain_block, refuse_other_kinds
from ..scans.promised import check_block, check_labels, check_where


def checked_matrix(array: da.Array, dtype: Dtype, what: str = "scores") -> da.Array:
    """Return a matrix whose blocks are plain and of the dtype and shape that its metadata promise, or refused."""
    plain_block(array._meta, what)
    return array.map_blocks(check_block, dtype, what, dtype=dtype, meta=np.empty((0, 0), dtype))


def checked_labels(labels: da.Array) -> da.Array:
    """Return labels whose blocks are plain and what their metadata promise; hard ones are -1 where they are masked."""
    hard = labels.ndim == 1
    if not (hard and isinstance(labels._meta, np.ma.MaskedArray)):
        refuse_other_kinds(labels._meta, "labels", LabelsError)
    if not (hard and labels.dtype == object):  # nullable columns of dask.dataframe: each block is looked at
        check_label_dtype(labels.dtype, labels.ndim)
    if labels.ndim not in (1, 2) or any(n != n for n in labels.shape):
        return labels
    dtype = np.dtype(np.int64) if hard else labels.dtype
    return labels.map_blocks(check_labels, dtype=dtype, meta=np.empty((0,) * labels.ndim, dtype))


def checked_where(where: da.Array) -> da.Array:
    """Return a boolean column whose blocks are plain and of the dtype and shape that its metadata promise, or refused."""
    plain_block(where._meta, "where")
    return where.map_blocks(check_where, dtype=bool, meta=np.empty(0, bool))
