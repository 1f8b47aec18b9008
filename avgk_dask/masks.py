"""Missing values: masks of NumPy, and nulls of pandas, Arrow and polars. No other module handles them.

A missing class number means unlabelled and becomes -1. Scores, soft labels and sets must be complete: NumPy's masked arrays
raise an error whatever their mask is, and columns raise an error if they contain nulls. The module also checks labels: their
dtype, range, and the sums of soft labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import Array, Bools, Dtype, Floats, Ints
from .errors import AvgkError, DtypeError, LabelsError, OptionError, ScoresError, label_hint, range_hint, sum_hint

Refusal = type[AvgkError]

UNLABELLED = -1
_INT64_MAX = np.iinfo(np.int64).max
#: Largest difference of the sum of a row of soft labels from 1. Rounding to bfloat16 changes the sum by up to 2**-8, to
#: float16 by 2**-11, a hundred probabilities to three decimals usually by less than 0.01. Several right labels, and other
#: mistakes, change it by more.
_SUM_SLACK = 0.01


def to_ndarray(values: object, argument: str = "scores", refusal: Refusal = ScoresError) -> Array:
    """Return values in memory as a NumPy array; raise an error if they are masked, missing, sparse or not an array."""
    if type(values) is np.ndarray:
        return values
    array = _read(values, argument, refusal)
    refuse_other_kinds(array, argument, refusal)
    return np.asarray(array)


def labels_to_ndarray(values: Any) -> Array:
    """Return labels in memory as a NumPy array: hard labels with -1 for missing ones, soft labels unchanged."""
    values = _compute(values)
    if isinstance(values, (list, tuple)) and not any(isinstance(v, list | tuple) or np.ndim(v) for v in values[:1]):
        return _from_elements(values)
    missing = _find_nulls(values)
    if missing is not None and missing.any() and missing.ndim == 1:
        drop = getattr(values, "drop_null", None) or getattr(values, "drop_nulls", None)  # Arrow; polars
        present = drop() if drop else values[~missing]
        return _fill_missing(_as_array(present, "labels", LabelsError), missing)
    labels = _read(values, "labels", LabelsError)
    if isinstance(labels, np.ma.MaskedArray) and labels.ndim < 2:
        masked = np.ma.getmaskarray(labels)
        return _fill_missing(labels.data[~masked], masked)
    labels = to_ndarray(labels, "labels", LabelsError)
    return _from_elements(labels.tolist()) if labels.dtype == object and labels.ndim == 1 else labels


def _read(values: object, argument: str, refusal: Refusal) -> Array:
    """Return values in memory as a NumPy array, perhaps a masked one; raise an error if they have nulls or are sparse."""
    values = _compute(values)
    if isinstance(values, np.ndarray):
        return values
    refuse_other_kinds(values, argument, refusal)
    if isinstance(values, (list, tuple)):  # rows, perhaps nested; each is checked
        kinds = {kind for kind in set(map(type, values)) if _may_have_nulls(kind)}
        rows = values
        if kinds:
            rows = [to_ndarray(row, argument, refusal) if type(row) in kinds else row for row in values]
        return _as_array(rows, argument, refusal)
    columns = _columns_of(values)
    if columns is not None:
        return _stack(columns, argument, refusal)
    missing = _find_nulls(values)
    if missing is not None and missing.any():
        raise refusal(_missing_text(argument, f"{int(missing.sum())} of {missing.size}"))
    return _as_array(values, argument, refusal)


def block_to_ndarray(block: object, argument: str = "scores", refusal: Refusal = ScoresError) -> Array:
    """Return a block of a Dask array as a NumPy array; raise an error if it is masked or of another library."""
    if type(block) is np.ndarray:
        return block
    refuse_other_kinds(block, argument, refusal)
    if not isinstance(block, np.ndarray):
        raise DtypeError(
            f"{argument} must come in blocks that are NumPy arrays; got one of {_kind(block)}. "
            "Convert them with map_blocks(numpy.asarray)."
        )
    return np.asarray(block)


def refuse_other_kinds(values: Any, argument: str, refusal: Refusal) -> None:
    """Raise an error for NumPy's masked arrays, whatever their mask is, and for sparse arrays."""
    if isinstance(values, np.ma.MaskedArray):
        value = "-numpy.inf" if argument == "scores" else "0"  # ranks last, or is not a member
        raise refusal(
            f"{argument} must not be masked; got a masked array. Fill them first, for example with "
            f"{argument}.filled({value}) or dask.array.ma.filled({argument}, {value})."
        )
    for method in ("toarray", "todense"):  # scipy.sparse; the package sparse
        if hasattr(values, method) and not isinstance(values, np.ndarray):
            shape, dtype = getattr(values, "shape", None), getattr(values, "dtype", None)
            known = bool(shape) and isinstance(dtype, np.dtype)
            size = f", which takes {math.prod(shape) * dtype.itemsize:,} bytes" if known else ""  # type: ignore[arg-type, union-attr]
            raise DtypeError(
                f"{argument} must be dense; got the sparse {_kind(values)}. Convert them with {argument}.{method}(){size}, "
                f"or blocks of a Dask array with map_blocks(lambda block: block.{method}()). Entries that are not stored "
                "become 0."
            )


