"""Conformal sets on new samples: coverage and sizes, in total, by class and by group, and p-values of the coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ...arrays import Floats, Ints
from ...bands.conformal import ConformalMethod
from ...bands.passes import SampleGroups
from ...engine.run import Run
from ...errors import BudgetError, OptionError, ScoresError
from ...exact.budgets import is_scalar, parse_budget
from ...exact.coverage import HitLaw
from ...masks import refuse_masked
from ...results.datasets import build_result
from ...results.registry import COVERAGE
from ...sources.source import Source
from ...statistics.costs import CoverageCounts, CoveragePlan, CoverageTally, coverage_pass
from ...statistics.losses import ProbabilityTally
from ...statistics.rules import CostRule
from ...statistics.truncated import certify_first_key
from ..inputs.labels import refuse_soft
from ..options import BudgetsLike, Named, result_attrs

if TYPE_CHECKING:
    from .predictors import ConformalPredictor


@dataclass(frozen=True)
class CoverageOptions:
    """The coverage levels to compare classes with, and the probability of the interval of hits."""

    levels: tuple[Fraction, ...]
    confidence: float

    @classmethod
    def parse(cls, levels: BudgetsLike, confidence: float) -> CoverageOptions:
        """Check the options."""
        refuse_masked(levels, "levels")
        try:
            exact = tuple(parse_budget(level) for level in ([levels] if is_scalar(levels) else levels))  # type: ignore[union-attr]
        except BudgetError:
            exact = (Fraction(-1),)
        if not all(0 <= level <= 1 for level in exact):
            raise OptionError(
                f"levels must be coverages from 0 to 1; got {levels!r}. Pass one such as 0.5, or several."
            )
        if not (isinstance(confidence, (float, int, np.floating)) and 0 < confidence < 1):
            raise OptionError(
                f"confidence must lie between 0 and 1; got {confidence!r}. Pass a probability such as 0.95."
            )
        return cls(tuple(dict.fromkeys(exact)), float(confidence))


def evaluate_sets(
    run: Run, predictor: ConformalPredictor, rule: CostRule, options: CoverageOptions, names: list[str] | None
) -> xr.Dataset:
    """Count the sets of a predictor's rule in one read, and build the result Dataset."""
    source = run.source
    refuse_soft(source, "conformal sets")
    n_groups = 0 if predictor.groups is None else predictor.groups.size
    plan = CoveragePlan(
        source.dtype, source.shape[1], rule, SampleGroups(source.shape[1], rule.by == "group"), n_groups + 1, tuple(source.rows)
    )  # fmt: skip
    first_key = rule.method.least_key(rule.levels)
    if first_key is not None:
        certify_first_key(run, first_key, "the threshold")
    tally: CoverageTally = run.read(coverage_pass(plan))
    refuse_sums(tally, source, rule.method)
    values, coords = _values(tally, predictor, options, by_class=source.truncation is None)
    if names is not None and "class" in coords:
        values["class_name"] = names
    attrs = {
        "method": predictor.method, "alpha": predictor.alpha, "by": predictor.by or "none",
        "n_calibration": int(predictor._counts.sum()), "confidence": options.confidence,
    }  # fmt: skip
    return build_result(values, coords, result_attrs(source, run.reads, n_labelled=tally.n_labelled, **attrs), COVERAGE)


def refuse_sums(tally: ProbabilityTally, source: Source, method: ConformalMethod) -> None:
    """Raise if a method that sums probabilities read other scores."""
    if tally.n_refused:
        sample = source.sample_number(*tally.first_refused[:2])
        raise ScoresError(
            f"scores must be probabilities that sum to 1 in each row for the method {method.name!r}; got {tally.n_refused:,} samples "
            f"with others, the first is sample {sample}. Pass softmax(scores) if they are logits."
        )


