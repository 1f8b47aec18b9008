"""Small results as JSON files with a version and a hash, written atomically and never pickled.

Arrays of 8-byte numbers are stored as base64 of their little-endian bytes, with their shape.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..arrays import Array
from ..credentials import redact
from ..errors import OptionError, StoreError, WriteError, refuse

Content = dict[str, Any]
T = TypeVar("T")

#: Errors that parsing a damaged file may raise.
_DAMAGE = (ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error)


@dataclass(frozen=True)
class FileKind:
    """A kind of file."""

    #: Its name in messages.
    name: str
    format: str
    version: int
    #: What to do about a bad file.
    hint: str
    #: The dtype of all arrays.
    dtype: str

    def write(self, path: object, content: Content) -> None:
        """Write a file; an existing one is replaced in one step, or stays."""
        place = self._check_path(path)
        whole = {"format": self.format, "version": self.version, **self._packed(content)}
        text = json.dumps({**whole, "sha256": _digest(whole)}, indent=1)
        try:
            replace_file(place, [text.encode()])
        except OSError as error:
            refuse(WriteError(f"cannot write to {redact(place)} ({error.strerror or error}). Choose another path."))

    def read(self, path: object, restore: Callable[[Content], T]) -> T:
        """Return the result of ``restore`` on the content of a file; raise StoreError if the file is not valid."""
        place = self._check_path(path)
        try:
            content = self._load(place)
            if not isinstance(content, dict) or content.get("format") != self.format:
                raise ValueError(f"it is not a {self.name}")
            if content["version"] != self.version:
                raise ValueError(f"it is of version {content['version']}, not {self.version}")
            if content.pop("sha256") != _digest(content):
                raise ValueError("its hash does not match its content")
            return restore(self._unpacked(content))
        except _DAMAGE as error:
            why = str(error).rstrip(".")
            raise StoreError(f"{redact(place)} is not a valid {self.name} file: {why}. {self.hint}") from error

    def _load(self, place: str) -> Any:
        try:
            return json.loads(read_file(place).decode())
        except OSError as error:
            refuse(
                StoreError(f"cannot read the {self.name} {redact(place)} ({error.strerror or error}). Check the path.")
            )

    def _check_path(self, path: object) -> str:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "://" in str(path):
            name = self.name.replace(" ", "-")
            raise OptionError(f"path must be a local file; got {redact(path)!r}. Name a file, such as {name}.json.")
        return str(os.fspath(path))

    def _packed(self, value: Any) -> Any:
        """Return a value, or a dict of values, with its arrays as dicts of text."""
        if isinstance(value, dict):
            return {name: self._packed(part) for name, part in value.items()}
        if not isinstance(value, np.ndarray):
            return value
        data = np.ascontiguousarray(value, np.dtype(self.dtype).newbyteorder("<"))
        return {"shape": list(data.shape), self.dtype: base64.b64encode(data.tobytes()).decode()}

    def _unpacked(self, value: Any) -> Any:
        """Invert ``_packed``; raise ValueError if an array is damaged or not finite."""
        if not isinstance(value, dict):
            return value
        if value.keys() != {"shape", self.dtype}:
            return {name: self._unpacked(part) for name, part in value.items()}
        data = base64.b64decode(value[self.dtype], validate=True)
        shape = tuple(int(n) for n in value["shape"])
        if len(data) != 8 * math.prod(shape):
            raise ValueError("the length of an array does not match its shape")
        array: Array = np.frombuffer(data, np.dtype(self.dtype).newbyteorder("<")).astype(self.dtype).reshape(shape)
        if not np.isfinite(array).all():
            raise ValueError("an array has values that are not finite")
        return array


def _digest(content: Content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file; reading a pipe or device might never end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError("it is not a regular file")
    with open(path, "rb") as file:
        return file.read()


def replace_file(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Write a temporary file next to ``path``, then rename it."""
    draft = os.path.join(os.path.dirname(os.path.abspath(path)), f".avgk-{uuid.uuid4().hex[:8]}")
    try:
        with open(draft, "xb") as file:
            file.writelines(parts)
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
