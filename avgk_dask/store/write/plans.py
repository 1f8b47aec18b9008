"""Plans: what a store of scores is asked to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from ...errors import OptionError
from ..read.layout import SHARD_CHUNKS, Layout


class Asked(TypedDict):
    """The options that say what a store is to be, as they were given."""

    n_classes: int | None
    dtype: str | None
    chunk_rows: int | None
    top_m: int | None
    codec: str | None
    shard_chunks: int | None


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


def check_ways(append: bool, **others: bool) -> None:
    """Refuse an append that is to be something else, too."""
    named = [name for name, value in others.items() if value]
    if append and named:
        raise OptionError(f"append must not be combined with {' or '.join(named)}; got both. Leave one out.")


def new_plan(asked: Asked, location: str) -> Plan:
    """Return the plan of a new store, or of one that is resumed."""
    if asked["n_classes"] is None:
        raise OptionError(
            f"n_classes must be given, unless a finished store is appended to; got None for {location}. "
            "Pass the number of classes, or check the path."
        )
    remote = "://" in location and not location.startswith(("memory:", "file:"))
    codec, shards = asked["codec"], asked["shard_chunks"]
    return Plan(
        asked["n_classes"],
        asked["dtype"],
        asked["chunk_rows"],
        asked["top_m"],
        "blosc" if codec is None else codec,
        (SHARD_CHUNKS if remote else 1) if shards is None else shards,
    )
