"""Stores: ``open_scores``, ``verify`` every chunk, and ``info``, which estimates costs and advises on the layout."""

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
from ..engine.run import Compute, computing
from ..errors import StoreError
from ..exact.budgets import DEFAULT_BUDGETS, count_labels, parse_budgets
from ..files import is_row_file
from ..results.datasets import StoreInfo, ValuesInfo
from ..sources.readers import StoredReader
from ..sources.row_values import Labels, lazy_array
from ..sources.source import Source
from ..store import StoredArrays, open_arrays
from ..store.read.bands import read_matrix
from ..store.read.encoding import ENCODING_ATTRIBUTES, encoding_of
from ..store.read.manifest import chunk_grid, index_of
from ..store.read.opening import open_all
from ..store.read.presence import (
    StoreFacts,
    Verification,
    gather_facts,
    verify_listing,
    verify_metadata,
    verify_stretch,
)
from ..store.where.addresses import Options, StoredArray
from .inputs.lazy_scores import with_lead
from .inputs.names import check_inputs, class_names_of, names_of
from .inputs.sources import as_labels, check_scores, find_labels
from .options import LabelsLike, Matrix, Missing, StoreLike, check_flag, check_missing, is_stored
from .straddle import n_ranked

#: Chunks that a task checks one after the other, if there are enough for this many tasks; and the most tasks, so that
#: graph and results stay small.
_STRETCH, _LEAST_TASKS, _MOST_TASKS = 16, 64, 10_000


