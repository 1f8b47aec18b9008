"""Conformal predictors made of what was found, or of what a file tells."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..arrays import Ints, whole_number
from ..exact.coverage_law import quantile_rank
from ..kernels.keys import check_dtype, key_range
from ..scans.costs import Costs
from .conformal_levels import Told, are_everything, shown_thresholds
from .conformal_options import AskedSets
from .conformal_predictors import ConformalPredictor


def made_predictor(costs: Costs, levels: Ints, counts: Ints, told: Told) -> ConformalPredictor:
    """Return the predictor of what was found: the level of each threshold, and how many samples it was found on."""
    asked, one = told.asked, told.asked.by is None
    ranks = np.array([quantile_rank(n, asked.alpha) for n in counts.tolist()], np.int64)
    threshold = shown_thresholds(costs, levels, are_everything(costs, levels, counts, ranks), told.n_classes)
    for array in (levels, counts, ranks, threshold):
        array.setflags(write=False)
    return ConformalPredictor(
        asked.method,
        float(asked.alpha),
        _plain(threshold[0], costs) if one else threshold,
        int(ranks[0]) if one else ranks,
        int(counts[0]) if one else counts,
        told.n_classes,
        asked.by,
        told.groups,
        float(asked.penalty),
        asked.k_reg,
        asked.seed,
        told.reads,
        asked.alpha,
        asked.penalty,
        costs,
        levels,
    )


def restored_predictor(content: dict[str, Any]) -> ConformalPredictor:
    """Return the predictor that a file tells of; KeyError, TypeError or ValueError where it tells of none."""
    by, n_classes, levels, counts = (content[name] for name in ("by", "n_classes", "levels", "n_calibration"))
    groups = content["groups"] if by == "group" else None
    asked = AskedSets.of(
        Fraction(content["alpha"]), content["method"], by if groups is None else groups, content["seed"],
        *((Fraction(content["penalty"]), content["k_reg"]) if content["method"] == "raps" else (None, None)),
    )  # fmt: skip
    costs = asked.costs(check_dtype(content["dtype"]), n_classes)
    wanted = 1 if by is None else n_classes if groups is None else groups.size
    if whole_number(n_classes) < 1 or whole_number(content["reads"]) < 0:
        raise ValueError("its number of classes, or of reads, is none")
    if not (levels.shape == counts.shape == (wanted,)) or (levels > costs.everything).any() or (counts < 0).any():
        raise ValueError("its thresholds do not fit its classes or groups")
    if content["method"] == "lac" and (~levels > key_range(costs.dtype)[1]).any():
        raise ValueError("its thresholds are not scores of its dtype")
    names = content.get("class_names")  # files of before have none
    if names is not None and (len(names) != n_classes or not all(isinstance(name, str) for name in names)):
        raise ValueError("its names do not fit its classes")
    told = Told(asked, n_classes, groups, content["reads"])
    found = made_predictor(costs, levels, counts, told)
    return replace(found, class_names=None if names is None else tuple(names))


def _plain(value: float | int, costs: Costs) -> float | int:
    """Return a threshold as a number of Python, of the kind that scores are."""
    whole = costs.method == "top_k" or (costs.method == "lac" and costs.dtype.kind in "iu")
    return int(value) if whole and math.isfinite(value) else float(value)
