"""Wrapping: a store of zarr's around another, through whose ``get`` and ``set`` everything passes.

zarr's own wrapper hands all further ways to read and write (several parts at once, many keys at once, without its event loop)
to the store inside, past what a subclass does in ``get`` and ``set``; and newer versions have more of them than older ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import WrapperStore

#: Without its type, which newer versions of zarr contradict in their own wrapper.
_STORE: Any = Store


class Wrapping(WrapperStore[Store]):
    """Wraps a store; subclasses see every read in ``get`` and every write in ``set``."""

    #: zarr 3.4 and later read and write without their event loop where a store says that it can.
    _supports_sync_io = False

    _get_many = Store._get_many
    _set_many = Store._set_many
    if hasattr(Store, "get_ranges"):  # from zarr 3.4 on
        get_ranges = _STORE.get_ranges

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of keys, each through ``get``."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]
