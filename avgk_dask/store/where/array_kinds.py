"""What a stored array must offer: that of zarr, or anything that reads like it."""

from __future__ import annotations

from typing import Any, Protocol

from ...arrays import Dtype


class StoredArray(Protocol):
    """An array of a Zarr store, of either format, read through a checked store."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def ndim(self) -> int:
        """Number of its axes."""

    @property
    def dtype(self) -> Dtype:
        """The dtype that is stored."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """Sizes of its chunks, where they are alike."""

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Sizes of its shards, if it has any."""

    @property
    def path(self) -> str:
        """Its path in the store."""

    @property
    def order(self) -> Any:
        """The order in memory of what is read."""

    @property
    def attrs(self) -> Any:
        """Its attributes."""

    @property
    def metadata(self) -> Any:
        """Its metadata, as zarr has them."""

    @property
    def store(self) -> Any:
        """The store it is read through."""

    @property
    def store_path(self) -> Any:
        """The store, and its path there."""

    def __getitem__(self, where: Any) -> Any:
        """Return the values of a part."""


class WritableArray(StoredArray, Protocol):
    """An array that is being written."""

    def __setitem__(self, where: Any, values: Any) -> None:
        """Write the values of a part."""

    def resize(self, shape: tuple[int, ...]) -> None:
        """Change its shape."""
