"""Stores: ``open_scores``, ``verify`` for every chunk, and ``info`` for costs and advice on the layout."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import dask
import numpy as np
import xarray as xr

from ..engine.memory import memory_limit, project
from ..engine.run import Compute, open_compute
from ..errors import StoreError
from ..exact.budgets import DEFAULT_BUDGETS, count_labels, parse_budgets
from ..files import is_row_file
from ..results.datasets import StoreInfo, ValuesInfo
from ..sources.readers import StoredReader
from ..sources.row_values import Labels, lazy_array
from ..sources.source import Source
from ..statistics.straddle import n_ranked
from ..store.read.bands import read_matrix
from ..store.read.encoding import ENCODING_ATTRIBUTES, encoding_of
from ..store.read.manifest import chunk_grid, index_of
from ..store.read.opening import StoredArrays, dimensions_of, open_all, open_arrays
from ..store.read.verification import (
    StoreFacts,
    Verification,
    gather_facts,
    verify_listing,
    verify_metadata,
    verify_stretch,
)
from ..store.where.addresses import Options, StoredArray
from .inputs.lazy_scores import restore_sample_axes
from .inputs.names import check_inputs, class_names_of, names_of
from .inputs.sources import as_labels, check_scores, find_labels
from .options import LabelsLike, Matrix, Missing, StoreLike, check_flag, check_missing, is_stored

#: Chunks per task, if this leaves at least 64 tasks; and the largest number of tasks, so that graph and results stay small.
_STRETCH, _MIN_TASKS, _MAX_TASKS = 16, 64, 10_000


def verify_array(array: Any, compute: Compute) -> Verification:
    """Verify an array: first its metadata and the list of its chunks, then the bytes of each chunk.

    A task decodes one chunk at a time, and receives the numbers of its first and last chunk instead of a list of keys.
    """
    listed = Verification.merge([verify_metadata(array), verify_listing(array)])
    grid = chunk_grid(array)
    n_chunks = math.prod(grid)
    size = max(min(_STRETCH, -(-n_chunks // _MIN_TASKS)), -(-n_chunks // _MAX_TASKS), 1)
    bad: dict[int, set[tuple[int, ...]]] = {}
    for key, _ in listed.damaged:
        index = index_of(array.path, key)
        if index and len(index) == len(grid):
            bad.setdefault(int(np.ravel_multi_index(index, grid)) // size, set()).add(index)
    verify = dask.delayed(verify_stretch, pure=False)
    shared = dask.delayed(array, traverse=False)
    tasks = [
        verify(shared, i * size, min((i + 1) * size, n_chunks), bad.get(i, set())) for i in range(-(-n_chunks // size))
    ]
    read = Verification.merge(compute(tasks, "verify")) if tasks else Verification(0, 0, (), True)
    return Verification(n_chunks, read.n_bytes, listed.damaged + read.damaged, listed.has_manifest)


def open_scores(
    store: StoreLike,
    *,
    scores: str | None = None,
    labels: LabelsLike = None,
    storage_options: Options | None = None,
    missing: Missing = "raise",
) -> xr.Dataset:
    """Open a score store or file as a lazy Dataset with ``scores``, and ``labels`` if present; reads metadata only.

    Every function of the package accepts the Dataset, with the same speed and checks as for the store itself.

    Parameters
    ----------
    store
        Local path or zip file; URL (``s3://``, ``gs://``, ``az://``, ``abfs://``, ``https://``, ``memory://`` or
        another protocol of fsspec); or a Zarr store, group or array already opened. Or a local file: .npy, .npz,
        .parquet, .csv, .arrow, .feather, or a folder of Parquet or Arrow files.
    scores
        Name or path of the scores inside the store, such as ``run1/logits``, by default ``scores``. For a file, the
        member or column, by default as in ``ingest``.
    labels
        Name of the labels inside the store or file, by default ``labels`` next to the scores; or the path of another
        file or store with the labels.
    storage_options
        Options of the storage client: ``key``, ``secret``, ``token``, ``endpoint_url``, ``region``, ``anon`` for S3;
        ``account_name``, ``account_key``, ``sas_token``, ``connection_string``, ``anon`` for Azure;
        ``client="fsspec"`` for fsspec with any of its options. Credentials are safer in the environment of the
        workers: those passed here are sent with the tasks.
    missing
        What a missing chunk means: ``"raise"`` an error that names it; ``"fill"`` the array's fill value, for stores
        whose writer omitted chunks of fill values.

    Returns
    -------
    Dataset
        ``scores`` over (sample, class), with more dimensions over their stored names or (sample_0, ..., class); and
        ``labels``, if there are any, over (sample) or, if soft, (sample, class). A truncated store has ``scores`` and
        ``class_index`` over (sample, slot), and the attribute ``n_classes``. Stored class names become the coordinate
        ``class``.

    Raises
    ------
    StoreError
        If the store or array does not exist, or the store's writer did not finish.
    ScoresError
        If the scores are not a matrix (sample, class).
    LabelsError, DtypeError
        If the labels do not fit the scores, or a dtype is not supported.
    OptionError
        If ``missing`` or the option ``client`` is not one of the values it may take.

    Notes
    -----
    Cost: reads metadata, and labels in a separate table or .npz file. Scores are read when something is computed, or at
    once for CSV.

    Files are read in place. Memory stays bounded for files with random access: .npy, uncompressed .npz, and Parquet and
    Arrow files whose row groups or record batches have at most 64 MB of scores. Other files (CSV, compressed .npz and
    Arrow, large row groups) can only be read from front to back: each process that reads them holds all scores, at most
    1 GiB (the setting ``avgk.file-bytes``) and a quarter of its memory. Larger ones are refused; convert them with
    ``ingest``. Workers of a cluster must see a file at the same path, unless it has at most 4 MB of scores. A file that
    changes during a read is refused. Checkpoints identify a file by its length and time.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> with avgk.ScoreWriter(path, n_classes=3) as writer:
    ...     writer.append(np.eye(3), [0, 1, 2])
    >>> dict(avgk.open_scores(path).sizes)
    {'sample': 3, 'class': 3}
    """
    check_missing(missing)
    arrays = open_stored(store, scores, labels, storage_options, missing)
    check_scores(arrays.scores)
    dims = _dimensions(arrays)
    variables: dict[str, tuple[tuple[str, ...], Matrix]] = {"scores": (dims, lazy_array(arrays.scores))}
    if arrays.class_index is not None:
        variables["class_index"] = dims, lazy_array(arrays.class_index)
    lead = arrays.scores.shape[:-1]
    shape = (*lead, arrays.n_classes or arrays.scores.shape[-1])
    column = as_labels(arrays.labels, shape, names=partial(names_of, arrays, "scores"))
    if column is not None:
        column = restore_sample_axes(lazy_array(column) if is_stored(column) else column, lead)
        variables["labels"] = ((*dims[:-1], "class")[: column.ndim], column)
    dataset = xr.Dataset(variables, attrs={} if arrays.n_classes is None else {"n_classes": arrays.n_classes})
    dataset["scores"].attrs = {
        name: value
        for name, value in arrays.scores.attrs.items()
        if not name.startswith("_") and name not in ENCODING_ATTRIBUTES
    }
    if (classes := class_names_of(arrays)) is not None:
        dataset = dataset.assign_coords({"class": classes})
    for item in (dataset, *(dataset[name] for name in variables)):
        item.encoding["source"] = arrays.location
    return dataset


def _dimensions(arrays: StoredArrays) -> tuple[str, ...]:
    """Return the names of the scores' dimensions: the stored names if there are more than two."""
    n = arrays.scores.ndim
    if n == 2:
        return "sample", "class" if arrays.class_index is None else "slot"
    known = [name for name in dimensions_of(arrays.scores) if name]
    lead = known[:-1] if len(set(known)) == n and "class" not in known[:-1] else [f"sample_{i}" for i in range(n - 1)]
    return (*lead, "class")


