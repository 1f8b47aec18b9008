"""What conformal sets are on new samples: coverage, sizes, both by class, and how likely that coverage is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import xarray as xr

from ...arrays import Floats, Ints
from ...bands.passes import SampleGroups
from ...engine.run import Run
from ...errors import BudgetError, LabelsError, OptionError, ScoresError
from ...exact.budgets import is_scalar, parse_budget
from ...exact.coverage import HitLaw
from ...masks import refuse_masked
from ...results.datasets import build_result
from ...results.registry import COVERAGE
from ...sources.source import Source
from ...statistics.costs import CostRule
from ...statistics.coverage import CoverageCounts, CoveragePlan, CoverageTally, coverage_pass
from ...statistics.losses import ProbabilityTally
from ...statistics.truncated import certify_first_key
from ..options import BudgetsLike, Named, result_attrs


@dataclass(frozen=True)
class Calibrated:
    """What is told of the calibration; samples and ranks are those of each threshold."""

    method: str
    alpha: Fraction
    by: str | None
    counts: Ints
    ranks: Ints
    groups: Ints | None


@dataclass(frozen=True)
class AskedCoverage:
    """The coverages that classes are compared with, and the probability of the interval of hits."""

    levels: tuple[Fraction, ...]
    confidence: float


def checked_options(levels: BudgetsLike, confidence: float) -> AskedCoverage:
    """Return the options, or refuse them."""
    refuse_masked(levels, "levels")
    try:
        found = tuple(parse_budget(level) for level in ([levels] if is_scalar(levels) else levels))  # type: ignore[union-attr]
    except BudgetError:
        found = (Fraction(-1),)
    if not all(0 <= level <= 1 for level in found):
        raise OptionError(f"levels must be coverages from 0 to 1; got {levels!r}. Pass one such as 0.5, or several.")
    number = isinstance(confidence, (float, int, np.floating)) and 0 < confidence < 1
    if not number:
        raise OptionError(f"confidence must lie between 0 and 1; got {confidence!r}. Pass a probability such as 0.95.")
    return AskedCoverage(tuple(dict.fromkeys(found)), float(confidence))


def evaluate_rule(
    run: Run, rule: CostRule, known: Calibrated, asked: AskedCoverage, names: list[str] | None = None
) -> xr.Dataset:
    """Count the sets of a rule, in one read, and return the result, with the names of the classes where they are known."""
    source = run.source
    if source.has_soft_labels:
        raise LabelsError(
            "labels must be class numbers for conformal sets; got a matrix. Pass one label for each sample."
        )
    n_groups = 0 if known.groups is None else known.groups.size
    plan = CoveragePlan(
        source.dtype, source.shape[1], rule, SampleGroups(source.shape[1], rule.by == "group"), n_groups + 1, tuple(source.rows)
    )  # fmt: skip
    if known.method == "lac":
        certify_first_key(run, ~int(rule.levels.max()), "the threshold")
    tally: CoverageTally = run.read(coverage_pass(plan))
    refuse_sums(tally, source, known.method)
    values, coords = _values(tally, known, asked, by_class=source.truncation is None)
    if names is not None and "class" in coords:
        values["class_name"] = names
    attrs = {
        "method": known.method, "alpha": float(known.alpha), "by": known.by or "none",
        "n_calibration": int(known.counts.sum()), "confidence": asked.confidence,
    }  # fmt: skip
    return build_result(values, coords, result_attrs(source, run.reads, n_labelled=tally.n_labelled, **attrs), COVERAGE)


def refuse_sums(tally: ProbabilityTally, source: Source, method: str) -> None:
    """Raise where scores that are added up are no probabilities."""
    if tally.n_refused:
        sample = source.sample(*tally.first_refused[:2])
        raise ScoresError(
            f"scores must be probabilities that sum to 1 in each row for the method {method!r}; got {tally.n_refused:,} samples "
            f"with others, the first is sample {sample}. Pass softmax(scores) if they are logits."
        )


def _values(tally: CoverageTally, known: Calibrated, asked: AskedCoverage, *, by_class: bool) -> tuple[Named, Named]:
    """Return the variables and coordinates of the result."""
    sizes, n_sizes = tally.by_size, int(np.flatnonzero(tally.by_size.n_samples).max()) + 1
    n_hits, n = int(sizes.n_hits.sum()), tally.n_labelled
    coverage = n_hits / n if n else math.nan
    values: Named = {
        "coverage": coverage,
        "coverage_stderr": math.sqrt(coverage * (1 - coverage) / n) if n else math.nan,
        "average_set_size": int(sizes.sizes.sum()) / tally.n_rows,
        "n_hits": n_hits,
        **_audit(n_hits, n, known, asked),
        "set_size_count": sizes.n_samples[:n_sizes],
        "set_hit_count": sizes.n_hits[:n_sizes],
        "size_coverage": _quotients(sizes.n_hits, sizes.n_labelled)[:n_sizes],
    }
    coords: Named = {"size": np.arange(n_sizes)}
    if by_class:
        values |= _by_class(tally.by_class, asked)
        values |= _chances("class", tally.by_class, known)
        coords |= {"class": np.arange(tally.by_class.n_hits.size), "level": [float(level) for level in asked.levels]}
    if known.groups is not None:
        values |= _by("group", tally.by_group, known.groups.size)
        values |= _chances("group", tally.by_group, known)
        coords["group"] = known.groups
    return values, coords


def _audit(n_hits: int, n: int, known: Calibrated, asked: AskedCoverage) -> dict[str, float]:
    names = ("hits_low", "hits_high", "p_value_low", "p_value_high")
    if known.by is not None or not n:
        return dict.fromkeys(names, math.nan)
    law = HitLaw(int(known.counts[0]), int(known.ranks[0]), n)
    return dict(zip(names, (*law.interval(asked.confidence), law.at_most(n_hits), law.at_least(n_hits)), strict=True))


def _by_class(counts: CoverageCounts, asked: AskedCoverage) -> Named:
    """Return the numbers of each class, and what they have in common; classes that do not occur are left out there."""
    occurs = counts.n_labelled > 0
    hits, n = counts.n_hits[occurs], counts.n_labelled[occurs]
    each = _quotients(hits, n)
    below = [
        np.count_nonzero(hits.astype(object) * level.denominator < n.astype(object) * level.numerator)
        for level in asked.levels
    ]
    return {
        **_by("class", counts, counts.n_hits.size),
        "macro_coverage": math.fsum(each.tolist()) / n.size if n.size else math.nan,
        "share_below": [count / n.size if n.size else math.nan for count in below],
    }


def _by(what: str, counts: CoverageCounts, n_groups: int) -> Named:
    return {
        f"{what}_n_labelled": counts.n_labelled[:n_groups],
        f"{what}_coverage": _quotients(counts.n_hits, counts.n_labelled)[:n_groups],
        f"{what}_average_set_size": _quotients(counts.sizes, counts.n_samples)[:n_groups],
    }


def _chances(what: str, counts: CoverageCounts, known: Calibrated) -> Named:
    """Return how likely so few hits are of each class, or group, that has a threshold of its own; nothing where there is one for all."""
    if known.by != what:
        return {}
    each = zip(
        known.counts.tolist(), known.ranks.tolist(), counts.n_labelled.tolist(), counts.n_hits.tolist(), strict=False
    )
    return {
        f"{what}_p_value_low": [HitLaw(old, rank, n).at_most(hits) if n else math.nan for old, rank, n, hits in each]
    }


def _quotients(parts: Ints, wholes: Ints) -> Floats:
    """Return quotients, NaN where the whole is 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(parts / wholes, np.float64)
