"""Names of samples and classes, and the one rule about them.

If two inputs of a call name their samples (or classes), the names must be equal and in the same order. A default
RangeIndex of pandas is not a name, and inputs without names are matched by position. Two things more are refused because
they look wrong: the numbers 0 to n - 1 in another order next to an input that merely counts, such as those of
``labels.sample(frac=1)`` and ``labels.value_counts()``; and labels that are class numbers next to scores whose classes
have other numbers for names, since a label could then mean a name or a position.
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
    """The names that an input carries along one of its axes; they are read when they are compared."""

    #: The argument that carries them, as messages call it.
    owner: str
    load: Callable[[], Array]
    #: What a user writes for the names, such as ``scores.index``.
    expression: str = ""
    #: How a user selects by names, such as ``labels.loc[{}]``; empty if the owner cannot be selected from.
    selection: str = ""
    #: How a user drops them, such as ``labels.to_numpy()``.
    values_only: str = ""
    #: Whether they merely count, as a default RangeIndex does.
    is_default: bool = False
    #: What they are stored as: those of one array are equal without being read.
    stored_as: object = None

    @cached_property
    def values(self) -> Array:
        """The names, loaded once."""
        return self.load()


#: The names along each axis of an input; None for an axis without names.
Axes = tuple[AxisNames | None, ...]


def default_names(n: int, owner: str) -> AxisNames:
    """Return the numbers 0, 1, ..., n - 1 of an axis without names."""
    return AxisNames(owner, lambda: np.arange(n), is_default=True)


def names_from_list(names: Sequence[object], owner: str, expression: str = "") -> AxisNames:
    """Return names given as a list, such as those in a file."""
    return AxisNames(owner, lambda: _as_objects(names), expression)


def axes_of(values: Any, owner: str) -> Axes:
    """Return the names along each axis of an array or frame; an empty tuple if its kind carries none.

    Knows pandas, polars, Arrow and xarray by their attributes and imports none of them. Nothing is computed: frames of Dask
    are known by their columns alone.
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
    if hasattr(values, "get_columns") or hasattr(values, "column_names"):  # of polars and Arrow
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
    """Refuse names that differ from those of another input, or come in another order; ``axis`` is "sample" or "class".

    The error, of the class ``refusal``, has the first difference and the line that aligns the two.
    """
    if ours is None or theirs is None or (ours.is_default and theirs.is_default):
        return
    if ours.stored_as is not None and ours.stored_as == theirs.stored_as:
        return
    if ours.is_default or theirs.is_default:
        numbered, default = (theirs, ours) if ours.is_default else (ours, theirs)
        _check_order(numbered, default.values.size, axis, refusal)
        return
    mine, other = _comparable(ours.values, theirs.values)
    at = _first_difference(mine, other)
    if at is None:
        return
    own, got = (
        f"no {axis}" if at >= names.size else repr(str(names[at])) if isinstance(names[at], str) else str(names[at])
        for names in (mine, other)
    )
    raise refusal(
        f"{theirs.owner} must have the {axis} names of {ours.owner}, in the same order; at position {at} there is "
        f"{own:.80} in {ours.owner} and {got:.80} in {theirs.owner}. {_cure(ours, theirs, mine, other, axis)}"
    )


def check_axes(inputs: Sequence[Axes], lead: int, refusal: Refusal = LabelsError) -> None:
    """Refuse inputs of one call whose names differ along an axis; the first ``lead`` axes are samples, the next the classes.

    Classes without names are numbered: class numbers of another input must be in order.
    """
    for axis in range(max(map(len, inputs), default=0)):
        word = "sample" if axis < lead else "class"
        known = [names for axes in inputs if len(axes) > axis and (names := axes[axis]) is not None]
        first = next((names for names in known if not names.is_default), None)
        if first is None:
            continue
        for names in known:
            if names is not first:
                check_names(first, names, word, refusal)
        if word == "class" and any(not axes or (len(axes) > axis and axes[axis] is None) for axes in inputs):
            check_names(default_names(first.values.size, "the classes"), first, word, refusal)


def check_class_numbers(axes: Axes, n_classes: int) -> None:
    """Refuse scores whose classes have other numbers for names than 0 to C - 1, in order, next to labels that are numbers."""
    names = axes[-1] if axes else None
    if names is None or names.is_default:
        return
    numbers = _as_numbers(names.values)
    if numbers is None or (numbers.size == n_classes and (numbers == np.arange(n_classes)).all()):
        return
    at = int(np.flatnonzero(numbers != np.arange(numbers.size))[0])
    drop = f" or pass {names.values_only} if labels are column numbers" if names.values_only else ""
    raise ScoresError(
        f"{names.owner} must not call their classes by other numbers than 0 to {n_classes - 1}, in order, next to labels that are "
        f"class numbers; column {at} is called {numbers[at]}, so that label {numbers[at]} could mean a name or a position. "
        f"Pass labels as texts to look them up by name{drop}."
    )


