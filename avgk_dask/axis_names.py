"""Names of samples and classes, and the one rule about them.

If two inputs of a call name their samples (or classes), the names must be equal and in the same order. A default
RangeIndex of pandas is not a name, and inputs without names are matched by position. One thing more is refused: row or
class numbers in another order than 0, 1, 2, ..., next to an input that merely counts. Those of ``labels.sample(frac=1)``
or ``labels.value_counts()`` are such.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
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
    read: Callable[[], Array]
    #: What a user writes for the names, such as ``scores.index``.
    expression: str = ""
    #: How a user selects by names, such as ``labels.loc[{}]``; empty if the owner cannot be selected from.
    selection: str = ""
    #: How a user drops them, such as ``labels.to_numpy()``.
    values_only: str = ""
    #: Whether they merely count, as a default RangeIndex does.
    is_default: bool = False


#: The names along each axis of an input; None for an axis without names.
Axes = tuple[AxisNames | None, ...]


def counted(n: int, owner: str) -> AxisNames:
    """Return the numbers 0, 1, ..., n - 1 of an axis without names."""
    return AxisNames(owner, lambda: np.arange(n), is_default=True)


def listed_names(names: Sequence[object], owner: str, expression: str = "") -> AxisNames:
    """Return names given as a list, such as those in a file."""
    return AxisNames(owner, lambda: _as_objects(names), expression)


def axes_of(values: Any, owner: str) -> Axes:
    """Return the names along each axis of an array or frame in memory; an empty tuple if its kind carries none.

    Knows pandas, polars, Arrow and xarray by their attributes and imports none of them.
    """
    if hasattr(values, "iloc") and hasattr(values, "index"):
        index = _pandas_names(values.index, owner, f"{owner}.index", f"{owner}.loc[{{}}]")
        if not hasattr(values, "columns"):
            return (index,)
        return index, _pandas_names(values.columns, owner, f"{owner}.columns", f"{owner}.loc[:, {{}}]")
    if hasattr(values, "dims") and hasattr(values, "xindexes") and not hasattr(values, "data_vars"):
        return tuple(_xarray_names(values, dim, owner) for dim in values.dims)
    if hasattr(values, "get_columns") or hasattr(values, "column_names"):  # of polars and Arrow
        names = list(values.column_names if hasattr(values, "column_names") else values.columns)
        bare = f"{owner}.to_numpy()" if hasattr(values, "get_columns") else f"{owner}.to_pandas().to_numpy()"
        selection = f"{owner}.select(list({{}}))"
        return None, AxisNames(owner, lambda: _as_objects(names), f"{owner}.columns", selection, bare)
    return ()


def _pandas_names(index: Any, owner: str, expression: str, selection: str) -> AxisNames:
    is_default = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    return AxisNames(owner, index.to_numpy, expression, selection, f"{owner}.to_numpy()", is_default)


def _xarray_names(values: Any, dim: str, owner: str) -> AxisNames | None:
    if dim not in values.xindexes:
        return None
    plain = str(dim).isidentifier() and not keyword.iskeyword(str(dim))
    selection = f"{owner}.sel({dim}={{}})" if plain else f"{owner}.sel({{{{{dim!r}: {{}}}}}})"
    return AxisNames(
        owner, lambda: values[dim].to_numpy(), f"{owner}[{dim!r}]", selection, f"{owner}.drop_vars({dim!r})"
    )


def check_names(ours: AxisNames | None, theirs: AxisNames | None, axis: str, refusal: Refusal = LabelsError) -> None:
    """Refuse names that differ from those of another input, or come in another order; ``axis`` is "sample" or "class".

    Raises
    ------
    AvgkError
        Of the class ``refusal``, with the first difference and the line that aligns the two.

    """
    if ours is None or theirs is None or (ours.is_default and theirs.is_default):
        return
    if ours.is_default or theirs.is_default:
        numbers, counts = (theirs, ours) if ours.is_default else (ours, theirs)
        _check_order(numbers, counts, axis, refusal)
        return
    mine, other = ours.read(), theirs.read()
    at = _first_difference(mine, other)
    if at is None:
        return
    got = " and ".join(
        f"{_shown(names, at, axis)} in {of}" for names, of in ((mine, ours.owner), (other, theirs.owner))
    )
    raise refusal(
        f"{theirs.owner} must have the {axis} names of {ours.owner}, in the same order; at position {at} there is {got}. "
        f"{_cure(ours, theirs, mine, other, axis)}"
    )


def check_axes(inputs: Sequence[Axes], lead: int, refusal: Refusal = LabelsError) -> None:
    """Refuse inputs of one call whose names differ along an axis; the first ``lead`` axes are samples, the next the classes."""
    for ours, theirs in combinations(inputs, 2):
        for axis, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
            check_names(mine, other, "sample" if axis < lead else "class", refusal)


def check_class_order(axes: Axes, n_classes: int) -> None:
    """Refuse scores whose columns are called 0 to C - 1 in another order: a label's number could mean either."""
    if axes and axes[-1] is not None and not axes[-1].is_default:
        check_names(counted(n_classes, "labels"), axes[-1], "class", ScoresError)