def _values(
    tally: CoverageTally, predictor: ConformalPredictor, options: CoverageOptions, *, by_class: bool
) -> tuple[Named, Named]:
    """Return the variables and coordinates of the result."""
    sizes, n_sizes = tally.by_size, int(np.flatnonzero(tally.by_size.n_samples).max()) + 1
    n_hits, n = int(sizes.n_hits.sum()), tally.n_labelled
    coverage = n_hits / n if n else math.nan
    values: Named = {
        "coverage": coverage,
        "coverage_stderr": math.sqrt(coverage * (1 - coverage) / n) if n else math.nan,
        "average_set_size": int(sizes.sizes.sum()) / tally.n_rows,
        "n_hits": n_hits,
        **_hit_statistics(n_hits, n, predictor, options),
        "set_size_count": sizes.n_samples[:n_sizes],
        "set_hit_count": sizes.n_hits[:n_sizes],
        "size_coverage": _quotients(sizes.n_hits, sizes.n_labelled)[:n_sizes],
    }
    coords: Named = {"size": np.arange(n_sizes)}
    if by_class:
        values |= _columns("class", tally.by_class, tally.by_class.n_hits.size)
        values |= _summarise_classes(tally.by_class, options)
        values |= _p_values("class", tally.by_class, predictor)
        coords |= {"class": np.arange(tally.by_class.n_hits.size), "level": [float(level) for level in options.levels]}
    if predictor.groups is not None:
        values |= _columns("group", tally.by_group, predictor.groups.size)
        values |= _p_values("group", tally.by_group, predictor)
        coords["group"] = predictor.groups
    return values, coords


def _hit_statistics(n_hits: int, n: int, predictor: ConformalPredictor, options: CoverageOptions) -> dict[str, float]:
    """Return the interval and the p-values of the number of hits; NaN for several thresholds or without labels."""
    names = ("hits_low", "hits_high", "p_value_low", "p_value_high")
    if predictor.by is not None or not n:
        return dict.fromkeys(names, math.nan)
    law = HitLaw(int(predictor._counts[0]), int(predictor._ranks[0]), n)
    return dict(zip(names, (*law.interval(options.confidence), law.at_most(n_hits), law.at_least(n_hits)), strict=True))


def _summarise_classes(counts: CoverageCounts, options: CoverageOptions) -> Named:
    """Return the summaries over the classes that occur."""
    occurs = counts.n_labelled > 0
    hits, n = counts.n_hits[occurs], counts.n_labelled[occurs]
    n_below = [
        np.count_nonzero(hits.astype(object) * level.denominator < n.astype(object) * level.numerator)
        for level in options.levels
    ]
    return {
        "macro_coverage": math.fsum(_quotients(hits, n).tolist()) / n.size if n.size else math.nan,
        "share_below": [count / n.size if n.size else math.nan for count in n_below],
    }


def _columns(kind: str, counts: CoverageCounts, n_groups: int) -> Named:
    """Return the numbers per class or group."""
    return {
        f"{kind}_n_labelled": counts.n_labelled[:n_groups],
        f"{kind}_coverage": _quotients(counts.n_hits, counts.n_labelled)[:n_groups],
        f"{kind}_average_set_size": _quotients(counts.sizes, counts.n_samples)[:n_groups],
    }


def _p_values(kind: str, counts: CoverageCounts, predictor: ConformalPredictor) -> Named:
    """Return the p-values of the hits per class or group, if each has its own threshold."""
    if predictor.by != kind:
        return {}
    arrays = predictor._counts, predictor._ranks, counts.n_labelled, counts.n_hits
    # The last group, of samples whose group did not occur in calibration, has no threshold.
    rows = zip(*(array.tolist() for array in arrays), strict=False)
    return {
        f"{kind}_p_value_low": [
            HitLaw(n_calibration, rank, n).at_most(hits) if n else math.nan for n_calibration, rank, n, hits in rows
        ]
    }


def _quotients(parts: Ints, wholes: Ints) -> Floats:
    """Return the quotients, NaN for division by 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(parts / wholes, np.float64)