def refuse_masked(values: object, argument: str) -> None:
    """Raise OptionError if numbers, such as thresholds, are a masked array."""
    if isinstance(values, np.ma.MaskedArray):
        raise OptionError(
            f"{argument} must not be masked; got a masked array. Pass the unmasked numbers, {argument}.compressed()."
        )


def check_label_dtype(dtype: object, ndim: int) -> None:
    """Raise DtypeError if hard labels are not integers, or soft labels not real numbers of up to 64 bits."""
    kind, size = getattr(dtype, "kind", "O"), getattr(dtype, "itemsize", 0)
    if ndim == 1 and kind not in "iu":
        raise DtypeError(
            f"labels must be integers (or an N x C matrix of probabilities); got dtype {dtype}. {label_hint(dtype)}"
        )
    if ndim == 2 and (kind not in "fiub" or size > 8):
        raise DtypeError(
            f"soft labels must be real numbers; got dtype {dtype}. Convert them with labels.astype(float)."
        )


def check_label_range(labels: Array, n_classes: int, first: int | None = None) -> None:
    """Raise LabelsError if a class number is too large; ``first`` is the number of the first sample, for the message."""
    bad = np.flatnonzero(labels >= n_classes)
    if bad.size:
        flat = labels.reshape(-1)
        sample = "" if first is None else f" at sample {first + int(bad[0])}"
        hint = range_hint(int(flat[flat >= 0].min()), int(flat.max()), n_classes)
        raise LabelsError(
            f"labels must lie in 0..{n_classes - 1} (or be negative: unlabelled); got {flat[bad[0]]}{sample}. {hint}"
        )


@dataclass(frozen=True)
class SoftFaults:
    """The rows of soft labels that are not probabilities: outside [0, 1], or with a sum other than 1."""

    outside: Ints
    off: Ints
    first_sum: float = 1.0
    #: Rows of ``off`` that consist of zeros and several ones.
    n_multi_hot: int = 0

    @classmethod
    def find(cls, soft: Floats) -> SoftFaults:
        """Return the faults of whole rows."""
        inside = ((soft >= 0) & (soft <= 1)).all(1)
        # In C order the sum of a row does not depend on the other rows of its block.
        with np.errstate(invalid="ignore"):
            sums = np.ascontiguousarray(soft).sum(1)
        off = np.flatnonzero(inside & ~(np.abs(sums - 1) <= _SUM_SLACK))
        first = float(sums[off[0]]) if off.size else 1.0
        several = off[sums[off] > 1]
        n_multi_hot = int(((soft[several] == 0) | (soft[several] == 1)).all(1).sum())
        return cls(np.flatnonzero(~inside), off, first, n_multi_hot)


