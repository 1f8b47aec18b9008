"""The result Dataset: every variable with its dimensions, dtype and meaning, in one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One variable of a result."""

    dims: tuple[str, ...]
    #: The dtypes it may have; the first one unless the values need another.
    dtypes: tuple[str, ...]
    long_name: str
    description: str


#: Scores are float64, which holds every dtype's values but 64-bit integers; those stay as they are.
_SCORES = ("float64", "int64", "uint64")

COORDINATES = {
    "k": Variable(("k",), ("float64",), "budget", "Labels per sample on average, as asked."),
    "size": Variable(("size",), ("int64",), "set size", "Number of labels in a set."),
    "order": Variable(("order",), ("int64",), "straddle order", "Compares rank k + order with rank k + 1 - order."),
    "rank": Variable(("rank",), ("int64",), "rank", "Place of a score in its row; 1 is the highest."),
    "bin": Variable(("bin",), ("int64",), "bin", "Number of a bin of a histogram."),
    "loss": Variable(("loss",), ("str",), "loss", "Name of a loss."),
    "temperature": Variable(("temperature",), ("float64",), "temperature", "What logits are divided by."),
    "model": Variable(("model",), ("str",), "model", "Name of a model."),
    "other": Variable(("other",), ("str",), "other model", "Name of the model that it is compared with."),
    "pair": Variable(("pair",), ("int64",), "pair", "Number of a pair of classes, the most frequent first."),
    "rule": Variable(("rule",), ("str",), "rule", "Top-k or average-k sets."),
    "utility": Variable(("utility",), ("str",), "utility", "What a set of some size that holds its label is worth."),
    "group": Variable(("group",), ("str", "int64"), "group", "Name or number of a group of samples."),
}

#: Dimensions that any variable may have before its own, in this order.
LEADING = ("model", "group", "utility")

