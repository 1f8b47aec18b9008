"""The sets above thresholds: how many scores exceed each, and the error of the sets they make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import SupportsFloat

import numpy as np
import xarray as xr

from ..arrays import Floats
from ..errors import OptionError
from ..exact.sums import error_of
from ..kernels.keys import first_key_above, key_range
from ..masks import refuse_masked
from ..passes.certifying import certify_thresholds
from ..passes.run import Run
from ..scans.edge_scan import edge_pass
from ..states.edge_tally import EdgeTally
from .attributes import Named, result_attrs
from .given import ThresholdsLike, are_several


@dataclass(frozen=True)
class SetsAbove:
    """How many scores exceed each threshold, and the error of the sets they make (None without labels)."""

    n_labels: list[int]
    errors: list[Fraction | None]
    attrs: Named

    @classmethod
    def read(cls, run: Run, thresholds: list[Real]) -> SetsAbove:
        """Read all scores once."""
        source = run.source
        top = key_range(source.dtype)[1]
        firsts = [min(first_key_above(t, source.dtype), top + 1) for t in thresholds]
        certify_thresholds(run, thresholds, firsts)
        edges = np.array(sorted({key for key in firsts if key <= top} or {top}), np.int64)
        tally = run.read(edge_pass(source.dtype, source.shape[1], edges))
        counts, weights = [*tally.n_from().tolist(), 0], _weights_from(tally)
        index = [int(np.searchsorted(edges, key)) if key <= top else edges.size for key in firsts]
        errors = [error_of(weights[i], tally.n_labelled) if tally.n_labelled else None for i in index]
        return cls([counts[i] for i in index], errors, result_attrs(source, run.reads))


def _weights_from(tally: EdgeTally) -> list[Fraction]:
    """Return the label weight at or above each edge, and none behind the last."""
    if not len(tally.weights):
        return [*(Fraction(n) for n in tally.hits_from().tolist()), Fraction(0)]
    weights, one = tally.weights.integers()
    from_top = np.cumsum(weights[::-1])[::-1][1::2]
    return [*(Fraction(int(weight), one) for weight in from_top), Fraction(0)]


def given_thresholds(thresholds: ThresholdsLike) -> ThresholdsLike:
    """Return thresholds as a number or a sequence: those of a result Dataset, and computed if they are lazy."""
    if isinstance(thresholds, xr.Dataset):
        if "threshold" not in thresholds:
            raise OptionError(
                "thresholds must be numbers, or a result that has some; got a Dataset without the variable threshold. "
                "Pass what threshold or evaluate gives."
            )
        thresholds = thresholds["threshold"]
    return thresholds.compute() if hasattr(thresholds, "compute") else thresholds


def check_thresholds(thresholds: ThresholdsLike) -> list[Real]:
    """Return thresholds as a list of numbers; what ``threshold`` and ``best_threshold`` found counts as one."""
    thresholds = given_thresholds(thresholds)
    refuse_masked(thresholds, "thresholds")
    given = list(thresholds) if are_several(thresholds) else [thresholds]
    found = [getattr(t, "value", t) for t in given]
    found = [t.item() if getattr(t, "ndim", None) == 0 and hasattr(t, "item") else t for t in found]
    numbers: list[Real] = []
    for t in found:
        if isinstance(t, bool) or not isinstance(t, Real) or not fits_a_float(t):
            raise OptionError(f"thresholds must be numbers; got {t!r}. Pass integers or floats.")
        numbers.append(t)
    if not numbers:
        raise OptionError("thresholds must name at least one number; got an empty sequence. Pass a number or several.")
    return numbers


def check_threshold(threshold: ThresholdsLike) -> Real:
    """Return what stands for one threshold as a number: also a sequence or a result that has only one."""
    try:
        found = check_thresholds(threshold)
    except OptionError as error:
        value = getattr(threshold, "value", threshold)
        got = value if isinstance(value, (float, np.floating)) else type(threshold).__name__
        raise OptionError(
            "threshold must be a number, or what threshold, best_threshold or evaluate gave for one k; "
            f"got {got}. Pass one number."
        ) from error
    if len(found) > 1:
        raise OptionError(
            f"threshold must be a single number; got {len(found)} of them. "
            "Pass one, for example result.threshold.sel(k=5)."
        )
    return found[0]


def fits_a_float(value: SupportsFloat) -> bool:
    """Whether a number is not NaN and a double can hold it, about."""
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def coordinate(thresholds: list[Real]) -> Floats:
    """Return thresholds as a coordinate."""
    return np.array([float(t) for t in thresholds])
