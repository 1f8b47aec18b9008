"""The interface to score files of any format: column names, shape and rows.

A ``RowFile`` returns its rows in blocks, from front to back. ``RandomAccessRows`` returns any rows, for tasks that read
a file directly instead of a store: from their place in the file, or from memory if the format can only be read from
front to back. A ``FileMark`` identifies a version of a file.
"""

from __future__ import annotations

import difflib
import math
import os
import shlex
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..arrays import Array, Dtype
from ..credentials import environment_secrets, hide, redact
from ..errors import AvgkError, LabelsError, ReadError, ScoresError, StoreError, label_hint, refuse
from ..threads import forkable

#: Suffixes of score files.
CSV_SUFFIXES, ARROW_SUFFIXES = (".csv", ".csv.gz"), (".arrow", ".feather")
SUFFIXES = (".npy", ".npz", ".parquet", *CSV_SUFFIXES, *ARROW_SUFFIXES)
#: Suffixes of pickles.
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".dill")

#: Usual names of scores and labels, in order of preference; the other label names are used only if nothing contradicts them.
SCORE_NAMES = ("scores", "logits", "probabilities", "probs", "preds", "predictions")
LABEL_NAMES = ("labels", "label")
OTHER_LABEL_NAMES = ("y", "y_true", "targets", "target")

#: Maximum number of names that an error lists, and the longest names that are compared with a misspelt one (in
#: quadratic time).
_LISTED, _COMPARED = 20, 200


def find_name(name: str, names: Sequence[str], kind: str, location: str) -> str:
    """Return the name if it is among the names; otherwise raise an error that suggests the nearest one.

    Examples
    --------
    >>> find_name("score", ["scores", "labels"], "member", "a.npz")
    Traceback (most recent call last):
    avgk_dask.errors.StoreError: a.npz has no member 'score'; it has scores, labels. Did you mean 'scores'?
    """
    if name in names:
        return name
    near = difflib.get_close_matches(name, [known for known in names if len(known) <= _COMPARED], n=1)
    advice = f"Did you mean {near[0]!r}?" if near else f"Name the {kind} to use."
    raise StoreError(f"{location} has no {kind} {redact(name)!r}; it has {listed(names)}. {advice}")


