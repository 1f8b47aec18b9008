"""What a stored array must offer: that of zarr, or anything that reads like it."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import zarr
from zarr.abc.store import Store

from ...arrays import Array, Dtype

if TYPE_CHECKING:
    import obstore.store

#: A client of obstore's.
ObjectClient: TypeAlias = "obstore.store.ObjectStore"
#: An array that zarr has opened, of either format.
ZarrArray: TypeAlias = "zarr.Array[Any]"
#: A part of an array; whole along the axes that are not named.
Part = tuple[slice, ...] | slice | EllipsisType


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
    def order(self) -> Literal["C", "F"]:
        """The order in memory of what is read."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Its attributes."""

    @property
    def metadata(self) -> Any:
        """Its metadata, as zarr has them."""

    @property
    def store(self) -> Store:
        """The store it is read through."""

    @property
    def store_path(self) -> Any:
        """The store, and its path there."""

    def __getitem__(self, where: Part, /) -> object:
        """Return the values of a part."""


class WritableArray(StoredArray, Protocol):
    """An array that is being written."""

    def __setitem__(self, where: Part, values: Array, /) -> None:
        """Write the values of a part."""

    def resize(self, shape: tuple[int, ...]) -> None:
        """Change its shape."""
