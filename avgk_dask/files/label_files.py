"""Labels stored in a file of their own."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Dtype
from ..errors import LabelsError, StoreError
from .arrow_tables import Table
from .delimited import CsvTable
from .matrices import label_array
from .names import LABEL_NAMES, listed
from .npy import NPY_ERRORS, map_header
from .npz import read_headers, read_member
from .row_blocks import check_labels, reading
from .row_files import as_table, check_path
from .table_columns import label_column

#: Rows and bytes of a column of labels read at once.
_ROWS, _BYTES = 1 << 16, 1 << 24


def open_label_file(path: object) -> Array:
    """Return the labels in a file: class numbers, one per sample, or a matrix of probabilities; more axes are left to the scores.

    An npy file is mapped to memory. Other files are read: the member or column called ``labels`` or ``label``,
    else the only one there is. Nothing is unpickled.

    Raises
    ------
    StoreError
        Where there is no file, it is damaged, or it has several columns and none of that name.
    LabelsError
        Where it holds something else, or a probability is missing; a missing class number means unlabelled, -1.

    """
    path = check_path(path)
    if path.lower().endswith(".npy"):
        return _mapped(path)
    if path.lower().endswith(".npz"):
        headers = read_headers(path)
        name = _only([*headers], "member", path)
        _check(headers[name].shape, headers[name].dtype, f"member {name!r} of {path}")
        return read_member(path, name)
    return _column(as_table(path, None), path)


def open_mask_file(path: object) -> Array:
    """Return what an npy file says of each sample, mapped to memory; other files as ``open_label_file`` reads them."""
    path = check_path(path)
    return _mapped(path, masks=True) if path.lower().endswith(".npy") else open_label_file(path)


def _check(shape: tuple[int, ...], dtype: Dtype, location: str) -> None:
    """Refuse what are no labels; those of scores of more than two dimensions have as many, or one less."""
    if len(shape) < 3 or dtype.kind not in "iuf":
        check_labels(shape, dtype, location)


def _mapped(path: str, *, masks: bool = False) -> Array:
    header, offset = map_header(path)
    if not (masks and header.dtype == bool):
        _check(header.shape, header.dtype, path)
    if 0 in header.shape:
        return np.empty(header.shape, header.dtype.newbyteorder("="))
    with reading(path, *NPY_ERRORS):
        mapped = np.memmap(path, header.dtype, "r", offset, header.shape, "F" if header.fortran else "C")
    return mapped if header.dtype.isnative else mapped.astype(header.dtype.newbyteorder("="))


def _column(table: Table, path: str) -> Array:
    name = _only(list(table.schema.names), "column", path)
    if isinstance(table, CsvTable):
        table = CsvTable(path, name)
    if label_column({name: table.schema.field(name).type}, name, path) is None:
        raise LabelsError(
            f"labels must be class numbers; column {name!r} of {path} holds none. Convert it to integers."
        )
    parts: list[Array] = []
    start = 0
    for batch in table.batches([name], _ROWS, _BYTES):
        width = parts[0].shape[1] if parts and parts[0].ndim == 2 else None
        parts.append(label_array(batch.column(name), width, start, f"column {name!r} of {path}"))
        start += batch.num_rows
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
