"""Groups of samples, such as clusters: they travel with the labels."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from ..arrays import Array, Ints
from .lazy_arrays import lazy_array
from .row_values import Labels, narrowed
from .source import Source


def with_groups(source: Source, groups: Ints) -> Source:
    """Return a source whose labels carry the group of each sample, numbers from 0 up; both are held in memory.

    Samples of a source without labels are unlabelled.
    """
    n_samples = source.whole.shape[0]
    labels = labels_in_memory(source.labels)
    labels = np.full(n_samples, -1, np.int8) if labels is None else narrowed(labels)
    groups = narrowed(groups)
    packed = np.empty(n_samples, [("label", labels.dtype), ("group", groups.dtype)])
    packed["label"], packed["group"] = labels, groups
    return source.with_labels(packed)


def labels_in_memory(labels: Labels) -> Array | None:
    """Return labels as an array in memory, read now if they are not."""
    if labels is None or isinstance(labels, np.ndarray):
        return labels
    lazy: Any = labels if isinstance(labels, da.Array) else lazy_array(labels)
    return np.asarray(lazy.compute())
