"""Documents: the JSON files of a store. What is no JSON object, or too large to be one, is refused by name."""

from __future__ import annotations

import json
from typing import Any

from ...errors import StoreError

#: Names of the keys that hold metadata, and no chunk.
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
#: Those that are asked for to open an array, by the version of the Zarr format.
METADATA_OF = {2: (".zarray", ".zgroup", ".zattrs"), 3: ("zarr.json",)}

Document = dict[str, Any]


def is_metadata(key: str) -> bool:
    """Return whether a key is one of metadata."""
    return key.rpartition("/")[2] in METADATA


def parse_document(data: bytes, what: str) -> Document:
    """Return the JSON object in some bytes.

    Raises
    ------
    StoreError
        Where the bytes hold something else; ``what`` names them.

    Examples
    --------
    >>> parse_document(b'{"a": 1}', "zarr.json of x.zarr")
    {'a': 1}

    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{what} is damaged: it is no JSON ({error}). {_CURE}") from None
    if not isinstance(found, dict):
        raise StoreError(f"{what} is damaged: it must hold a JSON object, and holds a {type(found).__name__}. {_CURE}")
    return found


_CURE = "Restore it, or write the store again."
