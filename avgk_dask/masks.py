"""Missing values: the one module that knows masks of NumPy, and nulls of pandas, Arrow and polars.

A missing class number means unlabelled and becomes -1. Of scores, soft labels and sets nothing may be missing: arrays of
NumPy's masked type are refused whatever their mask, columns that have nulls where they have one. Also the checks of labels
that several rooms share: dtype, range, and sums of soft ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import Array, Bools, Dtype, Floats, Ints
from .errors import AvgkError, DtypeError, LabelsError, OptionError, ScoresError, label_cure, range_cure, sum_cure

Refusal = type[AvgkError]

UNLABELLED = -1
_INT64_MAX = np.iinfo(np.int64).max
#: How far from 1 a row of soft labels may sum to: probabilities rounded to bfloat16 are off by up to 2**-8 in all, those
#: rounded to float16 by 2**-11, a hundred of three decimals by less than 0.01 as a rule. Several right labels, and other mistakes, are off by more.
_SUM_SLACK = 0.01


def plain_array(values: object, what: str = "scores", refusal: Refusal = ScoresError) -> Array:
    """Return what is in memory as a plain NumPy array; refuse what is masked, missing, sparse or no array."""
    if type(values) is np.ndarray:
        return values
    found = _read(values, what, refusal)
    refuse_other_kinds(found, what, refusal)
    return np.asarray(found)


def plain_labels(values: Any) -> Array:
    """Return labels in memory as a plain NumPy array: hard ones with -1 where they are missing, soft ones as they are."""
    values = _computed(values)
    if isinstance(values, (list, tuple)) and not any(isinstance(v, list | tuple) or np.ndim(v) for v in values[:1]):
        return _from_elements(values)
    missing = _nulls_of(values)
    if missing is not None and missing.any() and missing.ndim == 1:
        drop = getattr(values, "drop_null", None) or getattr(values, "drop_nulls", None)  # of Arrow, of polars
        present = drop() if drop else values[~missing]
        return _scattered(_as_array(present, "labels", LabelsError), missing)
    found = _read(values, "labels", LabelsError)
    if isinstance(found, np.ma.MaskedArray) and found.ndim < 2:
        masked = np.ma.getmaskarray(found)
        return _scattered(found.data[~masked], masked)
    found = plain_array(found, "labels", LabelsError)
    return _from_elements(found.tolist()) if found.dtype == object and found.ndim == 1 else found


def _read(values: object, what: str, refusal: Refusal) -> Array:
    """Return what is in memory as a NumPy array, perhaps a masked one; refuse other ways to be missing, and sparse ones."""
    values = _computed(values)
    if isinstance(values, np.ndarray):
        return values
    refuse_other_kinds(values, what, refusal)
    if isinstance(values, (list, tuple)):  # rows, or rows of rows: none may be masked or have nulls
        kinds = {kind for kind in set(map(type, values)) if _has_own_nulls(kind)}
        rows = [plain_array(row, what, refusal) if type(row) in kinds else row for row in values] if kinds else values
        return _as_array(rows, what, refusal)
    columns = _columns_of(values)
    if columns is not None:
        return _stacked(columns, what, refusal)
    missing = _nulls_of(values)
    if missing is not None and missing.any():
        raise refusal(_missing_text(what, f"{int(missing.sum())} of {missing.size}"))
    return _as_array(values, what, refusal)


def plain_block(block: object, what: str = "scores", refusal: Refusal = ScoresError) -> Array:
    """Return a block of a Dask array as a plain NumPy array; refuse a masked one, and one of another library."""
    if type(block) is np.ndarray:
        return block
    refuse_other_kinds(block, what, refusal)
    if not isinstance(block, np.ndarray):
        raise DtypeError(
            f"{what} must come in blocks that are NumPy arrays; got one of {_kind(block)}. "
            "Convert them with map_blocks(numpy.asarray)."
        )
    return np.asarray(block)


def refuse_other_kinds(values: Any, what: str, refusal: Refusal) -> None:
    """Refuse arrays of NumPy's masked type, whatever their mask, and sparse ones."""
    if isinstance(values, np.ma.MaskedArray):
        value = "-numpy.inf" if what == "scores" else "0"  # what ranks last, or is not in
        raise refusal(
            f"{what} must not be masked; got a masked array. Fill them first, for example with {what}.filled({value}) or "
            f"dask.array.ma.filled({what}, {value})."
        )
    for method in ("toarray", "todense"):  # of scipy.sparse, and of the package sparse
        if hasattr(values, method) and not isinstance(values, np.ndarray):
            shape, dtype = getattr(values, "shape", None), getattr(values, "dtype", None)
            known = bool(shape) and isinstance(dtype, np.dtype)
            size = f", which takes {math.prod(shape) * dtype.itemsize:,} bytes" if known else ""  # type: ignore[arg-type, union-attr]
            raise DtypeError(
                f"{what} must be dense; got the sparse {_kind(values)}. Convert them with {what}.{method}(){size}, "
                f"blocks of a Dask array with map_blocks(lambda block: block.{method}()): what is not stored becomes 0."
            )


