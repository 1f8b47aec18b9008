"""Verifying: every stored byte of a store against its manifest, or by decoding it where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import AvgkError
from ...results.showing import ShownAsTable
from ..where.array_kinds import StoredArray
from ..where.zarr_calls import get, wait
from .bands import read_stored
from .grids import grid_of
from .listing import chunk_key
from .nodes import copied_document, same_array
from .presence import missing_chunks
from .seals import metadata_digest
from .shards import chunk_slices

#: Kinds of dtypes whose chunks are decoded: of texts and objects, which nothing here uses, a chunk claims any size.
_NUMBERS = "biufcV"


@dataclass(frozen=True)
class Verification(ShownAsTable):
    """What a verification found.

    Attributes
    ----------
    n_chunks, n_bytes
        How many chunks were read, and their bytes.
    damaged
        The key of each bad chunk and what is wrong with it.
    has_manifest
        Whether a manifest told what every chunk and the metadata must be; without one, changed values can go unnoticed.
    """

    n_chunks: int
    n_bytes: int
    damaged: tuple[tuple[str, str], ...]
    has_manifest: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged

    @classmethod
    def merge(cls, found: Sequence[Verification]) -> Verification:
        """Return the verification of several arrays, or parts of one, together."""
        return cls(
            sum(v.n_chunks for v in found),
            sum(v.n_bytes for v in found),
            tuple(bad for v in found for bad in v.damaged),
            bool(found) and all(v.has_manifest for v in found),
        )


def verify_stretch(array: StoredArray, indices: Sequence[tuple[int, ...]]) -> Verification:
    """Check the stored chunks at some indices of an array's chunk grid; reads each once."""
    store = array.store_path.store
    damaged, n_bytes, grid = [], 0, grid_of(array)
    for index in indices:
        key = chunk_key(array, index)
        try:
            if store.checks.digest(key) is not None or array.dtype.kind not in _NUMBERS:
                found = wait(get(store, key))
                n_bytes += 0 if found is None else len(found)
            else:
                n_bytes += read_stored(array, chunk_slices(grid, index)).nbytes
        except AvgkError as error:
            damaged.append((key, str(error)))
    return Verification(len(indices), n_bytes, tuple(damaged), store.checks.sealed is not None)


def verify_metadata(array: StoredArray) -> Verification:
    """Check an array's own metadata against the store's seal, and the copy beside those of its group against them."""
    store = array.store_path.store
    if store.checks.sealed is None:
        return Verification(0, 0, (), False)
    place, _, name = array.path.rpartition("/")
    damaged, key = [], f"{array.path}/zarr.json"
    try:
        own, copy = store.document(key), copied_document(store, place, name)
        if own is None or metadata_digest(own) != store.checks.sealed:
            damaged.append((key, "it is missing" if own is None else "it is not as it was written"))
        elif copy is not None and not same_array(store, array.path, copy, own):
            damaged.append(
                (f"{place}/zarr.json".lstrip("/"), f"its copy of the metadata of {name} is not as it was written")
            )
    except AvgkError as error:
        damaged.append((key, str(error)))
    return Verification(0, 0, tuple(damaged), True)


def verify_listing(array: StoredArray) -> Verification:
    """Check which chunks of an array are there, and their lengths where these are known; reads none."""
    found = missing_chunks(array)
    if found is None:
        return Verification(0, 0, (), True)
    missing, damaged = found
    return Verification(0, 0, tuple([(key, "it is missing") for key in missing] + damaged), True)
