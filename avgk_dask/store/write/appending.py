"""Plans: what a store of scores is asked to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypedDict

import numpy as np
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import Store
from zarr.codecs import ShardingCodec

from ...arrays import Array, Dtype
from ...errors import OptionError, StoreError
from ...kernels.keys import check_dtype
from ..read.checked import CheckedStore, Checks
from ..read.grids import CODECS, LABEL_ROWS, SHARD_CHUNKS, Layout, chunks_of, codecs, outer_sizes
from ..read.listing import chunk_key
from ..read.manifest import ATTRIBUTE, FORMAT, STAGED, Document, Seal, chunk_grid, is_count
from ..read.nodes import seal_of, sealed_array
from ..where.addresses import StoredArray, is_uneven, secrets_of
from .drafts import Digests, Draft, read_document, write_document
from .journal import StagedStore, drop_staged, replace_staged
from .leases import tell


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


# Appending: a finished store goes on with more rows. Full chunks stay as they are; the last one, unless full, is written anew.


#: What the seal of a store of one chunk notes: the rows its chunks were to have, had there been more samples.
CHUNK_ROWS = "chunk_rows"


def check_appendable(store: Store, location: str) -> None:
    """Refuse what is no finished store of a ScoreWriter, or one whose order of samples is that of its parts."""
    attributes = read_document(store, "zarr.json", location).get("attributes") or {}
    seal = Seal.read(attributes, location)
    ingest = "Ingest it into a new store first (avgk ingest)."
    why = None
    if seal is None:
        why, todo = "was not written by this package", ingest
    elif seal.noted.get("parts"):
        why, todo = "is written in parts", "Write a further part, or another store."
    elif not seal.complete and STAGED not in seal.noted:
        why, todo = "is incomplete: its writer did not finish", "Continue it with ScoreWriter(..., resume=True)."
    elif seal.format != FORMAT:
        why, todo = f"was written in format {seal.format}, and not {FORMAT}", ingest
    elif "part_samples" in attributes:
        why, todo = "was joined from parts, which tell where its samples are", "Write another store."
    if why:
        raise StoreError(f"path must be a finished store to be appended to; {location} {why}. {todo}")


@dataclass(frozen=True)
class Finished:
    """A finished store: its arrays, read with checks, and the attributes of its root."""

    arrays: Mapping[str, StoredArray]
    documents: Mapping[str, Document]
    attributes: Document
    seal: Seal
    location: str

    @classmethod
    def open(cls, store: Store, location: str, *given: object) -> Finished:
        """Open a store that is to be appended to; ``given`` are its path and options.

        Raises
        ------
        StoreError
            Where its metadata or manifest are damaged, or a ScoreWriter does not write such stores.

        """
        checked = CheckedStore(store, Checks(location, secrets=secrets_of(store, *given)))
        seal = seal_of(checked, "") or Seal(FORMAT, False)
        attributes = (checked.document("zarr.json") or {}).get("attributes") or {}
        arrays = {name: sealed_array(checked, "", name, seal) for name in seal.manifest}
        documents = {name: read_document(store, f"{name}/zarr.json", location) for name in arrays}
        for name, document in documents.items():
            if not seal.covers(name, document):
                raise StoreError(
                    f"the metadata of array {name!r} of {location} are damaged: they are not those that were written. "
                    "Restore them, or write the store again."
                )
        found = cls(arrays, documents, attributes, seal, location)
        found._check_form()
        return found

    def _check_form(self) -> None:
        """Refuse what a ScoreWriter would not have written so: its chunks could not be continued alike."""
        if not (self._has_our_arrays() and self._has_our_labels() and self._codec()):
            raise StoreError(
                f"path must be a store in whole rows, as a ScoreWriter writes it, to be appended to; {self.location} is "
                "laid out differently. Ingest it into a new store first (avgk ingest)."
            )

    def _has_our_arrays(self) -> bool:
        names, arrays = set(self.arrays), self.arrays.values()
        if "scores" not in names or not names <= {"scores", "class_index", "labels"} or any(map(is_uneven, arrays)):
            return False
        return self.n_samples > 0 and all(
            outer_sizes(array) == (self._outer_rows, array.shape[1])
            and chunks_of(array) == (self._inner_rows, array.shape[1])
            for name, array in self.arrays.items()
            if name != "labels" or array.ndim == 2
        )

    def _has_our_labels(self) -> bool:
        labels = self.arrays.get("labels")
        if labels is None or labels.ndim == 2:
            return True
        return labels.dtype == np.int64 and (chunk_grid(labels)[0] == 1 or chunks_of(labels)[0] == LABEL_ROWS)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.arrays["scores"].shape[0])

    @property
    def dtype(self) -> Dtype:
        """Type of the scores, of which Zarr may not know."""
        scores = self.arrays["scores"]
        return check_dtype(scores.attrs.get("dtype", scores.dtype))

    @property
    def labelled(self) -> str:
        """The kind of labels it has."""
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
        found = [codec.to_dict() for codec in inner if isinstance(codec, BytesBytesCodec)]
        size = self.dtype.itemsize
        return next((name for name in CODECS if [c.to_dict() for c in codecs(name, size)] == found), None)

    def plan(self, asked: Mapping[str, object]) -> Plan:
        """Return the plan that the store was written by; refuse options that say otherwise."""
        noted, columns = self.seal.noted.get(CHUNK_ROWS), int(self.arrays["scores"].shape[1])
        is_truncated = "class_index" in self.arrays
        mine = Plan(
            n_classes=int(self.attributes["n_classes"]) if is_truncated else columns,
            dtype=str(self.dtype),
            chunk_rows=int(noted) if is_count(noted) else self._inner_rows,  # type: ignore[call-overload]
            top_m=columns if is_truncated else None,
            codec=self._codec() or "",
            shard_chunks=self._outer_rows // self._inner_rows,
        )
        differences = [
            f"{name} is {value!r} there; got {asked[name]!r}"
            for name, value in asdict(mine).items()
            if asked[name] is not None and asked[name] != value
        ]
        if differences:
            raise OptionError(
                f"options must be those of the store to be appended to, {self.location}: {'; '.join(differences)}. Leave them out."
            )
        return mine

    def merged(self, attributes: Mapping[str, object] | None) -> Document:
        """Return the attributes of the store with more of them; refuse those that say otherwise."""
        more = json.loads(json.dumps(dict(attributes or {})))
        changed = [name for name, value in more.items() if self.attributes.get(name, value) != value]
        if changed:
            raise OptionError(
                f"attributes must not differ from those of the store to be appended to, {self.location}; "
                f"got another {', '.join(changed)}. Leave them out, or check that these rows belong there."
            )
        return {**self.attributes, **more}


class Append:
    """More rows for a finished store, which stays as it is until ``finish``."""

    def __init__(
        self,
        store: Store,
        old: Finished,
        layout: Layout,
        attributes: Mapping[str, object] | None,
        finished: str | None = None,
    ) -> None:
        self.old, self._store = old, store
        #: The hash of the last rows of the store if the run that appended them was killed.
        self._finished = finished
        self._attributes = old.merged(attributes)
        #: The number of stretches of rows that are full.
        self.n_stretches = old.n_samples // layout.rows
        self._first = self.n_stretches * layout.rows
        #: The number of hard labels in chunks that stay.
        self.n_labels = 0
        labels = old.arrays.get("labels")
        if labels is not None and labels.ndim == 1 and chunks_of(labels)[0] == LABEL_ROWS:
            self.n_labels = self._first // LABEL_ROWS * LABEL_ROWS
        self._staged = StagedStore(store, {name: chunk_grid(array)[0] for name, array in old.arrays.items()})

    def begin(self) -> Draft:
        """Begin the new store, with the digests of all chunks that stay; until now nothing is written."""
        old = self.old
        drop = {ATTRIBUTE, "n_classes"} if "class_index" in old.arrays else {ATTRIBUTE}  # finishing says them again
        attributes = {name: value for name, value in self._attributes.items() if name not in drop}
        self._draft = draft = Draft.create(self._staged, old.location, attributes=attributes)
        for name, array in old.arrays.items():
            n_kept = self.n_labels // LABEL_ROWS if array.ndim == 1 else self.n_stretches
            if n_kept:
                document = old.documents[name]
                write_document(
                    draft.group.store, f"{name}/zarr.json", {**document, "shape": [0, *document["shape"][1:]]}
                )
                draft.digests |= _digests(array, n_kept)
        return draft

    def last_rows(self) -> list[Array]:
        """Return the rows of the last chunk unless it is full, checked against the manifest: scores, classes, labels."""
        if self._first == self.old.n_samples:
            return []
        names = [name for name in ("scores", "class_index", "labels") if name in self.old.arrays]
        found = [np.asarray(self.old.arrays[name][self._first :]) for name in names]
        return [found[0].view(self.old.dtype), *found[1:]]

    def last_labels(self) -> Array:
        """Return the hard labels of full stretches of rows that are in no chunk that stays."""
        return np.asarray(self.old.arrays["labels"][self.n_labels : self._first])

    def carry_notes(self) -> None:
        """Give the new arrays the attributes that users have given the old ones."""
        for name, document in self.old.documents.items():
            new = self._draft.group[name].attrs
            more = {key: value for key, value in (document.get("attributes") or {}).items() if key not in new}
            if more:
                new.update(more)

    def adds_nothing(self, n_samples: int, rows: str) -> bool:
        """Whether the store would be the same with ``n_samples`` samples, or has the rows with this hash from a run that was killed."""
        is_there = n_samples > self.old.n_samples and rows == self._finished
        if self._attributes != self.old.attributes or not (is_there or n_samples == self.old.n_samples):
            return False
        if is_there:
            tell(
                f"the {n_samples - self.old.n_samples:,} rows appended to {self.old.location} are those of the append whose "
                "run was killed; they were not added again"
            )
        return True

    def finish(self) -> None:
        """Put the finished new store in the place of the old one."""
        self._draft.check(surely=True)
        recording = self._draft.group.store
        staged = {key: digest for key, digest in recording.digests.items() if self._replaces(key, digest)}
        replace_staged(self._store, self.old.location, staged)

    def _replaces(self, key: str, digest: tuple[int, int]) -> bool:
        """Whether a key is staged, and not a chunk that is there already, byte for byte."""
        array = self.old.arrays.get(key.partition("/")[0])
        is_same = array is not None and array.store_path.store.checks.digest(key) == digest and "/c/" in key
        return self._staged.is_staged(key) and not is_same

    def undo(self) -> None:
        """Remove what was begun; the old store is as it was."""
        drop_staged(self._store, self.old.location)


def _digests(array: StoredArray, n_kept: int) -> Digests:
    """Return the digests of the first chunks of an array, along its rows."""
    table = array.store_path.store.checks.manifest.table
    grid = (n_kept, *chunk_grid(array)[1:])
    return {chunk_key(array, index): tuple(table[index].tolist()) for index in np.ndindex(*grid)}
