"""Zarr, obstore and fsspec: opening score stores, planning bands, writing. Nothing else imports zarr."""

from .read.bands import BandReader, plan_bands
from .read.grids import Layout
from .read.opening import StoredArrays, is_sealed, is_zarr, open_arrays, open_labels
from .read.presence import Verification, check_chunks, verify_listing, verify_stretch
from .where.addresses import shown, writing
from .write.appending import appendable
from .write.drafts import Draft, write_result, write_rows
from .write.joining import join_parts
from .write.journal import remove_append_record
from .write.stored_sets import SET_FORMATS, SetBand, SetGrid, SetsWriter, pack_block
from .write.targets import (
    StagingDir,
    claim,
    holds_anything,
    is_begun,
    is_store,
    new_target,
    recover,
    writable,
    written_whole,
)
from .write.writer import ScoreWriter

__all__ = [
    "SET_FORMATS", "BandReader", "Draft", "Layout", "ScoreWriter", "SetBand", "SetGrid", "SetsWriter",
    "StagingDir", "StoredArrays", "Verification", "appendable", "check_chunks", "claim", "holds_anything",
    "is_begun", "is_sealed", "is_store", "is_zarr", "join_parts", "new_target", "open_arrays", "open_labels",
    "pack_block", "plan_bands", "recover", "remove_append_record", "shown", "verify_listing", "verify_stretch",
    "writable", "write_result", "write_rows", "writing", "written_whole",
]  # fmt: skip