def open_stored(
    store: StoreLike, scores: str | None, labels: LabelsLike, storage_options: Options | None, missing: str | None
) -> StoredArrays:
    """Open the arrays of a store, with labels from the store itself or from another place."""
    opening = partial(open_arrays, store, scores=scores, storage_options=storage_options, missing=missing)
    if labels is None:
        return opening()
    if isinstance(labels, str) and "://" not in labels and not is_row_file(labels):
        try:
            return opening(labels=labels)
        except StoreError:
            if not os.path.exists(labels):
                raise
    arrays = opening(own_labels=False)
    column = find_labels(labels, storage_options, missing)
    check_inputs(partial(names_of, arrays, "scores"), arrays.scores.ndim - 1, labels=column)
    return replace(arrays, labels=column)


def verify(store: StoreLike, *, storage_options: Options | None = None, progress: bool | None = None) -> Verification:
    """Read every chunk of a store and list all damaged ones.

    Stores written by this package have a manifest, which detects changed, swapped, lost and shortened chunks (all but one
    in 2**64). In other stores each chunk is decoded, which detects lost, empty and undecodable chunks, and changed bytes
    if the codec has a checksum. A damaged chunk does not end the run.

    Parameters
    ----------
    store
        Path, URL, or a Zarr store, group or array already opened, as for ``open_scores``.
    storage_options
        Options of the storage client, as for ``open_scores``.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Verification
        With ``ok`` (no damage), ``n_chunks``, ``n_bytes`` read, ``damaged`` (pairs of a chunk's store key and a
        description; for a shard, the inner chunks that cannot be decoded) and ``has_manifest``.

    Raises
    ------
    StoreError
        If the store does not exist, its writer did not finish, or its manifest is damaged.

    Notes
    -----
    Cost: one read of the whole store. Chunks in a manifest are hashed, not decoded. Memory: one chunk (or shard) per
    thread, and 8 bytes per chunk of the store.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> with avgk.ScoreWriter(path, n_classes=3) as writer:
    ...     writer.append(np.eye(3), [0, 1, 2])
    >>> avgk.verify(path).ok
    True
    """
    check_flag("progress", progress, or_none=True)
    arrays = open_all(store, storage_options=storage_options)
    with open_compute(progress) as compute:
        return Verification.merge([verify_array(array, compute) for array in arrays])


