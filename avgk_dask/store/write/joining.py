"""Joining the parts that several processes wrote into one store; whole chunks are moved, not copied."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore

from ...axis_names import AxisNames, check_names, names_from_list
from ...errors import StoreError
from ..read.checked import CheckedStore, Checks
from ..read.grids import LABEL_ROWS
from ..read.listing import list_keys_or_raise
from ..read.manifest import ATTRIBUTE, Document, chunk_grid
from ..read.nodes import CheckedGroup, open_sealed, seal_of
from ..where.addresses import (
    Options,
    StoredArray,
    Writable,
    bare_store,
    copy,
    get,
    metadata_bytes,
    secrets_of,
    wait,
    write_key,
    writing,
)
from .drafts import ChunkWriter, Draft
from .targets import PARTS, claim, has_root, part_numbers, part_path, refuse_held_parts, writable


@dataclass(frozen=True)
class Part:
    """One part: its arrays, whose chunks are checked when read, and its attributes."""

    number: int
    arrays: Mapping[str, StoredArray]
    attributes: Document

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.arrays["scores"].shape[0]) if self.arrays else 0

    @property
    def class_names(self) -> AxisNames | None:
        """Names of the classes, or None if its writer had none."""
        names = self.attributes.get("class_names")
        return names_from_list(names, f"part {self.number}") if isinstance(names, list) else None

    @property
    def chunk_rows(self) -> int:
        """Rows of a stored chunk (or shard)."""
        scores = self.arrays["scores"]
        return int((scores.shards or scores.chunks)[0])

    @property
    def n_whole(self) -> int:
        """Number of full chunks along the rows."""
        return self.n_samples // self.chunk_rows if self.arrays else 0

    def form(self) -> dict[str, object]:
        """Return the properties that all parts must share."""
        matrices = {
            name: (a.shape[1:], a.dtype, a.attrs.get("dtype"), a.shards or a.chunks, str(a.metadata.codecs))
            for name, a in self.arrays.items()
            if a.ndim == 2
        }
        return {**matrices, "labels": "labels" in self.arrays, "n_classes": self.attributes.get("n_classes")}


def join_parts(path: Writable, n_parts: int | None = None, *, storage_options: Options | None = None) -> None:
    """Join the parts that ``ScoreWriter(path, part=0)``, ``part=1``, … wrote into one store.

    The samples are in the order of the parts, except that the samples of incomplete last chunks come at
    the end, again in the order of the parts. The attribute ``part_samples`` is the number of
    samples of each part, and ``part_run`` the number of rows of a chunk. One process joins the parts after all are
    written; an interrupted join can be repeated.

    Parameters
    ----------
    path
        Path or URL of the store.
    n_parts
        Number of parts that must exist; by default any.
    storage_options
        How to reach the store, as for ``open_scores``.

    Raises
    ------
    StoreError
        If a part is missing, incomplete, being written, or does not fit the others; or if another process joins them.

    Notes
    -----
    Cost: whole chunks are moved. Only the incomplete last chunk of each part and the hard labels are read and written
    again.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/scores.zarr"
    >>> for rank in range(2):  # in two processes, or on two machines
    ...     with avgk.ScoreWriter(path, n_classes=3, part=rank) as writer:
    ...         writer.append(np.eye(3), [0, 1, 2])
    >>> avgk.join_parts(path, 2)
    >>> avgk.open_scores(path).sizes["sample"]
    6
    """
    store, location = writable(path, storage_options)
    with writing(location, path, storage_options):
        leased = claim(store, location, lambda: _check_root(store, location))
        try:
            root = Draft.reopen(leased, location)
            if not root.seal.complete:
                if not root.seal.noted.get("parts"):
                    raise StoreError(f"{location} was not written in parts; there is nothing to join. Check the path.")
                _join_parts(root, list(_open_parts(path, leased, n_parts, storage_options, location)))
            wait(leased.delete_dir(PARTS))  # even if an earlier join was killed just before this
        finally:
            leased.release()


def _check_root(store: Store, location: str) -> None:
    """Refuse a path without a store, and a store with a part that is being written."""
    if not has_root(store):
        raise StoreError(f"{location} is not a Zarr store; there is nothing to join. Check the path.")
    refuse_held_parts(store, location)


def _join_parts(root: Draft, parts: list[Part]) -> None:
    filled = [part for part in parts if part.n_samples]
    _check_forms(filled, root.location)
    root.clean()
    for part in filled:
        _check_chunks(root, part)
    _join(root, filled)
    _check_joined(root)
    first = filled[0]
    names = [{"class_names": part.attributes["class_names"]} for part in filled if part.class_names is not None][:1]
    keep = {name: value for known in (*names, first.attributes) for name, value in known.items() if name != ATTRIBUTE}
    root.finish(**keep, part_samples=[part.n_samples for part in parts], part_run=first.chunk_rows)


def _open_parts(
    path: Writable, store: Store, n_parts: int | None, options: Options | None, location: str
) -> Iterator[Part]:
    names = part_numbers(store)
    expected = [f"{i:05}" for i in range(len(names) if n_parts is None else n_parts)]
    if names != expected or not names:
        raise StoreError(
            f"the parts of {location} must be 0..{max(len(expected), 1) - 1}; got {', '.join(names) or 'none'}. "
            "Write the missing ones, or correct the number of parts."
        )
    for number in range(len(expected)):
        part_store, part_location = writable(part_path(path, number), options)
        draft = Draft.reopen(part_store, part_location)
        if not draft.seal.complete:
            raise StoreError(
                f"part {number} of {location} is incomplete: its writer did not finish. Wait or resume it."
            )
        draft.check_part(number)
        checked = CheckedStore(part_store, Checks(part_location, secrets=secrets_of(part_store, path, options)))
        seal_of(checked, "")  # checks the number of classes against its digest
        arrays = {name: open_sealed(checked, "", name, draft.seal) for name in draft.seal.manifest}
        yield Part(number, arrays, CheckedGroup(draft.group, checked).attributes(""))


def _check_forms(parts: list[Part], location: str) -> None:
    if not parts:
        raise StoreError(f"the parts of {location} have no samples; there is nothing to join. Append some to a part.")
    for part in parts:
        if part.form() != parts[0].form():
            raise StoreError(
                f"part {part.number} of {location} differs from part {parts[0].number}: all must have the same "
                f"classes, dtype, chunks, codec and kind of labels. Write part {part.number} again."
            )
    with_names = [part for part in parts if part.class_names is not None]
    for part in with_names[1:]:
        check_names(with_names[0].class_names, part.class_names, "class", StoreError)


def _check_chunks(root: Draft, part: Part) -> None:
    """Refuse a part with a chunk that is neither in its place nor moved already, before anything is moved."""
    source, store = f"{PARTS}/{part.number:05}/", root.group.store
    for name, array in part.arrays.items():
        lengths = list_keys_or_raise(store, f"{source}{name}")
        moved = set(list_keys_or_raise(store, name).values())
        for index in np.ndindex(*chunk_grid(array)):
            key = f"{source}{name}/c/{'/'.join(map(str, index))}"
            length = int(array.store_path.store.checks.manifest.table[index][0])
            if lengths.get(key, 0) not in (length, None) and (key in lengths or not moved & {length, None}):
                raise StoreError(
                    f"chunk {key} of {root.location} is missing or damaged. Write part {part.number} again."
                )


def _check_joined(root: Draft) -> None:
    """Refuse to finish, which removes the parts, if a chunk is not in its new place."""
    lengths = list_keys_or_raise(root.group.store, "")
    for key, (length, _) in root.digests.items():
        if lengths.get(key, 0) not in (length, None):
            raise StoreError(f"chunk {key} of {root.location} was not moved into its place. Join the parts again.")


def _join(root: Draft, parts: list[Part]) -> None:
    first, n_samples = parts[0], sum(part.n_samples for part in parts)
    matrices = [name for name, array in first.arrays.items() if array.ndim == 2]
    for name in matrices:
        array = first.arrays[name]
        write_key(root.group.store, f"{name}/zarr.json", metadata_bytes(array))
        root.group[name].resize((n_samples, *array.shape[1:]))
        target, row = root.group[name], 0
        for part in parts:
            row += _move_chunks(root, part, name, row)
        writer = ChunkWriter(root, target, row, first.chunk_rows)
        for part in parts:
            writer.append(np.asarray(part.arrays[name][part.n_whole * part.chunk_rows :]))
        writer.finish()
    if "labels" in first.arrays and "labels" not in matrices:
        target = root.group["labels"] if "labels" in root.group else root.add_column("labels", n_samples)
        writer = ChunkWriter(root, target, 0, LABEL_ROWS)
        bounds = [part.n_whole * part.chunk_rows for part in parts]
        for part, bound in zip(parts, bounds, strict=True):
            writer.append(np.asarray(part.arrays["labels"][:bound]))
        for part, bound in zip(parts, bounds, strict=True):
            writer.append(np.asarray(part.arrays["labels"][bound:]))
        writer.finish()


def _move_chunks(root: Draft, part: Part, name: str, row: int) -> int:
    """Move the full chunks of an array of a part to their places from a row on; return the number of rows moved."""
    table = part.arrays[name].store_path.store.checks.manifest.table
    source = f"{PARTS}/{part.number:05}/"
    remaining = list_keys_or_raise(root.group.store, f"{source}{name}")
    for index in range(part.n_whole):
        root.check()
        for column in range(table.shape[1]):
            old, new = f"{name}/c/{index}/{column}", f"{name}/c/{row // part.chunk_rows + index}/{column}"
            if source + old in remaining:
                _move(bare_store(root.group.store), source + old, new)
            length, value = table[index, column].tolist()
            root.digests[new] = length, value
    return part.n_whole * part.chunk_rows


def _move(store: Store, old: str, new: str) -> None:
    if isinstance(store, LocalStore):
        target = store.root / new
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(store.root / old, target)
    elif isinstance(store, ObjectStore):
        import obstore

        obstore.rename(store.store, old, new)
    else:
        wait(_move_through(store, old, new))


async def _move_through(store: Store, old: str, new: str) -> None:
    if isinstance(store, FsspecStore):
        await copy(store, old, new)
    else:
        value = await get(store, old)
        if value is None:
            raise FileNotFoundError(old)
        await store.set(new, value)
    await store.delete(old)
