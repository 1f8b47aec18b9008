"""Results of conformal sets: every variable of ``evaluate`` of a conformal predictor."""

from __future__ import annotations

from .registry import Variable

_FLOAT, _INT = ("float64",), ("int64",)


def _scalar(dtypes: tuple[str, ...], long_name: str, description: str) -> Variable:
    return Variable((), dtypes, long_name, description)


def _along(dimension: str, dtypes: tuple[str, ...], long_name: str, description: str) -> Variable:
    return Variable((dimension,), dtypes, long_name, description)


#: Of the samples of each class, or of each group.
def _by(dimension: str, samples: str) -> dict[str, Variable]:
    return {
        f"{dimension}_n_labelled": _along(dimension, _INT, "labelled samples", f"Number of labelled samples {samples}."),
        f"{dimension}_coverage": _along(
            dimension, _FLOAT, "coverage", f"Share of the labelled samples {samples} whose set holds the label; NaN without any."
        ),
        f"{dimension}_average_set_size": _along(
            dimension, _FLOAT, "average set size", f"Mean size of the sets of the samples {samples}; NaN without any."
        ),
        f"{dimension}_p_value_low": _along(
            dimension, _FLOAT, "probability of so few hits",
            f"Of as many hits among the samples {samples}, or fewer, over draws of calibration and new samples, with a threshold of its own; NaN without any."
        ),
    }  # fmt: skip


COVERAGE = {
    "class": _along("class", _INT, "class", "Number of a class."),
    "class_name": _along("class", ("str",), "name", "Name of the class, where names are known."),
    "level": _along("level", _FLOAT, "level", "Coverage that classes are compared with."),
    "coverage": _scalar(_FLOAT, "coverage", "Share of the labelled samples whose set holds the label."),
    "coverage_stderr": _scalar(
        _FLOAT, "standard error of the coverage", "sqrt(c (1 - c) / n_labelled), c the coverage, the threshold taken as given."
    ),
    "average_set_size": _scalar(_FLOAT, "average set size", "Labels in all sets together, over N."),
    "set_size_count": _along("size", _INT, "sets of each size", "Number of samples whose set has that size."),
    "set_hit_count": _along(
        "size", _INT, "hits of each size", "Number of labelled samples whose set has that size and holds the label."
    ),
    "size_coverage": _along(
        "size", _FLOAT, "coverage by size", "Share of the labelled samples with a set of that size that it holds the label of; NaN without any."
    ),
    "macro_coverage": _scalar(_FLOAT, "macro coverage", "Mean of the coverages of the classes that occur."),
    "share_below": _along(
        "level", _FLOAT, "share of the classes below", "Share of the classes that occur whose coverage is below the level."
    ),
    "n_hits": _scalar(_INT, "hits", "Number of labelled samples whose set holds the label."),
    "hits_low": _scalar(
        _FLOAT, "fewest hits to expect", "Lower end of the interval of n_hits, beta-binomial; NaN where there are several thresholds."
    ),
    "hits_high": _scalar(_FLOAT, "most hits to expect", "Upper end of that interval."),
    "p_value_low": _scalar(
        _FLOAT, "probability of so few hits", "Of n_hits or fewer, over draws of calibration and new samples; NaN where there are several thresholds."
    ),
    "p_value_high": _scalar(_FLOAT, "probability of so many hits", "Of n_hits or more, the same way."),
    **_by("class", "of the class"),
    **_by("group", "of the group"),
}  # fmt: skip
