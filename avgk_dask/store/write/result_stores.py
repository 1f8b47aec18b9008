"""Results: written as Zarr stores of their own."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..where.addresses import Path

if TYPE_CHECKING:
    import xarray as xr


def write_result(dataset: xr.Dataset, path: Path) -> None:
    """Write a result Dataset to a new Zarr store: every chunk, zeros too, and one look at the metadata opens it.

    Names are stored as texts of any length, which Zarr v3 specifies.
    """
    names = [name for name, variable in dataset.variables.items() if variable.dtype.kind == "U"]
    dataset = dataset.assign({name: dataset[name].astype(object) for name in names})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        dataset.to_zarr(path, mode="w", consolidated=True, write_empty_chunks=True)