def check_soft_labels(labels: Array, first: int) -> None:
    """Raise LabelsError if soft labels are not probabilities of one right label; the first row is sample ``first``."""
    faults = SoftFaults.find(labels.astype(np.float64))
    if faults.outside.size:
        raise outside_error(faults.outside.size, first + int(faults.outside[0]))
    if faults.off.size:
        raise sum_error(faults.off.size, first + int(faults.off[0]), faults.first_sum, faults.n_multi_hot)


def outside_error(n_rows: int, sample: int) -> LabelsError:
    """Return the error for soft labels outside [0, 1]."""
    rows = "1 row that is" if n_rows == 1 else f"{n_rows:,} rows that are"
    return LabelsError(
        f"labels must be probabilities in [0, 1]; got {rows} not, the first at sample {sample}. "
        "Apply a softmax if they are logits."
    )


def sum_error(n_rows: int, sample: int, total: float, n_multi_hot: int) -> LabelsError:
    """Return the error for soft labels that do not sum to 1."""
    rows = "1 row that does" if n_rows == 1 else f"{n_rows:,} rows that do"
    return LabelsError(
        f"labels must be probabilities that sum to 1 for each sample; got {rows} not, the first at sample {sample}, "
        f"whose sum is {total:.6g}{': this looks like multi-label data' if n_multi_hot else ''}. {sum_hint(total, n_multi_hot)}"
    )


def first_inexact(integers: Array, dtype: Dtype) -> int | None:
    """Return the index of the first integer that changes when converted to ``dtype``, a float, or None if all are exact.

    int64 and uint64 columns in one frame become float64.

    Examples
    --------
    >>> first_inexact(np.array([2**60, -(2**53) - 1]), np.dtype("f8"))
    1
    """
    if integers.dtype.kind not in "iu" or integers.dtype.itemsize < 8 or dtype.kind != "f":
        return None
    size = np.abs(integers).astype(np.uint64)
    odd = size // np.maximum(size & (~size + np.uint64(1)), np.uint64(1))
    lost = odd > np.uint64(2**53)
    return int(lost.argmax()) if lost.any() else None


def with_unlabelled(present: Array, missing: Bools) -> Ints:
    """Return class numbers with -1 for missing ones."""
    labels = np.full(missing.shape, UNLABELLED, np.int64)
    # Too large for int64 is out of range anyway, and must not become negative.
    labels[~missing] = np.minimum(present, _INT64_MAX) if present.dtype == np.uint64 else present
    return labels


def _fill_missing(present: Array, missing: Bools) -> Array:
    """Return class numbers with -1 for missing ones, after checking that they are class numbers."""
    if present.dtype == object:
        return _fill_missing(_as_array(present.tolist(), "labels", LabelsError), missing)
    if present.ndim != 1:
        raise LabelsError("labels must all be class numbers, or all be rows of probabilities; got both. Give one kind.")
    if present.size:
        check_label_dtype(present.dtype, 1)
    return with_unlabelled(present, missing)


def _from_elements(values: Sequence[object]) -> Array:
    """Return a list of labels as an array; the list may contain None, numpy.ma.masked or pandas.NA."""
    if not any(map(_may_be_missing, set(map(type, values)))):
        return _as_array(values, "labels", LabelsError)
    missing = np.array([_is_null(value) for value in values], bool)
    present = [value for value, is_null in zip(values, missing, strict=True) if not is_null]
    return _fill_missing(_as_array(present, "labels", LabelsError), missing)


def _may_be_missing(kind: type) -> bool:
    return kind is type(None) or kind.__name__ == "NAType" or issubclass(kind, np.ma.MaskedArray)


def _is_null(value: object) -> bool:
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(value).all())
    return _may_be_missing(type(value))


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, NaN, NaT, numpy.ma.masked or pandas.NA."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return _is_null(value) or type(value).__name__ == "NaTType"


def _may_have_nulls(kind: type) -> bool:
    """Return whether rows of a type must be checked one by one: sequences, masked arrays, columns."""
    if issubclass(kind, (list, tuple, np.ma.MaskedArray)):
        return True
    return hasattr(kind, "__array__") and not issubclass(kind, (np.ndarray, np.generic))


