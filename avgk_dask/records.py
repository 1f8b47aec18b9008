"""Records and states: what tasks send on instead of scores, declared once.

A *record* is a frozen dataclass of plain values: numbers, arrays, other records, and tuples of those. A *state* is a
record that merges. Each of its fields says how, as ``Annotated[type, RULE]``; fields that are states or exact sums merge
by their own rule. From the fields follow

- ``merge``, associative, and the same for any order;
- ``nothing``, the state that changes none it is merged with;
- the true size, which Dask asks for (``__sizeof__``);
- a digest, the same on every machine;
- a form of plain arrays with a version, to be stored without pickle.
"""

from __future__ import annotations

import hashlib
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
#: Under this name the arrays of a stored record hold its form: a JSON text, as bytes.
FORM = "form"
#: What damaged bytes may raise while they are taken apart.
_DAMAGE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Merging:
    """How a field merges, and what it is in the state of nothing, given what it is in another."""

    merge: Callable[[list[Any]], Any]
    nothing: Callable[[Any], Any]


def _merge_each(columns: list[tuple[State, ...]]) -> tuple[State, ...]:
    filled = [column for column in columns if column]
    return tuple(type(parts[0]).merge(list(parts)) for parts in zip(*filled, strict=True))


#: Numbers and arrays of counts: added.
ADDED = Merging(sum, lambda value: value * 0)
#: Numbers and indices: the least, or the most; none are beyond all others.
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
    """A frozen dataclass of plain values: sized, digested, stored."""

    #: Raised whenever the fields change.
    VERSION: ClassVar[int] = 1
    _KINDS: ClassVar[dict[str, type[Record]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        known = Record._KINDS.setdefault(cls.__name__, cls)
        if known.__module__ != cls.__module__ or FORM in cls.__annotations__:
            raise TypeError(f"{cls.__name__} must have a name of its own, and no field {FORM!r}")
        Record._KINDS[cls.__name__] = cls

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum(_bytes_of(value) for value in self._values().values())

    def _values(self) -> dict[str, object]:
        assert is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_arrays(self) -> dict[str, Array]:
        """Return the record as plain arrays, as ``numpy.savez`` takes them."""
        arrays: dict[str, Array] = {}
        form = json.dumps(_packed(self, "", arrays), sort_keys=True)
        return {FORM: np.frombuffer(form.encode(), np.uint8), **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Return the record that ``to_arrays`` gave; raise ReadError if they are of another kind or version, or damaged."""
        return cls._restore(lambda: (json.loads(np.asarray(arrays[FORM], np.uint8).tobytes()), arrays))

    @classmethod
    def _restore(cls, load: Callable[[], tuple[object, Mapping[str, Array]]]) -> Self:
        try:
            found = _unpacked(*load())
        except _DAMAGE as error:
            raise ReadError(
                f"a stored state must be what this version writes; got {error}. Compute it again."
            ) from error
        if not isinstance(found, cls):
            raise ReadError(f"a stored state must be a {cls.__name__}; got a {type(found).__name__}. Compute it again.")
        return found

    def to_parts(self) -> list[bytes | memoryview]:
        """Return the record as pieces of bytes: the length of a JSON text, that text, and the arrays as they are in memory."""
        arrays: dict[str, Array] = {}
        form = _packed(self, "", arrays)
        data = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for array in arrays.values()]
        layout = [[name, d.dtype.str, a.shape, d.nbytes] for (name, a), d in zip(arrays.items(), data, strict=True)]
        head = json.dumps([form, layout]).encode()
        return [len(head).to_bytes(8, "little"), head, *(array.reshape(-1).view(np.uint8).data for array in data)]

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Return the record whose pieces of bytes ``to_parts`` gave, one after the other; raise ReadError as ``from_arrays``."""
        return cls._restore(lambda: _split(memoryview(data)))

    def digest(self) -> str:
        """Return the SHA-256 of all it holds, as hexadecimal digits; the same on every machine."""
        digest = hashlib.sha256()
        for name, array in sorted(self.to_arrays().items()):
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            digest.update(f"{name} {little.dtype.str} {array.shape}\n".encode())
            digest.update(little.tobytes())
        return digest.hexdigest()


class State(Record):
    """A record that merges, field by field, as its annotations say."""

    #: How each field merges. Found when the class is made, where all names of its annotations are known.
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
        """Return the state of all together."""
        if len(states) == 1:
            return states[0]
        merged = {n: rule.merge([getattr(state, n) for state in states]) for n, rule in cls._MERGING.items()}
        return cls(**merged).settled()

    def settled(self) -> Self:
        """Return the same with what merging left apart put together."""
        return self

    def nothing(self) -> Self:
        """Return the state of nothing: merged with this one, or one like it, it changes nothing."""
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
    """Return the form and the arrays in the bytes that ``to_parts`` lays out."""
    place = 8 + int.from_bytes(data[:8], "little")
    form, layout = json.loads(bytes(data[8:place]))
    arrays = {}
    for name, dtype, shape, n_bytes in layout:
        if not re.fullmatch(r"[<|][biuf][1248]", dtype) or n_bytes < 0:
            raise ValueError(f"an array of dtype {dtype!r}")
        arrays[name] = np.frombuffer(data[place : place + n_bytes], dtype).reshape(shape).copy()
        place += n_bytes
    return form, arrays


def _packed(value: object, name: str, arrays: dict[str, Array]) -> object:
    """Return a value as JSON can hold it, its arrays put aside under their names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Record):
        inner = {field: _packed(part, f"{name}.{field}".lstrip("."), arrays) for field, part in value._values().items()}
        return {"kind": type(value).__name__, "version": value.VERSION, "fields": inner}
    if isinstance(value, tuple):
        return [_packed(part, f"{name}.{i}", arrays) for i, part in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(form: object, arrays: Mapping[str, Array]) -> object:
    if isinstance(form, list):
        return tuple(_unpacked(part, arrays) for part in form)
    if not isinstance(form, dict):
        return form
    if "array" in form:
        return arrays[form["array"]]
    kind = Record._KINDS[form["kind"]]
    if form["version"] != kind.VERSION:
        raise ValueError(f"version {form['version']} of {form['kind']}, not {kind.VERSION}")
    values = {name: _unpacked(part, arrays) for name, part in form["fields"].items()}
    for field in fields(kind):  # type: ignore[arg-type]
        if not _is_a(values[field.name], _hints(kind)[field.name]):  # type: ignore[arg-type]
            raise ValueError(f"{form['kind']}.{field.name} that is not what it should be")
    return kind(**values)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_a(value: object, hint: Any) -> bool:
    """Whether a value is of the type of a field: a number, a text, an array, a record, or a tuple of those."""
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
