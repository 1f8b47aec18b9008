"""``ingest``: convert scores in other formats to a well laid-out store, out of core."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import Array
from ..axis_names import Axes, names_from_list
from ..engine.progress import current_progress
from ..engine.run import count_progress
from ..errors import LABELS_HINT, LabelsError, OptionError, ReadError, ScoresError
from ..files import RowFile, is_row_file, open_file
from ..files.rows import is_pickle
from ..results.text import ShownAsTable
from ..store.read.bands import read_array
from ..store.read.encoding import decoded_dtype
from ..store.read.grids import grid_of, shards_of
from ..store.read.opening import open_arrays
from ..store.read.verification import Verification, check_chunks
from ..store.where.addresses import Options, StoredArray
from ..store.where.locations import MOST_NAMES
from ..store.write.appending import appendable
from ..store.write.journal import remove_append_record
from ..store.write.leases import LeasedStore
from ..store.write.targets import has_root, open_target, writable
from ..store.write.writer import ScoreWriter
from .inputs.names import as_class_numbers, check_inputs, compute_frame, is_place, names_of
from .inputs.sources import as_label_array, find_labels
from .options import LabelsLike, Missing, ScoresLike, StoreLike, check_flag, check_missing, is_stored
from .stores import verify

#: Bytes of scores read at once from a file, and from another store, whose chunks should not be split.
_BLOCK_BYTES, _STORE_BYTES = 16 << 20, 128 << 20


@dataclass(frozen=True)
class Ingestion(ShownAsTable):
    """The result of ``ingest``.

    Attributes
    ----------
    n_samples, n_classes
        Shape of the written or appended scores; 0 samples if a killed run had already appended them.
    has_labels
        Whether labels were stored with the scores.
    rounding
        How the scores were rounded; None if every value is stored exactly.
    class_names
        Names of the columns if each class was a column; otherwise None.
    ignored
        Names of the members or columns of the file that are neither scores nor labels.
    verification
        The result of ``verify`` for the new store.
    """

    n_samples: int
    n_classes: int
    has_labels: bool
    rounding: str | None
    class_names: list[str] | None
    ignored: tuple[str, ...]
    verification: Verification

    @property
    def ok(self) -> bool:
        """Whether the store contains everything as written."""
        return self.verification.ok


@dataclass(frozen=True, kw_only=True)
class _StoreRows(RowFile):
    """The rows of another store, in blocks along its chunks."""

    scores: StoredArray
    labels: Array | StoredArray | None
    names: Axes

    def blocks(self, max_bytes: int) -> Iterator[tuple[Array, Array | None]]:
        n_rows = self.rows_per_block(max_bytes)
        if shards_of(self.scores):  # whole shards, because their checks need all bytes
            n_rows = self.scores.shape[0]
        for start, stop in pairwise(grid_of(self.scores)[0].bounds()):
            for first in range(start, stop, n_rows):
                last = min(first + n_rows, stop)
                yield read_array(self.scores, (slice(first, last),)), _read_rows(self.labels, first, last)


def ingest(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    out: StoreLike,
    scores_name: str | None = None,
    labels_name: str | None = None,
    dtype: DTypeLike | None = None,
    chunk_rows: int | None = None,
    codec: str | None = None,
    shard_chunks: int | None = None,
    top_m: int | None = None,
    append: bool = False,
    overwrite: bool = False,
    missing: Missing = "raise",
    storage_options: Options | None = None,
    out_options: Options | None = None,
    progress: bool | None = None,
) -> Ingestion:
    """Copy scores in another format, or in another Zarr store, into a store with a fast layout, and verify it.

    A failed run leaves nothing behind. A local store to overwrite stays unchanged (on an object store it is removed
    first), and so does any store to append to. A killed append can be repeated: rows that it already added are recognised
    by a hash, and not added twice (``LeftoverWarning``).

    Parameters
    ----------
    scores
        Path of an .npy, .npz, .parquet, .csv, .arrow or .feather file, a folder of Parquet or Arrow files (for example
        a Hugging Face dataset), ``-`` for an .npy stream on standard input, or a Zarr store.
    labels
        Path of a file or store with the labels, or an array. By default the labels next to the scores, under a usual name
        (``labels`` or ``label``; ``y``, ``y_true``, ``targets`` or ``target`` if they cannot be anything else).
    out
        Path or URL of the new store, or of the one to append to.
    scores_name, labels_name
        Names of the column, member or array to use.
    dtype, chunk_rows, codec, shard_chunks, top_m
        How to store them, as for ``ScoreWriter``.
    append
        Append the rows to a finished store, like ``ScoreWriter``; create the store if it does not exist.
    overwrite
        Replace an existing store.
    missing
        What a missing chunk of another store means, as for ``open_scores``.
    storage_options, out_options
        Options of the storage client for the source and for the new store.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Ingestion
        With ``ok``, ``n_samples``, ``n_classes``, ``has_labels``, ``rounding`` (None if every value is stored exactly),
        ``class_names`` (if each class was a named column), ``ignored`` (members or columns that were not used) and
        ``verification``, the result of ``verify``.

    Raises
    ------
    StoreError
        If the source or column does not exist, or ``out`` exists or cannot be written.
    ReadError
        If a part of the source could not be read, or the new store differs from the data written to it.
    ScoresError, LabelsError, DtypeError
        If scores or labels have a wrong shape, type or value.
    OptionError
        If an option is not one of the values it may take.

    Notes
    -----
    Cost: one read of the source, one write, and one read of the new store to verify it. Memory stays bounded for sources
    of any size: blocks of 16 MB of a file, or up to 128 MB of another store (a whole shard if it has shards). Parquet files
    with one column per class need about 2 MB per column.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> folder = tempfile.mkdtemp()
    >>> np.save(folder + "/scores.npy", np.eye(3))
    >>> avgk.ingest(folder + "/scores.npy", out=folder + "/scores.zarr").ok
    True
    """
    check_flag("append", append)
    check_flag("overwrite", overwrite)
    check_flag("progress", progress, or_none=True)
    check_missing(missing)
    rows = _open_rows(scores, scores_name, labels_name, storage_options, missing)
    if rows.n_samples == 0:
        raise _no_samples(rows)
    column = None if labels is None else _open_labels(labels, rows, storage_options, missing)
    target: AbstractContextManager[LeasedStore] = open_target(out, out_options, overwrite, apart_from=[scores, labels])
    if append and has_root(writable(out, out_options)[0]):
        target = appendable(out, out_options)  # stays unchanged until the writer ends
    attributes = {"class_names": rows.class_names} if rows.class_names and len(rows.class_names) <= MOST_NAMES else {}
    with target as place:
        writer = ScoreWriter(
            place, rows.n_classes, dtype=dtype, chunk_rows=chunk_rows, top_m=top_m, append=append, overwrite=overwrite,
            codec=codec, shard_chunks=shard_chunks, storage_options=out_options, attributes=attributes,
        )  # fmt: skip
        n_before = writer.n_samples
        _copy(rows, column, writer, progress)
        verification = verify(place, storage_options=out_options, progress=progress)
        if not verification.ok:
            key, problem = verification.damaged[0]
            raise ReadError(
                f"{len(verification.damaged)} chunks of the new store are damaged, the first {key} "
                f"({problem.rstrip('.')}). Check the disk or the network, and ingest again."
            )
        if append:
            remove_append_record(place)
    has_labels, n_samples = column is not None or rows.has_labels, writer.n_samples - n_before
    return Ingestion(
        n_samples, rows.n_classes, has_labels, writer.rounding, rows.class_names, rows.ignored, verification
    )


def _open_rows(
    scores: ScoresLike, name: str | None, labels: str | None, options: Options | None, missing: str
) -> RowFile:
    if is_row_file(scores) or _is_other_file(scores):
        return open_file(scores, scores=name, labels=labels)
    if not is_place(scores):
        raise OptionError(
            f"scores must be the path of a file or store; got {type(scores).__name__}. Use ScoreWriter for arrays."
        )
    arrays = open_arrays(scores, scores=name, labels=labels, storage_options=options, missing=missing)
    if arrays.class_index is not None:
        raise ScoresError(
            f"scores must be whole rows; got the truncated store {arrays.location}. Ingest the original scores."
        )
    if arrays.scores.ndim != 2:
        raise ScoresError(
            f"scores must be a matrix (sample, class); got shape {arrays.scores.shape}. Reshape it first."
        )
    axes = names_of(arrays, "scores")
    column = as_class_numbers(arrays.labels, lambda: axes[-1])
    for array in (arrays.scores, column):
        if is_stored(array):
            check_chunks(array)
    labels_column = None if column is None else _as_column(column)
    return _StoreRows(
        location=arrays.location,
        n_samples=int(arrays.scores.shape[0]),
        n_classes=int(arrays.scores.shape[1]),
        dtype=decoded_dtype(arrays.scores),
        label_form=None if labels_column is None else (labels_column.shape[1:], labels_column.dtype),
        class_names=None if axes[-1] is None else [str(name) for name in axes[-1].values],
        scores=arrays.scores,
        labels=labels_column,
        names=axes,
    )


def _is_other_file(scores: ScoresLike) -> bool:
    """Return whether this is a local file of an unknown format, for which ``open_file`` raises an error."""
    if not isinstance(scores, (str, os.PathLike)) or not os.path.isfile(scores):
        return False
    return is_pickle(str(scores)) or not zipfile.is_zipfile(scores)


def _open_labels(labels: LabelsLike, rows: RowFile, options: Options | None, missing: str) -> Array | StoredArray:
    values = find_labels(labels, options, missing) if is_place(labels) else compute_frame(labels)
    axes: Axes = rows.names if isinstance(rows, _StoreRows) else (None, None)
    check_inputs(lambda: axes, 1, labels=values)
    if rows.class_names is not None and axes[-1] is None:
        axes = None, names_from_list(rows.class_names, "scores")
    column = _as_column(as_class_numbers(values, lambda: axes[-1]))
    if column.ndim not in (1, 2):
        raise LabelsError(
            f"labels must be class numbers or rows of probabilities; got shape {column.shape}. Reshape them first."
        )
    if rows.n_samples is not None and column.shape[0] != rows.n_samples:
        raise LabelsError(
            f"labels must have one entry for each of the {rows.n_samples} samples; got {column.shape[0]}. {LABELS_HINT}"
        )
    return column


def _as_column(labels: LabelsLike) -> Array | StoredArray:
    array = as_label_array(labels)
    return array if is_stored(array) else np.asarray(array)


def _copy(rows: RowFile, labels: Array | StoredArray | None, writer: ScoreWriter, progress: bool | None) -> None:
    first = last = 0
    with count_progress("ingest", "row", rows.n_samples, progress) as advance, writer:
        for block, own in rows.blocks(_STORE_BYTES if isinstance(rows, _StoreRows) else _BLOCK_BYTES):
            first, last = last, last + block.shape[0]
            column = own if labels is None else _read_rows(labels, first, last)
            if column is not None and column.shape[0] != block.shape[0]:
                raise LabelsError(
                    f"labels must have one entry per sample; got only {first + column.shape[0]}. {LABELS_HINT}"
                )
            writer.append(block, column)
            advance(block.shape[0])
        if not last:
            raise _no_samples(rows)
        if labels is not None and labels.shape[0] != last:
            raise LabelsError(
                f"labels must have one entry for each of the {last} samples; got {labels.shape[0]}. {LABELS_HINT}"
            )
        current_progress(mine=True).enter("writing")  # the writer's last chunks


def _no_samples(rows: RowFile) -> ScoresError:
    return ScoresError(f"scores must have at least one sample; {rows.location} has none. Check how it was saved.")


def _read_rows(labels: Array | StoredArray | None, first: int, last: int) -> Array | None:
    if labels is None:
        return None
    return read_array(labels, (slice(first, last),)) if is_stored(labels) else np.asarray(labels[first:last])