VARIABLES = {
    "threshold": Variable(
        ("k",),
        _SCORES,
        "threshold lambda",
        "The (B+1)-th largest of all scores, B = floor(N k); the smallest one where B = N C.",
    ),
    "n_above": Variable(("k",), ("int64",), "scores above", "Number of scores greater than the threshold."),
    "n_ties": Variable(("k",), ("int64",), "ties", "Number of scores equal to the threshold."),
    "n_kept": Variable(
        ("k",), ("int64",), "kept ties", "Ties kept to fill the budget: the first ones in row-major order, or spread."
    ),
    "average_set_size": Variable(("k",), ("float64",), "average set size", "Labels in all sets together, over N."),
    "average_k_error": Variable(
        ("k",),
        ("float64",),
        "average-k error",
        "Fraction of labelled samples whose label is outside its average-k set; expected fraction with soft labels.",
    ),
    "average_k_error_lowest": Variable(
        ("k",), ("float64",), "lowest average-k error", "The least over all ways to keep n_kept of the n_ties."
    ),
    "average_k_error_highest": Variable(
        ("k",), ("float64",), "highest average-k error", "The greatest over all ways to keep n_kept of the n_ties."
    ),
    "average_k_error_expected": Variable(
        ("k",), ("float64",), "expected average-k error", "The mean over all ways to keep n_kept of the n_ties."
    ),
    "top_k_error": Variable(
        ("k",),
        ("float64",),
        "top-k error",
        "Fraction of labelled samples whose label is not among its k highest scores, expected with soft labels; NaN for a fractional k.",
    ),
    "average_k_error_stderr": Variable(
        ("k",),
        ("float64",),
        "standard error of the average-k error",
        "Over draws of the samples, or of the clusters; the threshold, which is found on the same samples, varies with them. "
        "NaN without hard labels.",
    ),
    "top_k_error_stderr": Variable(
        ("k",),
        ("float64",),
        "standard error of the top-k error",
        "The same for the top-k error; NaN for a fractional k.",
    ),
    "adaptive_gain": Variable(("k",), ("float64",), "adaptive gain", "top_k_error - average_k_error."),
    "adaptive_gain_stderr": Variable(
        ("k",),
        ("float64",),
        "standard error of the adaptive gain",
        "Both errors are of the same samples: their difference is taken sample by sample. NaN for a fractional k, without "
        "hard labels, and where ties were cut in the pseudo-random order.",
    ),
    "relative_gain": Variable(
        ("k",), ("float64",), "relative gain", "adaptive_gain / top_k_error; NaN where that is 0."
    ),
    "relative_gain_stderr": Variable(
        ("k",), ("float64",), "standard error of the relative gain", "The same for relative_gain; NaN where that is."
    ),
    "plug_in_bound": Variable(
        (),
        ("float64",),
        "plug-in bound",
        "Mean over samples of the sum of |eta - score|: bounds the regret of both plug-in rules. NaN where a score is "
        "not in [0, 1].",
    ),
    "adaptive_gain_symmetric": Variable(
        ("k",),
        ("float64",),
        "adaptive gain, second form",
        "Mean over samples of the sum of |eta - threshold| over the classes in exactly one of the top-k and average-k sets.",
    ),
    "top_k_regret": Variable(
        ("k",), ("float64",), "top-k regret", "top_k_error less that of the best top-k sets, those of eta."
    ),
    "average_k_regret": Variable(
        ("k",), ("float64",), "average-k regret", "average_k_error less that of the best average-k sets, those of eta."
    ),
    "set_error": Variable((), ("float64",), "error of the sets", "Expected fraction of labels outside the sets."),
    "optimal_error": Variable(
        (), ("float64",), "optimal error", "Expected error of the best sets with as many labels in all."
    ),
    "regret": Variable((), ("float64",), "regret", "set_error - optimal_error."),
    "regret_symmetric": Variable(
        (),
        ("float64",),
        "regret, second form",
        "Mean over samples of the sum of |eta - threshold| over the classes in exactly one of the set and the best set.",
    ),
    "mean_top_k_error": Variable((), ("float64",), "mean top-k error", "Mean of the top-k error over k = 1..C."),
    "mean_average_k_error": Variable(
        (), ("float64",), "mean average-k error", "Mean of the average-k error over k = 1..C."
    ),
    "set_size_count": Variable(
        (
            "k",
            "size",
        ),
        ("int64",),
        "sets of each size",
        "Number of samples whose average-k set has that size.",
    ),
    "set_hit_count": Variable(
        ("k", "size"),
        ("int64",),
        "sets of each size with their label",
        "Number of labelled samples whose average-k set has that size and holds the label; with hard labels only.",
    ),
    "straddle_strength": Variable(
        ("k", "order"),
        ("float64",),
        "straddle strength",
        "Mean over all pairs of samples of max(0, s(x)[k + order] - s(x')[k + 1 - order]), s sorted decreasingly; "
        "NaN where the order does not exist or a score is infinite.",
    ),
    "straddle_strength_error": Variable(
        ("k", "order"), ("float64",), "error of the straddle strength", "Certified bound on its error; 0 when exact."
    ),
    "straddle_weight": Variable(
        ("k", "order"), ("float64",), "straddle weight", "Fraction of the pairs with a positive difference."
    ),
    "straddle_weight_error": Variable(
        ("k", "order"), ("float64",), "error of the straddle weight", "Certified bound on its error; 0 when exact."
    ),
    "straddle_magnitude": Variable(
        ("k", "order"),
        ("float64",),
        "straddle magnitude",
        "Mean difference of the pairs where it is positive; 0 where there are none. As exact as strength and weight are.",
    ),
    "straddle_bound": Variable(
        ("k",),
        ("float64",),
        "straddle bound",
        "Sum of the straddle strengths over the orders, for k > C / 2 order 1 alone: a lower bound on the adaptive "
        "gain where the scores are the true probabilities.",
    ),
    "straddle_bound_error": Variable(
        ("k",), ("float64",), "error of the straddle bound", "Certified bound on its error; 0 when exact."
    ),
    "support_low": Variable(
        ("rank",), _SCORES, "lower end of the support", "Smallest value of the score of that rank."
    ),
    "support_high": Variable(
        ("rank",), _SCORES, "upper end of the support", "Largest value of the score of that rank."
    ),
    "supports_overlap": Variable(
        ("k",),
        ("float64",),
        "supports overlap",
        "1 where the largest score of rank k + 1 exceeds the smallest of rank k, else 0; NaN for a fractional k. "
        "Average-k can gain on top-k only where they overlap, if the scores are the true probabilities.",
    ),
    "ranked_count": Variable(
        ("rank", "bin"), ("int64",), "samples in the bin", "Number of samples whose score of that rank is in the bin."
    ),
    "bin_low": Variable(
        ("rank", "bin"),
        _SCORES,
        "lower edge of the bin",
        "The bin holds scores from here up to the next bin's lower edge; the last one up to the support's end.",
    ),
}


