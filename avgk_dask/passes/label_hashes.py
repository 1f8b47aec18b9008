"""Hashes of labels: they tell a band's labels from any others, whatever their chunks."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import numpy as np

from ..sources.source import Source
from ..store.read.stamps import band_stamps, hash_rows
from .dask_tasks import as_delayed, task, token_of
from .kept_states import hash_labels
from .run import Compute

#: Tasks that hash class numbers: they are few bytes.
_MOST_TASKS = 32


def label_hashes(compute: Compute, source: Source) -> list[int]:
    """Return a hash of the labels of each band: of their values, or of stored probabilities that of their chunks."""
    found = _hashes(compute, source.whole)
    return [found[place] for place in source.places]


def _hashes(compute: Compute, source: Source) -> list[int]:
    labels: Any = source.labels
    if labels is None:
        return [0] * source.n_bands
    if isinstance(labels, np.ndarray):
        return [hash_rows(labels[first:last]) for first, last in pairwise(source.rows)]
    if labels.ndim == 2 and hasattr(labels, "store_path"):
        return [int(stamp) for stamp in band_stamps(labels, source.rows)]
    groups = source.groups(_MOST_TASKS if labels.ndim == 1 else None)
    name = f"avgk-stamps-{token_of(source.token, groups)}"
    tasks = {}
    for numbers in groups:
        key = f"{name}-{numbers[0]}"
        tasks[key] = task(key, hash_labels, source.labels_of(numbers), numbers)
    found = compute(as_delayed(list(tasks), tasks, source.collections(), name), "labels")
    return list(chain.from_iterable(found))
