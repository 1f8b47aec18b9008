"""Zarr, obstore and fsspec: opening score stores, planning bands, writing. Nothing else imports zarr."""

from .asides import Aside, recover, written_whole
from .bands import BandReader, plan_bands
from .drafts import Draft, holds_anything, is_store, writable, write_rows
from .failures import writing
from .joining import join_parts
from .layout import CODECS, Layout
from .listing import check_chunks
from .opening import StoredArrays, is_sealed, is_zarr, open_arrays, open_labels
from .results import write_result
from .sets import SET_FORMATS, SetBand, SetGrid, SetsWriter, pack_block
from .showing import shown
from .targets import Target, claim
from .verifying import Verification, verify_listing, verify_run
from .writer import ScoreWriter

__all__ = [
    "CODECS",
    "SET_FORMATS",
    "Aside",
    "BandReader",
    "Draft",
    "Layout",
    "ScoreWriter",
    "SetBand",
    "SetGrid",
    "SetsWriter",
    "StoredArrays",
    "Target",
    "Verification",
    "check_chunks",
    "claim",
    "holds_anything",
    "is_sealed",
    "is_store",
    "is_zarr",
    "join_parts",
    "open_arrays",
    "open_labels",
    "pack_block",
    "plan_bands",
    "recover",
    "shown",
    "verify_listing",
    "verify_run",
    "writable",
    "write_result",
    "write_rows",
    "writing",
    "written_whole",
]
