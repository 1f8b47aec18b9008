"""ScoreWriter: batches from a model's loop become a well laid-out store, which is marked incomplete until it is finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike
from zarr.abc.store import Store

from ...arrays import Array, Dtype
from ...axis_names import check_batch, name_list
from ...errors import LabelsError, OptionError, StoreError
from ...kernels.keys import check_dtype
from ..read.grids import LABEL_ROWS, Layout
from ..read.manifest import Digests
from ..where.addresses import Options, StoredArray, Writable, redact, writing
from ..where.locations import MOST_NAMES
from .appending import CHUNK_ROWS, Append, Finished, check_appendable, drop_staged, settle
from .batches import Conversion, RowBuffer, as_labels, as_scores, check_labels, check_scores, truncate
from .drafts import PART, Draft, Plan, write_rows
from .journal import Journal, JournalRecord, RowsHash, remove_append_record
from .lease_storage import leases_of
from .leases import refuse_held
from .targets import check_target, claim, create_parts, has_root, part_path, writable


@dataclass(frozen=True)
class _WriterOptions:
    """The options of a writer: the place, the layout (``plan``), and how to treat an existing store."""

    path: Writable
    storage_options: Options | None
    plan: Mapping[str, Any]
    resume: bool
    append: bool
    overwrite: bool
    part: int | None

    def __post_init__(self) -> None:
        others = {"resume": self.resume, "overwrite": self.overwrite, "part": self.part is not None}
        if self.append and any(others.values()):
            names = " or ".join(name for name, value in others.items() if value)
            raise OptionError(f"append cannot be combined with {names}. Leave one out.")

    @property
    def secret(self) -> tuple[object, object]:
        """The path and storage options, whose credentials errors must not show."""
        return self.path, self.storage_options

    def locate(self) -> tuple[Store, Store, str]:
        """Return the root, the store to write (the root or a part of it), and the name of that store."""
        root, location = writable(self.path, self.storage_options)
        if self.part is None:
            return root, root, location
        return root, *writable(part_path(self.path, self.part), self.storage_options)

    def check(self, root: Store, store: Store, location: str) -> None:
        """Refuse a store that another process writes, or that does not fit the options."""
        if self.part is not None:
            refuse_held(leases_of(root), redact(self.path))
        if not ((self.resume or self.append) and has_root(store)):
            check_target(store, location, self.overwrite)
        elif self.append:
            check_appendable(store, location)


class ScoreWriter:
    """Appends batches of scores and labels to a store, from a model's evaluation loop.

    Chunks consist of whole rows, about 10 MB, compressed with blosc lz4 and bit shuffle; on object stores a shard has
    four. Each chunk has a checksum, and the store has a manifest of all. The number of samples need not be
    known. Until ``close`` (or the end of the ``with`` block) the store is marked incomplete, and no function of this
    package evaluates it. No other writer, on this or another machine, can open the store until this one is closed, fails or
    is deleted, or its process ends.

    Parameters
    ----------
    path
        Path, URL or Zarr store to write to; it must be new, unless it is resumed or appended to.
    n_classes
        Number of classes. Optional when appending to an existing store.
    dtype
        Type of the stored scores; by default the type of the first batch. Narrower floats are rounded to
        nearest, as the scores' attribute ``rounding`` states; values that would overflow raise an error.
    chunk_rows
        Rows per chunk.
    top_m
        Keep only the ``top_m`` largest scores of each row, with their classes (a truncated store).
    resume
        Continue a store whose writer was interrupted: the next batch must start at sample
        ``n_samples``. Without a store, begin a new one.
    append
        Add rows at the end of a finished store. The options describing its layout may be left out, and must
        not differ from it; labels must be given if and only if the store has labels. If there is no store yet, begin a
        new one, which needs ``n_classes``. Stores that are incomplete (resume them), joined from parts, or not written by
        this package raise an error.
    overwrite
        Replace an existing Zarr store (unless it is resumed).
    codec
        ``"blosc"`` (the default), ``"zstd"``, ``"gzip"`` or ``"none"``.
    shard_chunks
        Chunks per shard; 1 for no shards.
    part
        Number of this process, from 0, if several processes write parts of one store, which ``join_parts`` then
        joins.
    storage_options
        How to reach the store, as for ``open_scores``.
    attributes
        Attributes of the store, such as the model's name; with ``append`` they are added to the existing
        ones and must not differ from them. ``class_names`` is a list of names in the order of the classes; by default
        the column names of the first batch. Batches with other column names raise an error.

    Attributes
    ----------
    n_samples
        Number of samples in the store so far; after ``resume`` those safely written, after ``append`` the existing ones.
    rounding
        Rounding of the stored scores, such as "float32 rounded to float16, …", or None.

    Raises
    ------
    StoreError
        If the path is not empty, the store cannot be written, or another process is writing it (the message names it).
    OptionError, DtypeError
        If an option is invalid, or differs from the store to be continued.

    Notes
    -----
    Cost: each chunk is written once, followed by a small record from which an interrupted writer continues. Memory for one
    chunk (or shard) of rows and one batch.

    A killed writer can be resumed at once on the same machine, and from another machine 15 minutes after it last renewed its
    lease; a ``LeftoverWarning`` reports it. If the first writer comes back after that, it stops with a ``WriteError``.

    While rows are appended, readers see the old store. ``close`` marks it incomplete while it writes the metadata and the
    chunk that was not full. Afterwards every byte is what a single writer of all rows would have written (except the time
    stamps in gzip chunks), and readers must open the store again. A writer killed before ``close`` leaves the old store:
    append its rows again. One killed during ``close`` leaves an incomplete store, which the next writer with ``append`` or
    ``resume`` finishes first. That writer may append the same rows again, in any batches: it recognises them by a hash and
    does not add them twice (``n_samples`` after ``close`` is the true number). Other rows are added after them. A
    ``LeftoverWarning`` reports each of these.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> with ScoreWriter(path, n_classes=4) as writer:
    ...     for seed in range(3):
    ...         scores = np.random.default_rng(seed).random((10, 4), dtype=np.float32)
    ...         writer.append(scores, scores.argmax(axis=1))
    >>> writer.n_samples
    30
    >>> with ScoreWriter(path, append=True) as writer:
    ...     writer.append(scores, scores.argmax(axis=1))
    >>> writer.n_samples
    40
    """

    def __init__(
        self,
        path: Writable,
        n_classes: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        chunk_rows: int | None = None,
        top_m: int | None = None,
        resume: bool = False,
        append: bool = False,
        overwrite: bool = False,
        codec: str | None = None,
        shard_chunks: int | None = None,
        part: int | None = None,
        storage_options: Options | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        plan: dict[str, Any] = {
            "n_classes": int(n_classes) if isinstance(n_classes, np.integer) else n_classes,
            "dtype": None if dtype is None else str(check_dtype(dtype)),
            "chunk_rows": chunk_rows, "top_m": top_m, "codec": codec, "shard_chunks": shard_chunks,
        }  # fmt: skip
        self._options = options = _WriterOptions(path, storage_options, plan, resume, append, overwrite, part)
        root, store, self._location = options.locate()
        if not (append and has_root(store)):
            self._plan = Plan.from_options(plan, self._location)
        names: Any = (attributes or {}).get("class_names")
        if names is not None:
            names = name_list(names, plan["n_classes"] or len(names), "class_names")
            attributes = {**(attributes or {}), "class_names": names}
        self.n_samples = 0
        self.rounding: str | None = None
        # Set by the first batch or an existing store.
        self._layout: Layout | None = None
        self._stored: DTypeLike | None = dtype
        self._labelled: str | None = None
        self._soft_dtype: Dtype | None = None
        self._forms: dict[str, str] = {}
        # Rows waiting to be written, and the numbers of chunks (along the rows) and hard labels already written.
        self._rows, self._labels = RowBuffer(), RowBuffer()
        self._n_chunks = self._n_labels = 0
        self._closed = self._failed = False
        self._append: Append | None = None
        # Recognises the appended rows if this run is killed at its end and repeated.
        self._hash = RowsHash() if append else None
        with writing(self._location, *options.secret):
            if part is not None:
                create_parts(root, redact(path))
            self._leased = claim(store, self._location, partial(options.check, root, store, self._location))
        with self._writing():
            self._open(store, attributes)
        stored = self._draft.group.attrs.get("class_names")
        self._class_names: tuple[str, ...] | None = tuple(stored) if isinstance(stored, list) else None

    def _open(self, store: Store, attributes: Mapping[str, object] | None) -> None:
        """Begin or continue the store."""
        options, location, part = self._options, self._location, self._options.part
        self._journal = Journal(self._leased, location)
        continues = (options.resume or options.append) and has_root(store)
        last_hash = settle(self._leased, location) if continues else None
        if continues and options.append:
            if last_hash is not None:
                self._journal.clear()  # the journal of the killed run
            old = Finished.open(store, location, *options.secret)
            self._begin_append(Append(self._leased, old, options.plan, attributes, last_hash))
        elif continues:
            self._draft = Draft.reopen(self._leased, location)
            if part is not None:
                self._draft.check_part(part)
            self._resume()
        else:
            self._plan = Plan.from_options(options.plan, location)
            noted = {"plan": asdict(self._plan)} | ({} if part is None else {PART: int(part)})
            self._draft = Draft.create(
                self._leased, location, overwrite=options.overwrite, attributes=attributes, noted=noted
            )
        if part is not None:
            self._draft.kept_notes[PART] = int(part)

    def _begin_append(self, append: Append) -> None:
        """Continue after the last full chunk of a finished store."""
        self._plan, self.n_samples, self._labelled = append.plan, append.old.n_samples, append.old.labelled
        self._n_chunks, self._n_labels = append.n_full, append.n_labels
        self._adopt_dtypes(append.old.arrays)
        if self._labelled == "hard labels":
            self._labels.add(append.last_labels())
        if rows := append.last_rows():
            self._rows.add(*rows)
        self._draft, self._append = append.begin(), append

    def _adopt_dtypes(self, arrays: Mapping[str, StoredArray]) -> None:
        """Store further rows with the dtypes, rounding and layout of the stored ones."""
        scores = arrays["scores"]
        self._stored = check_dtype(scores.attrs.get("dtype", scores.dtype))
        self.rounding = scores.attrs.get("rounding")
        self._soft_dtype = arrays["labels"].dtype if self._labelled == "soft labels" else None
        self._layout = self._plan.layout(self._stored.itemsize)

    def append(self, scores: object, labels: object = None) -> None:
        """Add a batch: a matrix (sample, class) of scores, and one label or row of probabilities per sample.

        A batch that raises an error leaves the store unchanged.

        Parameters
        ----------
        scores
            Matrix of samples x ``n_classes``: an array of NumPy, torch, JAX or another that NumPy can read.
        labels
            One integer per sample (negative: unlabelled; a masked or null one is stored as -1), or a matrix of
            probabilities like the scores. Either all batches have labels, of one kind, or none has.

        Raises
        ------
        ScoresError, LabelsError, DtypeError
            If the batch does not fit the store.
        StoreError
            If the store is complete already, or cannot be written.
        """
        if self._closed:
            raise StoreError(
                f"{self._location} is complete; nothing can be added to it by this writer. "
                "Open another with ScoreWriter(..., append=True)."
            )
        names = check_batch(scores, {"labels": labels}, self._class_names, "the writer")
        block = as_scores(scores)
        check_scores(block, self._plan.n_classes)
        label_rows = []
        if labels is not None:
            label_rows = [check_labels(as_labels(labels), len(block), self._plan.n_classes, self.n_samples)]
        kind = "no labels" if not label_rows else "hard labels" if label_rows[0].ndim == 1 else "soft labels"
        if self._labelled not in (None, kind):
            raise LabelsError(
                f"labels must be of one kind in all batches; got {kind} after {self._labelled}. "
                "Give the same kind with every batch."
            )
        if kind == "soft labels":
            label_rows = [self._as_soft(label_rows[0])]
        conversion = Conversion.to(block.dtype, self._stored)
        arrays = [conversion.apply(block, self.n_samples)]
        if self._plan.top_m is not None:
            arrays = [*truncate(arrays[0], self._plan.top_m, self.n_samples)]
        with self._writing():
            if self._class_names is None and names is not None and not self.n_samples and len(names) <= MOST_NAMES:
                self._draft.group.attrs["class_names"] = list(names)
            self._class_names = names
            self._stored, self._labelled = conversion.stored, kind
            self.rounding = self.rounding or conversion.rounding
            self._layout = self._layout or self._plan.layout(conversion.stored.itemsize)
            arrays += label_rows
            if self._hash is not None:
                self._hash.add(arrays)
            self._rows.add(*arrays)
            self.n_samples += block.shape[0]
            while len(self._rows) >= self._layout.rows:
                record = self._write_chunk(self._layout, self._layout.rows)
                if self._append is None:  # a killed append is repeated, not resumed
                    self._journal.write(record)
                self._n_chunks += 1

    def _as_soft(self, labels: Array) -> Array:
        """Return soft labels in the dtype of the first batch; refuse values that would be rounded."""
        if self._soft_dtype is None:
            self._soft_dtype = labels.dtype
        if not np.can_cast(labels.dtype, self._soft_dtype):
            raise LabelsError(
                f"soft labels must be {self._soft_dtype}, as in the first batch; got {labels.dtype}. Convert them."
            )
        return labels.astype(self._soft_dtype)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn failures into a WriteError, and write no more after one: rows would be missing."""
        self._leased.lease.refuse_child()
        if self._failed:
            how = "resume=True" if self._append is None else "append=True"
            raise StoreError(f"an earlier write to {self._location} failed. Continue with ScoreWriter(..., {how}).")
        try:
            with writing(self._location, *self._options.secret):
                yield
        except BaseException:
            self._failed = True
            self._leased.release()
            raise

    def _write_chunk(self, layout: Layout, n_rows: int) -> JournalRecord:
        """Write one stored chunk (or shard) of rows; return its record."""
        block, *others = self._rows.take(n_rows)
        first = self._n_chunks * layout.rows
        digests: Digests = {}
        if self._plan.top_m is not None:
            digests |= self._write("class_index", "slot", layout, first, others.pop(0))
        second = "class" if self._plan.top_m is None else "slot"
        digests |= self._write("scores", second, layout, first, block)
        labels = others.pop() if others else None
        if labels is not None and labels.ndim == 2:
            digests |= self._write("labels", "class", layout, first, labels)
            labels = None
        self._forms = self._forms or self._draft.forms()
        forms = {name: self._forms[name] for name in {key.split("/")[0] for key in digests}}
        record = JournalRecord(self._n_chunks, first, n_rows, digests, labels, forms, self._draft.owner)
        self._keep(record)
        return record

    def _write(self, name: str, second: str, layout: Layout, first: int, block: Array) -> Digests:
        """Write rows of one of the matrices; return the digests of their chunks."""
        group, columns = self._draft.group, block.shape[1]
        if name not in group:
            # All arrays have chunks of the same rows, so that these can be written together.
            layout = replace(layout, columns=columns, chunk_columns=columns)
            array = self._draft.add_matrix(name, (0, columns), block.dtype, layout, second)
            if name == "scores" and self.rounding:
                array.attrs["rounding"] = self.rounding
        return write_rows(group[name], first, block)

    def _keep(self, record: JournalRecord) -> None:
        """Keep the digests of written rows, and write their labels when a chunk of labels is full."""
        self._draft.digests |= record.digests
        if record.labels is not None:
            self._labels.add(record.labels)
            while len(self._labels) >= LABEL_ROWS:
                self._write_labels(LABEL_ROWS)

    def _write_labels(self, n_rows: int) -> None:
        """Write a chunk of hard labels."""
        (labels,) = self._labels.take(n_rows)
        if "labels" not in self._draft.group:
            self._draft.add_column("labels", 0, chunk_rows=n_rows)
        first, self._n_labels = self._n_labels, self._n_labels + n_rows
        self._draft.digests |= write_rows(self._draft.group["labels"], first, labels)

    def _resume(self) -> None:
        """Continue from the records of an interrupted writer."""
        draft = self._draft
        if draft.seal.complete:
            self.n_samples = draft.group["scores"].shape[0] if "scores" in draft.group else 0
            self._journal.clear()
            self._closed = True
            self._leased.release()
            return
        self._plan.check_same(draft.seal.noted.get("plan"), self._location)
        n_records = self._journal.check(draft.forms(), draft.owner)
        self._journal.drop(n_records)
        draft.clean()
        if "labels" in draft.group and draft.group["labels"].ndim == 1:
            del draft.group["labels"]  # the records hold all labels
        for record in islice(self._journal.read(draft.owner), n_records):
            self._labelled = record.labelled
            self.n_samples += record.n_rows
            self._n_chunks += 1
            self._keep(record)
        if self.n_samples:
            self._adopt_dtypes({name: draft.group[name] for name in draft.names})
        else:
            for name in draft.names:
                del draft.group[name]

    def close(self) -> None:
        """Write the remaining rows, the labels and the manifest, and mark the store complete.

        The end of a ``with`` block does this. After an exception in the block the store stays incomplete and can be resumed.

        Raises
        ------
        StoreError
            If no sample was appended, or the store cannot be written.
        """
        if self._closed:
            return
        if not self.n_samples and self._options.part is None:
            raise StoreError(f"{self._location} has no samples. Append some before closing it.")
        with self._writing():
            rows = "" if self._hash is None else self._hash.hexdigest()
            if self._append and self._append.adds_nothing(self.n_samples, rows):
                drop_staged(self._leased, self._location)
                self.n_samples = self._append.old.n_samples
            else:
                self._draft.appended = rows
                self._finish()
            may_have_record = self._options.append or self._options.resume
            if may_have_record and not self._leased.is_lent:
                remove_append_record(self._leased)
        self._closed = True
        self._leased.release()

    def _finish(self) -> None:
        if self._layout and len(self._rows):
            layout = self._layout
            if not self._n_chunks and self._options.part is None:  # shrink the only chunk to the rows
                layout = replace(layout, chunk_rows=-(-len(self._rows) // layout.shard_chunks))
                if layout.chunk_rows != self._layout.chunk_rows:
                    self._draft.kept_notes[CHUNK_ROWS] = self._layout.chunk_rows
            self._write_chunk(layout, len(self._rows))  # without a record: after a kill it is written again
        if len(self._labels):
            self._write_labels(len(self._labels))
        if self.rounding and self._draft.group["scores"].attrs.get("rounding") != self.rounding:
            self._draft.group["scores"].attrs["rounding"] = self.rounding
        more = {"n_classes": self._plan.n_classes} if self._plan.top_m else {}
        if self._append:
            self._append.carry_notes()
        self._draft.resize(self.n_samples)
        self._draft.finish(**more)
        if self._append:
            self._append.finish()
        else:
            self._journal.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.close()
            elif self._append and not self._closed and not self._failed:
                with suppress(StoreError), self._writing():  # the next append removes what remains
                    drop_staged(self._leased, self._location)
        finally:
            self._leased.release()
