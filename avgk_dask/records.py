"""Records and states: the summaries that tasks return instead of scores.

A *record* is a frozen dataclass of plain values: numbers, arrays, other records, and tuples of those. It has a true size
for Dask (``__sizeof__``), and bytes with a version, to be stored without pickle. A *state* is a record that merges, in
any order. Each of its fields has its rule, as ``Annotated[type, RULE]``; fields that are states merge by their own rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, Ints
from .errors import ReadError

#: Larger than any index, label or count.
BEYOND = 2**63 - 1
#: Errors that damaged bytes may raise.
_DAMAGE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Merging:
    """How a field merges, and its value in an empty state, given its value in any other."""

    merge: Callable[[list[Any]], Any]
    nothing: Callable[[Any], Any]


def _merge_each(columns: list[tuple[State, ...]]) -> tuple[State, ...]:
    filled = [column for column in columns if column]
    return tuple(type(parts[0]).merge(list(parts)) for parts in zip(*filled, strict=True))


#: Numbers and arrays of counts: added.
ADDED = Merging(sum, lambda value: value * 0)
#: Numbers and indices: the least, or the most; the identity is beyond all possible values.
LEAST = Merging(min, lambda value: (BEYOND,) * len(value) if isinstance(value, tuple) else 2 * BEYOND + 1)
MOST = Merging(max, lambda _: -1)
#: Flags: set where any is.
ANY = Merging(np.logical_or.reduce, np.zeros_like)
#: Arrays: one after the other. Tuples of parts that have a number ``band``: in the order of the bands.
JOINED = Merging(np.concatenate, lambda value: value[:0])
BY_BAND = Merging(lambda parts: tuple(sorted(chain.from_iterable(parts), key=lambda part: part.band)), lambda _: ())
#: Tuples of states: the first with the first, and so on; no states at all are nothing.
EACH = Merging(_merge_each, lambda _: ())
#: Fields that merge only together, in a ``merge`` and a ``nothing`` of the state's own.
OWN = Merging(lambda values: NotImplemented, lambda value: NotImplemented)
#: What all states of one pass have in common.
SAME = Merging(lambda values: values[0], lambda value: value)

Count = Annotated[int, ADDED]
Counts = Annotated[Ints, ADDED]


class Record:
    """A frozen dataclass of plain values, which has a size and can be stored."""

    #: Raised whenever the fields change.
    VERSION: ClassVar[int] = 1
    _KINDS: ClassVar[dict[str, type[Record]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        known = Record._KINDS.setdefault(cls.__name__, cls)
        if known.__module__ != cls.__module__:
            raise TypeError(f"{cls.__name__} must have a name of its own")
        Record._KINDS[cls.__name__] = cls

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum(_bytes_of(value) for value in self._values().values())

    def _values(self) -> dict[str, object]:
        assert is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_parts(self) -> list[bytes | memoryview]:
        """Return the record as pieces of bytes: the length of a JSON text, the text, and the data of each array."""
        arrays: dict[str, Array] = {}
        form = _pack(self, "", arrays)
        data = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for array in arrays.values()]
        layout = [[name, d.dtype.str, a.shape, d.nbytes] for (name, a), d in zip(arrays.items(), data, strict=True)]
        head = json.dumps([form, layout]).encode()
        return [len(head).to_bytes(8, "little"), head, *(array.reshape(-1).view(np.uint8).data for array in data)]

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Return the record whose pieces ``to_parts`` gave; raise ReadError if they are damaged or of another version."""
        try:
            record = _unpack(*_split(memoryview(data)))
        except _DAMAGE as error:
            raise ReadError(
                f"a stored state is damaged, or another version wrote it: {error}. Compute it again."
            ) from error
        if not isinstance(record, cls):
            raise ReadError(
                f"a stored state is a {type(record).__name__} instead of a {cls.__name__}. Compute it again."
            )
        return record


