"""What sources that are made of another one have from it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..store.where.array_kinds import StoredArray
from .reading import Key
from .source import Source


class WrappedSource(Source):
    """A source whose scores are read as those of another one: from the same place, ahead of their use as far."""

    inner: Source

    def ahead_bytes(self) -> int:  # noqa: D102
        return self.inner.ahead_bytes()

    def reading(self) -> AbstractContextManager[None]:  # noqa: D102
        return self.inner.reading()

    def reader_key(self) -> Key | None:  # noqa: D102
        return self.inner.reader_key()

    @property
    def score_bytes(self) -> int:  # noqa: D102
        return self.inner.score_bytes

    @property
    def made_by(self) -> str:  # noqa: D102
        return self.inner.made_by

    @property
    def stored_array(self) -> StoredArray | None:  # noqa: D102
        return self.inner.stored_array