def listed(names: Sequence[str]) -> str:
    """Return the names as text, at most twenty of them."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more or "none"


def check_distinct(scores: str | None, labels: str | None) -> None:
    """Refuse the same name for scores and labels."""
    if scores is not None and scores == labels:
        raise StoreError(f"scores and labels must have different names; got {redact(scores)!r} for both. Name two.")


def check_plain(path: str) -> None:
    """Refuse a pipe, a device or a socket: reading it may never end."""
    if not (os.path.isfile(path) or os.path.isdir(path)):
        raise StoreError(
            f"not a regular file or folder: {path!r} is a pipe or device. "
            "Copy it to a file, or pass - to read an .npy stream from standard input."
        )


def path_advice(path: str) -> str:
    """Return advice on a path that does not exist: the nearest name in its folder, or to check it."""
    folder, name = os.path.split(path.rstrip("/"))
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
    except OSError:
        return "Check the path: its folder cannot be listed either."
    return f"Did you mean {os.path.join(folder, near[0])!r}?" if near else "Check the path."


def is_pickle(path: str) -> bool:
    """Whether a file is a pickle, by its name."""
    return path.lower().endswith(_PICKLES)


def file_advice(path: str) -> str:
    """Return advice on a file that is not a store: ingest it, or save it in a supported format.

    Examples
    --------
    >>> file_advice("my scores.npy")
    "Copy it into a store first: avgk ingest 'my scores.npy' [LABELS] --out 'my scores.zarr'"
    """
    if path.lower().endswith(SUFFIXES):
        name = next(s for s in SUFFIXES[::-1] if path.lower().endswith(s))
        out = os.path.basename(path)[: -len(name)] + ".zarr"
        return f"Copy it into a store first: avgk ingest {shlex.quote(path)} [LABELS] --out {shlex.quote(out)}"
    formats = f"Supported formats: {listed(SUFFIXES)}, folders of .parquet or .arrow files, Zarr stores."
    if is_pickle(path):
        return f"Pickles are never loaded, as they can run any code: load it yourself, and use numpy.save. {formats}"
    return f"Convert it, for example with numpy.save. {formats}"


#: A file held in memory may take one part in this many of the memory.
_MEMORY_SHARE = 4
#: The scores (rows x classes) of some consecutive rows, and their labels if the file has labels.
Block = tuple[Array, Array | None]
#: The shape of a sample's labels, and their dtype.
LabelForm = tuple[tuple[int, ...], Dtype]


@dataclass(frozen=True, kw_only=True)
class RowFile(ABC):
    """An open score file, which returns its rows in blocks.

    ``n_samples`` is None if it is unknown before reading (CSV). ``label_form`` is None without labels. ``class_names`` is the
    names of the columns if each class is a column. ``ignored`` are the members or columns that are neither scores nor labels.
    """

    location: str
    n_samples: int | None
    n_classes: int
    dtype: Dtype
    label_form: LabelForm | None = None
    class_names: list[str] | None = None
    ignored: tuple[str, ...] = ()

    @abstractmethod
    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in file order: scores in C order and native byte order, and their labels.

        The scores of a block have at most ``max_bytes`` bytes, or are a single row. Damaged files raise ReadError; rows that are
        missing or differ in length raise ScoresError or LabelsError.
        """

    def random_access_rows(
        self, marks: tuple[FileMark, ...]
    ) -> tuple[RandomAccessRows, RandomAccessRows | None] | None:
        """Return scores and labels whose rows can be read in any order, or None if rows come only from front to back."""
        return None

    @property
    def has_labels(self) -> bool:
        """Whether the file has labels."""
        return self.label_form is not None

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of scores, and of its labels."""
        shape, dtype = self.label_form or ((0,), self.dtype)
        return self.n_classes * self.dtype.itemsize + math.prod(shape) * dtype.itemsize

    def rows_per_block(self, max_bytes: int) -> int:
        """Return how many rows of scores fit into ``max_bytes``, at least one."""
        return max(1, max_bytes // (self.n_classes * self.dtype.itemsize))


@contextmanager
def reading(location: str, *causes: type[Exception]) -> Iterator[None]:
    """Turn the errors of libraries on a bad file into a ReadError that names the file and the cause."""
    expected: tuple[type[Exception], ...] = (OSError, *causes)
    try:
        yield
    except AvgkError:
        raise
    except expected as error:
        cause = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        text = hide(cause, environment_secrets())  # a stream's error may contain a URL
        refuse(ReadError(f"{location} could not be read ({text}). Check that the file is complete and readable."))


def held_limit() -> int:
    """Return the largest size in bytes of a file that is held in memory."""
    from ..settings import setting  # late: it imports Dask
    from ..threads import process_memory

    return min(int(setting("file-bytes")), process_memory() // _MEMORY_SHARE)


def check_matrix(shape: tuple[int, ...], location: str) -> tuple[int, int]:
    """Return the shape of a score matrix, or refuse one that is not (sample, class)."""
    if len(shape) != 2 or min(shape) < 0:
        raise ScoresError(f"scores must be a matrix (sample, class); {location} has shape {shape}. Reshape it first.")
    if shape[1] == 0:
        raise ScoresError(f"scores must have at least one class; {location} has shape {shape}. Check how it was saved.")
    return shape[0], shape[1]


def check_labels(shape: tuple[int, ...], dtype: Dtype, location: str) -> None:
    """Refuse labels that are neither class numbers (1-D) nor a matrix of probabilities (2-D)."""
    if len(shape) == 1 and dtype.kind in "iu":
        return
    if len(shape) == 2 and dtype.kind in "iufb":
        return
    raise LabelsError(
        f"labels must be integers, one per sample, or a matrix of probabilities; {location} holds {dtype} of shape "
        f"{shape}. {label_hint(dtype) if len(shape) == 1 else 'Convert them first.'}"
    )


#: Approximate bytes of rows that are read together.
PART_BYTES = 1 << 20
#: Smaller arrays are sent to workers with their values, so that workers need no access to the file.
_SENT_BYTES = 4 << 20


@dataclass(frozen=True)
class FileMark:
    """The size and modification time of a file, which identify its version."""

    path: str
    n_bytes: int
    time: int

    @classmethod
    def from_path(cls, path: str, descriptor: int | None = None) -> FileMark:
        """Return the mark of the file at a path, or of an open file."""
        status = os.stat(path if descriptor is None else descriptor)
        return cls(path, status.st_size, status.st_mtime_ns)

    def check(self, descriptor: int | None = None) -> None:
        """Raise ReadError if the file, or the open file with this descriptor, is missing or has changed."""
        try:
            mark = FileMark.from_path(self.path, descriptor)
        except OSError as error:
            raise ReadError(
                f"{self.path} is not accessible on {socket.gethostname()} ({type(error).__name__}). "
                "Workers of a cluster must see it at the same path: put it on storage that they share, or ingest it to a URL."
            ) from None
        if mark != self:
            raise ReadError(
                f"{self.path} changed after it was opened: it had {self.n_bytes:,} bytes, and on "
                f"{socket.gethostname()} it has {mark.n_bytes:,} bytes and another modification time. Start again; "
                "copies for workers must keep the modification time (cp -p)."
            )


def check_marks(marks: Iterable[FileMark]) -> None:
    """Raise ReadError if one of the files is missing or has changed."""
    for mark in marks:
        mark.check()


@dataclass(frozen=True, kw_only=True)
class RandomAccessRows(ABC):
    """A matrix or column in an open file, of which any rows can be read. It is sent to workers."""

    location: str
    shape: tuple[int, ...]
    dtype: Dtype
    #: Rows that are best read together: those that are decoded together, or about a megabyte.
    part_rows: int

    @abstractmethod
    def fill(self, first: int, last: int, out: Array) -> None:
        """Read the rows from ``first`` to before ``last`` into a C-ordered array of their shape.

        Raises the errors of ``RowFile.blocks``, and ReadError if the file is missing or has changed since it was opened.
        """

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, first: int, last: int) -> Array:
        """Return some rows."""
        out = np.empty((last - first, *self.shape[1:]), self.dtype)
        self.fill(first, last, out)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.nbytes <= _SENT_BYTES:
            with suppress(AvgkError):  # reading will raise it again
                base = {field.name: values[field.name] for field in fields(RandomAccessRows)}
                return _restore, (CarriedRows, {**base, "values": self.read(0, self.shape[0])})
        return _restore, (type(self), values)


def _restore(kind: Callable[..., RandomAccessRows], values: dict[str, Any]) -> RandomAccessRows:
    return kind(**values)


@dataclass(frozen=True, kw_only=True)
class CarriedRows(RandomAccessRows):
    """Rows of a small file, sent with their values."""

    values: Array

    def fill(self, first: int, last: int, out: Array) -> None:
        """Read some rows into an array."""
        out[...] = self.values[first:last]


class Loaded:
    """The scores and labels of a file, held in memory after the first read; concurrent readers share that read."""

    def __init__(self, load: partial[tuple[Array, ...]], marks: tuple[FileMark, ...]) -> None:
        self._load, self._marks, self._lock = load, marks, threading.Lock()
        self._values: tuple[Array, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return loaded, (self._load, self._marks)

    def values(self) -> tuple[Array, ...]:
        """Return the arrays."""
        with self._lock:
            if self._values is None:
                check_marks(self._marks)
                values = self._load()
                check_marks(self._marks)  # the file may have changed meanwhile
                self._values = values
            return self._values


_LOADED: WeakValueDictionary[object, Loaded] = WeakValueDictionary()
_LOCK = forkable(threading.Lock())


def loaded(load: partial[tuple[Array, ...]], marks: tuple[FileMark, ...]) -> Loaded:
    """Return the content of some files, shared by all who load it with the same arguments in this process."""
    with _LOCK:
        content = _LOADED.get((marks, load.args))
        if content is None:
            content = _LOADED[marks, load.args] = Loaded(load, marks)
        return content


@dataclass(frozen=True, kw_only=True)
class LoadedRows(RandomAccessRows):
    """Rows of a file that can only be read sequentially; each process that reads it holds all of it in memory."""

    content: Loaded
    #: 0 for the scores, 1 for the labels.
    number: int

    def fill(self, first: int, last: int, out: Array) -> None:
        """Read some rows into an array."""
        out[...] = self.content.values()[self.number][first:last]


def rows_of_bytes(shape: tuple[int, ...], dtype: Dtype, n_bytes: int = PART_BYTES) -> int:
    """Return the number of rows of an array that have about ``n_bytes`` bytes, at least one and at most all."""
    return max(1, min(shape[0], n_bytes // max(1, math.prod(shape[1:]) * dtype.itemsize)))
