"""Zarr, obstore and fsspec: opening score stores, planning bands, writing. Nothing else imports zarr."""

from .read.bands import BandReader, plan_bands
from .read.grids import Layout
from .read.opening import StoredArrays, is_sealed, is_zarr, open_arrays, open_labels
from .read.verification import Verification, check_chunks, verify_listing, verify_stretch
from .where.addresses import redact, writing
from .write.appending import appendable
from .write.drafts import Draft, write_result, write_rows
from .write.joining import join_parts
from .write.journal import remove_append_record
from .write.stored_sets import SET_FORMATS, SetBand, SetGrid, SetsWriter, pack_block
from .write.targets import (
    StagingDir,
    atomic_write,
    claim,
    has_root,
    holds_anything,
    is_store,
    open_target,
    recover,
    writable,
)
from .write.writer import ScoreWriter

__all__ = [
    "SET_FORMATS",
    "BandReader",
    "Draft",
    "Layout",
    "ScoreWriter",
    "SetBand",
    "SetGrid",
    "SetsWriter",
    "StagingDir",
    "StoredArrays",
    "Verification",
    "appendable",
    "atomic_write",
    "check_chunks",
    "claim",
    "has_root",
    "holds_anything",
    "is_sealed",
    "is_store",
    "is_zarr",
    "join_parts",
    "open_arrays",
    "open_labels",
    "open_target",
    "pack_block",
    "plan_bands",
    "recover",
    "redact",
    "remove_append_record",
    "verify_listing",
    "verify_stretch",
    "writable",
    "write_result",
    "write_rows",
    "writing",
]  # fmt: skip
