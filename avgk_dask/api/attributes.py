"""The attributes of a result: what it was computed from, and with what."""

from __future__ import annotations

from typing import Any

from ..graph.source import Source
from ..schema import versions


def result_attrs(source: Source, reads: int, **more: Any) -> dict[str, Any]:
    """Give the attributes that every result has, and some more."""
    return {
        "n_samples": source.shape[0],
        "n_classes": source.shape[1],
        **more,
        "store": source.location,
        "versions": versions(),
        "reads": reads,
    }
