"""Facts about a stored array, from its metadata and a listing of its chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...files.any_rows import LoadedRows
from ..where.array_kinds import StoredArray
from ..where.file_stores import FileStore
from .checked import bare_store, is_local
from .documents import Document
from .grids import chunks_of, outer_sizes, shards_of
from .manifest import chunk_grid
from .presence import ABSENT, UNKNOWN, chunk_lengths

_CHECKSUMS = ("crc32c", "gzip", "crc32", "adler32", "fletcher32")


@dataclass(frozen=True)
class StoreFacts:
    """How an array is stored; numbers from the listing are None where the store cannot list."""

    #: None of a file.
    zarr_format: int | None
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    codecs: tuple[str, ...]
    n_chunks: int
    n_columns: int
    n_bytes: int
    object_bytes: int
    n_stored_bytes: int | None
    n_missing_chunks: int | None
    has_manifest: bool
    has_checksum: bool
    is_remote: bool
    #: Whether it is a file, and whether that is held whole in memory.
    is_file: bool
    is_held: bool
    rounding: str | None


def gather_facts(array: StoredArray) -> StoreFacts:
    """Gather the facts about an array; reads no chunk."""
    sizes, grid = outer_sizes(array), chunk_grid(array)
    lengths = chunk_lengths(array)
    told = lengths is not None and not (lengths == UNKNOWN).any()
    codecs = tuple(_codec_names(array))
    file = bare_store(array.store_path.store)
    if isinstance(file, FileStore):
        lengths, told, codecs = np.array([stamp.n_bytes for stamp in file.file.marks]), True, (file.format,)
    item = array.dtype.itemsize
    return StoreFacts(
        zarr_format=None if isinstance(file, FileStore) else array.metadata.zarr_format,
        chunks=chunks_of(array),
        shards=shards_of(array),
        codecs=codecs,
        n_chunks=math.prod(grid),
        n_columns=grid[-1] if len(grid) > 1 else 1,
        n_bytes=math.prod(array.shape) * item,
        object_bytes=math.prod(sizes) * item,
        n_stored_bytes=int(lengths[lengths > 0].sum()) if lengths is not None and told else None,
        n_missing_chunks=None if lengths is None else int((lengths == ABSENT).sum()),
        has_manifest=array.store_path.store.checks.manifest is not None,
        has_checksum=any(name in codec for codec in codecs for name in _CHECKSUMS) or "checksum" in str(codecs),
        is_remote=not is_local(array.store_path.store),
        is_file=isinstance(file, FileStore),
        is_held=isinstance(file, FileStore) and isinstance(file.file.scores, LoadedRows),
        rounding=array.attrs.get("rounding"),
    )


def _codec_names(array: StoredArray) -> list[str]:
    metadata = array.metadata
    if metadata.zarr_format == 2:
        named = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else [])]
        return ["bytes", *(_described(codec.get_config(), "id") for codec in named)]
    found = []
    for codec in metadata.codecs:
        config = codec.to_dict()
        inner = config.get("configuration", {}).get("codecs") if config["name"] == "sharding_indexed" else None
        found += [_described(c, "name") for c in inner] if inner else [_described(config, "name")]
    return found


def _described(config: Document, field: str) -> str:
    """Return a codec's name with what matters of its configuration."""
    options = config.get("configuration", config) or {}
    details = [str(options[name]) for name in ("cname", "shuffle") if options.get(name) not in (None, 0)]
    details += [f"level {options[name]}" for name in ("level", "clevel") if name in options]
    details += ["checksum"] if options.get("checksum") else []
    return f"{config[field]} ({', '.join(details)})" if details else str(config[field])
