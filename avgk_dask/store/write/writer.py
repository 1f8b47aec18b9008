"""The writer: batches from a model's loop become a well laid-out store, complete or saying that it is not."""

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
from ..where.addresses import Options, StoredArray, Writable, shown, writing
from ..where.locations import MOST_NAMES
from .appending import CHUNK_ROWS, Append, Finished, check_appendable, settle
from .batches import Conversion, RowBuffer, as_labels, as_scores, check_labels, check_scores, truncate
from .drafts import PART, Draft, Plan, write_rows
from .journal import Journal, JournalRecord, RowsHash, remove_append_record
from .lease_places import place_of
from .leases import LeasedStore, refuse_held
from .targets import check_target, claim, create_parts, is_begun, part_path, writable


@dataclass(frozen=True)
class _Options:
    """Where a writer writes, what the store is to be, as given, and how to treat what is there."""

    path: Writable
    storage_options: Options | None
    asked: Mapping[str, Any]
    resume: bool
    append: bool
    overwrite: bool
    part: int | None

    def __post_init__(self) -> None:
        others = {"resume": self.resume, "overwrite": self.overwrite, "part": self.part is not None}
        if self.append and any(others.values()):
            named = " or ".join(name for name, value in others.items() if value)
            raise OptionError(f"append must not be combined with {named}; got both. Leave one out.")

    @property
    def given(self) -> tuple[object, object]:
        """What errors must not show: the path and the options, which may hold credentials."""
        return self.path, self.storage_options

    def locate(self) -> tuple[Store, Store, str]:
        """Return the root, the store to write, which is a part of it or itself, and its name."""
        root, location = writable(self.path, self.storage_options)
        if self.part is None:
            return root, root, location
        return root, *writable(part_path(self.path, self.part), self.storage_options)

    def check(self, root: Store, store: Store, location: str) -> None:
        """Refuse to write where another writes, or where something is that the options do not fit."""
        if self.part is not None:
            refuse_held(place_of(root), shown(self.path))
        if not ((self.resume or self.append) and is_begun(store)):
            check_target(store, location, self.overwrite)
        elif self.append:
            check_appendable(store, location)


