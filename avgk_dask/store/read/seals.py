"""Seals: what a store of ours says of itself, checked strictly before anything of it is believed.

The attribute ``avgk_dask`` of a group tells its format and whether its writer finished. Of a finished one it
holds, for each array, the SHA-256 of the manifest's table, the SHA-256 of the metadata and the number of chunks;
and last the SHA-256 of all that. So whatever changes a number is covered: the bytes of every chunk by the tables,
how they are read by the digests of the metadata. Attributes that change no number are a user's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import StoreError
from .documents import Document
from .encoding import ENCODING_ATTRIBUTES

#: Attribute of the group.
ATTRIBUTE = "avgk_dask"
#: Version of what is written. Version 1 had tables only: changed metadata go unnoticed there.
FORMAT = 2
#: Attributes of arrays and groups that change what is read: of ours, and those that values are decoded by.
SEALED_ATTRIBUTES = ("dtype", "n_classes", *ENCODING_ATTRIBUTES)
#: What a store notes whose appended rows are being put in their place: the digests of what is staged.
STAGED = "staged"
_CURE = "Restore it, or write the store again."


@dataclass(frozen=True)
class Seal:
    """What a group says of itself; the digests are by the name of the array, the group's own under an empty name."""

    format: int
    complete: bool
    #: What its writer noted for one that goes on with it.
    noted: Mapping[str, object] = field(default_factory=dict)
    manifest: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    n_chunks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, attributes: object, location: str) -> Seal | None:
        """Return the seal among a group's attributes; None where there is none.

        Raises
        ------
        StoreError
            Where it is damaged, or of a format that is not known.

        """
        if not isinstance(attributes, Mapping) or ATTRIBUTE not in attributes:
            return None
        state = attributes[ATTRIBUTE]
        if not isinstance(state, Mapping) or not is_count(state.get("format")):
            raise StoreError(f"the manifest of {location} is damaged: it tells no format. {_CURE}")
        if not 1 <= state["format"] <= FORMAT:
            raise StoreError(
                f"{location} must be of format 1 to {FORMAT}; got {state['format']}. Install a newer avgk_dask to read it."
            )
        if not isinstance(state.get("complete"), bool):
            raise StoreError(
                f"the manifest of {location} is damaged: complete must be true or false; got {state.get('complete')!r}. {_CURE}"
            )
        if state["format"] == 1 and any(name in state for name in ("metadata", "n_chunks", "seal")):
            raise StoreError(f"the manifest of {location} is damaged: it is not of the format that it tells. {_CURE}")
        noted = {name: value for name, value in state.items() if name not in _FIELDS}
        if not state["complete"]:
            return cls(state["format"], False, noted)
        return cls(state["format"], True, noted, **_digests(state, location))

    def to_state(self) -> Document:
        """Return the attribute that says so."""
        state: Document = {"format": self.format, "complete": self.complete, **self.noted}
        if self.complete:
            state |= {"manifest": self.manifest, "metadata": self.metadata, "n_chunks": self.n_chunks}
            state["seal"] = _sha256(state)
        return state

    def covers(self, name: str, document: Document) -> bool:
        """Return whether the metadata of an array (or of the group, with an empty name) are those that were written."""
        return not self.metadata or metadata_digest(document) == self.metadata.get(name)


_FIELDS = ("format", "complete", "manifest", "metadata", "n_chunks", "seal")


def _digests(state: Mapping[str, Any], location: str) -> Document:
    """Return the digests of a finished store, all of the form they must have."""
    kinds = {"manifest": _is_text, "metadata": _is_text, "n_chunks": is_count}
    names = ["manifest"] if state["format"] == 1 else list(kinds)
    for name in names:
        is_kind = kinds[name]
        found = state.get(name)
        if not isinstance(found, Mapping) or not all(map(is_kind, found.values())):
            raise StoreError(f"the manifest of {location} is damaged: {name} is not as it was written. {_CURE}")
    if state["format"] > 1 and state.get("seal") != _sha256({k: v for k, v in state.items() if k != "seal"}):
        raise StoreError(f"the manifest of {location} is damaged: its digests are not those written. {_CURE}")
    return {name: dict(state[name]) for name in names}


def metadata_digest(document: Document) -> str:
    """Return the SHA-256 of what of an array's or group's metadata changes a number.

    Examples
    --------
    >>> metadata_digest({"shape": [3], "attributes": {"note": 1}}) == metadata_digest({"shape": [3]})
    True

    """
    return _sha256({n: value for n, value in without_notes(document).items() if n != "consolidated_metadata"})


def without_notes(document: Document) -> Document:
    """Return metadata without the attributes that change no number, which are a user's own."""
    attributes = document.get("attributes") or {}
    if isinstance(attributes, Mapping):
        attributes = {name: attributes[name] for name in SEALED_ATTRIBUTES if name in attributes}
    return {**document, "attributes": attributes}


def form_digest(document: Document) -> str:
    """Return the SHA-256 of an array's metadata but for its number of rows, which grows while it is written."""
    return metadata_digest({**document, "shape": document["shape"][1:]})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def is_count(value: object) -> bool:
    """Return whether a value from JSON is a whole number, not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
