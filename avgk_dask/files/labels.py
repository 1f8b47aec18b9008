"""Read labels, masks and numbers from separate files, without scores."""

from __future__ import annotations

import math
import os

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..credentials import redact
from ..errors import LABELS_HINT, LabelsError, StoreError
from .columns import label_array, label_column
from .csv import CsvTable
from .matrices import as_table, check_path
from .npy import NPY_ERRORS, map_header, read_headers, read_member
from .rows import LABEL_NAMES, check_labels, held_limit, listed, path_advice, reading
from .tables import Table

#: Maximum number of rows and bytes of a column of labels that are read at once.
_ROWS, _BYTES = 1 << 16, 1 << 24


def open_label_file(path: object, most: int | None = None) -> Array:
    """Return the labels in a file: one class number per sample, or a matrix of probabilities.

    A .npy file is mapped to memory, and may have more axes if the scores do. In other files, the labels are the member or
    column ``labels`` or ``label``, or the only one; they must fit into memory and have at most ``most`` values. A missing
    class number becomes -1, which means unlabelled.
    """
    path = check_path(path)
    if path.lower().endswith(".npy"):
        return _map_npy(path)
    if path.lower().endswith(".npz"):
        headers = read_headers(path)
        name = _choose_name([*headers], "member", path)
        shape, dtype, location = headers[name].shape, headers[name].dtype, f"member {name!r} of {path}"
        _check_values(shape, dtype, location)
        _check_number(math.prod(shape), dtype.itemsize, most, location)
        return read_member(path, name)
    return _read_column(as_table(path, None), path, most)


def open_mask_file(path: object, most: int | None = None) -> Array:
    """Return the mask in a file: a .npy file is mapped to memory, and other files are read as by ``open_label_file``."""
    path = check_path(path)
    return _map_npy(path, masks=True) if path.lower().endswith(".npy") else open_label_file(path, most)


def _check_values(shape: tuple[int, ...], dtype: Dtype, location: str) -> None:
    """Refuse values that cannot be labels. Numbers with three or more axes are checked later, with the scores."""
    if len(shape) < 3 or dtype.kind not in "iuf":
        check_labels(shape, dtype, location)


def _check_number(n: int, itemsize: int, most: int | None, location: str) -> None:
    """Refuse labels, before they are unpacked, if there are more than scores, or more than fit into memory."""
    if most is not None and n > most:
        raise LabelsError(
            f"there are more labels than scores: {location} has at least {n:,} labels for {most:,} scores. "
            f"{LABELS_HINT}"
        )
    if n * itemsize > held_limit():
        raise StoreError(
            f"{location} has at least {n * itemsize:,} bytes of labels; the limit for a file that is read into memory "
            f"is {held_limit():,} bytes (the setting avgk.file-bytes, or a quarter of the memory if less). Save the "
            "labels with numpy.save: .npy files are read in place."
        )


def _map_npy(path: str, *, masks: bool = False) -> Array:
    header, offset = map_header(path)
    if not (masks and header.dtype == bool):
        _check_values(header.shape, header.dtype, path)
    if 0 in header.shape:
        return np.empty(header.shape, header.dtype.newbyteorder("="))
    with reading(path, *NPY_ERRORS):
        mapped = np.memmap(path, header.dtype, "r", offset, header.shape, "F" if header.fortran else "C")
    return mapped if header.dtype.isnative else mapped.astype(header.dtype.newbyteorder("="))


def _read_column(table: Table, path: str, most: int | None) -> Array:
    name = _choose_name(list(table.schema.names), "column", path)
    if isinstance(table, CsvTable):
        table = CsvTable(path, name)
    if label_column({name: table.schema.field(name).type}, name, path) is None:
        raise LabelsError(
            f"labels must be class numbers; column {name!r} of {path} does not hold numbers. Convert it to integers."
        )
    location = f"column {name!r} of {path}"
    _check_number(table.n_rows or 0, 8, most, location)
    parts: list[Array] = []
    start = n = 0
    for batch in table.batches([name], _ROWS, _BYTES):
        width = parts[0].shape[1] if parts and parts[0].ndim == 2 else None
        parts.append(label_array(batch, name, width, start, path))
        start, n = start + batch.num_rows, n + parts[-1].size
        _check_number(n, parts[-1].itemsize, most, location)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _choose_name(names: list[str], kind: str, path: str) -> str:
    for name in LABEL_NAMES:
        if name in names:
            return name
    if len(names) == 1:
        return names[0]
    raise StoreError(
        f"{path} must have a {kind} 'labels', or a single {kind}; it has {listed(names)}. Store the labels alone."
    )


def read_numbers(path: str) -> Floats:
    """Return the numbers in a file: a vector in an npy file, or text with one number per line."""
    if not os.path.isfile(path):
        raise StoreError(f"no such file: {redact(path)!r}. {path_advice(path)}")
    if path.lower().endswith(".npy"):
        header, offset = map_header(path)
        if len(header.shape) != 1 or header.dtype.kind not in "iuf":
            raise StoreError(
                f"{path} must hold a vector of numbers; it has shape {header.shape} and dtype {header.dtype}. "
                "Save one number per class."
            )
        with reading(path, *NPY_ERRORS):
            return np.fromfile(path, header.dtype, header.shape[0], offset=offset).astype(np.float64)
    try:
        return np.loadtxt(path, np.float64, ndmin=1)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} must have one number per line ({str(error).partition(chr(10))[0]}). "
            "Save one number per class, or a vector as .npy."
        ) from None
