"""Plans: what a store of scores is asked to be."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import OptionError
from ..read.layout import Layout


@dataclass(frozen=True)
class Plan:
    """What a store is asked to be; a writer that goes on with it must ask for the same."""

    n_classes: int
    dtype: str | None
    chunk_rows: int | None
    top_m: int | None
    codec: str
    shard_chunks: int

    def __post_init__(self) -> None:
        for name, value, most in (("n_classes", self.n_classes, None), ("top_m", self.top_m, self.n_classes)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1 and (most is None or value <= most)):
                raise OptionError(
                    f"{name} must be a positive integer{f' up to {most}' if most else ''}; got {value!r}. "
                    "Pass a whole number."
                )
        self.layout(1)

    @property
    def columns(self) -> int:
        """Number of scores kept of each row."""
        return self.top_m or self.n_classes

    def layout(self, itemsize: int) -> Layout:
        """Return the layout of scores of a dtype of this many bytes."""
        return Layout.of(
            self.columns, itemsize, chunk_rows=self.chunk_rows, shard_chunks=self.shard_chunks, codec=self.codec
        )
