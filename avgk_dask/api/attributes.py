"""What all results share: attributes that tell what they were computed from, and how values are rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from ..results.datasets import versions
from ..sources.source import Source

#: Variables, coordinates or attributes of a result, by name.
Named: TypeAlias = dict[str, object]


def result_attrs(source: Source, reads: int, **more: object) -> Named:
    """Return the attributes that every result has, and some more."""
    return {
        "n_samples": source.shape[0],
        "n_classes": source.n_classes,
        **more,
        "store": source.location,
        "versions": versions(),
        "reads": reads,
    }


def rounded(values: Sequence[Fraction | None]) -> list[float]:
    """Return exact values as floats, rounded once; NaN for None."""
    return [math.nan if value is None else float(value) for value in values]
