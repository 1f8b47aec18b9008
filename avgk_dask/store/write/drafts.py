"""Drafts: stores being written. The digest of every chunk is recorded, and only a finished store is marked complete."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import DTypeLike
from zarr.abc.buffer import Buffer
from zarr.abc.store import Store
from zarr.storage import LocalStore

from ...arrays import Array
from ...errors import OptionError, StoreError, refuse
from ...kernels.keys import BFLOAT16
from ..read.checked import StoreWrapper
from ..read.grids import LABEL_ROWS, SHARD_CHUNKS, Layout, codecs, grid_of
from ..read.listing import chunk_key
from ..read.manifest import (
    ATTRIBUTE,
    FORMAT,
    GROUP,
    Digests,
    Document,
    Seal,
    chunk_grid,
    digest_of,
    empty_table,
    form_digest,
    indices_within,
    metadata_digest,
    table_digest,
)
from ..where.addresses import (
    Path,
    StoredArray,
    WritableArray,
    ZarrArray,
    bare_store,
    cause,
    redact,
    secrets_of,
    write_key,
)
from .batches import RowBuffer
from .journal import write_append_record
from .lease_storage import FOLDER as LEASES
from .leases import lease_of
from .targets import check_target, clear, document_bytes, has_root, read_document, write_document

if TYPE_CHECKING:
    import xarray as xr


#: The arrays that a store may have: scores and labels, or sets.
_ARRAYS = ("scores", "class_index", "labels", "sets", "offsets", "classes")
#: The key, in the notes of a part's seal, of the number of the part.
PART = "part"


@dataclass(frozen=True)
class Plan:
    """The layout of a store. A writer that continues the store must use the same layout."""

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

    @classmethod
    def from_options(cls, options: Mapping[str, Any], location: str) -> Plan:
        """Return the plan of a new or resumed store; options that are None take their defaults."""
        if options["n_classes"] is None:
            raise OptionError(
                f"n_classes is required unless the path is a finished store to append to; got None for {location}. "
                "Pass the number of classes, or check the path."
            )
        remote = "://" in location and not location.startswith(("memory:", "file:"))
        defaults: dict[str, Any] = {"codec": "blosc", "shard_chunks": SHARD_CHUNKS if remote else 1}
        values: dict[str, Any] = {n: defaults.get(n) if value is None else value for n, value in options.items()}
        return cls(**values)

    def check_same(self, noted: object, location: str) -> None:
        """Raise if an unfinished store was started with another plan."""
        plan = asdict(self)
        if not isinstance(noted, dict) or set(noted) != set(plan):
            raise StoreError(
                f"{location} was started by another version of ScoreWriter and cannot be continued. Write it again."
            )
        changed = [f"{name} was {noted[name]!r}" for name, value in plan.items() if noted[name] != value]
        if changed:
            raise OptionError(
                f"options differ from the unfinished store {location}: {', '.join(changed)}. Pass the same options."
            )

    def layout(self, itemsize: int) -> Layout:
        """Return the layout of scores with this item size in bytes."""
        columns = self.top_m or self.n_classes
        return Layout.for_columns(
            columns, itemsize, chunk_rows=self.chunk_rows, shard_chunks=self.shard_chunks, codec=self.codec
        )


class RecordingStore(StoreWrapper):
    """Wraps a store and records the digest of everything written through it."""

    def __init__(self, store: Store, digests: Digests | None = None) -> None:
        super().__init__(store)
        self.digests: Digests = {} if digests is None else digests

    def __repr__(self) -> str:
        return f"RecordingStore({redact(self._store)!r})"

    def __str__(self) -> str:
        return redact(self._store)

    def _with_store(self, store: Store) -> RecordingStore:
        return type(self)(store, self.digests)

    async def set(self, key: str, value: Buffer) -> None:
        """Write a key, and record its digest."""
        self.digests[key] = digest_of(value.as_buffer_like())
        await super().set(key, value)


class Draft:
    """An unfinished store: a group that is marked incomplete, and the digests of its chunks."""

    def __init__(self, group: Any, location: str, seal: Seal) -> None:
        self.group, self.location = group, location
        #: The state of the store: whether it is complete, and notes of its writer.
        self.seal = seal
        self.digests: Digests = {}
        #: Notes to keep in the finished store, for a writer that appends to it.
        self.kept_notes: dict[str, object] = {}
        #: The hash of the appended rows; empty if this draft is not an append.
        self.appended = ""

    @classmethod
    def create(
        cls,
        store: Store,
        location: str,
        *,
        overwrite: bool = False,
        attributes: Mapping[str, object] | None = None,
        noted: Mapping[str, object] | None = None,
    ) -> Draft:
        """Create the group, marked incomplete, at an empty path or in place of another store.

        ``noted`` has notes for a writer that continues the draft.
        """
        lease = lease_of(store)
        if lease:
            lease.has_begun = True
        else:
            check_target(store, location, overwrite)
        state = Seal(FORMAT, False, {"owner": lease.holder.owner if lease else None}).to_state()
        root: Document = {"attributes": {ATTRIBUTE: state}, "zarr_format": 3, "node_type": "group"}
        if overwrite and has_root(store):
            write_document(store, "zarr.json", root)  # marks the old store incomplete while the rest is removed
            clear(store, keep=("zarr.json", LEASES))
        root["attributes"] = {**(attributes or {}), ATTRIBUTE: {**state, **(noted or {})}}
        write_document(store, "zarr.json", root)
        draft = cls.reopen(store, location)
        draft.clean()
        return draft

    @classmethod
    def reopen(cls, store: Store, location: str) -> Draft:
        """Open an unfinished draft or a finished store."""
        document = read_document(store, "zarr.json", location)
        try:
            group = zarr.open_group(RecordingStore(store), mode="r+", use_consolidated=False)
        except Exception as error:  # metadata that may contain anything may raise any error
            why = f"is not a Zarr group ({cause(error, secrets_of(store))}); it cannot be continued"
            refuse(StoreError(f"{location} {why}. Choose another path."))
        seal = Seal.read(document.get("attributes"), location)
        if seal is None:
            raise StoreError(
                f"{location} was not written by this package; it cannot be continued. Choose another path."
            )
        if not seal.complete and seal.format != FORMAT:
            raise StoreError(
                f"{location} was started in format {seal.format}, which cannot be continued in format {FORMAT}. Write "
                "it again."
            )
        return cls(group, location, seal)

    @property
    def owner(self) -> str:
        """The owner of the lease that the draft was created with, which identifies the draft; empty if unknown."""
        return str(self.seal.noted.get("owner") or "")

    def check_part(self, number: int) -> None:
        """Raise if this draft is another part than its path says."""
        noted = self.seal.noted.get(PART, number)  # earlier versions did not note it
        if noted != number:
            raise StoreError(
                f"{self.location} contains part {noted} of its store instead of part {number}. Restore it, or write part "
                f"{number} again."
            )

    def check(self, *, always: bool = False) -> None:
        """Raise if another writer has taken over."""
        lease = lease_of(self.group.store)
        if lease:
            lease.check(always=always)

    def clean(self) -> None:
        """Remove the temporary files that a killed writer left."""
        bare = bare_store(self.group.store)
        if isinstance(bare, LocalStore):
            for path in bare.root.rglob("*.partial"):
                path.unlink(missing_ok=True)

    @property
    def names(self) -> list[str]:
        """The names of the arrays created so far."""
        return [name for name in _ARRAYS if name in self.group]

    def forms(self) -> dict[str, str]:
        """Return the digest of each array's metadata, ignoring its number of rows."""
        return {name: form_digest(self._document(f"{name}/zarr.json")) for name in self.names}

    def resize(self, n_samples: int) -> None:
        """Set the number of samples of every array."""
        for name in self.names:
            array = self.group[name]
            array.resize((n_samples, *array.shape[1:]))

    def add_matrix(
        self, name: str, shape: tuple[int, int], dtype: DTypeLike, layout: Layout, second: str = "class"
    ) -> ZarrArray:
        """Create an N x C array. Zarr has no bfloat16, which is stored as uint16 with the attribute ``dtype``."""
        dtype = np.dtype(dtype)
        stored = np.dtype("uint16") if dtype == BFLOAT16 else dtype
        array: ZarrArray = self.group.create_array(
            name, shape=shape, dtype=stored, dimension_names=("sample", second),
            **layout.keywords(dtype.itemsize),
        )  # fmt: skip
        if dtype == BFLOAT16:
            array.attrs["dtype"] = "bfloat16"
        return array

    def add_column(
        self,
        name: str,
        n_samples: int,
        dtype: DTypeLike = "int64",
        chunk_rows: int | None = None,
        dimension: str = "sample",
    ) -> ZarrArray:
        """Create an array with one value per sample, or along another dimension."""
        array: ZarrArray = self.group.create_array(
            name, shape=(n_samples,), dtype=dtype, chunks=(chunk_rows or max(1, min(n_samples, LABEL_ROWS)),),
            compressors=codecs("zstd", 8), dimension_names=(dimension,),
        )  # fmt: skip
        return array

    def finish(self, **attributes: object) -> None:
        """Write the manifest, then mark the store complete with a single write of the root's metadata."""
        self.check(always=True)
        tables = {}
        for name in self.names:
            array = self.group[name]
            tables[name] = table = empty_table(chunk_grid(array))
            for index in np.ndindex(*table.shape[:-1]):
                key = chunk_key(array, index)
                if key not in self.digests:
                    raise StoreError(
                        f"chunk {key} of {self.location} was not written; the store stays incomplete. Write it again."
                    )
                table[index] = self.digests[key]
        if GROUP in self.group:
            del self.group[GROUP]
        folder = self.group.create_group(GROUP)
        for name, table in tables.items():
            chunks = tuple(max(1, n) for n in table.shape)  # an empty array has an empty table
            folder.create_array(name, data=table, chunks=chunks, compressors=codecs("zstd", 8))
        nodes = [*tables, GROUP, *(f"{GROUP}/{name}" for name in tables)]
        # With consolidated metadata, opening needs one request, and xarray does not warn.
        root = self._document("zarr.json")
        root["attributes"] = {**self.group.attrs, **attributes}
        metadata = {name: self._document(f"{name}/zarr.json") for name in nodes}
        root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
        self.seal = Seal(
            FORMAT,
            True,
            self.kept_notes,
            manifest={name: table_digest(table) for name, table in tables.items()},
            metadata={"": metadata_digest(root)} | {name: metadata_digest(metadata[name]) for name in tables},
            n_chunks={name: math.prod(table.shape[:-1]) for name, table in tables.items()},
        )
        root["attributes"][ATTRIBUTE] = self.seal.to_state()
        data = document_bytes(root)
        if self.appended:
            write_append_record(self.group.store, data, self.appended)
        write_key(self.group.store, "zarr.json", data)

    def _document(self, key: str) -> Document:
        return read_document(self.group.store, key, self.location)


