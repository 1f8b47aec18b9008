"""Results: written as Zarr stores of their own."""

from __future__ import annotations

from typing import Any


def write_result(dataset: Any, path: Any) -> None:
    """Write a result Dataset to a new Zarr store."""
    dataset.to_zarr(path, mode="w", consolidated=False)
