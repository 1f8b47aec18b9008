"""Layouts: chunks, shards and codecs of the stores we write. Integers in, integers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from ...arrays import whole_number
from ...errors import OptionError

#: Chunks of whole rows of about this many bytes read fastest.
CHUNK_BYTES = 10_000_000
#: Labels are few bytes, and many small chunks of them would cost more to read than the scores.
LABEL_ROWS = 1 << 20
#: Chunks of a shard on an object store, where fewer and larger objects read faster.
SHARD_CHUNKS = 4
CODECS = ("blosc", "zstd", "gzip", "none")


class Described(Protocol):
    """What tells its metadata: a codec."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return its metadata."""


@dataclass(frozen=True)
class Layout:
    """How a matrix is split and coded: chunks of rows x columns, ``shard_chunks`` of them in a shard."""

    chunk_rows: int
    columns: int
    chunk_columns: int
    shard_chunks: int = 1
    codec: str = "blosc"

    @classmethod
    def of(
        cls,
        columns: int,
        itemsize: int,
        *,
        chunk_rows: int | None = None,
        shard_chunks: int = 1,
        codec: str = "blosc",
    ) -> Layout:
        """Return the layout of whole rows that reads fastest.

        Examples
        --------
        >>> Layout.of(1000, 4).chunk_rows
        2500

        """
        if codec not in CODECS:
            raise OptionError(f"codec must be one of {', '.join(CODECS)}; got {codec!r}. Leave it out for blosc.")
        for name, value in (("chunk_rows", chunk_rows), ("shard_chunks", shard_chunks)):
            if value is not None and whole_number(value) < 1:
                raise OptionError(f"{name} must be a positive integer; got {value!r}. Leave it out for the default.")
        rows = int(chunk_rows or max(1, CHUNK_BYTES // (columns * itemsize)))
        return cls(rows, columns, columns, int(shard_chunks), codec)

    @property
    def rows(self) -> int:
        """Rows of one stored object: a chunk, or a shard of several."""
        return self.chunk_rows * self.shard_chunks

    def keywords(self, itemsize: int) -> dict[str, Any]:
        """Return zarr's arguments that create an array of this layout."""
        chunks = self.chunk_rows, self.chunk_columns
        shards = (self.rows, self.columns) if self.shard_chunks > 1 else None
        return {"chunks": chunks, "shards": shards, "compressors": codecs(self.codec, itemsize)}


def codecs(name: str, itemsize: int) -> list[BytesBytesCodec]:
    """Return the codecs of a name, with a checksum of what they give."""
    compressors: dict[str, list[BytesBytesCodec]] = {
        "blosc": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=itemsize)],
        "zstd": [ZstdCodec(level=1)],
        "gzip": [GzipCodec(level=1)],
        "none": [],
    }
    return [*compressors[name], Crc32cCodec()]


def configured(codec: Described, option: str) -> object:
    """Return an option of a codec as its stored metadata spell it, None where it is absent.

    As attributes the same options are enumerations in some versions of zarr and strings in others.
    """
    return (codec.to_dict().get("configuration") or {}).get(option)
