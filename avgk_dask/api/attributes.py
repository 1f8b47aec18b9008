"""What all results share: attributes that tell what they were computed from, and how values are rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from ..results.datasets import versions
from ..results.score_kinds import ATTRIBUTE, CUT, OUTSIDE, PROBABILITIES, UNNORMALISED
from ..sources.class_balance import BALANCED
from ..sources.source import Source
from ..states.looked_rows import LookedRows

#: Variables, coordinates or attributes of a result, by name.
Named: TypeAlias = dict[str, object]


def result_attrs(source: Source, reads: int, **more: object) -> Named:
    """Return the attributes that every result has, and some more."""
    made: Named = {"made_by": source.made_by} if source.made_by else {}
    if source.mask is not None:
        made["n_left_out"] = source.whole.shape[0] - source.shape[0]
    return {
        "n_samples": source.shape[0],
        "n_classes": source.n_classes,
        **more,
        "store": source.location,
        **made,
        "versions": versions(),
        "reads": reads,
    }


def score_kind(source: Source, looked: LookedRows) -> Named:
    """Return the attribute that says what rows look like; none of truncated ones, and where none could be seen."""
    if source.truncation is not None or not looked.n_looked or BALANCED in source.made_by:
        return {}
    few = looked.n_looked / 10
    absent = looked.n_zero if "softmax" in source.made_by else looked.n_infinite
    kinds = ((absent, CUT), (looked.n_outside, OUTSIDE), (looked.n_unnormalised, UNNORMALISED))
    return {ATTRIBUTE: next((kind for count, kind in kinds if count > few), PROBABILITIES)}


def rounded(values: Sequence[Fraction | float | None]) -> list[float]:
    """Return exact values as floats, rounded once; NaN for None."""
    return [math.nan if value is None else float(value) for value in values]
