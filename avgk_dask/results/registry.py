"""The result Dataset: every variable with its dimensions, dtypes and meaning, in one table for each kind of result.

``results.datasets`` builds and checks results by these tables, and ``cli.schemas`` derives the JSON schemas from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Variable:
    """One variable of a result."""

    dims: tuple[str, ...]
    #: Its possible dtypes, the default first.
    dtypes: tuple[str, ...]
    long_name: str
    description: str
    #: Whether it is always present, so that the JSON schema requires it.
    always: bool = False


_FLOAT, _INT, _TEXT = ("float64",), ("int64",), ("str",)
#: Scores become float64, except for 64-bit integers, which float64 cannot represent.
_SCORES = ("float64", "int64", "uint64")


def _of(dims: str, dtypes: tuple[str, ...], long_name: str, description: str, always: bool = False) -> Variable:
    return Variable(tuple(dims.split()), dtypes, long_name, description, always)


def _always(dims: str, dtypes: tuple[str, ...], long_name: str, description: str) -> Variable:
    return _of(dims, dtypes, long_name, description, always=True)


COORDINATES = {
    "k": _of("k", _FLOAT, "budget", "Labels per sample on average, as asked."),
    "size": _of("size", _INT, "set size", "Number of labels in a set."),
    "order": _of("order", _INT, "straddle order", "Compares rank k + order with rank k + 1 - order."),
    "rank": _of("rank", _INT, "rank", "Place of a score in its row; 1 is the highest."),
    "bin": _of("bin", _INT, "bin", "Number of a bin of a histogram."),
    "loss": _of("loss", _TEXT, "loss", "Name of a loss."),
    "temperature": _of("temperature", _FLOAT, "temperature", "What logits are divided by."),
    "model": _of("model", _TEXT, "model", "Name of a model."),
    "other": _of("other", _TEXT, "other model", "Name of the model that it is compared with."),
    "pair": _of("pair", _INT, "pair", "Number of a pair of classes, the most frequent first."),
    "rule": _of("rule", _TEXT, "rule", "Top-k or average-k sets."),
    "utility": _of("utility", _TEXT, "utility", "What a set of some size that holds its label is worth."),
    "group": _of("group", ("str", "int64"), "group", "Name or number of a group of samples."),
}  # fmt: skip

#: Dimensions that any variable may have before its own, in this order.
LEADING = ("model", "group", "utility")

#: Variables of ``evaluate``, and of the functions for a part of its result.
VARIABLES = {
    "threshold": _always("k", _SCORES, "threshold lambda",
        "The (B+1)-th largest of all scores, B = floor(N k); the smallest one where B = N C."),
    "n_above": _always("k", _INT, "scores above", "Number of scores greater than the threshold."),
    "n_ties": _always("k", _INT, "ties", "Number of scores equal to the threshold."),
    "n_kept": _always("k", _INT, "kept ties",
        "Ties kept to fill the budget: the first ones in row-major order, or spread."),
    "average_set_size": _always("k", _FLOAT, "average set size", "Labels in all sets together, over N."),
    "average_k_error": _always("k", _FLOAT, "average-k error",
        "Fraction of labelled samples whose label is outside its average-k set; expected fraction with soft "
        "labels."),
    "average_k_error_lowest": _of("k", _FLOAT, "lowest average-k error",
        "The least over all ways to keep n_kept of the n_ties."),
    "average_k_error_highest": _of("k", _FLOAT, "highest average-k error",
        "The greatest over all ways to keep n_kept of the n_ties."),
    "average_k_error_expected": _of("k", _FLOAT, "expected average-k error",
        "The mean over all ways to keep n_kept of the n_ties."),
    "top_k_error": _always("k", _FLOAT, "top-k error",
        "Fraction of labelled samples whose label is not among its k highest scores, expected with soft labels; "
        "NaN for a fractional k."),
    "average_k_error_stderr": _of("k", _FLOAT, "standard error of the average-k error",
        "Over draws of the samples, or of the clusters; the threshold, which is found on the same samples, varies "
        "with them. NaN without hard labels."),
    "top_k_error_stderr": _of("k", _FLOAT, "standard error of the top-k error",
        "The same for the top-k error; NaN for a fractional k."),
    "adaptive_gain": _always("k", _FLOAT, "adaptive gain", "top_k_error - average_k_error."),
    "adaptive_gain_stderr": _of("k", _FLOAT, "standard error of the adaptive gain",
        "Both errors are of the same samples: their difference is taken sample by sample. NaN for a fractional k, "
        "without hard labels, and where ties were cut in the pseudo-random order."),
    "relative_gain": _always("k", _FLOAT, "relative gain", "adaptive_gain / top_k_error; NaN where that is 0."),
    "relative_gain_stderr": _of("k", _FLOAT, "standard error of the relative gain",
        "The same for relative_gain; NaN where that is."),
    "plug_in_bound": _of("", _FLOAT, "plug-in bound",
        "Mean over samples of the sum of |eta - score|: bounds the regret of both plug-in rules. NaN where a score "
        "is not in [0, 1]."),
    "adaptive_gain_symmetric": _of("k", _FLOAT, "adaptive gain, second form",
        "Mean over samples of the sum of |eta - threshold| over the classes in exactly one of the top-k and "
        "average-k sets."),
    "top_k_regret": _of("k", _FLOAT, "top-k regret", "top_k_error less that of the best top-k sets, those of eta."),
    "average_k_regret": _of("k", _FLOAT, "average-k regret",
        "average_k_error less that of the best average-k sets, those of eta."),
    "set_error": _of("", _FLOAT, "error of the sets", "Expected fraction of labels outside the sets."),
    "optimal_error": _of("", _FLOAT, "optimal error", "Expected error of the best sets with as many labels in all."),
    "regret": _of("", _FLOAT, "regret", "set_error - optimal_error."),
    "regret_symmetric": _of("", _FLOAT, "regret, second form",
        "Mean over samples of the sum of |eta - threshold| over the classes in exactly one of the set and the best "
        "set."),
    "mean_top_k_error": _of("", _FLOAT, "mean top-k error", "Mean of the top-k error over k = 1..C."),
    "mean_average_k_error": _of("", _FLOAT, "mean average-k error", "Mean of the average-k error over k = 1..C."),
    "set_size_count": _always("k size", _INT, "sets of each size",
        "Number of samples whose average-k set has that size."),
    "set_hit_count": _of("k size", _INT, "sets of each size with their label",
        "Number of labelled samples whose average-k set has that size and holds the label; with hard labels only."),
    "straddle_strength": _of("k order", _FLOAT, "straddle strength",
        "Mean over all pairs of samples of max(0, s(x)[k + order] - s(x')[k + 1 - order]), s sorted decreasingly; "
        "NaN where the order does not exist or a score is infinite."),
    "straddle_strength_error": _of("k order", _FLOAT, "error of the straddle strength",
        "Certified bound on its error; 0 when exact."),
    "straddle_weight": _of("k order", _FLOAT, "straddle weight", "Fraction of the pairs with a positive difference."),
    "straddle_weight_error": _of("k order", _FLOAT, "error of the straddle weight",
        "Certified bound on its error; 0 when exact."),
    "straddle_magnitude": _of("k order", _FLOAT, "straddle magnitude",
        "Mean difference of the pairs where it is positive; 0 where there are none. As exact as strength and "
        "weight are."),
    "straddle_bound": _of("k", _FLOAT, "straddle bound",
        "Sum of the straddle strengths over the orders, for k > C / 2 order 1 alone: a lower bound on the adaptive "
        "gain where the scores are the true probabilities."),
    "straddle_bound_error": _of("k", _FLOAT, "error of the straddle bound",
        "Certified bound on its error; 0 when exact."),
    "support_low": _of("rank", _SCORES, "lower end of the support", "Smallest value of the score of that rank."),
    "support_high": _of("rank", _SCORES, "upper end of the support", "Largest value of the score of that rank."),
    "supports_overlap": _of("k", _FLOAT, "supports overlap",
        "1 where the largest score of rank k + 1 exceeds the smallest of rank k, else 0; NaN for a fractional k. "
        "Average-k can gain on top-k only where they overlap, if the scores are the true probabilities."),
    "ranked_count": _of("rank bin", _INT, "samples in the bin",
        "Number of samples whose score of that rank is in the bin."),
    "bin_low": _of("rank bin", _SCORES, "lower edge of the bin",
        "The bin holds scores from here up to the next bin's lower edge; the last one up to the support's end."),
}  # fmt: skip

_PAIR = "rule model other k"
#: Variables that a comparison of models adds.
PAIRED = {
    "difference": _always(_PAIR, _FLOAT, "difference", "Error of the model less error of the other."),
    "difference_stderr": _always(_PAIR, _FLOAT, "standard error of the difference",
        "Both are of the same samples: the difference is taken sample by sample."),
    "discordant": _always(_PAIR, _INT, "discordant samples",
        "Number of labelled samples that the model gets right and the other wrong."),
    "mcnemar_p": _always(_PAIR, _FLOAT, "McNemar's p-value",
        "Exact and two-sided: how likely discordant samples would be divided as unevenly by chance, were both "
        "models as good."),
    "mcnemar_p_adjusted": _always(_PAIR, _FLOAT, "adjusted p-value",
        "McNemar's p-value adjusted for all pairs, rules and budgets by Benjamini and Hochberg: of those up to a "
        "level, no larger share is expected to be by chance."),
    "average_against_top": _always("model other k", _FLOAT, "average-k against top-k",
        "Average-k error of the model less top-k error of the other."),
    "average_against_top_stderr": _always("model other k", _FLOAT, "its standard error", "Taken sample by sample."),
}  # fmt: skip

COMPARISON = VARIABLES | PAIRED

#: Results by class, or by group.
BREAKDOWN = {
    "n_samples": _always("group", _INT, "samples", "Number of samples of the group."),
    "n_labelled": _always("group", _INT, "labelled samples", "Number of those that have a label."),
    "threshold": _of("k", _SCORES, "threshold lambda", "The one threshold of all groups."),
    "group_threshold": _of("k group", _SCORES, "threshold of the group",
        "That of the group's own samples; they share no labels with others."),
    "average_k_error": _always("k group", _FLOAT, "average-k error",
        "Fraction of the group's labelled samples whose label is outside its set; NaN where there is none."),
    "average_k_error_low": _always("k group", _FLOAT, "lower Wilson bound",
        "Lower end of the 95 % Wilson interval of the average-k error."),
    "average_k_error_high": _always("k group", _FLOAT, "upper Wilson bound",
        "Upper end of the 95 % Wilson interval of the average-k error."),
    "top_k_error": _always("k group", _FLOAT, "top-k error", "The same for the top-k sets; NaN for a fractional k."),
    "adaptive_gain": _always("k group", _FLOAT, "adaptive gain", "top_k_error - average_k_error."),
    "average_set_size": _always("k group", _FLOAT, "average set size",
        "Mean number of labels in the average-k sets of the group's samples."),
    "macro_average_k_error": _always("k", _FLOAT, "macro average-k error",
        "Mean of the average-k error over the groups with labelled samples."),
    "macro_top_k_error": _always("k", _FLOAT, "macro top-k error",
        "Mean of the top-k error over the groups with labelled samples."),
    "name": _of("group", _TEXT, "name", "Name of the class or group."),
}  # fmt: skip

#: Utilities of sets.
UTILITIES = {
    "average_k_utility": _of("k", _FLOAT, "utility of average-k",
        "Mean of the utility of the average-k sets that hold their label, less the mean cost of all sets."),
    "top_k_utility": _of("k", _FLOAT, "utility of top-k", "The same of the top-k sets; NaN for a fractional k."),
    "threshold": _of("k", _SCORES, "threshold lambda", "The threshold of the average-k sets."),
}  # fmt: skip

#: Classes that are in sets together.
PAIRS = {
    "class_a": _always("pair", _INT, "first class", "The lower class number of the pair."),
    "class_b": _always("pair", _INT, "second class", "The higher class number of the pair."),
    "name_a": _of("pair", _TEXT, "name of the first class", "Its name."),
    "name_b": _of("pair", _TEXT, "name of the second class", "Its name."),
    "count": _always("pair", _INT, "sets", "Number of sets that hold both classes."),
    "n_sets_a": _always("pair", _INT, "sets of the first class", "Number of sets that hold it."),
    "n_sets_b": _always("pair", _INT, "sets of the second class", "Number of sets that hold it."),
}  # fmt: skip

#: Results over given thresholds.
AT_THRESHOLDS = {
    "threshold": _of("threshold", _FLOAT, "", ""),
    "error": _of("threshold", _FLOAT, "error",
        "Fraction of labelled samples whose label is outside {score > threshold}."),
    "average_set_size": _of("threshold", _FLOAT, "average set size",
        "Number of scores greater than the threshold, over N: the paper's function G."),
    "risk": _of("threshold", _FLOAT, "risk", "error + cost * average_set_size"),
}  # fmt: skip

#: Results over given average set sizes.
AT_SIZES = {
    "average_set_size": _of("average_set_size", _FLOAT, "", ""),
    "threshold": _of("average_set_size", _SCORES, "threshold",
        "The least t with at most that many scores above it, over N."),
}  # fmt: skip

#: Results of thresholds that were found on other scores.
TRANSFERRED = {
    "threshold": _always("k", _SCORES, "calibration threshold",
        "The (B+1)-th largest of the calibration scores, B = floor(n k), or floor((n + 1) k - C) with the "
        "guarantee."),
    "average_set_size": _always("k", _FLOAT, "realised average set size",
        "Number of the new scores greater than the calibration threshold, over N."),
    "average_set_size_stderr": _always("k", _FLOAT, "standard error of the realised size",
        "sqrt(Var(Z) (1/n + 1/N)), Z the sizes of the N new sets, n the number of calibration samples: how far the "
        "realised size is from its target by chance."),
    "average_k_error": _always("k", _FLOAT, "realised error",
        "Fraction of the new labelled samples whose label is outside {score > calibration threshold}, expected "
        "with soft labels."),
    "own_threshold": _always("k", _SCORES, "own threshold",
        "The threshold that the new scores themselves have for the budget."),
    "own_average_set_size": _always("k", _FLOAT, "own average set size",
        "Labels in the average-k sets of the new scores together, over N."),
    "own_average_k_error": _always("k", _FLOAT, "own average-k error",
        "The average-k error of the new scores at their own threshold."),
}  # fmt: skip

#: Results over temperatures.
TEMPERATURES = {
    "nll": _of("temperature", _FLOAT, "NLL", "Mean of -log p[label] over the labelled samples."),
    "top_k_error": _of("temperature", _FLOAT, "top-k error",
        "That of the softmax at this temperature; NaN for a fractional k."),
    "average_k_error": _of("temperature", _FLOAT, "average-k error", "That of the softmax at this temperature."),
}  # fmt: skip

#: Results over losses.
LOSSES = {
    "mean_loss": _of("loss", _FLOAT, "mean loss", "Mean over the labelled samples, expected with soft labels."),
    "mu": _of("loss", _FLOAT, "strong properness", "The loss is this strongly proper, in the 1-norm of the paper."),
}  # fmt: skip

#: Results over bins of scores.
_BINS = {
    "bin_low": _of("bin", _FLOAT, "lower edge", "Where the bin begins."),
    "bin_high": _of("bin", _FLOAT, "upper edge", "Where the bin ends."),
    "count": _of("bin", _INT, "scores", "Number of scores of labelled samples in the bin."),
    "confidence": _of("bin", _FLOAT, "mean score", "Mean of the scores in the bin; NaN where there are none."),
    "accuracy": _of("bin", _FLOAT, "label fraction",
        "Fraction of the scores in the bin that are their sample's label's."),
}  # fmt: skip

CALIBRATION = {
    **_BINS,
    "expected_calibration_error": _of("", _FLOAT, "expected calibration error",
        "Mean over bins, by count, of |accuracy - confidence|."),
}  # fmt: skip

NEAR_THRESHOLD = {
    **_BINS,
    "threshold": _of("", _FLOAT, "threshold lambda", "The threshold of the budget."),
    "total_count": _of("", _INT, "scores", "Number of scores of labelled samples in all bins."),
    "total_confidence": _of("", _FLOAT, "mean score", "Mean of the scores in all bins."),
    "total_accuracy": _of("", _FLOAT, "label fraction", "Fraction of those that are their sample's label's."),
}  # fmt: skip


def _by(part: str) -> dict[str, Variable]:
    """Return the variables of the samples of each class, or of each group."""
    samples = f"of the {part}"
    return {
        f"{part}_n_labelled": _of(part, _INT, "labelled samples", f"Number of labelled samples {samples}."),
        f"{part}_coverage": _of(part, _FLOAT, "coverage",
            f"Share of the labelled samples {samples} whose set holds the label; NaN without any."),
        f"{part}_average_set_size": _of(part, _FLOAT, "average set size",
            f"Mean size of the sets of the samples {samples}; NaN without any."),
        f"{part}_p_value_low": _of(part, _FLOAT, "probability of so few hits",
            f"Of as many hits among the samples {samples}, or fewer, over draws of calibration and new samples, with a "
            "threshold of its own; NaN without any."),
    }  # fmt: skip


#: Which ties at a threshold are kept, as users choose it and as the report says it; ``kernels.keys`` defines the orders.
Ties: TypeAlias = Literal["first", "spread"]
TIES: dict[Ties, str] = {
    "first": "the first ones in row-major order",
    "spread": "spread over the samples",
}

#: The content of the sets of each conformal method; ``bands.conformal`` computes them.
CONFORMAL_METHODS = {
    "lac": "all classes whose score reaches a threshold",
    "aps": "the highest classes until their probabilities add up to a threshold",
    "raps": "the highest classes until their probabilities, with a penalty for late ranks, add up to a threshold",
    "top_k": "the same number of highest classes for each sample",
}

#: Variables of the ``evaluate`` result of a conformal predictor.
COVERAGE = {
    "class": _of("class", _INT, "class", "Number of a class."),
    "class_name": _of("class", _TEXT, "name", "Name of the class, where names are known."),
    "level": _of("level", _FLOAT, "level", "Coverage that classes are compared with."),
    "coverage": _always("", _FLOAT, "coverage", "Share of the labelled samples whose set holds the label."),
    "coverage_stderr": _always("", _FLOAT, "standard error of the coverage",
        "sqrt(c (1 - c) / n_labelled), c the coverage, the threshold taken as given."),
    "average_set_size": _always("", _FLOAT, "average set size", "Labels in all sets together, over N."),
    "set_size_count": _always("size", _INT, "sets of each size", "Number of samples whose set has that size."),
    "set_hit_count": _always("size", _INT, "hits of each size",
        "Number of labelled samples whose set has that size and holds the label."),
    "size_coverage": _always("size", _FLOAT, "coverage by size",
        "Share of the labelled samples with a set of that size that it holds the label of; NaN without any."),
    "macro_coverage": _of("", _FLOAT, "macro coverage", "Mean of the coverages of the classes that occur."),
    "share_below": _of("level", _FLOAT, "share of the classes below",
        "Share of the classes that occur whose coverage is below the level."),
    "n_hits": _always("", _INT, "hits", "Number of labelled samples whose set holds the label."),
    "hits_low": _always("", _FLOAT, "fewest hits to expect",
        "Lower end of the interval of n_hits, beta-binomial; NaN where there are several thresholds."),
    "hits_high": _always("", _FLOAT, "most hits to expect", "Upper end of that interval."),
    "p_value_low": _always("", _FLOAT, "probability of so few hits",
        "Of n_hits or fewer, over draws of calibration and new samples; NaN where there are several thresholds."),
    "p_value_high": _always("", _FLOAT, "probability of so many hits", "Of n_hits or more, the same way."),
    **_by("class"),
    **_by("group"),
}  # fmt: skip