_PAIR = ("rule", "model", "other", "k")
#: What a comparison of models has besides.
COMPARISON = {
    **VARIABLES,
    "difference": Variable(_PAIR, ("float64",), "difference", "Error of the model less error of the other."),
    "difference_stderr": Variable(
        _PAIR,
        ("float64",),
        "standard error of the difference",
        "Both are of the same samples: the difference is taken sample by sample.",
    ),
    "discordant": Variable(
        _PAIR,
        ("int64",),
        "discordant samples",
        "Number of labelled samples that the model gets right and the other wrong.",
    ),
    "mcnemar_p": Variable(
        _PAIR,
        ("float64",),
        "McNemar's p-value",
        "Exact and two-sided: how likely discordant samples would be divided as unevenly by chance, were both models as good.",
    ),
    "mcnemar_p_adjusted": Variable(
        _PAIR,
        ("float64",),
        "adjusted p-value",
        "McNemar's p-value adjusted for all pairs, rules and budgets by Benjamini and Hochberg: of those up to a level, no "
        "larger share is expected to be by chance.",
    ),
    "average_against_top": Variable(
        ("model", "other", "k"),
        ("float64",),
        "average-k against top-k",
        "Average-k error of the model less top-k error of the other.",
    ),
    "average_against_top_stderr": Variable(
        ("model", "other", "k"), ("float64",), "its standard error", "Taken sample by sample."
    ),
}

#: Results by class, or by group.
BREAKDOWN = {
    "n_samples": Variable(("group",), ("int64",), "samples", "Number of samples of the group."),
    "n_labelled": Variable(("group",), ("int64",), "labelled samples", "Number of those that have a label."),
    "threshold": Variable(("k",), _SCORES, "threshold lambda", "The one threshold of all groups."),
    "group_threshold": Variable(
        ("k", "group"),
        _SCORES,
        "threshold of the group",
        "That of the group's own samples; they share no labels with others.",
    ),
    "average_k_error": Variable(
        ("k", "group"),
        ("float64",),
        "average-k error",
        "Fraction of the group's labelled samples whose label is outside its set; NaN where there is none.",
    ),
    "average_k_error_low": Variable(
        ("k", "group"),
        ("float64",),
        "lower Wilson bound",
        "Lower end of the 95 % Wilson interval of the average-k error.",
    ),
    "average_k_error_high": Variable(
        ("k", "group"),
        ("float64",),
        "upper Wilson bound",
        "Upper end of the 95 % Wilson interval of the average-k error.",
    ),
    "top_k_error": Variable(
        ("k", "group"), ("float64",), "top-k error", "The same for the top-k sets; NaN for a fractional k."
    ),
    "adaptive_gain": Variable(("k", "group"), ("float64",), "adaptive gain", "top_k_error - average_k_error."),
    "average_set_size": Variable(
        ("k", "group"),
        ("float64",),
        "average set size",
        "Mean number of labels in the average-k sets of the group's samples.",
    ),
    "macro_average_k_error": Variable(
        ("k",),
        ("float64",),
        "macro average-k error",
        "Mean of the average-k error over the groups with labelled samples.",
    ),
    "macro_top_k_error": Variable(
        ("k",), ("float64",), "macro top-k error", "Mean of the top-k error over the groups with labelled samples."
    ),
    "name": Variable(("group",), ("str",), "name", "Name of the class or group."),
}

#: Utilities of sets.
UTILITIES = {
    "average_k_utility": Variable(
        ("k",),
        ("float64",),
        "utility of average-k",
        "Mean of the utility of the average-k sets that hold their label, less the mean cost of all sets.",
    ),
    "top_k_utility": Variable(
        ("k",), ("float64",), "utility of top-k", "The same of the top-k sets; NaN for a fractional k."
    ),
    "threshold": Variable(("k",), _SCORES, "threshold lambda", "The threshold of the average-k sets."),
}

#: Classes that are in sets together.
PAIRS = {
    "class_a": Variable(("pair",), ("int64",), "first class", "The lower class number of the pair."),
    "class_b": Variable(("pair",), ("int64",), "second class", "The higher class number of the pair."),
    "name_a": Variable(("pair",), ("str",), "name of the first class", "Its name."),
    "name_b": Variable(("pair",), ("str",), "name of the second class", "Its name."),
    "count": Variable(("pair",), ("int64",), "sets", "Number of sets that hold both classes."),
    "n_sets_a": Variable(("pair",), ("int64",), "sets of the first class", "Number of sets that hold it."),
    "n_sets_b": Variable(("pair",), ("int64",), "sets of the second class", "Number of sets that hold it."),
}