class ScoreWriter:
    """Appends batches of scores and labels to a store, from a model's evaluation loop.

    Chunks are whole rows of about 10 MB, compressed with blosc lz4 and bit shuffle, four to a shard
    on object stores; each has a checksum, and the store a manifest of all. The number of samples need
    not be known. Until ``close`` (or the end of the ``with`` block) the store says that it is
    incomplete, and no function of this package evaluates it. Meanwhile no other writer is let at it, on this machine
    or another: one that is not closed holds it until it fails, is deleted, or its process ends.

    Parameters
    ----------
    path
        Path, URL or Zarr store to write to; it must be new, unless it is resumed or appended to.
    n_classes
        Number of classes. With ``append`` it may be left out where there is a store.
    dtype
        Type of the stored scores; by default that of the first batch. Narrower floats are rounded to
        nearest, which the scores' attribute ``rounding`` says; what would overflow is refused.
    chunk_rows
        Rows of a chunk.
    top_m
        Keep only each row's ``top_m`` largest scores, with their classes (a truncated store).
    resume
        Go on with a store whose writer was interrupted: the next batch must start at sample
        ``n_samples``. Where nothing is there yet, a new store begins.
    append
        Add rows to a finished store, after those that are there. Its layout is that of the store: options may be left out,
        and must not say otherwise. Labels are given if and only if the store has some. Where nothing is there yet, a
        new store begins, for which ``n_classes`` must be given. Refused are stores that are incomplete (resume them),
        were joined from parts, or were not written by this package.
    overwrite
        Replace a Zarr store that is there (unless it is resumed).
    codec
        ``"blosc"`` (the default), ``"zstd"``, ``"gzip"`` or ``"none"``.
    shard_chunks
        Chunks to a shard; 1 for none.
    part
        Number of this process, from 0, where several write parts of one store; ``join_parts`` makes
        one of them.
    storage_options
        How to reach the store, as for ``open_scores``.
    attributes
        Attributes of the store, such as the model's name; with ``append`` they are added to those it
        has, and must not contradict them. ``class_names``, a list in the order of the classes, names them; by default
        those of the columns of the first batch. Batches with other column names are refused.

    Attributes
    ----------
    n_samples
        Samples of the store so far; after ``resume`` those that are safely written, after ``append`` those it had.
    rounding
        What storing does to the scores, such as "float32 rounded to float16, …"; None for nothing.

    Raises
    ------
    StoreError
        Where there is something already, or it cannot be written; where another is writing it: the text says who.
    OptionError, DtypeError
        Where an option is none of the values it may take, or other than the store was begun with.

    Notes
    -----
    Cost: each chunk is written once, followed by a small record from which an interrupted writer goes on. Memory for one
    chunk (or shard) of rows and a batch.

    A writer that was killed is resumed at once on the same machine, and from another 15 minutes after its last sign of
    life; a ``LeftoverWarning`` says so. It stops itself with a ``WriteError`` should it come back after that.

    A store that is appended to can be read as it was until ``close``. That puts the new rows in their place: for as long as
    it takes to write the metadata and the chunk that was not full, the store says that it is incomplete; then it is, to the
    last byte, what one writer of all rows would have written (with gzip but for the times in its chunks). Full chunks
    stay unchanged; the last one is read and written again unless it is full. A writer that is killed leaves the store as it
    was, its rows to be appended again; one killed while ``close`` puts them in their place, an incomplete store that the next
    writer with ``append`` or ``resume`` finishes first. That writer may append the same rows again, in any batches: it
    knows them by a hash, and does not add them twice (``n_samples`` after ``close`` is the number that there is). Other
    rows are added after them. A ``LeftoverWarning`` says what was done. Readers that opened the store before must open it
    again.

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
        asked: dict[str, Any] = {
            "n_classes": int(n_classes) if isinstance(n_classes, np.integer) else n_classes,
            "dtype": None if dtype is None else str(check_dtype(dtype)),
            "chunk_rows": chunk_rows, "top_m": top_m, "codec": codec, "shard_chunks": shard_chunks,
        }  # fmt: skip
        self._options = options = _Options(path, storage_options, asked, resume, append, overwrite, part)
        root, store, self._location = options.locate()
        if not (append and is_begun(store)):
            self._plan = Plan.new(asked, self._location)
        names: Any = (attributes or {}).get("class_names")
        if names is not None:
            names = name_list(names, asked["n_classes"] or len(names), "class_names")
            attributes = {**(attributes or {}), "class_names": names}
        self.n_samples = 0
        self.rounding: str | None = None
        # The form of the rows: from the first batch on, or that of the store.
        self._layout: Layout | None = None
        self._stored: DTypeLike | None = dtype
        self._labelled: str | None = None
        self._soft_dtype: Dtype | None = None
        self._forms: dict[str, str] = {}
        # Rows that wait to be written, and the number of stretches of rows and hard labels that are.
        self._rows, self._labels = RowBuffer(), RowBuffer()
        self._n_stretches = self._n_labels = 0
        self._closed = self._failed = False
        self._leased: LeasedStore | None = None
        self._append: Append | None = None
        #: Of the rows that are appended, in case this run is killed at its end, and run again.
        self._hash = RowsHash() if append else None
        with self._writing():
            self._open(root, store, attributes)
        stored = self._draft.group.attrs.get("class_names")
        self._class_names: tuple[str, ...] | None = tuple(stored) if isinstance(stored, list) else None

    def _open(self, root: Store, store: Store, attributes: Mapping[str, object] | None) -> None:
        """Begin the store, or go on with it, under a lease."""
        options, location, part = self._options, self._location, self._options.part
        if part is not None:
            create_parts(root, shown(options.path))
        self._leased = claim(store, location, partial(options.check, root, store, location))
        self._journal = Journal(self._leased, location)
        goes_on = (options.resume or options.append) and is_begun(store)
        finished = settle(self._leased, location) if goes_on else None
        if goes_on and options.append:
            if finished is not None:
                self._journal.clear()  # of the run that was killed
            old = Finished.open(store, location, *options.given)
            self._begin_append(Append(self._leased, old, options.asked, attributes, finished))
        elif goes_on:
            self._draft = Draft.reopen(self._leased, location)
            if part is not None:
                self._draft.check_part(part)
            self._resume()
        else:
            self._plan = Plan.new(options.asked, location)
            noted = {"plan": asdict(self._plan)} | ({} if part is None else {PART: int(part)})
            self._draft = Draft.create(
                self._leased, location, overwrite=options.overwrite, attributes=attributes, noted=noted
            )
        if part is not None:
            self._draft.kept_notes[PART] = int(part)

    def _begin_append(self, append: Append) -> None:
        """Go on after the last full chunk of a finished store."""
        self._plan, self.n_samples, self._labelled = append.plan, append.old.n_samples, append.old.labelled
        self._n_stretches, self._n_labels = append.n_stretches, append.n_labels
        self._take_form(append.old.arrays)
        if self._labelled == "hard labels":
            self._labels.add(append.last_labels())
        if rows := append.last_rows():
            self._rows.add(*rows)
        self._draft, self._append = append.begin(), append

    def _take_form(self, arrays: Mapping[str, StoredArray]) -> None:
        """Go on with rows of the form of those that are stored."""
        scores = arrays["scores"]
        self._stored = check_dtype(scores.attrs.get("dtype", scores.dtype))
        self.rounding = scores.attrs.get("rounding")
        self._soft_dtype = arrays["labels"].dtype if self._labelled == "soft labels" else None
        self._layout = self._plan.layout(self._stored.itemsize)

    def append(self, scores: object, labels: object = None) -> None:
        """Add a batch: samples x classes scores, and one label (or a row of probabilities) for each sample.

        A batch that is refused leaves the store as it was.

        Parameters
        ----------
        scores
            Matrix of samples x ``n_classes``: an array of NumPy, torch, JAX or another that NumPy can read.
        labels
            One integer for each sample (negative: unlabelled; a masked or null one is stored as -1), or a matrix of
            probabilities like the scores; either all batches have labels, of one kind, or none has.

        Raises
        ------
        ScoresError, LabelsError, DtypeError
            Where the batch does not fit the store.
        StoreError
            Where the store is complete already, or cannot be written.
        """
        if self._closed:
            raise StoreError(
                f"{self._location} is complete; nothing can be added to it by this writer. "
                "Open another with ScoreWriter(..., append=True)."
            )
        names = check_batch(scores, {"labels": labels}, self._class_names, "the writer")
        block = as_scores(scores)
        check_scores(block, self._plan.n_classes)
        mine = None
        if labels is not None:
            mine = check_labels(as_labels(labels), len(block), self._plan.n_classes, self.n_samples)
        kind = "no labels" if mine is None else "hard labels" if mine.ndim == 1 else "soft labels"
        if self._labelled not in (None, kind):
            raise LabelsError(
                f"labels must be of one kind in all batches; got {kind} after {self._labelled}. "
                "Give the same kind with every batch."
            )
        if mine is not None and mine.ndim == 2:
            mine = self._as_soft(mine)
        conversion = Conversion.to(block.dtype, self._stored)
        arrays = [conversion.apply(block, self.n_samples)]
        if self._plan.top_m is not None:
            arrays = [*truncate(arrays[0], self._plan.top_m, self.n_samples)]
        with self._writing():
            self._name_classes(names)
            self._stored, self._labelled = conversion.stored, kind
            self.rounding = self.rounding or conversion.rounding
            self._layout = self._layout or self._plan.layout(conversion.stored.itemsize)
            arrays += [] if mine is None else [mine]
            if self._hash is not None:
                self._hash.add(arrays)
            self._rows.add(*arrays)
            self.n_samples += block.shape[0]
            while len(self._rows) >= self._layout.rows:
                record = self._write_stretch(self._layout, self._layout.rows)
                if self._append is None:  # an append that is killed is not resumed: the store is as it was
                    self._journal.write(record)
                self._n_stretches += 1

    def _name_classes(self, names: tuple[str, ...] | None) -> None:
        """Store the class names of the first batch in a new store; later batches must have the same."""
        if self._class_names is None and names is not None and not self.n_samples and len(names) <= MOST_NAMES:
            self._draft.group.attrs["class_names"] = list(names)
        self._class_names = names

    def _as_soft(self, labels: Array) -> Array:
        """Return soft labels in the dtype of the first batch; refuse what would be rounded."""
        if self._soft_dtype is None:
            self._soft_dtype = labels.dtype
        if not np.can_cast(labels.dtype, self._soft_dtype):
            raise LabelsError(
                f"soft labels must be {self._soft_dtype}, as in the first batch; got {labels.dtype}. Convert them."
            )
        return labels.astype(self._soft_dtype)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Name what fails, and write no more after it: rows that were under way would be missing."""
        if self._leased is not None:
            self._leased.lease.refuse_child()
        if self._failed:
            how = "resume=True" if self._append is None else "append=True"
            raise StoreError(f"{self._location} could not be written before. Go on with ScoreWriter(..., {how}).")
        try:
            with writing(self._location, *self._options.given):
                yield
        except BaseException:
            self._failed = True
            self._release()
            raise

    def _release(self) -> None:
        """Let another writer continue the store."""
        if self._leased is not None:
            self._leased.release()

    def _write_stretch(self, layout: Layout, n_rows: int) -> JournalRecord:
        """Write one stored chunk (or shard) of rows; return its record."""
        block, *more = self._rows.take(n_rows)
        first = self._n_stretches * layout.rows
        digests: Digests = {}
        if self._plan.top_m is not None:
            digests |= self._write("class_index", "slot", layout, first, more.pop(0))
        second = "class" if self._plan.top_m is None else "slot"
        digests |= self._write("scores", second, layout, first, block)
        labels = more.pop() if more else None
        if labels is not None and labels.ndim == 2:
            digests |= self._write("labels", "class", layout, first, labels)
            labels = None
        self._forms = self._forms or self._draft.forms()
        forms = {name: self._forms[name] for name in {key.split("/")[0] for key in digests}}
        record = JournalRecord(self._n_stretches, first, n_rows, digests, labels, forms, self._draft.owner)
        self._take_in(record)
        return record

    def _write(self, name: str, second: str, layout: Layout, first: int, block: Array) -> Digests:
        """Write rows of one of the matrices; return the digests of their chunks."""
        group, columns = self._draft.group, block.shape[1]
        if name not in group:
            # All arrays have the same rows to a chunk, or a stretch of rows could not be written at once.
            mine = replace(layout, columns=columns, chunk_columns=columns)
            array = self._draft.add_matrix(name, (0, columns), block.dtype, mine, second)
            if name == "scores" and self.rounding:
                array.attrs["rounding"] = self.rounding
        return write_rows(group[name], first, block)

    def _take_in(self, record: JournalRecord) -> None:
        """Take in the digests and labels of a stretch of rows that is written."""
        self._draft.digests |= record.digests
        if record.labels is not None:
            self._labels.add(record.labels)
            while len(self._labels) >= LABEL_ROWS:
                self._write_labels(LABEL_ROWS)

    def _write_labels(self, n_rows: int) -> None:
        """Write a chunk of hard labels, or the last of them."""
        (labels,) = self._labels.take(n_rows)
        if "labels" not in self._draft.group:
            self._draft.add_column("labels", 0, chunk_rows=n_rows)
        first, self._n_labels = self._n_labels, self._n_labels + n_rows
        self._draft.digests |= write_rows(self._draft.group["labels"], first, labels)

    def _resume(self) -> None:
        """Take in what an interrupted writer has safely written."""
        draft = self._draft
        if draft.seal.complete:
            self.n_samples = draft.group["scores"].shape[0] if "scores" in draft.group else 0
            self._journal.clear()
            self._closed = True
            self._release()
            return
        self._plan.check_begun(draft.seal.noted.get("plan"), self._location)
        n_records = self._journal.check(draft.forms(), draft.owner)
        self._journal.drop(n_records)
        draft.clean()
        if "labels" in draft.group and draft.group["labels"].ndim == 1:
            del draft.group["labels"]  # the records hold all labels
        for record in islice(self._journal.read(draft.owner), n_records):
            self._labelled = record.labelled
            self.n_samples += record.n_rows
            self._n_stretches += 1
            self._take_in(record)
        if self.n_samples:
            self._take_form({name: draft.group[name] for name in draft.names})
        else:
            draft.clear()

    def close(self) -> None:
        """Write what is left, the labels and the manifest, and say that the store is complete.

        The end of a ``with`` block does it, unless by an exception: the store then stays incomplete, to be resumed.

        Raises
        ------
        StoreError
            Where no sample was appended, or the store cannot be written.
        """
        if self._closed:
            return
        if not self.n_samples and self._options.part is None:
            raise StoreError(f"{self._location} has no samples. Append some before closing it.")
        with self._writing():
            rows = "" if self._hash is None else self._hash.hexdigest()
            if self._append and self._append.adds_nothing(self.n_samples, rows):
                self._append.undo()
                self.n_samples = self._append.old.n_samples
            else:
                self._draft.appended = rows
                self._finish()
            may_be_again = self._options.append or self._options.resume
            if may_be_again and self._leased is not None and not self._leased.is_lent:
                remove_append_record(self._leased)
        self._closed = True
        self._release()

    def _finish(self) -> None:
        if self._layout and len(self._rows):
            layout = self._layout
            if not self._n_stretches and self._options.part is None:  # all fits in one chunk: it need not be larger
                layout = replace(layout, chunk_rows=-(-len(self._rows) // layout.shard_chunks))
                if layout.chunk_rows != self._layout.chunk_rows:
                    self._draft.kept_notes[CHUNK_ROWS] = self._layout.chunk_rows
            self._write_stretch(layout, len(self._rows))  # without a record: after a kill it is written again
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
                with suppress(StoreError), self._writing():  # what stays is removed by the next append
                    self._append.undo()
        finally:
            self._release()
