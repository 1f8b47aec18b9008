"""Zarr and fsspec: opening score stores, planning bands, writing. Nothing else imports zarr."""

from .bands import BandReader, plan_bands
from .opening import StoredArrays, is_zarr, open_arrays
from .writing import create_scores, write_result

__all__ = ["BandReader", "StoredArrays", "create_scores", "is_zarr", "open_arrays", "plan_bands", "write_result"]