#: Results over given thresholds.
AT_THRESHOLDS = {
    "threshold": Variable(("threshold",), ("float64",), "", ""),
    "error": Variable(
        ("threshold",),
        ("float64",),
        "error",
        "Fraction of labelled samples whose label is outside {score > threshold}.",
    ),
    "average_set_size": Variable(
        ("threshold",),
        ("float64",),
        "average set size",
        "Number of scores greater than the threshold, over N: the paper's function G.",
    ),
    "risk": Variable(("threshold",), ("float64",), "risk", "error + cost * average_set_size"),
}

#: Results over given average set sizes.
AT_SIZES = {
    "average_set_size": Variable(("average_set_size",), ("float64",), "", ""),
    "threshold": Variable(
        ("average_set_size",), _SCORES, "threshold", "The least t with at most that many scores above it, over N."
    ),
}

#: Results of thresholds that were found on other scores.
TRANSFERRED = {
    "threshold": Variable(
        ("k",),
        _SCORES,
        "calibration threshold",
        "The (B+1)-th largest of the calibration scores, B = floor(n k), or floor((n + 1) k - C) with the guarantee.",
    ),
    "average_set_size": Variable(
        ("k",),
        ("float64",),
        "realised average set size",
        "Number of the new scores greater than the calibration threshold, over N.",
    ),
    "average_set_size_stderr": Variable(
        ("k",),
        ("float64",),
        "standard error of the realised size",
        "sqrt(Var(Z) (1/n + 1/N)), Z the sizes of the N new sets, n the number of calibration samples: how far the "
        "realised size is from its target by chance.",
    ),
    "average_k_error": Variable(
        ("k",),
        ("float64",),
        "realised error",
        "Fraction of the new labelled samples whose label is outside {score > calibration threshold}, expected with soft "
        "labels.",
    ),
    "own_threshold": Variable(
        ("k",), _SCORES, "own threshold", "The threshold that the new scores themselves have for the budget."
    ),
    "own_average_set_size": Variable(
        ("k",), ("float64",), "own average set size", "Labels in the average-k sets of the new scores together, over N."
    ),
    "own_average_k_error": Variable(
        ("k",), ("float64",), "own average-k error", "The average-k error of the new scores at their own threshold."
    ),
}

#: Results over temperatures.
TEMPERATURES = {
    "nll": Variable(("temperature",), ("float64",), "NLL", "Mean of -log p[label] over the labelled samples."),
    "top_k_error": Variable(
        ("temperature",),
        ("float64",),
        "top-k error",
        "That of the softmax at this temperature; NaN for a fractional k.",
    ),
    "average_k_error": Variable(
        ("temperature",), ("float64",), "average-k error", "That of the softmax at this temperature."
    ),
}

#: Results over losses.
LOSSES = {
    "mean_loss": Variable(
        ("loss",), ("float64",), "mean loss", "Mean over the labelled samples, expected with soft labels."
    ),
    "mu": Variable(
        ("loss",), ("float64",), "strong properness", "The loss is this strongly proper, in the 1-norm of the paper."
    ),
}

#: Results over bins of scores.
_BINS = {
    "bin_low": Variable(("bin",), ("float64",), "lower edge", "Where the bin begins."),
    "bin_high": Variable(("bin",), ("float64",), "upper edge", "Where the bin ends."),
    "count": Variable(("bin",), ("int64",), "scores", "Number of scores of labelled samples in the bin."),
    "confidence": Variable(
        ("bin",), ("float64",), "mean score", "Mean of the scores in the bin; NaN where there are none."
    ),
    "accuracy": Variable(
        ("bin",), ("float64",), "label fraction", "Fraction of the scores in the bin that are their sample's label's."
    ),
}
CALIBRATION = {
    **_BINS,
    "expected_calibration_error": Variable(
        (), ("float64",), "expected calibration error", "Mean over bins, by count, of |accuracy - confidence|."
    ),
}
NEAR_THRESHOLD = {
    **_BINS,
    "threshold": Variable((), ("float64",), "threshold lambda", "The threshold of the budget."),
    "total_count": Variable((), ("int64",), "scores", "Number of scores of labelled samples in all bins."),
    "total_confidence": Variable((), ("float64",), "mean score", "Mean of the scores in all bins."),
    "total_accuracy": Variable(
        (), ("float64",), "label fraction", "Fraction of those that are their sample's label's."
    ),
}


# Results of conformal sets: every variable of ``evaluate`` of a conformal predictor.


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


#: What the sets of each conformal method hold; ``bands.conformal`` computes them.
CONFORMAL_METHODS = {
    "lac": "all classes whose score reaches a threshold",
    "aps": "the highest classes until their probabilities add up to a threshold",
    "raps": "the highest classes until their probabilities, with a penalty for late ranks, add up to a threshold",
    "top_k": "the same number of highest classes for each sample",
}

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