def verify_array(array: Any, compute: Compute) -> Verification:
    """Verify an array: first its metadata and which chunks are there, then the bytes of those that are.

    A task decodes one chunk at a time, and gets the numbers of its first and last chunk, not a list of keys.
    """
    listed = Verification.merge([verify_metadata(array), verify_listing(array)])
    grid = chunk_grid(array)
    n_chunks = math.prod(grid)
    size = max(min(_STRETCH, -(-n_chunks // _LEAST_TASKS)), -(-n_chunks // _MOST_TASKS), 1)
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
    """Open a score store or file as a lazy Dataset with ``scores``, and ``labels`` where present; reads metadata only.

    Every function of the package takes the Dataset, and reads it as fast, and as carefully checked, as the store
    itself.

    Parameters
    ----------
    store
        Local path or zip file; URL (``s3://``, ``gs://``, ``az://``, ``abfs://``, ``https://``, ``memory://`` or
        another that fsspec knows); or a Zarr store, group or array already opened. Or a file on this machine: .npy,
        .npz, .parquet, .csv, .arrow, .feather, or a folder of Parquet or Arrow files.
    scores
        Name of the scores inside the store, if it is not ``scores``; may be a path such as
        ``run1/logits``. Of a file, the member or column, chosen as ``ingest`` does by default.
    labels
        Name of the labels inside the store or file, by default ``labels`` next to the scores; or the path of
        an .npy or other file, or of another store, that holds them.
    storage_options
        How to reach the store: ``key``, ``secret``, ``token``, ``endpoint_url``, ``region``, ``anon``
        for S3; ``account_name``, ``account_key``, ``sas_token``, ``connection_string``, ``anon`` for
        Azure; ``client="fsspec"`` goes through fsspec with all the options that it knows. Credentials
        are best left in the environment of the workers: those given here travel with the tasks.
    missing
        What a chunk that is not there means: ``"raise"`` an error that names it; ``"fill"`` the
        array's fill value, for stores whose writer left out chunks that hold nothing else.

    Returns
    -------
    Dataset
        ``scores`` over (sample, class), of more dimensions under the names that are stored or (sample_0, ..., class),
        and, where there are any, ``labels`` over (sample) or, if soft, (sample, class). A truncated store has
        ``scores`` and ``class_index`` over (sample, slot), and the attribute ``n_classes``. Names of classes that are
        stored are the coordinate ``class``.

    Raises
    ------
    StoreError
        If there is no store, no array of that name, or the store's writer did not finish.
    ScoresError
        If the scores are not a matrix (sample, class).
    LabelsError, DtypeError
        If the labels do not fit the scores, or either has a dtype that cannot be used.
    OptionError
        If ``missing`` or the option ``client`` is not one of the values it may take.

    Notes
    -----
    Cost: reads metadata, and labels in a table or .npz file of their own; no scores until something is computed, but
    for CSV.

    Files are read without a copy being stored. Of .npy, of .npz that is not compressed, and of Parquet and Arrow files
    whose row groups or record batches have at most 64 MB of scores, any rows can be read: memory stays bounded. Others
    (CSV, compressed .npz and Arrow, large row groups) can only be read from front to back: every process that reads
    them holds all of their scores, at most 1 GiB (the setting ``avgk.file-bytes``) and a quarter of its memory; larger
    ones are refused, and ``ingest`` makes a store of them. Workers of a cluster must see a file at the same path,
    unless it has at most 4 MB of scores. A file that changes while it is read is refused; a checkpoint knows it by its
    length and time.

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
    found: dict[str, tuple[tuple[str, ...], Matrix]] = {"scores": (dims, lazy_array(arrays.scores))}
    if arrays.class_index is not None:
        found["class_index"] = dims, lazy_array(arrays.class_index)
    lead = arrays.scores.shape[:-1]
    shape = (*lead, arrays.n_classes or arrays.scores.shape[-1])
    mine = as_labels(arrays.labels, shape, names=partial(names_of, arrays, "scores"))
    if mine is not None:
        mine = lazy_array(mine) if is_stored(mine) else mine
        mine = with_lead(mine, lead)
        found["labels"] = ((*dims[:-1], "class")[: mine.ndim], mine)
    dataset = xr.Dataset(found, attrs={} if arrays.n_classes is None else {"n_classes": arrays.n_classes})
    dataset["scores"].attrs = {
        name: value
        for name, value in arrays.scores.attrs.items()
        if not name.startswith("_") and name not in ENCODING_ATTRIBUTES
    }
    if (classes := class_names_of(arrays)) is not None:
        dataset = dataset.assign_coords({"class": classes})
    dataset.encoding["source"] = arrays.location
    for name in found:
        dataset[name].encoding["source"] = arrays.location
    return dataset


def _dimensions(arrays: StoredArrays) -> tuple[str, ...]:
    """Return the names of the scores' dimensions: those that are stored, where there are more than two."""
    n = arrays.scores.ndim
    if n == 2:
        return "sample", "class" if arrays.class_index is None else "slot"
    names = (
        getattr(arrays.scores.metadata, "dimension_names", None) or arrays.scores.attrs.get("_ARRAY_DIMENSIONS") or ()
    )
    known = [name for name in names if name]
    lead = known[:-1] if len(set(known)) == n and "class" not in known[:-1] else [f"sample_{i}" for i in range(n - 1)]
    return (*lead, "class")


def open_stored(
    store: StoreLike, scores: str | None, labels: LabelsLike, storage_options: Options | None, missing: str | None
) -> StoredArrays:
    """Open the arrays of a store, with labels from wherever they are."""
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
    found = find_labels(labels, storage_options, missing)
    check_inputs(partial(names_of, arrays, "scores"), arrays.scores.ndim - 1, labels=found)
    return replace(arrays, labels=found)


def verify(store: StoreLike, *, storage_options: Options | None = None, progress: bool | None = None) -> Verification:
    """Read every stored chunk of a store, of whatever origin, and list every bad one.

    Stores written by this package have a manifest: a changed, swapped, lost or shortened chunk is found with
    certainty but for one in 2**64. In other stores each chunk is decoded: lost, empty and undecodable chunks are
    found, and changed bytes only if their codec has a checksum. A bad chunk does not end the run.

    Parameters
    ----------
    store
        Path, URL, or a Zarr store, group or array already opened, as for ``open_scores``.
    storage_options
        How to reach the store, as for ``open_scores``.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Verification
        With ``ok`` (nothing is wrong), ``n_chunks``, ``n_bytes`` read, ``damaged`` (pairs of a chunk's store key and
        what is wrong; for a shard, which of its inner chunks cannot be decoded) and ``has_manifest``.

    Raises
    ------
    StoreError
        If there is no store, its writer did not finish, or its manifest is damaged.

    Notes
    -----
    Cost: one read of everything stored. Chunks in a manifest are hashed, not decoded. Memory: one chunk (or shard) per thread,
    and 8 bytes per chunk of the store.

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
    with computing(progress) as compute:
        return Verification.merge([verify_array(array, compute) for array in arrays])


#: Rows whose values are looked at.
_SAMPLE_ROWS = 256
#: Chunks outside these sizes (bytes, decoded) are worth changing.
_SMALL_CHUNK, _LARGE_CHUNK = 1 << 20, 64 << 20
#: More objects than this are slow to list and to open one by one.
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
        Where it is, and what it holds; ``zarr_format`` is None for a file.
    ``truncated, rounding, encoding``
        What storing left out or rounded, and how the stored values are decoded; None for nothing.
    ``chunks, shards, codecs, n_chunks``
        How it is laid out; ``shards`` is None if there are none.
    ``n_bytes, n_stored_bytes, n_missing_chunks``
        Bytes when decoded and as stored, and chunks that are not there; the last two None where the store cannot list.
    ``has_manifest, labels``
        Whether changed chunks are noticed with certainty, and what the labels are (None if there are none).
    ``values``
        What the first rows look like: ``kind, low, high, n_nan, n_rows_sampled``.
    ``task_memory, merge_memory, client_memory, memory_limit, reads``
        What ``evaluate`` with its default budgets takes: bytes of a task, of merging what tasks give, and of the
        process that asks, each at most and beyond an idle process; bytes a task may take; and reads of the store.
    ``advice``
        What could be better, each with what to do.

    Raises
    ------
    StoreError
        If there is no store, no array of that name, or the store's writer did not finish.

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
    """Return how stored values are decoded, in words."""
    found = encoding_of(scores)
    return ", ".join(f"{name} {value}" for name, value in found.items()) + f" of {scores.dtype}" if found else None


def _labels(labels: Labels, ndim: int) -> str | None:
    if labels is None:
        return None
    encoding = _encoding(labels) if is_stored(labels) else None
    decoded = f", decoded by {encoding}" if encoding else ""
    return f"{'class numbers' if labels.ndim < ndim else 'probabilities'}, {labels.dtype}, shape {tuple(labels.shape)}{decoded}"


def _values(reader: StoredReader) -> ValuesInfo:
    """Look at the first rows: their range, and whether they are probabilities."""
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