def write_rows(array: WritableArray, first: int, block: Array) -> Digests:
    """Write rows that fill whole stored chunks, also beyond the end of the array; return the digests of the chunks by key."""
    lease, last = lease_of(array.store_path.store), first + block.shape[0]
    if lease:
        lease.check()
    target = with_rows(array, last)
    target[first:last] = block.view(array.dtype) if block.dtype == BFLOAT16 else block
    region = (slice(first, last), *(slice(0, n) for n in array.shape[1:]))
    recorded = array.store_path.store.digests
    return {
        key: recorded[key] for key in (chunk_key(array, index) for index in indices_within(grid_of(target), region))
    }


def with_rows(array: StoredArray, n_rows: int) -> ZarrArray:
    """Return a view of an array with ``n_rows`` rows, to write to; the stored metadata stay unchanged.

    Zarr omits chunks that contain only fill values by default. Here they are written, because the manifest has a digest
    of every chunk: a missing chunk is a lost one.
    """
    metadata = replace(array.metadata, shape=(n_rows, *array.shape[1:]))
    return zarr.Array(
        zarr.AsyncArray(
            metadata=metadata, store_path=array.store_path, config={"order": "C", "write_empty_chunks": True}
        )
    )


class ChunkWriter:
    """Appends rows to an array of a draft in whole chunks, starting at a given row."""

    def __init__(self, draft: Draft, array: WritableArray, row: int, chunk_rows: int) -> None:
        self._draft, self._array, self._row, self._chunk_rows = draft, array, row, chunk_rows
        self._buffer = RowBuffer()

    @property
    def n_rows(self) -> int:
        """Number of rows of the array so far, including those not yet written."""
        return self._row + len(self._buffer)

    def append(self, block: Array) -> None:
        """Append rows, and write the chunks that are full."""
        self._buffer.add(block)
        while len(self._buffer) >= self._chunk_rows:
            self._write(self._chunk_rows)

    def finish(self) -> None:
        """Write the remaining rows."""
        if len(self._buffer):
            self._write(len(self._buffer))

    def _write(self, n_rows: int) -> None:
        (block,) = self._buffer.take(n_rows)
        self._draft.digests |= write_rows(self._array, self._row, block)
        self._row += n_rows


def write_result(dataset: xr.Dataset, path: Path) -> None:
    """Write a result Dataset to a new Zarr store with consolidated metadata, including chunks of zeros.

    Names are stored as variable-length strings, which Zarr v3 specifies.
    """
    names = [name for name, variable in dataset.variables.items() if variable.dtype.kind == "U"]
    dataset = dataset.assign({name: dataset[name].astype(object) for name in names})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        dataset.to_zarr(path, mode="w", consolidated=True, write_empty_chunks=True)
