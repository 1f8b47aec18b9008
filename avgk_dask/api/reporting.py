"""``on_error="report"``: where a chunk cannot be read, all are checked, and the error names every bad one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import OptionError, ReadError, refuse
from ..passes.progress import computing
from ..passes.verification import verify_array
from ..store import StoredArrays, Verification
from .given import ScoresLike, is_stored
from .inputs import opened

#: Bad chunks that an error names; it carries all of them.
_NAMED = 20


@contextmanager
def reporting(on_error: str, scores: ScoresLike, progress: bool | None, missing: str | None = None) -> Iterator[None]:
    """Turn a failed read into an error that names every bad chunk of the store, where that is asked for."""
    if on_error not in ("raise", "report"):
        raise OptionError(f"on_error must be 'raise' or 'report'; got {on_error!r}. Leave it out to stop at once.")
    try:
        yield
    except ReadError as error:
        found = _bad_chunks(scores, progress, missing) if on_error == "report" else ()
        if not found:
            raise
        refuse(_told(found, error))


def _bad_chunks(scores: ScoresLike, progress: bool | None, missing: str | None) -> tuple[tuple[str, str], ...]:
    """Read all chunks of scores, labels and classes, and return the bad ones with what is wrong."""
    arrays = opened(scores, missing)
    if not isinstance(arrays, StoredArrays):
        return ()
    mine = [array for array in (arrays.scores, arrays.labels, arrays.class_index) if is_stored(array)]
    with computing(progress) as compute:
        return Verification.merge([verify_array(array, compute) for array in mine]).damaged


def _told(found: tuple[tuple[str, str], ...], error: ReadError) -> ReadError:
    named = "; ".join(f"{key}: {what.partition('. ')[0]}" for key, what in found[:_NAMED])
    more = f"; and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    chunks = "1 chunk" if len(found) == 1 else f"{len(found):,} chunks"
    told = ReadError(
        f"{chunks} cannot be read, and nothing was computed; all others can: {named}{more}. Restore them, or write the store again."
    )
    told.chunks = found
    return told
