"""What conformal sets are on new samples: coverage, sizes, both by class, and how likely that coverage is."""

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
    """The coverages that classes are compared with, and the probability of the interval of hits."""

    levels: tuple[Fraction, ...]
    confidence: float

    @classmethod
    def parse(cls, levels: BudgetsLike, confidence: float) -> CoverageOptions:
        """Return the options, or refuse them."""
        refuse_masked(levels, "levels")
        try:
            found = tuple(parse_budget(level) for level in ([levels] if is_scalar(levels) else levels))  # type: ignore[union-attr]
        except BudgetError:
            found = (Fraction(-1),)
        if not all(0 <= level <= 1 for level in found):
            raise OptionError(
                f"levels must be coverages from 0 to 1; got {levels!r}. Pass one such as 0.5, or several."
            )
        if not (isinstance(confidence, (float, int, np.floating)) and 0 < confidence < 1):
            raise OptionError(
                f"confidence must lie between 0 and 1; got {confidence!r}. Pass a probability such as 0.95."
            )
        return cls(tuple(dict.fromkeys(found)), float(confidence))


def evaluate_sets(
    run: Run, predictor: ConformalPredictor, rule: CostRule, options: CoverageOptions, names: list[str] | None
) -> xr.Dataset:
    """Count the sets of a predictor's rule, in one read, and return the result, with the names of the classes if they are known."""
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
    """Raise if scores that are added up are not probabilities."""
    if tally.n_refused:
        sample = source.sample(*tally.first_refused[:2])
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
        **_audit(n_hits, n, predictor, options),
        "set_size_count": sizes.n_samples[:n_sizes],
        "set_hit_count": sizes.n_hits[:n_sizes],
        "size_coverage": _quotients(sizes.n_hits, sizes.n_labelled)[:n_sizes],
    }
    coords: Named = {"size": np.arange(n_sizes)}
    if by_class:
        values |= _columns("class", tally.by_class, tally.by_class.n_hits.size)
        values |= _over_classes(tally.by_class, options)
        values |= _p_values("class", tally.by_class, predictor)
        coords |= {"class": np.arange(tally.by_class.n_hits.size), "level": [float(level) for level in options.levels]}
    if predictor.groups is not None:
        values |= _columns("group", tally.by_group, predictor.groups.size)
        values |= _p_values("group", tally.by_group, predictor)
        coords["group"] = predictor.groups
    return values, coords


def _audit(n_hits: int, n: int, predictor: ConformalPredictor, options: CoverageOptions) -> dict[str, float]:
    names = ("hits_low", "hits_high", "p_value_low", "p_value_high")
    if predictor.by is not None or not n:
        return dict.fromkeys(names, math.nan)
    law = HitLaw(int(predictor._counts[0]), int(predictor._ranks[0]), n)
    return dict(zip(names, (*law.interval(options.confidence), law.at_most(n_hits), law.at_least(n_hits)), strict=True))


def _over_classes(counts: CoverageCounts, options: CoverageOptions) -> Named:
    """Return the summaries over the classes that occur."""
    occurs = counts.n_labelled > 0
    hits, n = counts.n_hits[occurs], counts.n_labelled[occurs]
    each = _quotients(hits, n)
    below = [
        np.count_nonzero(hits.astype(object) * level.denominator < n.astype(object) * level.numerator)
        for level in options.levels
    ]
    return {
        "macro_coverage": math.fsum(each.tolist()) / n.size if n.size else math.nan,
        "share_below": [count / n.size if n.size else math.nan for count in below],
    }


def _columns(what: str, counts: CoverageCounts, n_groups: int) -> Named:
    """Return the numbers of each class, or group."""
    return {
        f"{what}_n_labelled": counts.n_labelled[:n_groups],
        f"{what}_coverage": _quotients(counts.n_hits, counts.n_labelled)[:n_groups],
        f"{what}_average_set_size": _quotients(counts.sizes, counts.n_samples)[:n_groups],
    }


def _p_values(what: str, counts: CoverageCounts, predictor: ConformalPredictor) -> Named:
    """Return the p-value of the hits of each class, or group; nothing unless each has a threshold of its own."""
    if predictor.by != what:
        return {}
    thresholds = predictor._counts.tolist(), predictor._ranks.tolist()
    # The last group, of samples whose group was not met in calibration, has no threshold.
    each = zip(*thresholds, counts.n_labelled.tolist(), counts.n_hits.tolist(), strict=False)
    return {
        f"{what}_p_value_low": [HitLaw(old, rank, n).at_most(hits) if n else math.nan for old, rank, n, hits in each]
    }


def _quotients(parts: Ints, wholes: Ints) -> Floats:
    """Return quotients, NaN where the whole is 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(parts / wholes, np.float64)
