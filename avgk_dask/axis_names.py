"""Names of samples and classes, and how inputs are matched by them.

If two inputs of a call have names for their samples (or classes), the names must be equal and in the same order. A default
RangeIndex of pandas is not a name, and inputs without names are matched by position. Two other cases raise an error because
they look like mistakes: the numbers 0 to n - 1 in another order (as after ``labels.sample(frac=1)`` or
``labels.value_counts()``) with an input that has a default index; and labels that are class numbers with scores whose class
names are other numbers, since a label could then mean a name or a position.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import Array, Ints
from .errors import AvgkError, LabelsError, OptionError, ScoresError

Refusal = type[AvgkError]


@dataclass(frozen=True)
class AxisNames:
    """The names along one axis of an input. They are loaded when they are compared."""

    #: The argument, for messages.
    owner: str
    load: Callable[[], Array]
    #: Code for the names, such as ``scores.index``.
    expression: str = ""
    #: Code that selects by names, such as ``labels.loc[{}]``; empty if names cannot be selected.
    selection: str = ""
    #: Code that drops the names, such as ``labels.to_numpy()``.
    values_only: str = ""
    #: Whether they are a default RangeIndex.
    is_default: bool = False
    #: Identity of the stored array: names from the same array are equal without being read.
    stored_as: object = None

    @cached_property
    def values(self) -> Array:
        """The names, loaded once."""
        return self.load()


#: The names along each axis of an input, or None if an axis has no names.
Axes = tuple[AxisNames | None, ...]


def default_names(n: int, owner: str) -> AxisNames:
    """Return the numbers 0, 1, ..., n - 1 of an axis without names."""
    return AxisNames(owner, lambda: np.arange(n), is_default=True)


def names_from_list(names: Sequence[object], owner: str, expression: str = "") -> AxisNames:
    """Return names from a list."""
    return AxisNames(owner, lambda: _as_objects(names), expression)


def axes_of(values: Any, owner: str) -> Axes:
    """Return the names along each axis of an array or frame, or () if its type has no names.

    Recognises pandas, polars, Arrow and xarray by their attributes, without importing them. Nothing is computed: Dask
    frames have names for columns only.
    """
    if hasattr(values, "__dask_graph__") and hasattr(values, "npartitions"):
        if not hasattr(values, "columns") or getattr(values, "ndim", 2) != 2:
            return ()
        return None, _pandas_names(values.columns, owner, f"{owner}.columns", f"{owner}[list({{}})]")
    if hasattr(values, "iloc") and hasattr(values, "index"):
        index = _pandas_names(values.index, owner, f"{owner}.index", f"{owner}.loc[{{}}]")
        if not hasattr(values, "columns"):
            return (index,)
        return index, _pandas_names(values.columns, owner, f"{owner}.columns", f"{owner}.loc[:, {{}}]")
    if hasattr(values, "dims") and hasattr(values, "xindexes") and not hasattr(values, "data_vars"):
        return tuple(_xarray_names(values, dim, owner) for dim in values.dims)
    if hasattr(values, "get_columns") or hasattr(values, "column_names"):  # polars; Arrow
        attribute = "column_names" if hasattr(values, "column_names") else "columns"
        names = names_from_list(list(getattr(values, attribute)), owner, f"{owner}.{attribute}")
        bare = f"{owner}.to_numpy()" if hasattr(values, "get_columns") else f"{owner}.to_pandas().to_numpy()"
        return None, replace(names, selection=f"{owner}.select(list({{}}))", values_only=bare)
    return ()


def _pandas_names(index: Any, owner: str, expression: str, selection: str) -> AxisNames:
    is_default = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    return AxisNames(owner, index.to_numpy, expression, selection, f"{owner}.to_numpy()", is_default)


def _xarray_names(values: Any, dim: str, owner: str) -> AxisNames | None:
    if dim not in values.coords:
        return None
    plain = str(dim).isidentifier() and not keyword.iskeyword(str(dim))
    selection = f"{owner}.sel({dim}={{}})" if plain else f"{owner}.sel({{{{{dim!r}: {{}}}}}})"
    names = values[dim]
    return AxisNames(owner, names.to_numpy, f"{owner}[{dim!r}]", selection, f"{owner}.drop_vars({dim!r})")


def check_names(ours: AxisNames | None, theirs: AxisNames | None, axis: str, refusal: Refusal = LabelsError) -> None:
    """Raise ``refusal`` if the names of two inputs differ, or their order does; ``axis`` is "sample" or "class".

    The message has the first difference and code that aligns the inputs.
    """
    if ours is None or theirs is None or (ours.is_default and theirs.is_default):
        return
    if ours.stored_as is not None and ours.stored_as == theirs.stored_as:
        return
    if ours.is_default or theirs.is_default:
        numbered, default = (theirs, ours) if ours.is_default else (ours, theirs)
        _check_order(numbered, default.values.size, axis, refusal)
        return
    first, second = _as_comparable(ours.values, theirs.values)
    at = _first_difference(first, second)
    if at is None:
        return
    expected, got = (
        f"no {axis}" if at >= names.size else repr(str(names[at])) if isinstance(names[at], str) else str(names[at])
        for names in (first, second)
    )
    raise refusal(
        f"{theirs.owner} must have the {axis} names of {ours.owner}, in the same order; at position {at} there is "
        f"{expected:.80} in {ours.owner} and {got:.80} in {theirs.owner}. {_hint(ours, theirs, first, second, axis)}"
    )


def check_axes(inputs: Sequence[Axes], n_sample_axes: int, refusal: Refusal = LabelsError) -> None:
    """Raise ``refusal`` if the names of inputs of one call differ along an axis. The axis after the sample axes is "class".

    Classes without names are numbered: class numbers of another input must be in order.
    """
    for axis in range(max(map(len, inputs), default=0)):
        kind = "sample" if axis < n_sample_axes else "class"
        named = [names for axes in inputs if len(axes) > axis and (names := axes[axis]) is not None]
        first = next((names for names in named if not names.is_default), None)
        if first is None:
            continue
        for names in named:
            if names is not first:
                check_names(first, names, kind, refusal)
        if kind == "class" and any(not axes or (len(axes) > axis and axes[axis] is None) for axes in inputs):
            check_names(default_names(first.values.size, "the classes"), first, kind, refusal)


def check_class_numbers(axes: Axes, n_classes: int) -> None:
    """Raise ScoresError if labels are class numbers but the class names are numbers other than 0 to C - 1, in order."""
    names = axes[-1] if axes else None
    if names is None or names.is_default:
        return
    numbers = _as_numbers(names.values)
    if numbers is None or (numbers.size == n_classes and (numbers == np.arange(n_classes)).all()):
        return
    at = int(np.flatnonzero(numbers != np.arange(numbers.size))[0])
    drop = f" or pass {names.values_only} if labels are column numbers" if names.values_only else ""
    raise ScoresError(
        f"{names.owner} must name their classes 0 to {n_classes - 1}, in order, if labels are class numbers; column {at} is "
        f"named {numbers[at]}, so that label {numbers[at]} could mean a name or a position. "
        f"Pass labels as strings to match them by name{drop}."
    )


def check_batch(
    scores: Any, others: Mapping[str, Any], known: Sequence[str] | None, before: str
) -> tuple[str, ...] | None:
    """Return the class names of a batch, or of the batches ``before`` it.

    Raises an error if the class names differ from those before, or if ``others`` (labels, masks and clusters by argument)
    have other sample names than the scores.
    """
    axes = axes_of(scores, "scores")
    if "class" in getattr(scores, "dims", ())[:-1]:
        raise ScoresError(f"scores must have the dimensions (sample, class); got {scores.dims}. Transpose them first.")
    check_axes(
        [axes, *filter(None, (axes_of(values, owner) for owner, values in others.items()))], max(1, len(axes) - 1)
    )
    classes = axes[-1] if len(axes) > 1 else None
    if classes is None or classes.is_default:
        return None if known is None else tuple(known)
    if others.get("labels") is not None:
        check_class_numbers(axes, classes.values.size)
    if known is not None:
        check_names(names_from_list(known, before), classes, "class", ScoresError)
        return tuple(known)
    return tuple(str(name) for name in classes.values)


def _check_order(numbered: AxisNames, n: int, axis: str, refusal: Refusal) -> None:
    """Raise ``refusal`` if names are the numbers 0 to n - 1 in another order; other names match a default index."""
    positions = as_positions(numbered.values, n)
    if positions is None or (positions == np.arange(n)).all():
        return
    at = int(np.flatnonzero(positions != np.arange(n))[0])
    order = f"Sort {numbered.owner} by {axis} number"
    if numbered.values.dtype.kind in "iuf" and ".index" in numbered.expression:
        order = f"Sort them with {numbered.owner}.sort_index()"
    elif ".columns" in numbered.expression:
        order = f"Sort them with {numbered.owner}[sorted({numbered.expression}, key=int)]"
    drop = f"If they are in the right order already, pass {numbered.values_only}. " if numbered.values_only else ""
    raise refusal(
        f"{numbered.owner} must be in the order of the {axis} numbers 0 to {n - 1}; at position {at} there is {axis} "
        f"{positions[at]}. {drop}{order}{' otherwise' if drop else ''}."
    )


def as_positions(names: Array, n: int) -> Ints | None:
    """Return names as integers if they are the numbers 0 to n - 1 in some order, also as strings; else None."""
    numbers = _as_numbers(names) if names.size == n else None
    return numbers if numbers is not None and (np.sort(numbers) == np.arange(n)).all() else None


def _as_numbers(names: Array) -> Ints | None:
    """Return names as integers if all are, such as 12, 12.0 and "12"; else None."""
    if names.dtype.kind in "iu":
        return names.astype(np.int64)
    if names.dtype.kind == "f":
        are_integers = (np.isfinite(names) & (np.abs(names) < 2**53) & (names % 1 == 0)).all()
        return names.astype(np.int64) if are_integers else None
    if names.dtype.kind not in "OUT" or not all(_DIGITS.fullmatch(str(name)) for name in names):
        return None
    return np.array([int(float(str(name))) if "." in str(name) else int(str(name)) for name in names], np.int64)


#: Strings of integers that fit 64 bits.
_DIGITS = re.compile(r"-?[0-9]{1,18}(\.0)?")


def _as_comparable(*inputs: Array) -> tuple[Array, ...]:
    """Return the names of two inputs with times, including times of pandas, converted to one unit."""
    times = [
        np.array([name.to_datetime64() for name in names])
        if names.dtype.kind == "O" and names.size and all(hasattr(name, "to_datetime64") for name in names)
        else names
        for names in inputs
    ]
    if times[0].dtype.kind == times[1].dtype.kind and times[0].dtype.kind in "mM":
        unit = np.promote_types(times[0].dtype, times[1].dtype)
        return tuple(names.astype(unit) for names in times)
    return inputs


def _first_difference(first: Array, second: Array) -> int | None:
    """Return the first position at which names differ, or None if they are equal. An integer equals its string."""
    with suppress(Exception):  # names may not be comparable, such as pandas.NA
        if np.array_equal(first, second):
            return None
    n = min(first.size, second.size)
    if first.dtype.kind in "OUTV" or second.dtype.kind != first.dtype.kind:
        pairs = zip(first[:n].tolist(), second[:n].tolist(), strict=True)
        differs = np.array([not _are_equal(a, b) for a, b in pairs], bool)
    else:
        both_nan = (first[:n] != first[:n]) & (second[:n] != second[:n])
        differs = (first[:n] != second[:n]) & ~both_nan
    if differs.any():
        return int(differs.argmax())
    return None if first.size == second.size else n


def _are_equal(a: object, b: object) -> bool:
    if str(a) == str(b):
        return True
    with suppress(Exception):  # names may not be comparable
        return bool(np.asarray(a == b).all())
    return False


def _hint(ours: AxisNames, theirs: AxisNames, our_names: Array, their_names: Array, axis: str) -> str:
    """Return the code that aligns two inputs with the same names in another order, or why they cannot be aligned."""
    first, second = ([str(name) for name in names] for names in (our_names, their_names))
    drop = [each.values_only for each in (theirs, ours) if each.values_only][:1]
    by_position = f" To match by position, pass {drop[0]}." if drop else ""
    for owner, names in ((ours.owner, first), (theirs.owner, second)):
        if len(set(names)) < len(names):
            return f"{owner} has duplicate names: give each {axis} a unique name, then align them.{by_position}"
    for owner, names, others in ((theirs.owner, first, set(second)), (ours.owner, second, set(first))):
        name = next((name for name in names if name not in others), None)
        if name is not None:
            axes = "classes" if axis == "class" else f"{axis}s"
            return f"The two have different {axes}: {owner} has no {name!r:.80}.{by_position}"
    for selected, by in ((theirs, ours), (ours, theirs)):
        if selected.selection and by.expression:
            return f"Align them with {selected.selection.format(by.expression)}.{by_position}"
    return f"Put {theirs.owner} in the order of {ours.owner}.{by_position}"


def _as_objects(names: Sequence[object]) -> Array:
    """Return names as a one-dimensional object array; ``numpy.array`` would take tuples for rows."""
    array = np.empty(len(names), object)
    array[:] = names
    return array


def name_list(names: Any, n: int, argument: str, order: Sequence[object] | None = None) -> list[str]:
    """Return names in order as strings; ``order`` are the numbers of the classes or groups, by default 0 to n - 1.

    Raises OptionError for sets, mappings and strings, for another number of names than ``n``, and for a Series whose index
    is in another order.
    """
    if isinstance(names, (str, bytes, set, frozenset, Mapping)) or not hasattr(names, "__iter__"):
        kind = "a string" if isinstance(names, (str, bytes)) else f"a {type(names).__name__}"
        raise OptionError(f"{argument} must be a list of {n} names, in order; got {kind}. Pass a list.")
    for index in axes_of(names, argument)[:1]:
        numbered = default_names(n, "the classes") if order is None else names_from_list(order, "the groups")
        check_names(numbered, index, "class" if order is None else "group", OptionError)
    texts = [str(name) for name in (np.asarray(names) if hasattr(names, "dims") else names)]
    if len(texts) != n:
        raise OptionError(f"{argument} must be a list of {n} names, in order; got {len(texts)}. Pass one for each.")
    return texts


def refuse_reordered(names: Sequence[str], known: Sequence[str] | None) -> None:
    """Raise OptionError if display names are the class names in another order; other display names are allowed."""
    if known is not None and list(names) != list(known) and sorted(names) == sorted(known):
        check_names(names_from_list(known, "scores"), names_from_list(names, "names"), "class", OptionError)