#: Number of sampled rows.
_SAMPLE_ROWS = 256
#: Smaller and larger chunks (decoded bytes) get an advice.
_SMALL_CHUNK, _LARGE_CHUNK = 1 << 20, 64 << 20
#: More objects than this are slow to list and to open.
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
        Name of the scores inside the store, by default ``scores``.
    labels
        Name of the labels inside the store, or the path of a file or store with the labels.
    storage_options
        Options of the storage client, as for ``open_scores``.

    Returns
    -------
    dict
        With values that JSON can represent.
    ``store, zarr_format, n_samples, n_classes, dtype``
        Location and content; ``zarr_format`` is None for a file.
    ``truncated, rounding, encoding``
        Which scores were kept, how they were rounded, and how they are decoded; None if not at all.
    ``chunks, shards, codecs, n_chunks``
        The layout; ``shards`` is None without shards.
    ``n_bytes, n_stored_bytes, n_missing_chunks``
        Decoded and stored bytes, and missing chunks; the last two are None if the store cannot be listed.
    ``has_manifest, labels``
        Whether changed chunks are detected, and a description of the labels (None without labels).
    ``values``
        A summary of the first rows: ``kind, low, high, n_nan, n_rows_sampled``.
    ``task_memory, merge_memory, client_memory, memory_limit, reads``
        The cost of ``evaluate`` with its default budgets: upper bounds of the bytes of a task, of merging results, and
        of the client process, beyond an idle process; the limit of a task; and the reads of the store.
    ``advice``
        Possible improvements, each with a remedy.

    Raises
    ------
    StoreError
        If the store or array does not exist, or the store's writer did not finish.

    Notes
    -----
    Cost: reads metadata, a listing of the chunks, and the first rows.

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
    reader = StoredReader(arrays.scores, arrays.location)
    source = Source(reader)
    budgets = parse_budgets(DEFAULT_BUDGETS, source.shape[1])
    counts = [count_labels(k, source.shape[0]) for k in budgets]
    ranks = n_ranked(budgets, source.shape[1])
    memory = project(source, counts, int(max(budgets)), ranks)
    values = None if facts.n_missing_chunks == facts.n_chunks else _values(reader)
    kept = f"the {arrays.scores.shape[1]} largest of {arrays.n_classes} scores of each row"
    truncated = None if arrays.n_classes is None else kept
    return {
        "store": arrays.location,
        "zarr_format": facts.zarr_format,
        "n_samples": source.shape[0],
        "n_classes": arrays.n_classes or source.shape[1],
        "truncated": truncated,
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
    """Describe how stored values are decoded."""
    encoding = encoding_of(scores)
    return (
        ", ".join(f"{name} {value}" for name, value in encoding.items()) + f" of {scores.dtype}" if encoding else None
    )


def _labels(labels: Labels, ndim: int) -> str | None:
    if labels is None:
        return None
    encoding = _encoding(labels) if is_stored(labels) else None
    decoded = f", decoded by {encoding}" if encoding else ""
    return f"{'class numbers' if labels.ndim < ndim else 'probabilities'}, {labels.dtype}, shape {tuple(labels.shape)}{decoded}"


def _values(reader: StoredReader) -> ValuesInfo:
    """Describe the first rows: their range, and whether they are probabilities."""
    end = reader.piece_end(0)
    n = min(_SAMPLE_ROWS, end)
    slabs = [read_matrix(reader.array, (slice(0, end), slice(*part)))[:n].copy() for part in pairwise(reader.classes)]
    rows = np.concatenate(slabs, axis=1).astype(np.float64)
    finite = rows[np.isfinite(rows)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    if finite.size < rows.size:
        kind = "with infinities or NaN"
    elif reader.dtype.kind in "iub":
        kind = "integers: counts, ranks or quantised scores"
    elif finite.min() < 0 or finite.max() > 1:
        kind = "logits or other real scores: not in [0, 1]"
    elif np.allclose(rows.sum(1), 1, atol=2e-2 if reader.dtype.itemsize == 2 else 1e-4):
        kind = "probabilities: rows sum to 1"
    else:
        kind = "in [0, 1], rows do not sum to 1"
    return {"kind": kind, "low": low, "high": high, "n_nan": int(np.isnan(rows).sum()), "n_rows_sampled": n}


def _advice(facts: StoreFacts, labels: Labels, values: ValuesInfo | None) -> list[str]:
    """Return possible improvements, each with a remedy."""
    advice = []
    hint = "avgk ingest writes such a store."
    if facts.n_missing_chunks:
        advice.append(
            f"{facts.n_missing_chunks:,} {'chunk is' if facts.n_missing_chunks == 1 else 'chunks are'} missing. "
            'Evaluating raises an error, unless missing="fill" (on the command line --missing fill) is set.'
        )
    if facts.n_columns > 1:
        advice.append(f"Chunks split the classes into {facts.n_columns} parts; whole rows are faster: {hint}")
    if facts.is_file:
        advice.append(
            "A file has no checksums of its rows: changed bits are not detected. avgk ingest writes a store with checksums."
        )
        if facts.is_in_memory:
            advice.append(
                f"This file can only be read sequentially: each process that reads it holds all {facts.n_bytes:,} "
                "bytes of scores. A store is read in bands: avgk ingest writes one."
            )
        return advice + _value_advice(labels, values)
    unit = facts.object_bytes
    if unit < _SMALL_CHUNK and facts.n_chunks > 1:
        advice.append(f"Chunks of {unit:,} bytes are small; 8 to 16 MB are faster: {hint}")
    if unit > _LARGE_CHUNK:
        advice.append(f"Chunks of {unit:,} bytes need much memory; 8 to 16 MB are as fast: {hint}")
    if facts.is_remote and facts.shards is None and facts.n_chunks > _MANY_OBJECTS:
        advice.append(f"{facts.n_chunks:,} objects are many; shards of several chunks need fewer requests: {hint}")
    if not any("blosc" in codec for codec in facts.codecs) and len(facts.codecs) > 1:
        advice.append(f"Blosc lz4 with bit shuffle decodes faster than these codecs: {hint}")
    if not facts.has_manifest:
        undetected = "swapped chunks" if facts.has_checksum else "swapped chunks and changed bits"
        advice.append(f"There is no manifest: {undetected} are not detected. avgk ingest writes one.")
    return advice + _value_advice(labels, values)


def _value_advice(labels: Labels, values: ValuesInfo | None) -> list[str]:
    advice = []
    if labels is None:
        advice.append("There are no labels: errors and gains need them.")
    if values and values["kind"].startswith("logits"):
        advice.append(
            "The scores are not probabilities: average-k compares scores of different samples, so apply a softmax to each "
            "row, unless the scores are comparable."
        )
    if values and values["n_nan"]:
        advice.append(
            "Some scores are NaN: this is an error unless nan_policy='lowest' (on the command line --nan-policy lowest) is set."
        )
    return advice
