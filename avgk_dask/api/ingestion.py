"""``ingest``: scores in other formats become a well laid-out store, out of core."""

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
from ..engine.run import counting
from ..errors import LABELS_CURE, LabelsError, OptionError, ReadError, ScoresError
from ..files import RowFile, is_row_file, open_file
from ..files.rows import is_pickle
from ..results.text import ShownAsTable
from ..store import (
    ScoreWriter,
    Verification,
    appendable,
    check_chunks,
    is_begun,
    is_zarr,
    new_target,
    open_arrays,
    remove_append_record,
    writable,
)
from ..store.read.bands import read_array
from ..store.read.encoding import decoded_dtype
from ..store.read.grids import grid_of, shards_of
from ..store.where.addresses import Options, StoredArray
from ..store.where.locations import MOST_NAMES
from ..store.write.leases import LeasedStore
from .inputs.names import as_class_numbers, check_inputs, compute_frame, names_of
from .inputs.sources import as_label_array, find_labels
from .options import LabelsLike, Missing, ScoresLike, StoreLike, check_flag, check_missing, is_stored
from .stores import verify

#: Bytes of scores read at once.
_BLOCK_BYTES = 16 << 20
#: ... of another store, whose chunks should not be split.
_STORE_BYTES = 128 << 20


@dataclass(frozen=True)
class Ingestion(ShownAsTable):
    """What was written: the number of samples and classes, any rounding, and the verification of it all.

    Attributes
    ----------
    n_samples, n_classes
        Shape of the scores that were written, or appended; no samples if a run that was killed had appended them.
    has_labels
        Whether labels were stored with them.
    rounding
        What storing did to the scores; None if every value is stored exactly.
    class_names
        Names of the columns where each class was one; else None.
    ignored
        Names of the members or columns of the file that were taken neither as scores nor as labels.
    verification
        What ``verify`` found in the new store.
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
        """Whether everything was stored as written."""
        return self.verification.ok


@dataclass(frozen=True)
class _StoreRows:
    """The rows of another store, in stretches of its own chunks."""

    scores: StoredArray
    labels: Array | StoredArray | None
    location: str
    names: Axes

    @property
    def n_samples(self) -> int:
        return int(self.scores.shape[0])

    @property
    def n_classes(self) -> int:
        return int(self.scores.shape[1])

    @property
    def has_labels(self) -> bool:
        return self.labels is not None

    @property
    def class_names(self) -> list[str] | None:
        return None if self.names[-1] is None else [str(name) for name in self.names[-1].values]

    ignored = ()

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        dtype = decoded_dtype(self.scores)
        most = max(1, _STORE_BYTES // (self.n_classes * dtype.itemsize))
        if shards_of(self.scores):  # a part of one could not be checked as well
            most = self.n_samples
        for start, stop in pairwise(grid_of(self.scores)[0].bounds()):
            for first in range(start, stop, most):
                last = min(first + most, stop)
                block = read_array(self.scores, (slice(first, last),))
                yield block, _rows_of(self.labels, first, last)


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
    """Copy scores of another format, or of another Zarr store, into a store that reads fast; verified at the end.

    What fails leaves nothing behind, and a local store that was to be overwritten as it was (on an object store it is
    removed first); so does a store that was to be appended to, wherever it is. An append that was killed at any time
    may be run again: rows that it had added are known by a hash, and not added twice (``LeftoverWarning``).

    Parameters
    ----------
    scores
        Path of an .npy, .npz, .parquet, .csv, .arrow or .feather file, a folder of Parquet or Arrow files
        (a Hugging Face dataset, say), ``-`` for an .npy stream on standard input, or a Zarr store.
    labels
        Path of a file or store with the labels, or an array; by default those found with the scores, under a usual
        name (``labels``, ``label``; ``y``, ``y_true``, ``targets`` or ``target`` where they can be nothing else).
    out
        Path or URL of the new store, or of the one to append to.
    scores_name, labels_name
        Names of the column, member or array to use.
    dtype, chunk_rows, codec, shard_chunks, top_m
        How to store them, as for ``ScoreWriter``.
    append
        Add the rows to the finished store that is there, as ``ScoreWriter`` does; where nothing is, a new store begins.
    overwrite
        Replace a store that is there.
    missing
        What a missing chunk of another store means, as for ``open_scores``.
    storage_options, out_options
        How to reach the old and the new store.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Ingestion
        With ``ok``, ``n_samples``, ``n_classes``, ``has_labels``, ``rounding`` (None where every value is stored as it
        is), ``class_names`` (where each class was a named column), ``ignored`` (members or columns that were not used)
        and ``verification``, what ``verify`` found.

    Raises
    ------
    StoreError
        If the source is not there or has no such column, or ``out`` exists or cannot be written.
    ReadError
        If a part of the source could not be read, or the new store does not hold what was written.
    ScoresError, LabelsError, DtypeError
        If scores or labels have a wrong shape, type or value.
    OptionError
        If an option is not one of the values it may take.

    Notes
    -----
    Cost: one read of the source, one write, and one read of what was written, to verify it. Memory stays bounded
    however large the source: blocks of 16 MB of a file, of up to 128 MB of another store (a whole shard where it has
    shards). Parquet files with one column per class need about 2 MB for each column.

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
    given = None if labels is None else _open_labels(labels, rows, storage_options, missing)
    target: AbstractContextManager[LeasedStore] = new_target(out, out_options, overwrite, apart_from=[scores, labels])
    if append and is_begun(writable(out, out_options)[0]):
        target = appendable(out, out_options)  # which stays unchanged until the writer ends
    attributes = {"class_names": rows.class_names} if rows.class_names and len(rows.class_names) <= MOST_NAMES else {}
    with target as place:
        writer = ScoreWriter(
            place, rows.n_classes, dtype=dtype, chunk_rows=chunk_rows, top_m=top_m, append=append, overwrite=overwrite,
            codec=codec, shard_chunks=shard_chunks, storage_options=out_options, attributes=attributes,
        )  # fmt: skip
        n_before = writer.n_samples
        _copy(rows, given, writer, progress)
        found = verify(place, storage_options=out_options, progress=progress)
        if not found.ok:
            raise ReadError(
                f"out must hold every chunk as written; got {len(found.damaged)} damaged, the first {found.damaged[0][0]} "
                f"({found.damaged[0][1].rstrip('.')}). Check the disk or the network, and ingest again."
            )
        if append:
            remove_append_record(place)
    has_labels = given is not None or rows.has_labels
    n_samples = writer.n_samples - n_before
    return Ingestion(n_samples, rows.n_classes, has_labels, writer.rounding, rows.class_names, rows.ignored, found)