def check_batch(
    scores: Any, others: Mapping[str, Any], known: Sequence[str] | None, before: str
) -> tuple[str, ...] | None:
    """Return the class names of a batch, or of those ``before`` it.

    A batch whose classes have other names than before is refused, and ``others`` (labels, masks and clusters by the names of
    their arguments) whose samples have other names than the scores.
    """
    axes = axes_of(scores, "scores")
    if "class" in getattr(scores, "dims", ())[:-1]:
        raise ScoresError(f"scores must be (sample, class); got the dimensions {scores.dims}. Transpose them first.")
    named = [found for owner, values in others.items() if (found := axes_of(values, owner))]
    check_axes([axes, *named], max(1, len(axes) - 1))
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
    """Refuse the numbers 0 to n - 1 in another order; other names are not compared with a default index."""
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
    """Return names as integers if they are the numbers 0 to n - 1 in some order, also as text; None if they are not."""
    numbers = _as_numbers(names) if names.size == n else None
    return numbers if numbers is not None and (np.sort(numbers) == np.arange(n)).all() else None


def _as_numbers(names: Array) -> Ints | None:
    """Return names that are all integers, such as 12, 12.0 and "12", as such; None if they are not."""
    if names.dtype.kind in "iu":
        return names.astype(np.int64)
    if names.dtype.kind == "f":
        are_whole = (np.isfinite(names) & (np.abs(names) < 2**53) & (names % 1 == 0)).all()
        return names.astype(np.int64) if are_whole else None
    if names.dtype.kind not in "OUT" or not all(_DIGITS.fullmatch(str(name)) for name in names):
        return None
    return np.array([int(float(str(name))) if "." in str(name) else int(str(name)) for name in names], np.int64)


#: Texts of integers that fit 64 bits.
_DIGITS = re.compile(r"-?[0-9]{1,18}(\.0)?")


def _comparable(*inputs: Array) -> tuple[Array, ...]:
    """Return the names of two inputs as arrays that can be compared: times, those of pandas also, in one unit."""
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


def _first_difference(mine: Array, other: Array) -> int | None:
    """Return the first position at which names differ; None if they are equal. An int equals its text."""
    with suppress(Exception):  # of names that cannot be compared, such as pandas.NA
        if np.array_equal(mine, other):
            return None
    n = min(mine.size, other.size)
    if mine.dtype.kind in "OUTV" or other.dtype.kind != mine.dtype.kind:
        differs = np.array([not _same(a, b) for a, b in zip(mine[:n].tolist(), other[:n].tolist(), strict=True)], bool)
    else:
        differs = (mine[:n] != other[:n]) & ~((mine[:n] != mine[:n]) & (other[:n] != other[:n]))
    if differs.any():
        return int(differs.argmax())
    return None if mine.size == other.size else n


def _same(a: object, b: object) -> bool:
    if str(a) == str(b):
        return True
    with suppress(Exception):  # of names that cannot be compared
        return bool(np.asarray(a == b).all())
    return False


def _cure(ours: AxisNames, theirs: AxisNames, mine: Array, other: Array, axis: str) -> str:
    """Return the line that aligns two inputs whose names are the same in another order, or why none does."""
    first, second = ([str(name) for name in names] for names in (mine, other))
    drop = [each.values_only for each in (theirs, ours) if each.values_only][:1]
    by_position = f" To match by position, pass {drop[0]}." if drop else ""
    for of, names in ((ours.owner, first), (theirs.owner, second)):
        if len(set(names)) < len(names):
            return f"{of} has duplicate names: give each {axis} a name of its own, then align them.{by_position}"
    for who, names, others in ((theirs.owner, first, set(second)), (ours.owner, second, set(first))):
        name = next((name for name in names if name not in others), None)
        if name is not None:
            axes = "classes" if axis == "class" else f"{axis}s"
            return f"The two have different {axes}: {who} has no {name!r:.80}.{by_position}"
    for selected, by in ((theirs, ours), (ours, theirs)):
        if selected.selection and by.expression:
            return f"Align them with {selected.selection.format(by.expression)}.{by_position}"
    return f"Put {theirs.owner} in the order of {ours.owner}.{by_position}"


def _as_objects(names: Sequence[object]) -> Array:
    """Return names as an array of one dimension; NumPy alone would take tuples for rows."""
    array = np.empty(len(names), object)
    array[:] = names
    return array


def name_list(names: Any, n: int, what: str, order: Sequence[object] | None = None) -> list[str]:
    """Return names in order as texts; ``order`` are the numbers of what they name, by default 0 to n - 1.

    Sets, mappings and strings are refused, another number of names than ``n``, and names that carry names in another order.
    """
    if isinstance(names, (str, bytes, set, frozenset, Mapping)) or not hasattr(names, "__iter__"):
        kind = "a string" if isinstance(names, (str, bytes)) else f"a {type(names).__name__}"
        raise OptionError(f"{what} must be a list of {n} names, in order; got {kind}. Pass a list.")
    for index in axes_of(names, what)[:1]:
        numbered = default_names(n, "the classes") if order is None else names_from_list(order, "the groups")
        check_names(numbered, index, "class" if order is None else "group", OptionError)
    found = [str(name) for name in (np.asarray(names) if hasattr(names, "dims") else names)]
    if len(found) != n:
        raise OptionError(f"{what} must be a list of {n} names, in order; got {len(found)}. Pass one for each.")
    return found


def refuse_reordered(names: Sequence[str], known: Sequence[str] | None) -> None:
    """Refuse names to show for classes that are the classes' own names in another order; other names are a user's choice."""
    if known is not None and list(names) != list(known) and sorted(names) == sorted(known):
        check_names(names_from_list(known, "scores"), names_from_list(names, "names"), "class", OptionError)