def check_batch(
    scores: Any, others: Mapping[str, Any], known: Sequence[str] | None, before: str
) -> tuple[str, ...] | None:
    """Return the class names of a batch, or of those ``before`` it; refuse a batch whose names differ.

    ``others`` are labels, masks and clusters by the names of their arguments.

    Raises
    ------
    ScoresError, LabelsError
        If the classes have other names than before, or the samples of others have other names than those of the scores.

    """
    axes = axes_of(scores, "scores")
    if "class" in getattr(scores, "dims", ())[:-1]:
        raise ScoresError(f"scores must be (sample, class); got the dimensions {scores.dims}. Transpose them first.")
    check_axes([axes, *(axes_of(values, owner) for owner, values in others.items())], max(1, len(axes) - 1))
    classes = axes[-1] if len(axes) > 1 else None
    if classes is None or classes.is_default:
        return None if known is None else tuple(known)
    if others.get("labels") is not None:
        check_class_order(axes, classes.read().size)
    if known is not None:
        check_names(listed_names(known, before), classes, "class", ScoresError)
        return tuple(known)
    return tuple(str(name) for name in classes.read())


def _check_order(numbers: AxisNames, counts: AxisNames, axis: str, refusal: Refusal) -> None:
    """Refuse numbers of rows or classes that are in another order than 0, 1, 2, ..."""
    n = counts.read().size
    found = as_positions(numbers.read(), n)
    if found is None or (found == np.arange(n)).all():
        return
    at = int(np.flatnonzero(found != np.arange(n))[0])
    pandas = ".index" in numbers.expression or ".columns" in numbers.expression
    sort = f"{numbers.owner}.sort_index({'axis=1' if '.columns' in numbers.expression else ''})" if pandas else ""
    cure = f"Sort them with {sort}" if sort else f"Put them in the order of the {axis} numbers"
    raise refusal(
        f"{numbers.owner} must be in the order of the {axis} numbers 0 to {n - 1}; at position {at} there is {axis} "
        f"{found[at]}. {cure}, or drop the names with {numbers.values_only or 'numpy.asarray'} if the order is right."
    )


def as_positions(names: Array, n: int) -> Ints | None:
    """Return names as integers if they are n numbers below n (also as text, such as "12"); None if they are not."""
    if names.size != n:
        return None
    if names.dtype.kind in "OUT":
        texts = [name if isinstance(name, (str, int, np.integer)) else "" for name in names.tolist()]
        if not all(isinstance(text, (int, np.integer)) or (text.isascii() and text.isdecimal()) for text in texts):
            return None
        if any(len(str(text)) > 18 for text in texts):
            return None
        names = np.array([int(text) for text in texts], np.int64)
    if names.dtype.kind not in "iu" or not ((names >= 0) & (names < n)).all():
        return None
    return names.astype(np.int64)


def _first_difference(mine: Array, other: Array) -> int | None:
    """Return the first position at which names differ; None if they are equal. An int equals its text."""
    with suppress(TypeError, ValueError):  # of names that cannot be compared, such as pandas.NA
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
    if isinstance(a, str) and isinstance(b, str):
        return a == b
    return str(a) == str(b) or bool(np.asarray(a == b).all())


def _cure(ours: AxisNames, theirs: AxisNames, mine: Array, other: Array, axis: str) -> str:
    """Return the line that aligns two inputs whose names are the same in another order, or why none does."""
    first, second = ([str(name) for name in names] for names in (mine, other))
    drop = [each.values_only for each in (theirs, ours) if each.values_only][:1]
    by_position = f" To match by position, pass {drop[0]}." if drop else ""
    for of, names in ((ours.owner, first), (theirs.owner, second)):
        if len(set(names)) < len(names):
            return f"{of} has some names twice: give each {axis} a name of its own, then align them.{by_position}"
    if set(first) != set(second):
        lacks = next((name for name in first if name not in set(second)), None)
        who, name = (
            (ours.owner, next(n for n in second if n not in set(first))) if lacks is None else (theirs.owner, lacks)
        )
        return (
            f"They are of different {axis}{'es' if axis == 'class' else 's'}: {who} has no {name!r:.80}.{by_position}"
        )
    for selected, by in ((theirs, ours), (ours, theirs)):
        if selected.selection and by.expression:
            return f"Align them with {selected.selection.format(by.expression)}.{by_position}"
    return f"Put the {axis} names of both in one order.{by_position}"


def _shown(names: Array, at: int, axis: str) -> str:
    if at >= names.size:
        return f"no {axis}"
    return f"{str(names[at])!r:.80}" if isinstance(names[at], str) else f"{names[at]!s:.80}"


def _as_objects(names: Sequence[object]) -> Array:
    """Return names as an array of one dimension; NumPy alone would take tuples for rows."""
    found = np.empty(len(names), object)
    for i, name in enumerate(names):
        found[i] = name
    return found


def name_list(names: Any, n: int, what: str, order: Sequence[object] | None = None) -> list[str]:
    """Return names in order as texts; ``order`` are the numbers of what they name, by default 0 to n - 1.

    Raises
    ------
    OptionError
        If ``names`` is a set, a mapping or a string, there are not ``n`` of them, or they carry names in another order.

    """
    if isinstance(names, (str, bytes, set, frozenset, Mapping)) or not hasattr(names, "__iter__"):
        kind = "a string" if isinstance(names, (str, bytes)) else f"a {type(names).__name__}"
        raise OptionError(f"{what} must be a list of {n} names, in order; got {kind}. Pass a list.")
    for index in axes_of(names, what)[:1]:
        numbered = counted(n, "the classes") if order is None else listed_names(order, "the groups")
        check_names(numbered, index, "class" if order is None else "group", OptionError)
    found = [str(name) for name in names]
    if len(found) != n:
        raise OptionError(f"{what} must be a list of {n} names, in order; got {len(found)}. Pass one for each.")
    return found