def _open_rows(
    scores: ScoresLike, name: str | None, labels: str | None, options: Options | None, missing: str
) -> RowFile | _StoreRows:
    if is_row_file(scores) or _is_other_file(scores):
        return open_file(scores, scores=name, labels=labels)
    if not isinstance(scores, (str, os.PathLike)) and not is_zarr(scores):
        raise OptionError(
            f"scores must be the path of a file or store; got {type(scores).__name__}. Use ScoreWriter for arrays."
        )
    arrays = open_arrays(scores, scores=name, labels=labels, storage_options=options, missing=missing)
    if arrays.class_index is not None:
        raise ScoresError(
            f"scores must be whole rows; got the truncated store {arrays.location}. Ingest what it was made of."
        )
    if arrays.scores.ndim != 2:
        raise ScoresError(
            f"scores must be a matrix (sample, class); got shape {arrays.scores.shape}. Reshape it first."
        )
    axes = names_of(arrays, "scores")
    found = as_class_numbers(arrays.labels, lambda: axes[-1])
    for array in (arrays.scores, found):
        if is_stored(array):
            check_chunks(array)
    return _StoreRows(arrays.scores, None if found is None else _plain_labels(found), arrays.location, axes)


def _is_other_file(scores: ScoresLike) -> bool:
    """Whether this is a file on this machine that is no store, either; opening it says which formats are read."""
    if not isinstance(scores, (str, os.PathLike)) or not os.path.isfile(scores):
        return False
    return is_pickle(str(scores)) or not zipfile.is_zipfile(scores)


def _open_labels(
    labels: LabelsLike, rows: RowFile | _StoreRows, options: Options | None, missing: str
) -> Array | StoredArray:
    named = isinstance(labels, (str, os.PathLike)) or is_zarr(labels)
    given = find_labels(labels, options, missing) if named else compute_frame(labels)
    axes: Axes = rows.names if isinstance(rows, _StoreRows) else (None, None)
    check_inputs(lambda: axes, 1, labels=given)
    if rows.class_names is not None and axes[-1] is None:
        axes = None, names_from_list(rows.class_names, "scores")
    found = _plain_labels(as_class_numbers(given, lambda: axes[-1]))
    if found.ndim not in (1, 2):
        raise LabelsError(
            f"labels must be class numbers or rows of probabilities; got shape {found.shape}. Reshape them first."
        )
    if rows.n_samples is not None and found.shape[0] != rows.n_samples:
        raise LabelsError(
            f"labels must be one for each of the {rows.n_samples} samples; got {found.shape[0]}. {LABELS_CURE}"
        )
    return found


def _plain_labels(labels: LabelsLike) -> Array | StoredArray:
    found = as_label_array(labels)
    return found if is_stored(found) else np.asarray(found)


def _copy(
    rows: RowFile | _StoreRows, labels: Array | StoredArray | None, writer: ScoreWriter, progress: bool | None
) -> None:
    blocks = rows.blocks() if isinstance(rows, _StoreRows) else rows.blocks(_BLOCK_BYTES)
    first = last = 0
    with counting("ingest", "row", rows.n_samples, progress) as advance, writer:
        for block, mine in blocks:
            first, last = last, last + block.shape[0]
            if labels is not None:
                mine = _rows_of(labels, first, last)
            if mine is not None and mine.shape[0] != block.shape[0]:
                raise LabelsError(
                    f"labels must be one for each sample; got only {first + mine.shape[0]}. {LABELS_CURE}"
                )
            writer.append(block, mine)
            advance(block.shape[0])
        if not last:
            raise _no_samples(rows)
        if labels is not None and labels.shape[0] != last:
            raise LabelsError(
                f"labels must be one for each of the {last} samples; got {labels.shape[0]}. {LABELS_CURE}"
            )
        current_progress(mine=True).enter("writing")  # what is left of it


def _no_samples(rows: RowFile | _StoreRows) -> ScoresError:
    return ScoresError(f"scores must have at least one sample; {rows.location} has none. Check how it was saved.")


def _rows_of(labels: Array | StoredArray | None, first: int, last: int) -> Array | None:
    if labels is None:
        return None
    return read_array(labels, (slice(first, last),)) if is_stored(labels) else np.asarray(labels[first:last])
