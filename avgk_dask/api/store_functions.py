"""Opening and verifying stores."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

import xarray as xr

from ..errors import StoreError
from ..files import is_row_file
from ..passes.progress import computing
from ..passes.verification import verify_array
from ..sources.lazy_arrays import lazy_array
from ..store import StoredArrays, Verification, open_arrays
from ..store.read.encoding import ENCODING_ATTRIBUTES
from ..store.read.opening import open_all
from ..store.where.addresses import Options
from .dimensions import with_lead
from .given import LabelsLike, Matrix, StoreLike, is_stored
from .input_names import check_inputs, class_names_of, names_of
from .inputs import as_labels, check_scores, find_labels
from .shared_text import documented


def open_scores(
    store: StoreLike,
    *,
    scores: str | None = None,
    labels: LabelsLike = None,
    storage_options: Options | None = None,
    missing: str = "raise",
) -> xr.Dataset:
    """Open a score store or file as a lazy Dataset with ``scores``, and ``labels`` where present; reads metadata only.

    Every function of the package takes the Dataset, and reads it as fast, and as carefully checked, as the store itself.

    Parameters
    ----------
    store
        Local path or zip file; URL (``s3://``, ``gs://``, ``az://``, ``abfs://``, ``https://``,
        ``memory://`` or another that fsspec knows); or a Zarr store, group or array already opened. Or a file on this machine:
        .npy, .npz, .parquet, .csv, .arrow, .feather, or a folder of Parquet or Arrow files.
    scores
        Name of the scores inside the store, if it is not ``scores``; may be a path such as
        ``run1/logits``. Of a file, the member or column, chosen as ``ingest`` does by default.
    labels
        Name of the labels inside the store or file, by default ``labels`` beside the scores; or the path of
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
        ``scores`` over (sample, class), of more dimensions under the names that are stored or (sample_0, ..., class), and, where there are any, ``labels`` over (sample) or, if soft,
        (sample, class). A truncated store has ``scores`` and ``class_index`` over (sample, slot), and the attribute
        ``n_classes``. Names of classes that are stored are the coordinate ``class``.

    Raises
    ------
    StoreError
        Where there is no store, no array of that name, or the store's writer did not finish.
    ScoresError
        Where the scores are no matrix (sample, class).
    LabelsError, DtypeError
        Where the labels do not fit the scores, or either has a dtype that cannot be used.
    OptionError
        Where ``missing`` or the option ``client`` is none of the values it may take.

    Notes
    -----
    Cost: reads metadata, and labels in a table or .npz file of their own; no scores until something is computed, but for CSV.

    Files are read without a copy being stored. Of .npy, of .npz that is not compressed, and of Parquet and Arrow files whose row groups or
    record batches have at most 64 MB of scores, any rows can be read: memory stays bounded. Others (CSV, compressed .npz and
    Arrow, large row groups) can only be read from front to back: every process that reads them holds all of their scores,
    at most 1 GiB (the setting ``avgk.file-bytes``) and a quarter of its memory; larger ones are refused, and ``ingest`` makes a store of
    them. Workers of a cluster must see a file at the same path, unless it has at most 4 MB of scores. A file that changes while it
    is read is refused; a checkpoint tells it by its length and time.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> with avgk.ScoreWriter(path, n_classes=3) as writer:
    ...     writer.append(np.eye(3), [0, 1, 2])
    >>> dict(avgk.open_scores(path).sizes)
    {'sample': 3, 'class': 3}

    """
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


@documented
def verify(store: StoreLike, *, storage_options: Options | None = None, progress: bool | None = None) -> Verification:
    """Read every stored chunk of a store and check it, against the store's manifest where it has one.

    Stores written by this package have a manifest: a changed, swapped, lost or shortened chunk is found with
    certainty but for one in 2**64. In other stores lost, empty and undecodable chunks are found, and
    changed bytes only where their codec has a checksum.

    Parameters
    ----------
    store
        Path, URL, or a Zarr store, group or array already opened, as for ``open_scores``.
    storage_options
        How to reach the store, as for ``open_scores``.
    {progress}

    Returns
    -------
    Verification
        With ``ok`` (nothing is wrong), ``n_chunks``, ``n_bytes`` read, ``damaged`` (pairs of a chunk's store key and what is
        wrong) and ``has_manifest``.

    Raises
    ------
    StoreError
        Where there is no store, its writer did not finish, or its manifest is damaged.

    Notes
    -----
    Cost: one read of everything stored. Chunks in a manifest are hashed, not decoded.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> with avgk.ScoreWriter(path, n_classes=3) as writer:
    ...     writer.append(np.eye(3), [0, 1, 2])
    >>> avgk.verify(path).ok
    True

    """
    arrays = open_all(store, storage_options=storage_options)
    with computing(progress) as compute:
        return Verification.merge([verify_array(array, compute) for array in arrays])
