"""``on_error="report"``: where a chunk cannot be read, all are checked, and the error names every bad one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import xarray as xr

from ..errors import OptionError, ReadError, refuse
from ..files import is_row_file
from ..passes.progress import computing
from ..passes.verification import verify_array
from ..sources.lazy_arrays import stored_array
from ..store import StoredArrays, Verification
from ..store.read.checked import rows_of
from ..store.where.array_kinds import StoredArray
from .given import is_stored
from .inputs import opened
from .lazy_scores import LazyScores

#: Bad chunks that an error names; it carries all of them.
_NAMED = 20
#: Variables of a Dataset of scores.
_NAMES = ("scores", "labels", "class_index")


@contextmanager
def reporting(
    on_error: str, given: Sequence[object], progress: bool | None, missing: str | None = None
) -> Iterator[None]:
    """Turn a failed read into an error that names every bad chunk of what was given, where that is asked for."""
    if on_error not in ("raise", "report"):
        raise OptionError(f"on_error must be 'raise' or 'report'; got {on_error!r}. Leave it out to stop at once.")
    try:
        yield
    except ReadError as error:
        found = _bad_chunks(given, progress, missing) if on_error == "report" else ()
        if not found:
            raise
        refuse(_told(found, error))


def _bad_chunks(given: Sequence[object], progress: bool | None, missing: str | None) -> tuple[tuple[str, str], ...]:
    """Read all chunks of stored scores, labels and classes, and return the bad ones with what is wrong."""
    arrays = [array for value in given for array in _stored_in(value, missing)]
    if not arrays:
        return ()
    with computing(progress) as compute:
        return Verification.merge([verify_array(array, compute) for array in arrays]).damaged


def _stored_in(value: object, missing: str | None) -> list[StoredArray]:
    """Return the stored arrays in what was given as scores or labels."""
    if isinstance(value, LazyScores):
        return [array for part in value.parts for array in _stored_in(part, missing)]
    if isinstance(value, xr.Dataset):
        return [array for name in _NAMES if name in value for array in _stored_in(value[name], missing)]
    if isinstance(value, xr.DataArray):
        stored = stored_array(value.data)
        return [] if stored is None else [stored]
    if isinstance(value, (str, os.PathLike)) and is_row_file(value):
        return []  # files have no chunks
    found = opened(value, missing) if not isinstance(value, StoredArrays) else value
    parts = (found.scores, found.labels, found.class_index) if isinstance(found, StoredArrays) else (found,)
    return [array for array in parts if is_stored(array) and rows_of(array) is None]


def _told(found: tuple[tuple[str, str], ...], error: ReadError) -> ReadError:
    found = tuple(sorted(found, key=_in_order))
    named = "; ".join(_named(*one) for one in found[:_NAMED])
    more = f"; and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    chunks, them = ("1 chunk", "it") if len(found) == 1 else (f"{len(found):,} chunks", "them")
    told = ReadError(
        f"{chunks} cannot be read, and nothing was computed; all others can: {named}{more}. Restore {them}, or write the store again."
    )
    told.chunks = found
    return told


def _named(key: str, what: str) -> str:
    """Return what is wrong with a chunk, which it names."""
    text = what.partition(". ")[0]
    return text if key in text else f"{key}: {text}"


def _in_order(found: tuple[str, str]) -> list[tuple[int, str]]:
    """Return what chunks are ordered by: the numbers in their keys as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", found[0])]
