"""Small results as files: JSON with a version and a hash, written at once or not at all, and never pickle."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from ..credentials import shown
from ..errors import OptionError, StoreError, WriteError, refuse

Content = dict[str, Any]

#: What a damaged file may raise while it is taken apart.
DAMAGE = (ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error)


@dataclass(frozen=True)
class FileKind:
    """A kind of file: what it is called in refusals, how it names itself, its version, and what to do about a bad one."""

    what: str
    format: str
    version: int
    cure: str

    def write(self, path: object, content: Content) -> None:
        """Write a file; what was there is replaced at once, or stays."""
        place = self._place(path)
        whole = {"format": self.format, "version": self.version, **content}
        text = json.dumps({**whole, "sha256": _digest(whole)}, indent=1)
        folder, draft = os.path.dirname(os.path.abspath(place)), ""
        try:
            with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".avgk-", delete=False, encoding="utf-8") as file:
                draft = file.name
                file.write(text)
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, place)
        except BaseException as error:
            if draft and os.path.exists(draft):
                os.unlink(draft)
            if not isinstance(error, OSError):
                raise
            refuse(
                WriteError(
                    f"a {self.what} must be written to a file that can be; got {shown(place)} ({error.strerror or error}). Name another."
                )
            )

    def read(self, path: object) -> Content:
        """Return what was written.

        Raises
        ------
        StoreError
            If it cannot be read, is damaged, or is of another kind or version.

        """
        place = self._place(path)
        try:
            if os.path.exists(place) and not os.path.isfile(place):
                raise OSError("it is not a regular file")
            with open(place, encoding="utf-8") as file:
                content = json.load(file)
            if not isinstance(content, dict) or content.get("format") != self.format:
                raise ValueError(f"it is no {self.what}")
            if content["version"] != self.version:
                raise ValueError(f"it is of version {content['version']}, not {self.version}")
            if content.pop("sha256") != _digest(content):
                raise ValueError("its hash is not that of what it holds")
            return content
        except OSError as error:
            refuse(
                StoreError(
                    f"{self.what} must be a file that can be read; got {shown(place)} ({error.strerror or error}). "
                    "Check the path."
                )
            )
        except DAMAGE as error:
            raise self.damaged(place, error) from error

    def damaged(self, path: object, error: Exception) -> StoreError:
        """Return the error for a file that this version did not write."""
        why = str(error).rstrip(".")
        return StoreError(f"{self.what} must be a file that save wrote; got {shown(path)}: {why}. {self.cure}")

    def _place(self, path: object) -> str:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "://" in str(path):
            name = self.what.replace(" ", "-")
            raise OptionError(
                f"path must be that of a local file; got {shown(path)!r}. Name a file, such as {name}.json."
            )
        return str(os.fspath(path))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _digest(content: Content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def packed(array: Array, name: str = "float64") -> Content:
    """Return an array of 8-byte numbers as base64 of little-endian bytes."""
    data = np.ascontiguousarray(array, np.dtype(name).newbyteorder("<"))
    return {"shape": list(data.shape), name: base64.b64encode(data.tobytes()).decode()}


def unpacked(form: Content, name: str = "float64") -> Array:
    """Return the array that ``packed`` gave; ValueError if it is damaged, or not finite."""
    data = base64.b64decode(form[name], validate=True)
    shape = tuple(int(n) for n in form["shape"])
    if len(data) != 8 * math.prod(shape):
        raise ValueError("an array is not as long as its shape says")
    array = np.frombuffer(data, np.dtype(name).newbyteorder("<")).astype(name).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("an array holds numbers that are not finite")
    return array