class State(Record):
    """A record that merges, field by field, by the rules in its annotations."""

    #: The rule of each field, read when the class is made: all names in its annotations are known there.
    _MERGING: ClassVar[dict[str, Merging]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._MERGING = {}
        for name, hint in get_type_hints(cls, include_extras=True).items():
            rule = next((part for part in get_args(hint) if isinstance(part, Merging)), None)
            if isinstance(hint, type) and issubclass(hint, State):
                rule = Merging(hint.merge, hint.nothing)
            if rule is None and get_origin(hint) is not ClassVar:
                raise TypeError(f"{cls.__name__}.{name} does not say how it merges")
            if rule is not None:
                cls._MERGING[name] = rule

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the sum of the states."""
        if len(states) == 1:
            return states[0]
        merged = {n: rule.merge([getattr(state, n) for state in states]) for n, rule in cls._MERGING.items()}
        return cls(**merged).settled()

    def settled(self) -> Self:
        """Return the state in its canonical form, after a merge."""
        return self

    def nothing(self) -> Self:
        """Return the empty state of the same kind, which changes no state that it is merged with."""
        return type(self)(**{n: rule.nothing(getattr(self, n)) for n, rule in self._MERGING.items()})


@dataclass(frozen=True)
class Several(State):
    """States of several passes that shared one read."""

    parts: Annotated[tuple[State, ...], EACH]


def _bytes_of(value: object) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Record):
        return value.__sizeof__()
    if isinstance(value, tuple):
        return 56 + sum(_bytes_of(part) for part in value)
    return 32


def _split(data: memoryview) -> tuple[object, dict[str, Array]]:
    place = 8 + int.from_bytes(data[:8], "little")
    form, layout = json.loads(bytes(data[8:place]))
    arrays = {}
    for name, dtype, shape, n_bytes in layout:
        if not re.fullmatch(r"[<|][biuf][1248]", dtype) or n_bytes < 0:
            raise ValueError(f"an array of dtype {dtype!r}")
        arrays[name] = np.frombuffer(data[place : place + n_bytes], dtype).reshape(shape).copy()
        place += n_bytes
    return form, arrays


def _pack(value: object, name: str, arrays: dict[str, Array]) -> object:
    """Return a value in the types of JSON, and add its arrays to ``arrays`` under their names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Record):
        inner = {field: _pack(part, f"{name}.{field}".lstrip("."), arrays) for field, part in value._values().items()}
        return {"kind": type(value).__name__, "version": value.VERSION, "fields": inner}
    if isinstance(value, tuple):
        return [_pack(part, f"{name}.{i}", arrays) for i, part in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _unpack(form: object, arrays: Mapping[str, Array]) -> object:
    if isinstance(form, list):
        return tuple(_unpack(part, arrays) for part in form)
    if not isinstance(form, dict):
        return form
    if "array" in form:
        return arrays[form["array"]]
    kind = Record._KINDS[form["kind"]]
    if form["version"] != kind.VERSION:
        raise ValueError(f"version {form['version']} of {form['kind']}, not {kind.VERSION}")
    values = {name: _unpack(part, arrays) for name, part in form["fields"].items()}
    for field in fields(kind):  # type: ignore[arg-type]
        if not _is_a(values[field.name], _hints(kind)[field.name]):  # type: ignore[arg-type]
            raise ValueError(f"{form['kind']}.{field.name} has a value of another type")
    return kind(**values)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_a(value: object, hint: Any) -> bool:
    """Return whether a value is of a field's type: a number, a text, an array, a record, or a tuple of those."""
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple) or (parts[-1] is not ... and len(parts) != len(value)):
            return False
        parts = parts if parts[-1] is not ... else parts[:1] * len(value)
        return all(_is_a(part, inner) for part, inner in zip(value, parts, strict=True))
    if get_origin(hint) in (np.ndarray, NDArray):  # an alias of its own since NumPy 2.5
        kind = get_args(hint)[0] if get_origin(hint) is NDArray else get_args(get_args(hint)[1])[0]
        return isinstance(value, np.ndarray) and (kind is Any or value.dtype.kind == np.dtype(kind).kind)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)
