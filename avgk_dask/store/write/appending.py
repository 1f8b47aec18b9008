"""Appending: adding rows to a finished store. Full chunks stay unchanged; the last one is written again unless it is full.

The store stays unchanged until the append finishes. Chunks after the last one are written in place, as nothing refers to them
yet. Everything else (chunks that were not full, metadata, the manifest) is staged below ``scores/append``. To finish, the
root is marked incomplete, with the digests of the staged files; these are copied into place, the root's metadata last. A
writer killed before that leaves the old store; one killed while copying leaves a store that is marked incomplete and that
the next writer finishes (``settle``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import ShardingCodec

from ...arrays import Array, Dtype
from ...errors import OptionError, StoreError
from ...kernels.keys import check_dtype
from ..read.checked import CheckedStore, Checks, StoreWrapper
from ..read.grids import CODECS, LABEL_ROWS, chunks_of, codecs, outer_sizes
from ..read.listing import chunk_key, list_keys_or_raise
from ..read.manifest import ATTRIBUTE, FORMAT, STAGED, Digest, Document, Seal, chunk_grid, digest_of, index_of, is_count
from ..read.nodes import open_sealed, seal_of
from ..where.addresses import Options, StoredArray, is_uneven, read_key, secrets_of, wait, write_key, writing
from .drafts import Draft, Plan
from .journal import RECORD, read_append_record
from .leases import LeasedStore, lease_of, warn_leftover
from .targets import claim, read_document, writable, write_document

#: Inside an array, where zarr does not look for further nodes.
_FOLDER = "scores/append"
_ROOT = "zarr.json"
#: Keys that may be staged, so that a hostile root cannot cause writes outside of the store.
_KEY = re.compile(
    rf"zarr\.json|manifest/zarr\.json|(manifest/)?(scores|class_index|labels)/(zarr\.json|c(/[0-9]+)+)|{re.escape(RECORD)}"
)
#: The note in the seal of a store of one chunk: the chunk's number of rows if there had been more samples.
CHUNK_ROWS = "chunk_rows"


def check_appendable(store: Store, location: str) -> None:
    """Refuse a store that no ScoreWriter finished, or that was joined from parts."""
    attributes = read_document(store, "zarr.json", location).get("attributes") or {}
    seal = Seal.read(attributes, location)
    ingest = "Ingest it into a new store first (avgk ingest)."
    why = None
    if seal is None:
        why, hint = "was not written by this package", ingest
    elif seal.noted.get("parts"):
        why, hint = "is written in parts", "Write a further part, or another store."
    elif not seal.complete and STAGED not in seal.noted:
        why, hint = "is incomplete: its writer did not finish", "Continue it with ScoreWriter(..., resume=True)."
    elif seal.format != FORMAT:
        why, hint = f"was written in format {seal.format}, and not {FORMAT}", ingest
    elif "part_samples" in attributes:
        why, hint = "was joined from parts, which determine the order of its samples", "Write another store."
    if why:
        raise StoreError(f"cannot append to {location}: it {why}. {hint}")


@contextmanager
def appendable(path: object, options: Options | None) -> Iterator[LeasedStore]:
    """Lend a finished store to a writer that appends to it; the lease ends with the block, not with the writer."""
    store, location = writable(path, options)
    with writing(location, path, options):
        leased = claim(store, location, lambda: check_appendable(store, location))
    try:
        yield leased.lent()
    finally:
        leased.release()


@dataclass(frozen=True)
class Finished:
    """A finished store: its arrays, whose chunks are checked when read, and the attributes of its root."""

    arrays: Mapping[str, StoredArray]
    documents: Mapping[str, Document]
    attributes: Document
    seal: Seal
    location: str

    @classmethod
    def open(cls, store: Store, location: str, *secret: object) -> Finished:
        """Open a store to append to; ``secret`` are its path and options, which may contain credentials.

        Damaged metadata, a damaged manifest, and a layout that no ScoreWriter writes raise an error.
        """
        checked = CheckedStore(store, Checks(location, secrets=secrets_of(store, *secret)))
        seal = seal_of(checked, "") or Seal(FORMAT, False)
        attributes = (checked.document("zarr.json") or {}).get("attributes") or {}
        arrays = {name: open_sealed(checked, "", name, seal) for name in seal.manifest}
        documents = {name: read_document(store, f"{name}/zarr.json", location) for name in arrays}
        for name, document in documents.items():
            if not seal.covers(name, document):
                raise StoreError(
                    f"the metadata of array {name!r} of {location} are damaged: they changed after they were written. "
                    "Restore them, or write the store again."
                )
        finished = cls(arrays, documents, attributes, seal, location)
        if not finished._has_writer_layout():
            raise StoreError(
                f"cannot append to {location}: its chunks are not whole rows, as ScoreWriter writes them. Ingest it "
                "into a new store first (avgk ingest)."
            )
        return finished

    def _has_writer_layout(self) -> bool:
        """Whether a ScoreWriter would have written the same layout; otherwise no plan could continue it."""
        arrays, labels = self.arrays, self.arrays.get("labels")
        if "scores" not in arrays or not set(arrays) <= {"scores", "class_index", "labels"}:
            return False
        if any(map(is_uneven, arrays.values())) or not self.n_samples:
            return False
        in_rows = all(
            outer_sizes(array) == (self._outer_rows, array.shape[1])
            and chunks_of(array) == (self._inner_rows, array.shape[1])
            for name, array in arrays.items()
            if name != "labels" or array.ndim == 2
        )
        if labels is not None and labels.ndim == 1:
            in_rows &= labels.dtype == np.int64 and (chunk_grid(labels)[0] == 1 or chunks_of(labels)[0] == LABEL_ROWS)
        return bool(in_rows and self._codec())

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.arrays["scores"].shape[0])

    @property
    def dtype(self) -> Dtype:
        """Type of the scores, which may be one that Zarr does not support."""
        scores = self.arrays["scores"]
        return check_dtype(scores.attrs.get("dtype", scores.dtype))

    @property
    def labelled(self) -> str:
        """The kind of labels."""
        labels = self.arrays.get("labels")
        return "no labels" if labels is None else "hard labels" if labels.ndim == 1 else "soft labels"

    @property
    def _inner_rows(self) -> int:
        return chunks_of(self.arrays["scores"])[0]

    @property
    def _outer_rows(self) -> int:
        return outer_sizes(self.arrays["scores"])[0]

    def _codec(self) -> str | None:
        coding = self.arrays["scores"].metadata.codecs
        inner = coding[0].codecs if isinstance(coding[0], ShardingCodec) else coding
        stored = [codec.to_dict() for codec in inner if isinstance(codec, BytesBytesCodec)]
        size = self.dtype.itemsize
        return next((name for name in CODECS if [c.to_dict() for c in codecs(name, size)] == stored), None)

    def plan(self, options: Mapping[str, object]) -> Plan:
        """Return the plan by which the store was written; refuse options that differ from it."""
        noted, columns = self.seal.noted.get(CHUNK_ROWS), int(self.arrays["scores"].shape[1])
        is_truncated = "class_index" in self.arrays
        plan = Plan(
            n_classes=int(self.attributes["n_classes"]) if is_truncated else columns,
            dtype=str(self.dtype),
            chunk_rows=int(noted) if is_count(noted) else self._inner_rows,  # type: ignore[call-overload]
            top_m=columns if is_truncated else None,
            codec=self._codec() or "",
            shard_chunks=self._outer_rows // self._inner_rows,
        )
        differences = [
            f"{name} is {value!r}, got {options[name]!r}"
            for name, value in asdict(plan).items()
            if options[name] is not None and options[name] != value
        ]
        if differences:
            raise OptionError(
                f"options differ from the store {self.location}: {'; '.join(differences)}. Leave them out."
            )
        return plan

    def merge_attributes(self, attributes: Mapping[str, object] | None) -> Document:
        """Return the attributes of the store with further ones added; refuse different values."""
        new = json.loads(json.dumps(dict(attributes or {})))
        changed = [name for name, value in new.items() if self.attributes.get(name, value) != value]
        if changed:
            raise OptionError(
                f"attributes differ from the store {self.location}: {', '.join(changed)}. Leave them out, or check "
                "that these rows belong there."
            )
        return {**self.attributes, **new}


class Append:
    """More rows for a finished store, which stays unchanged until ``finish``."""

    def __init__(
        self,
        store: Store,
        old: Finished,
        options: Mapping[str, object],
        attributes: Mapping[str, object] | None,
        last_hash: str | None,
    ) -> None:
        self.old, self._store, self.plan = old, store, old.plan(options)
        self.layout = self.plan.layout(old.dtype.itemsize)
        #: The hash of the last appended rows if the run that appended them was killed.
        self._last_hash = last_hash
        self._attributes = old.merge_attributes(attributes)
        #: The number of full chunks along the rows.
        self.n_full = old.n_samples // self.layout.rows
        self._first = self.n_full * self.layout.rows
        #: The number of hard labels in chunks that stay.
        self.n_labels = 0
        labels = old.arrays.get("labels")
        if labels is not None and labels.ndim == 1 and chunks_of(labels)[0] == LABEL_ROWS:
            self.n_labels = self._first // LABEL_ROWS * LABEL_ROWS
        self._staged = StagedStore(store, {name: chunk_grid(array)[0] for name, array in old.arrays.items()})

    def begin(self) -> Draft:
        """Begin the new store, with the digests of all chunks that stay; this is the first write."""
        old = self.old
        drop = {ATTRIBUTE, "n_classes"} if "class_index" in old.arrays else {ATTRIBUTE}  # set again when finishing
        attributes = {name: value for name, value in self._attributes.items() if name not in drop}
        self._draft = draft = Draft.create(self._staged, old.location, attributes=attributes)
        for name, array in old.arrays.items():
            n_kept = self.n_labels // LABEL_ROWS if array.ndim == 1 else self.n_full
            if n_kept:
                document = old.documents[name]
                write_document(
                    draft.group.store, f"{name}/zarr.json", {**document, "shape": [0, *document["shape"][1:]]}
                )
                table = array.store_path.store.checks.manifest.table
                for index in np.ndindex(n_kept, *chunk_grid(array)[1:]):
                    draft.digests[chunk_key(array, index)] = tuple(table[index].tolist())
        return draft

    def last_rows(self) -> list[Array]:
        """Return the scores, classes and labels of the last chunk if it is not full, checked against the manifest."""
        if self._first == self.old.n_samples:
            return []
        names = [name for name in ("scores", "class_index", "labels") if name in self.old.arrays]
        scores, *others = (np.asarray(self.old.arrays[name][self._first :]) for name in names)
        return [scores.view(self.old.dtype), *others]

    def last_labels(self) -> Array:
        """Return the hard labels of full chunks of scores that are not in a full chunk of labels."""
        return np.asarray(self.old.arrays["labels"][self.n_labels : self._first])

    def carry_notes(self) -> None:
        """Copy the attributes that users have added to the old arrays."""
        for name, document in self.old.documents.items():
            new = self._draft.group[name].attrs
            more = {key: value for key, value in (document.get("attributes") or {}).items() if key not in new}
            if more:
                new.update(more)

    def adds_nothing(self, n_samples: int, rows: str) -> bool:
        """Whether nothing was appended, or only rows with this hash that a killed run has added already."""
        is_repeated = n_samples > self.old.n_samples and rows == self._last_hash
        if self._attributes != self.old.attributes or not (is_repeated or n_samples == self.old.n_samples):
            return False
        if is_repeated:
            warn_leftover(
                f"a killed run had already appended these {n_samples - self.old.n_samples:,} rows to "
                f"{self.old.location}; they were not added again"
            )
        return True

    def finish(self) -> None:
        """Replace the old store; from the first write to the last it is marked incomplete."""
        self._draft.check(always=True)
        recording, location = self._draft.group.store, self.old.location
        staged = {key: digest for key, digest in recording.digests.items() if self._replaces(key, digest)}
        values = _read_staged(self._store, location, staged)
        root = read_document(self._store, _ROOT, location)
        state = Seal(FORMAT, False, {STAGED: staged}).to_state()
        root["attributes"] = {**(root.get("attributes") or {}), ATTRIBUTE: state}
        write_document(self._store, _ROOT, root)
        _move_in(self._store, values)

    def _replaces(self, key: str, digest: Digest) -> bool:
        """Whether a key is staged, and not a chunk that already exists with the same bytes."""
        array = self.old.arrays.get(key.partition("/")[0])
        is_same = array is not None and array.store_path.store.checks.digest(key) == digest and "/c/" in key
        return self._staged.is_staged(key) and not is_same


class StagedStore(StoreWrapper):
    """Wraps a finished store, through which its successor is written: everything is staged but chunks after the old ones."""

    def __init__(self, store: Store, n_stored: Mapping[str, int]) -> None:
        super().__init__(store)
        #: The number of chunks along the rows of each array of the finished store.
        self._n_stored = n_stored

    def _with_store(self, store: Store) -> StagedStore:
        return type(self)(store, self._n_stored)

    def is_staged(self, key: str) -> bool:
        """Whether a key is staged, instead of written in place."""
        name, _, rest = key.partition("/")
        return not (rest.startswith("c/") and int(rest.split("/")[1]) >= self._n_stored.get(name, 0))

    def _place(self, key: str) -> str:
        return f"{_FOLDER}/{key}" if self.is_staged(key) else key

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read metadata. Chunks count as absent, because a killed append may have left some."""
        return None if "/c/" in key else await super().get(self._place(key), prototype, byte_range)

    async def exists(self, key: str) -> bool:
        """Whether a key exists."""
        return await super().exists(self._place(key))

    async def set(self, key: str, value: Buffer) -> None:
        """Write a key."""
        await super().set(self._place(key), value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a key unless it exists."""
        await super().set_if_not_exists(self._place(key), value)

    async def delete(self, key: str) -> None:
        """Remove a key."""
        await super().delete(self._place(key))

    async def delete_dir(self, prefix: str) -> None:
        """Remove the staged keys below a prefix."""
        await super().delete_dir(f"{_FOLDER}/{prefix}")


def _read_staged(store: Store, location: str, digests: Mapping[str, Digest]) -> dict[str, bytes]:
    """Return the staged values, metadata and at most one row of chunks per array, checked against their digests."""
    values = {}
    for key, digest in digests.items():
        data = read_key(store, f"{_FOLDER}/{key}")
        if data is None or digest_of(data) != tuple(digest):
            raise StoreError(
                f"{_FOLDER}/{key} of {location} is missing or damaged; the append cannot be finished. "
                "Restore it, or write the store again."
            )
        values[key] = data
    return values


def _move_in(store: Store, values: Mapping[str, bytes]) -> None:
    lease = lease_of(store)
    for key in sorted(values, key=lambda key: (key == _ROOT, key)):
        if lease:
            lease.check(always=key == _ROOT)
        write_key(store, key, values[key])
    wait(store.delete_dir(_FOLDER))


def settle(store: Store, location: str) -> str | None:
    """Finish or undo an append whose writer was killed, with a warning.

    Return the hash of the appended rows if the append is finished but its run was killed, else None.
    """
    seal = Seal.read(read_document(store, _ROOT, location).get("attributes"), location)
    is_staged = seal is not None and not seal.complete and STAGED in seal.noted
    if seal is None or not (seal.complete or is_staged):
        return None
    if is_staged:
        _move_in(store, _read_staged(store, location, _parse_digests(seal.noted[STAGED], location)))
    rows = read_append_record(store)
    once = "its rows are in the store" + (", and appending the same rows again has no effect" if rows else "")
    if is_staged:
        warn_leftover(f"finished an interrupted append to {location}; {once}")
        return rows
    if list_keys_or_raise(store, _FOLDER):
        staged = read_key(store, f"{_FOLDER}/{_ROOT}")
        is_done = staged == read_key(store, _ROOT) or (staged is None and rows is not None)
        drop_staged(store, location)
        if not is_done:
            warn_leftover(f"removed the rows of an unfinished append to {location}; append them again")
    if rows is not None:
        warn_leftover(f"a run was killed after it had finished an append to {location}; {once}")
    return rows


def _parse_digests(staged: object, location: str) -> dict[str, Digest]:
    """Return the digests of the staged keys; refuse invalid ones."""
    try:
        digests = {str(key): (int(length), int(value)) for key, (length, value) in staged.items()}  # type: ignore[attr-defined]
        if _ROOT not in digests or not all(map(_KEY.fullmatch, digests)):
            raise ValueError(_ROOT)
    except (ValueError, TypeError, AttributeError):
        raise StoreError(
            f"{_ROOT} of {location} is damaged: it does not list the staged objects. Restore it, or write the store again."
        ) from None
    return digests


def drop_staged(store: Store, location: str) -> None:
    """Remove an unfinished append: the chunks beyond the finished store, then the staged keys."""
    draft = Draft.reopen(store, location)
    for name in draft.names:
        n_stored = chunk_grid(draft.group[name])[0]
        for key in list_keys_or_raise(store, f"{name}/c"):
            index = index_of(name, key)
            if index and index[0] >= n_stored:
                wait(store.delete(key))
    draft.clean()
    wait(store.delete_dir(_FOLDER))
