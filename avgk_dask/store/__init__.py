"""Zarr and fsspec: opening score stores, planning bands, writing. Nothing else imports zarr."""

from .bands import BandReader, plan_bands
from .opening import StoredArrays, is_zarr, open_arrays, open_labels
from .writing import create_scores, is_store, write_result

__all__ = [
    "BandReader",
    "StoredArrays",
    "create_scores",
    "is_store",
    "is_zarr",
    "open_arrays",
    "open_labels",
    "plan_bands",
    "write_result",
]