def refuse_masked(values: object, what: str) -> None:
    """Refuse numbers of a user, such as thresholds, in NumPy's masked type: none of them may be absent."""
    if isinstance(values, np.ma.MaskedArray):
        raise OptionError(
            f"{what} must not be masked; got a masked array. Pass the numbers that count, such as {what}.compressed()."
        )


def check_label_dtype(dtype: object, ndim: int) -> None:
    """Refuse hard labels that are no integers, and soft ones that are no real numbers of up to 64 bits."""
    kind, size = getattr(dtype, "kind", "O"), getattr(dtype, "itemsize", 0)
    if ndim == 1 and kind not in "iu":
        raise DtypeError(
            f"labels must be integers (or an N x C matrix of probabilities); got dtype {dtype}. {label_cure(dtype)}"
        )
    if ndim == 2 and (kind not in "fiub" or size > 8):
        raise DtypeError(
            f"soft labels must be real numbers; got dtype {dtype}. Convert them with labels.astype(float)."
        )


def check_label_range(labels: Array, n_classes: int, first: int | None = None) -> None:
    """Refuse class numbers of ``n_classes`` and more; where the first label is of sample ``first``, name the sample."""
    bad = np.flatnonzero(labels >= n_classes)
    if bad.size:
        flat = labels.reshape(-1)
        where = "" if first is None else f" at sample {first + int(bad[0])}"
        cure = range_cure(int(flat[flat >= 0].min()), int(flat.max()), n_classes)
        raise LabelsError(
            f"labels must lie in 0..{n_classes - 1} (or be negative: unlabelled); got {flat[bad[0]]}{where}. {cure}"
        )


@dataclass(frozen=True)
class SoftFaults:
    """The rows of soft labels that are not probabilities: outside [0, 1], or with a sum other than 1."""

    outside: Ints
    off: Ints
    first_sum: float = 1.0
    #: Rows of ``off`` that hold zeros and several ones.
    n_multi_hot: int = 0

    @classmethod
    def find(cls, soft: Floats) -> SoftFaults:
        """Return the faults of whole rows."""
        inside = ((soft >= 0) & (soft <= 1)).all(1)
        # In C order each row is added in the same way, whatever the other rows of its block.
        with np.errstate(invalid="ignore"):
            sums = np.ascontiguousarray(soft).sum(1)
        off = np.flatnonzero(inside & ~(np.abs(sums - 1) <= _SUM_SLACK))
        first = float(sums[off[0]]) if off.size else 1.0
        several = off[sums[off] > 1]
        n_multi_hot = int(((soft[several] == 0) | (soft[several] == 1)).all(1).sum())
        return cls(np.flatnonzero(~inside), off, first, n_multi_hot)


def check_soft_labels(labels: Array, first: int) -> None:
    """Refuse soft labels that are not probabilities of one right label; the first row is that of sample ``first``."""
    faults = SoftFaults.find(labels.astype(np.float64))
    if faults.outside.size:
        raise outside_error(faults.outside.size, first + int(faults.outside[0]))
    if faults.off.size:
        raise sum_error(faults.off.size, first + int(faults.off[0]), faults.first_sum, faults.n_multi_hot)


def outside_error(n_rows: int, sample: int) -> LabelsError:
    """Return the refusal of soft labels outside [0, 1]."""
    return LabelsError(
        f"labels must be probabilities in [0, 1]; got {n_rows:,} that {'does' if n_rows == 1 else 'do'} not, the first at sample {sample}. Give probabilities; logits need a softmax first."
    )


def sum_error(n_rows: int, sample: int, total: float, n_multi_hot: int) -> LabelsError:
    """Return the refusal of rows of soft labels that do not sum to 1."""
    rows = "1 row that does" if n_rows == 1 else f"{n_rows:,} rows that do"
    return LabelsError(
        f"labels must be probabilities that sum to 1 for each sample; got {rows} not, the first at sample {sample}, "
        f"whose sum is {total:.6g}{': this looks like multi-label data' if n_multi_hot else ''}. {sum_cure(total, n_multi_hot)}"
    )


def first_inexact(integers: Array, dtype: Dtype) -> int | None:
    """Return the first of some integers that floats of 64 bits do not hold, if that is what they become; None if there is none.

    The dtype of int64 and uint64 columns next to each other is float64.

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
    """Return class numbers with -1 where one is missing."""
    labels = np.full(missing.shape, UNLABELLED, np.int64)
    # Too large for int64 is out of range anyway, and must not become negative.
    labels[~missing] = np.minimum(present, _INT64_MAX) if present.dtype == np.uint64 else present
    return labels


def _scattered(present: Array, missing: Bools) -> Array:
    """Return the labels that are there and -1 for the others; refuse what are no class numbers."""
    if present.dtype == object:
        return _scattered(_as_array(present.tolist(), "labels", LabelsError), missing)
    if present.ndim != 1:
        raise LabelsError("labels must all be class numbers, or all be rows of probabilities; got both. Give one kind.")
    if present.size:
        check_label_dtype(present.dtype, 1)
    return with_unlabelled(present, missing)


def _from_elements(values: Sequence[object]) -> Array:
    """Return labels given one by one, among them None, numpy.ma.masked or pandas.NA."""
    if not any(map(_may_be_missing, set(map(type, values)))):
        return _as_array(values, "labels", LabelsError)
    missing = np.array([_is_null(value) for value in values], bool)
    present = [value for value, gone in zip(values, missing, strict=True) if not gone]
    return _scattered(_as_array(present, "labels", LabelsError), missing)


def _may_be_missing(kind: type) -> bool:
    return kind is type(None) or kind.__name__ == "NAType" or issubclass(kind, np.ma.MaskedArray)


def _is_null(value: object) -> bool:
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(value).all())
    return _may_be_missing(type(value))


def is_missing(value: object) -> bool:
    """Return whether a single value stands for a missing one: None, NaN, NaT, or that of NumPy's masks or pandas."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return _is_null(value) or type(value).__name__ == "NaTType"


