"""``info``: what a store holds, what evaluating it will cost, and how its layout could be better."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..exact.budgets import DEFAULT_BUDGETS, count_labels, parse_budgets
from ..passes.memory import memory_limit, project
from ..results.store_info import StoreInfo, ValuesInfo
from ..sources.row_values import Labels
from ..sources.stored import StoredSource
from ..store import StoredArrays
from ..store.read.bands import read_matrix
from ..store.read.encoding import encoding_of
from ..store.read.facts import StoreFacts, gather_facts
from ..store.where.addresses import Options
from ..store.where.array_kinds import StoredArray
from .given import LabelsLike, StoreLike, is_stored
from .store_functions import open_stored
from .straddling import n_ranked

#: Rows whose values are looked at.
_SAMPLE_ROWS = 256
#: Chunks outside these sizes (bytes, decoded) are worth changing.
_SMALL_CHUNK, _LARGE_CHUNK = 1 << 20, 64 << 20
#: So many objects are slow to list and to open one by one.
_MANY_OBJECTS = 20_000


def info(
    store: StoreLike,
    *,
    scores: str | None = None,
    labels: LabelsLike = None,
    storage_options: Options | None = None,
) -> StoreInfo:
    """Describe a store: shape, chunks, codecs, bytes, missing chunks, values, memory, reads, and advice.

    Parameters
    ----------
    store
        Path, URL, file, or a Zarr store, group or array already opened, as for ``open_scores``.
    scores
        Name of the scores inside the store, if it is not ``scores``.
    labels
        Name of the labels inside the store, or the path of a file or store that holds them.
    storage_options
        How to reach the store, as for ``open_scores``.

    Returns
    -------
    dict
        All that JSON can hold, under the names below.
    ``store, zarr_format, n_samples, n_classes, dtype``
        Where it is, and what it holds; ``zarr_format`` is None of a file.
    ``truncated, rounding, encoding``
        What storing left out or rounded, and how the stored values are decoded; None for nothing.
    ``chunks, shards, codecs, n_chunks``
        How it is laid out; ``shards`` is None where there are none.
    ``n_bytes, n_stored_bytes, n_missing_chunks``
        Bytes when decoded and as stored, and chunks that are not there; the last two None where the store cannot list.
    ``has_manifest, labels``
        Whether changed chunks are noticed with certainty, and what the labels are (None where there are none).
    ``values``
        What the first rows look like: ``kind, low, high, n_nan, n_rows_sampled``.
    ``task_memory, merge_memory, client_memory, memory_limit, reads``
        What ``evaluate`` with its default budgets takes: bytes of a task, of merging what tasks give, and of the process that
        asks, each at most and beyond an idle process; bytes a task may take; and reads of the store.
    ``advice``
        What could be better, each with what to do.

    Raises
    ------
    StoreError
        Where there is no store, no array of that name, or the store's writer did not finish.

    Notes
    -----
    Cost: reads metadata, a listing of the chunks, and the first stretch of rows.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> with avgk.ScoreWriter(path, n_classes=3) as writer:
    ...     writer.append(np.eye(3, dtype="float32"), [0, 1, 2])
    >>> avgk.info(path)["values"]["kind"]
    'probabilities: rows sum to 1'

    """
    arrays = open_stored(store, scores, labels, storage_options, "fill")
    facts = gather_facts(arrays.scores)
    source = StoredSource(arrays.scores, None, arrays.location)
    budgets = parse_budgets(DEFAULT_BUDGETS, source.shape[1])
    counts = [count_labels(k, source.shape[0]) for k in budgets]
    ranks = n_ranked(budgets, source.shape[1])
    memory = project(source, counts, int(max(budgets)), ranks)
    values = None if facts.n_missing_chunks == facts.n_chunks else _values(source)
    return {
        "store": arrays.location,
        "zarr_format": facts.zarr_format,
        "n_samples": source.shape[0],
        "n_classes": arrays.n_classes or source.shape[1],
        "truncated": _truncation(arrays),
        "dtype": str(source.dtype),
        "rounding": facts.rounding,
        "encoding": _encoding(arrays.scores),
        "chunks": list(facts.chunks),
        "shards": None if facts.shards is None else list(facts.shards),
        "codecs": list(facts.codecs),
        "n_chunks": facts.n_chunks,
        "n_bytes": facts.n_bytes,
        "n_stored_bytes": facts.n_stored_bytes,
        "n_missing_chunks": facts.n_missing_chunks,
        "has_manifest": facts.has_manifest,
        "labels": _labels(arrays.labels, arrays.scores.ndim),
        "values": values,
        "task_memory": memory.task,
        "merge_memory": memory.merge,
        "client_memory": memory.client,
        "memory_limit": memory_limit(),
        "reads": "each chunk once, after a pilot of at most 10 % of the chunks or 8 (two more reads in the worst case)",
        "advice": _advice(facts, arrays.labels, values),
    }


def _encoding(scores: StoredArray) -> str | None:
    """Return how stored values are decoded, in words."""
    found = encoding_of(scores)
    return ", ".join(f"{name} {value}" for name, value in found.items()) + f" of {scores.dtype}" if found else None


def _truncation(arrays: StoredArrays) -> str | None:
    if arrays.n_classes is None:
        return None
    return f"the {arrays.scores.shape[1]} largest of {arrays.n_classes} scores of each row"


def _labels(labels: Labels, ndim: int) -> str | None:
    if labels is None:
        return None
    encoding = _encoding(labels) if is_stored(labels) else None
    decoded = f", decoded by {encoding}" if encoding else ""
    return f"{'class numbers' if labels.ndim < ndim else 'probabilities'}, {labels.dtype}, shape {tuple(labels.shape)}{decoded}"


def _values(source: StoredSource) -> ValuesInfo:
    """Look at the first rows: their range, and whether they are probabilities."""
    end = source.piece_end(0)
    n = min(_SAMPLE_ROWS, end)
    slabs = [read_matrix(source.array, (slice(0, end), slice(*part)))[:n].copy() for part in pairwise(source.classes)]
    rows = np.concatenate(slabs, axis=1).astype(np.float64)
    finite = rows[np.isfinite(rows)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    if finite.size < rows.size:
        kind = "with infinities or NaN"
    elif source.dtype.kind in "iub":
        kind = "integers: counts, ranks or quantised scores"
    elif finite.min() < 0 or finite.max() > 1:
        kind = "logits or other real scores: not in [0, 1]"
    elif np.allclose(rows.sum(1), 1, atol=2e-2 if source.dtype.itemsize == 2 else 1e-4):
        kind = "probabilities: rows sum to 1"
    else:
        kind = "in [0, 1], rows do not sum to 1"
    return {"kind": kind, "low": low, "high": high, "n_nan": int(np.isnan(rows).sum()), "n_rows_sampled": n}


def _advice(facts: StoreFacts, labels: Labels, values: ValuesInfo | None) -> list[str]:
    """Return what could be better, each with what to do."""
    found = []
    again = "avgk ingest writes it so."
    if facts.n_missing_chunks:
        found.append(
            f"{facts.n_missing_chunks:,} {'chunk is' if facts.n_missing_chunks == 1 else 'chunks are'} missing; "
            'evaluating refuses the store unless missing="fill" (on the command line --missing fill) is asked for.'
        )
    if facts.n_columns > 1:
        found.append(f"Chunks cut the classes into {facts.n_columns} parts; whole rows read faster: {again}")
    unit = facts.object_bytes
    if facts.is_file:
        return [*found, *_file_advice(facts), *_value_advice(labels, values)]
    if unit < _SMALL_CHUNK and facts.n_chunks > 1:
        found.append(f"Chunks of {unit:,} bytes are small; 8 to 16 MB read faster: {again}")
    if unit > _LARGE_CHUNK:
        found.append(f"Chunks of {unit:,} bytes need much memory; 8 to 16 MB read as fast: {again}")
    if facts.is_remote and facts.shards is None and facts.n_chunks > _MANY_OBJECTS:
        found.append(f"{facts.n_chunks:,} objects are many; shards of several chunks need fewer requests: {again}")
    if not any("blosc" in codec for codec in facts.codecs) and len(facts.codecs) > 1:
        found.append(f"Blosc lz4 with bit shuffle decodes faster than these codecs: {again}")
    if not facts.has_manifest:
        found.append(
            "There is no manifest: swapped chunks cannot be noticed"
            + (", and changed bits neither." if not facts.has_checksum else ".")
            + " avgk ingest writes one."
        )
    return found + _value_advice(labels, values)


def _file_advice(facts: StoreFacts) -> list[str]:
    """Return what a store would be better at than a file."""
    found = [
        "A file has no checksums of its rows: changed bits cannot be noticed. avgk ingest writes a store that has them."
    ]
    if facts.is_held:
        found.append(
            f"Such a file can only be read from front to back: each process that reads it holds all {facts.n_bytes:,} bytes of "
            "scores. A store is read in bands: avgk ingest writes one."
        )
    return found


def _value_advice(labels: Labels, values: ValuesInfo | None) -> list[str]:
    """Return what to know of labels and values."""
    found = []
    if labels is None:
        found.append("There are no labels: errors and gains need them.")
    if values and values["kind"].startswith("logits"):
        found.append(
            "The scores are no probabilities: average-k compares them between samples, so take a softmax of each row, "
            "unless they are made to be compared."
        )
    if values and values["n_nan"]:
        found.append(
            "There is NaN among the scores: it is refused, or ranked last with nan_policy='lowest' (on the command line --nan-policy lowest)."
        )
    return found
