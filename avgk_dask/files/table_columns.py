"""Which columns of a table hold the scores, and which the labels."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..arrays import Dtype
from ..errors import DtypeError, LabelsError, ScoresError, StoreError, label_cure
from ..kernels.keys import check_dtype
from .arrow_kinds import ArrowSchema, ArrowType
from .names import LABEL_NAMES, OTHER_LABEL_NAMES, SCORE_NAMES, check_distinct, find_name, listed

#: The column in which pandas stores a frame's index: numbers, but no scores.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Columns:
    """The columns to read: one of lists, or one for each class; and that of the labels, where there is one."""

    scores: tuple[str, ...]
    is_list: bool
    dtype: Dtype
    label: str | None
    width: int | None
    #: Columns that are neither.
    ignored: tuple[str, ...] = ()
    #: The dtype of soft labels; None where labels are class numbers, or there are none.
    label_dtype: Dtype | None = None

    @property
    def names(self) -> list[str]:
        """The names of all columns to read."""
        return [*self.scores] if self.label is None else [*self.scores, self.label]


def choose_columns(schema: ArrowSchema, scores: str | None, labels: str | None, location: str) -> Columns:
    """Choose the columns by the names given, or by what the columns are called and hold.

    The labels are the column ``labels`` or ``label`` of integers or of lists, else the one of integers with another
    usual name (``y``, ``target``) where the scores are no integers. The scores are the column of lists ``scores``,
    ``logits``, ``probabilities`` and so on, else the only one of lists of numbers,
    else all columns of numbers, in file order, but the labels and the index of a pandas frame.
    """
    check_distinct(scores, labels)
    types = _types(schema, location)
    label = label_column(types, labels, location)
    soft = _dtype(types[label].value_type) if label is not None and is_list(types[label]) else None
    candidates = {name: kind for name, kind in types.items() if name != label}
    chosen = _list_column(candidates, scores, location)
    if chosen is not None:
        kind = candidates[chosen]
        return Columns(
            (chosen,), True, _dtype(kind.value_type), label, _width(kind), _others(candidates, [chosen]), soft
        )
    classes = _class_columns(candidates, location)
    dtype = np.result_type(*map(_dtype, {candidates[name] for name in classes}))
    return Columns(tuple(classes), False, check_dtype(dtype), label, len(classes), _others(candidates, classes), soft)


def _others(types: dict[str, ArrowType], used: list[str]) -> tuple[str, ...]:
    gone = set(used)
    return tuple(name for name in types if name not in gone and not _PANDAS_INDEX.fullmatch(name))


def label_column(types: dict[str, ArrowType], labels: str | None, location: str) -> str | None:
    """Return the name of the label column, None where there is none."""
    if labels is not None:
        find_name(labels, [*types], "column", location)
    for name in LABEL_NAMES if labels is None else (labels,):
        if name not in types:
            continue
        if _is_integer(types[name]) or is_list(types[name]) or str(types[name]) == "null":
            return name
        if labels is not None or _is_number(types[name]) or _is_decimal(types[name]):
            raise LabelsError(
                f"labels must be class numbers or lists of probabilities; column {name!r} of {location} holds "
                f"{types[name]}. {_label_cure(types[name])}"
            )
    return _usual_label(types) if labels is None else None


def _usual_label(types: dict[str, ArrowType]) -> str | None:
    """Return the column of integers with another usual name for labels, if there is one and it can be nothing else."""
    if any(name in types for name in LABEL_NAMES):
        return None
    found = [name for name in OTHER_LABEL_NAMES if name in types and _is_integer(types[name])]
    rest = [kind for name, kind in types.items() if name not in found and _is_number(kind)]
    may_be_class = not any(map(is_list, types.values())) and (not rest or any(map(_is_integer, rest)))
    return found[0] if len(found) == 1 and not may_be_class else None


def _label_cure(kind: ArrowType) -> str:
    if _is_number(kind) or _is_decimal(kind):
        return "Convert it to integers, missing or -1 for unlabelled samples, or rename it if it holds scores."
    return label_cure("string")


def _types(schema: ArrowSchema, location: str) -> dict[str, ArrowType]:
    types = {field.name: field.type for field in schema}
    if len(types) < len(schema.names):
        twice = sorted(name for name, n in Counter(schema.names).items() if n > 1)
        raise StoreError(f"columns must have different names; {location} repeats {listed(twice)}. Rename them.")
    return types


def _list_column(types: dict[str, ArrowType], scores: str | None, location: str) -> str | None:
    if scores is not None:
        find_name(scores, [*types], "column", location)
        if not is_list(types[scores]):
            raise ScoresError(
                f"scores must name a column of lists of numbers; column {scores!r} of {location} holds "
                f"{types[scores]}. Drop the name if each column is a class."
            )
        return scores
    lists = [name for name, kind in types.items() if is_list(kind)]
    for name in SCORE_NAMES:
        if name in lists:
            return name
    if len(lists) > 1:
        raise StoreError(f"{location} has several columns of lists: {listed(lists)}. Name the one with the scores.")
    return lists[0] if lists else None


def _class_columns(types: dict[str, ArrowType], location: str) -> list[str]:
    for name, kind in types.items():
        if _is_decimal(kind):
            raise DtypeError(
                f"scores must be binary numbers of at most 64 bits; column {name!r} of {location} holds {kind}. "
                "Cast it to float64."
            )
    classes = [name for name, kind in types.items() if _is_number(kind) and not _PANDAS_INDEX.fullmatch(name)]
    whole = [name for name in classes if _is_integer(types[name])]
    if whole and len(whole) < len(classes):
        raise ScoresError(
            f"columns of scores must all be fractional numbers or all integers; {listed(whole)} of {location} "
            f"{'is' if len(whole) == 1 else 'are'} integers among others. Name the labels, and drop what is no score."
        )
    if not classes:
        raise ScoresError(
            f"scores must be columns of numbers or of lists of numbers; {location} has {listed([*types])}, "
            "none of them so. Convert them first."
        )
    return classes


# Types are told by their names, as Arrow writes them, so that the rules here need no pyarrow.
def _is_integer(kind: ArrowType) -> bool:
    return re.fullmatch(r"u?int(8|16|32|64)", str(kind)) is not None


def _is_decimal(kind: ArrowType) -> bool:
    return str(kind).startswith("decimal")


def _is_number(kind: ArrowType) -> bool:
    return _is_integer(kind) or str(kind) in ("halffloat", "float16", "float", "double")


def is_list(kind: ArrowType) -> bool:
    """Whether the type is a list of numbers, fixed in size or not."""
    listed_type = re.match(r"(list|large_list|fixed_size_list)<", str(kind)) is not None
    return listed_type and _is_number(kind.value_type)


def _width(kind: ArrowType) -> int | None:
    return int(kind.list_size) if str(kind).startswith("fixed_size_list") else None


def _dtype(kind: ArrowType) -> Dtype:
    return check_dtype(kind.to_pandas_dtype())