def _has_own_nulls(kind: type) -> bool:
    """Return whether rows of a type have to be read one by one: sequences, masked arrays, columns."""
    if issubclass(kind, (list, tuple, np.ma.MaskedArray)):
        return True
    return hasattr(kind, "__array__") and not issubclass(kind, (np.ndarray, np.generic))


def _computed(values: object) -> object:
    """Return what Dask computes: of its arrays and those in xarray, and of its frames and columns."""
    values = values.data if hasattr(values, "dims") and hasattr(values, "data") else values
    return values.compute() if hasattr(values, "__dask_graph__") and hasattr(values, "compute") else values


def _columns_of(values: Any) -> list[object] | None:
    """Return the columns of a frame of Arrow or polars, or of pandas where some can have nulls; None of anything else."""
    if hasattr(values, "iloc") and getattr(values, "ndim", 0) == 2:
        plain = all(isinstance(dtype, np.dtype) for dtype in values.dtypes)
        whole = plain and all(dtype.kind in "iu" for dtype in values.dtypes)
        if whole and len(values.dtypes) and np.result_type(*values.dtypes).kind == "f":
            plain = False  # integers may lose digits
        return None if plain else [values.iloc[:, i] for i in range(values.shape[1])]
    if hasattr(values, "num_columns"):
        return [values.column(i) for i in range(values.num_columns)]
    return list(values.get_columns()) if hasattr(values, "get_columns") else None


def _stacked(columns: Sequence[object], what: str, refusal: Refusal) -> Array:
    """Return columns side by side; refuse nulls by the number of their column."""
    for i, column in enumerate(columns):
        missing = _nulls_of(column)
        if missing is not None and missing.any():
            raise refusal(_missing_text(what, f"one at row {int(missing.argmax())}, column {i}"))
    arrays = [_as_array(column, what, refusal) for column in columns]
    if not arrays:
        return np.empty((0, 0))
    if not all(a.dtype.kind in "iuf" for a in arrays):
        return np.stack(arrays, axis=1, dtype=object)
    dtype = np.result_type(*arrays)
    for i, array in enumerate(arrays):
        row = first_inexact(array, dtype)
        if row is not None:
            raise refusal(inexact_text(what, array[row], f"row {row}, column {i}"))
    return np.stack(arrays, axis=1)


def _nulls_of(values: object) -> Bools | None:
    """Return where a column has no value; None where its type always has one. NaN among plain floats is a value."""
    if hasattr(values, "is_null"):  # of Arrow and polars
        return np.asarray(values.is_null(), bool)
    if hasattr(values, "isna") and not isinstance(getattr(values, "dtype", np.dtype(bool)), np.dtype):  # of pandas
        return np.asarray(values.isna(), bool)
    return None


def _as_array(values: object, what: str, refusal: Refusal) -> Array:
    try:
        return np.asanyarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refusal(
            f"{what} must be an array; got {_kind(values)} that NumPy cannot read ({str(error).rstrip('.')}). "
            f"{_array_cure(values, what)}"
        ) from error


def _array_cure(values: Any, what: str) -> str:
    """Say what to call for something that NumPy cannot read: of tensors of torch, all that is needed."""
    if type(values).__module__.split(".")[0] != "torch":
        return "Convert them to one array first."
    calls = ".detach()" if getattr(values, "requires_grad", False) else ""
    calls += ".to_dense()" if getattr(values, "is_sparse", False) else ""
    calls += ".cpu()" if getattr(getattr(values, "device", None), "type", "cpu") != "cpu" else ""
    calls += ".float()" if "bfloat16" in str(getattr(values, "dtype", "")) else ""
    return f"Pass {what}{calls or '.numpy()'}."


def _kind(values: object) -> str:
    kind = type(values)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"


def inexact_text(what: str, value: object, place: str) -> str:
    """Return the refusal of an integer that becomes a float without some of its digits."""
    return (
        f"{what} in columns of different types become float64, which does not hold all integers beyond 2**53; got {value} "
        f"at {place}. Cast all columns to one type."
    )


def _missing_text(what: str, found: str) -> str:
    return f"{what} must not be missing; got {found}. Fill them first, or drop those samples."
