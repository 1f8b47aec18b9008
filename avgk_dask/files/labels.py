"""Labels stored in a file of their own."""

from __future__ import annotations

import math
import os

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..credentials import shown
from ..errors import LABELS_CURE, LabelsError, StoreError
from .columns import label_array, label_column
from .csv import CsvTable
from .matrices import as_table, check_path
from .npy import NPY_ERRORS, map_header, read_headers, read_member
from .rows import LABEL_NAMES, check_labels, check_plain, held_limit, listed, path_advice, reading
from .tables import Table

#: Rows and bytes of a column of labels read at once.
_ROWS, _BYTES = 1 << 16, 1 << 24


def open_label_file(path: object, most: int | None = None) -> Array:
    """Return the labels in a file: class numbers, one per sample, or a matrix of probabilities; more axes are left to the scores.

    An npy file is mapped to memory. Other files are read: the member or column called ``labels`` or ``label``,
    else the only one there is, unless they are more numbers than ``most``, or too many to be held. Nothing is unpickled.

    Raises
    ------
    StoreError
        If there is no file, it is damaged, it has several columns and none of that name, or it is too large to be held.
    LabelsError
        If it holds something else, or more than fits the scores, or a probability is missing; a missing class number means unlabelled, -1.

    """
    path = check_path(path)
    if path.lower().endswith(".npy"):
        return _mapped(path)
    if path.lower().endswith(".npz"):
        headers = read_headers(path)
        name = _only([*headers], "member", path)
        shape, dtype, what = headers[name].shape, headers[name].dtype, f"member {name!r} of {path}"
        _check(shape, dtype, what)
        _check_number(math.prod(shape), dtype.itemsize, most, what)
        return read_member(path, name)
    return _column(as_table(path, None), path, most)


def open_mask_file(path: object, most: int | None = None) -> Array:
    """Return what an npy file says of each sample, mapped to memory; other files as ``open_label_file`` reads them."""
    path = check_path(path)
    return _mapped(path, masks=True) if path.lower().endswith(".npy") else open_label_file(path, most)


def _check(shape: tuple[int, ...], dtype: Dtype, location: str) -> None:
    """Refuse what are no labels; those of scores of more than two dimensions have as many, or one less."""
    if len(shape) < 3 or dtype.kind not in "iuf":
        check_labels(shape, dtype, location)


def _check_number(n: int, itemsize: int, most: int | None, what: str) -> None:
    """Refuse more labels than fit the scores, or than can be held, before they are unpacked."""
    if most is not None and n > most:
        raise LabelsError(
            f"labels must fit the scores, which are {most:,}; {what} has {n:,} of them or more. {LABELS_CURE}"
        )
    if n * itemsize > held_limit():
        raise StoreError(
            f"labels must have at most {held_limit():,} bytes in a file that is read whole (the setting avgk.file-bytes, and a "
            f"quarter of the memory); {what} has {n * itemsize:,} or more. Save them with numpy.save: .npy files are read in place."
        )


def _mapped(path: str, *, masks: bool = False) -> Array:
    header, offset = map_header(path)
    if not (masks and header.dtype == bool):
        _check(header.shape, header.dtype, path)
    if 0 in header.shape:
        return np.empty(header.shape, header.dtype.newbyteorder("="))
    with reading(path, *NPY_ERRORS):
        mapped = np.memmap(path, header.dtype, "r", offset, header.shape, "F" if header.fortran else "C")
    return mapped if header.dtype.isnative else mapped.astype(header.dtype.newbyteorder("="))


def _column(table: Table, path: str, most: int | None) -> Array:
    name = _only(list(table.schema.names), "column", path)
    if isinstance(table, CsvTable):
        table = CsvTable(path, name)
    if label_column({name: table.schema.field(name).type}, name, path) is None:
        raise LabelsError(
            f"labels must be class numbers; column {name!r} of {path} holds none. Convert it to integers."
        )
    what = f"column {name!r} of {path}"
    _check_number(table.n_rows or 0, 8, most, what)
    parts: list[Array] = []
    start = n = 0
    for batch in table.batches([name], _ROWS, _BYTES):
        width = parts[0].shape[1] if parts and parts[0].ndim == 2 else None
        parts.append(label_array(batch, name, width, start, path))
        start, n = start + batch.num_rows, n + parts[-1].size
        _check_number(n, parts[-1].itemsize, most, what)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _only(names: list[str], what: str, path: str) -> str:
    for name in LABEL_NAMES:
        if name in names:
            return name
    if len(names) == 1:
        return names[0]
    raise StoreError(
        f"{path} must have a {what} 'labels', or one {what} only; it has {listed(names)}. Store the labels alone."
    )


# A short list of numbers in a file of its own.


def read_numbers(path: str) -> Floats:
    """Return the numbers in a file: a vector in an npy file, else text with one number a line. Nothing is unpickled.

    Raises
    ------
    StoreError
        If there is no file, or it holds something else.

    """
    if not os.path.isfile(path):
        raise StoreError(f"a file of numbers must exist; got {shown(path)!r}, and none is there. {path_advice(path)}")
    check_plain(path)
    if path.lower().endswith(".npy"):
        header, offset = map_header(path)
        if len(header.shape) != 1 or header.dtype.kind not in "iuf":
            raise StoreError(
                f"{path} must hold a vector of numbers; it has shape {header.shape} and dtype {header.dtype}. "
                "Save one number for each class."
            )
        with reading(path, *NPY_ERRORS):
            return np.fromfile(path, header.dtype, header.shape[0], offset=offset).astype(np.float64)
    try:
        return np.loadtxt(path, np.float64, ndmin=1)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} must hold one number a line; it could not be read as that ({str(error).partition(chr(10))[0]}). "
            "Save one number for each class, or a vector as .npy."
        ) from None