def _compute(values: object) -> object:
    """Compute Dask arrays, also those in xarray, and Dask frames and columns; return other values unchanged."""
    values = values.data if hasattr(values, "dims") and hasattr(values, "data") else values
    return values.compute() if hasattr(values, "__dask_graph__") and hasattr(values, "compute") else values


def _columns_of(values: Any) -> list[object] | None:
    """Return the columns of an Arrow or polars frame, or of a pandas frame that needs checks; None for other values."""
    if hasattr(values, "iloc") and getattr(values, "ndim", 0) == 2:
        plain = all(isinstance(dtype, np.dtype) for dtype in values.dtypes)
        are_integers = plain and all(dtype.kind in "iu" for dtype in values.dtypes)
        if are_integers and len(values.dtypes) and np.result_type(*values.dtypes).kind == "f":
            plain = False  # integers may lose digits
        return None if plain else [values.iloc[:, i] for i in range(values.shape[1])]
    if hasattr(values, "num_columns"):
        return [values.column(i) for i in range(values.num_columns)]
    return list(values.get_columns()) if hasattr(values, "get_columns") else None


def _stack(columns: Sequence[object], argument: str, refusal: Refusal) -> Array:
    """Return columns side by side; raise an error if one contains nulls."""
    for i, column in enumerate(columns):
        missing = _find_nulls(column)
        if missing is not None and missing.any():
            raise refusal(_missing_text(argument, f"one at row {int(missing.argmax())}, column {i}"))
    arrays = [_as_array(column, argument, refusal) for column in columns]
    if not arrays:
        return np.empty((0, 0))
    if not all(a.dtype.kind in "iuf" for a in arrays):
        return np.stack(arrays, axis=1, dtype=object)
    dtype = np.result_type(*arrays)
    for i, array in enumerate(arrays):
        row = first_inexact(array, dtype)
        if row is not None:
            raise refusal(inexact_text(argument, array[row], f"row {row}, column {i}"))
    return np.stack(arrays, axis=1)


def _find_nulls(values: object) -> Bools | None:
    """Return which values of a column are null, or None if its type has no nulls. NaN in a NumPy column is not null."""
    if hasattr(values, "is_null"):  # Arrow and polars
        return np.asarray(values.is_null(), bool)
    if hasattr(values, "isna") and not isinstance(getattr(values, "dtype", np.dtype(bool)), np.dtype):  # pandas
        return np.asarray(values.isna(), bool)
    return None


def _as_array(values: object, argument: str, refusal: Refusal) -> Array:
    try:
        return np.asanyarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refusal(
            f"{argument} must be an array; got {_kind(values)} that NumPy cannot read ({str(error).rstrip('.')}). "
            f"{_array_hint(values, argument)}"
        ) from error


def _array_hint(values: Any, argument: str) -> str:
    """Return the advice for values that NumPy cannot read; for torch tensors, the methods to call."""
    if type(values).__module__.split(".")[0] != "torch":
        return "Convert them to one array first."
    calls = ".detach()" if getattr(values, "requires_grad", False) else ""
    calls += ".to_dense()" if getattr(values, "is_sparse", False) else ""
    calls += ".cpu()" if getattr(getattr(values, "device", None), "type", "cpu") != "cpu" else ""
    calls += ".float()" if "bfloat16" in str(getattr(values, "dtype", "")) else ""
    return f"Pass {argument}{calls or '.numpy()'}."


def _kind(values: object) -> str:
    kind = type(values)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"


def inexact_text(argument: str, value: object, place: str) -> str:
    """Return the message for an integer that float64 does not represent."""
    return (
        f"{argument} in columns of different types become float64, which cannot represent {value} at {place}. "
        "Cast all columns to one type."
    )


def _missing_text(argument: str, count: str) -> str:
    return f"{argument} must not be missing; got {count}. Fill them first, or drop those samples."
