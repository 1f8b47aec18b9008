"""``conformal.calibrate``: thresholds whose sets hold the label of a new sample with a chosen probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...arrays import Dtype, Ints, whole_number
from ...bands.conformal import METHODS, ConformalMethod
from ...engine.run import Run, drive, running
from ...errors import BudgetError, LabelsError, OptionError
from ...exact.budgets import parse_budget
from ...exact.coverage import quantile_rank
from ...kernels.keys import check_dtype
from ...settings import setting
from ...statistics.costs import CostPlan, QuantileSearch
from ...statistics.truncated import certify_first_key, certify_ranks
from ..inputs.labels import Groups, refuse_soft
from ..inputs.names import open_once, recorded_names
from ..inputs.sources import as_source
from ..options import BudgetLike, LabelsLike, ScoresLike, check_flag, check_nan_policy
from .evaluation import refuse_sums
from .predictors import ConformalPredictor, check_method

#: Bins for each group at least: a read then settles six bits more.
_LEAST_BINS = 64


@dataclass(frozen=True)
class CalibrationOptions:
    """The options of ``calibrate``, checked."""

    alpha: Fraction
    method: type[ConformalMethod]
    by: str | None
    seed: int | None
    penalty: Fraction
    k_reg: int

    @classmethod
    def parse(
        cls, alpha: BudgetLike, method: str, by: LabelsLike, seed: int | None, penalty: BudgetLike | None, k_reg: int | None
    ) -> CalibrationOptions:  # fmt: skip
        """Return the options, or refuse them."""
        kind = METHODS.get(method) if isinstance(method, str) else None
        if kind is None:
            raise OptionError(f"method must be one of {', '.join(METHODS)}; got {method!r}. Leave it out for lac.")
        if isinstance(by, str) and by != "class":
            raise OptionError(
                f"by must be 'class', or an integer for each sample; got {by!r}. Leave it out for one threshold."
            )
        grouping = None if by is None else "class" if isinstance(by, str) else "group"
        return cls(_parse_alpha(alpha), kind, grouping, _parse_seed(seed, kind), *_parse_penalty(penalty, k_reg, kind))

    def method_for(self, dtype: Dtype, n_classes: int) -> ConformalMethod:
        """Return the method for scores of a dtype."""
        return self.method.make(dtype, n_classes, self.seed, self.penalty, self.k_reg)


def _parse_alpha(alpha: BudgetLike) -> Fraction:
    try:
        value = parse_budget(alpha)
    except BudgetError:
        value = Fraction(-1)
    if not 0 < value < 1:
        raise OptionError(
            f"alpha must be a number between 0 and 1; got {alpha!r}. Pass the error that is allowed, such as 0.1."
        )
    return value


def _parse_seed(seed: int | None, method: type[ConformalMethod]) -> int | None:
    if seed is None:
        return None
    if not method.has_seed:
        random = " and ".join(name for name, one in METHODS.items() if one.has_seed)
        raise OptionError(
            f"seed must be None for the method {method.name!r}; got {seed!r}. Only {random} have a random form."
        )
    if not 0 <= whole_number(seed) < 2**64:
        raise OptionError(f"seed must be an integer from 0 to 2**64 - 1; got {seed!r}. Pass one such as 0.")
    return int(seed)


def _parse_penalty(
    penalty: BudgetLike | None, k_reg: int | None, method: type[ConformalMethod]
) -> tuple[Fraction, int]:
    """Return the penalty and the ranks that are free of it; those of RAPS by default, and none for others."""
    if not method.has_penalty:
        for name, value in (("penalty", penalty), ("k_reg", k_reg)):
            if value is not None:
                raise OptionError(
                    f"{name} must be None for the method {method.name!r}; got {value!r}. Use it with raps."
                )
        return Fraction(0), 0
    try:
        found = Fraction(1, 100) if penalty is None else parse_budget(penalty)
    except BudgetError:
        found = Fraction(-1)
    if found < 0:
        raise OptionError(f"penalty must be a number of at least 0; got {penalty!r}. Pass one such as 0.01.")
    if k_reg is not None and whole_number(k_reg) < 0:
        raise OptionError(f"k_reg must be an integer of at least 0; got {k_reg!r}. Pass the ranks without a penalty.")
    return found, 5 if k_reg is None else int(k_reg)


def calibrate(
    scores: ScoresLike,
    labels: LabelsLike = None,
    alpha: BudgetLike = 0.1,
    method: str = "lac",
    by: LabelsLike = None,
    seed: int | None = None,
    *,
    penalty: BudgetLike | None = None,
    k_reg: int | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    missing: str | None = None,
) -> ConformalPredictor:
    """Find the threshold whose sets hold the label of a new sample with probability 1 - alpha at least.

    Split conformal prediction: the threshold is the r-th least of the costs of the n calibration labels, r = ceil((n + 1)
    (1 - alpha)), computed exactly, and a set holds the classes that cost no more; with r > n all of them. Where calibration and new samples
    are exchangeable, the label is inside with probability 1 - alpha at least, and without ties at most 1 - alpha + 1 / (n + 1).

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds
        them. By default the labels stored with the scores.
    alpha
        The error that is allowed, between 0 and 1, as exact as budgets are: 0.1 means one in ten.
    method
        ``"lac"``: the classes with score >= threshold, ties in; the smallest sets on average. Any scores will do.
        ``"aps"``: a class costs the sum of the probabilities of the ranks down to and with its own.
        ``"raps"``: that, and ``penalty * max(0, rank - k_reg)``, ranks from 1. ``"top_k"``: its rank, so that all sets have the same size.
        Ranks go by score, and among equals by class number.
    by
        ``"class"``: a threshold for each class, found on its own samples, which covers each class. Or an integer array,
        one value a sample: a threshold for each group. With too few samples for alpha, everything is in.
    seed
        For APS and RAPS, an integer: costs are less by U times the probability of the class itself, U in [0, 1) one pseudo-random number a
        sample, from the seed and the number of the sample alone. Coverage is then close to 1 - alpha; sets may be empty. None for
        deterministic sets, which cover more. LAC and top_k have no random form.
    penalty, k_reg
        Those of RAPS: a number of at least 0, by default 0.01, and an integer of at least 0, by default 5.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    ConformalPredictor
        With ``threshold, rank, n_calibration`` and others; ``sets`` and ``evaluate`` of new scores, ``save`` to a file.

    Raises
    ------
    OptionError
        Where an option is none of the values it may take, or does not go with the method.
    ScoresError, DtypeError
        Where the scores are no matrix of real numbers, or hold NaN; for APS and RAPS where they are not in [0, 1] or rows sum to
        more than 2; where a truncated store does not determine the threshold.
    LabelsError
        Where the labels do not fit the scores, are probabilities, or there are none; where groups do not fit.
    MemoryLimitError
        If a task cannot fit its share of memory; checked before reading.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store. Above a million distinct costs of labels (the setting ``avgk.label-costs``; 64 for each class or
    group at least), they are counted in bins, 24 bytes each, and a second read settles the threshold; memory does not grow with N.
    One more read of a truncated store, which LAC and top_k take.

    APS and RAPS round each probability once to a multiple of 2**-60 (with a penalty of fewer bits, as many as its sums leave) and add those
    integers up: the same bits for any chunking. With NaN ranked lowest, a class whose score is NaN is in no set, not even where everything is.

    LAC: Sadinle, Lei and Wasserman (2019); APS: Romano, Sesia and Candes (2020); RAPS: Angelopoulos et al. (2021).

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
    >>> labels = np.array([0, 1, 2, 2])
    >>> avgk.conformal.calibrate(scores, labels, alpha=0.4).threshold
    0.4
    >>> avgk.conformal.calibrate(scores, labels, alpha=0.4, method="top_k").threshold
    2

    """
    check_nan_policy(nan_policy)
    check_flag("progress", progress, or_none=True)
    options = CalibrationOptions.parse(alpha, method, by, seed, penalty, k_reg)
    scores = open_once(scores, missing)
    source = as_source(scores, labels, missing=missing, where=where, ignore_index=ignore_index)
    if source.labels is None:
        raise LabelsError(
            "labels must be given for conformal sets; got None, and none are stored beside the scores. Pass class numbers "
            "(in a terminal, --labels and --new-labels)."
        )
    refuse_soft(source, "conformal sets")
    check_method(options.method, source, options.by, nan_policy)
    costs = options.method_for(source.dtype, source.n_classes)
    groups, n_groups = None, source.n_classes if options.by == "class" else 1
    if options.by == "group":
        column = Groups.of(by, scores, source, "by", missing, labels=labels, where=where)
        groups = column.names()
        source, n_groups = column.beside_labels(source, groups), groups.size
    with running(source, progress, nan_policy) as run:
        search = _search(run, costs, options, n_groups)
        levels, counts = search.levels(), search.counts
        assert counts is not None
        if groups is not None:  # those without a calibration sample are left out
            met = counts > 0
            groups, levels, counts = groups[met], levels[met], counts[met]
        first_key, last_rank = costs.least_key(levels), costs.last_rank(levels, source.n_classes)
        if first_key is not None:
            certify_first_key(run, first_key, "the threshold for alpha")
        if last_rank is not None:
            certify_ranks(run.source, last_rank, "alpha")
    return _make_predictor(costs, levels, counts, options, groups, source.n_classes, run.reads, recorded_names(scores))


def _search(run: Run, method: ConformalMethod, options: CalibrationOptions, n_groups: int) -> QuantileSearch:
    """Find the level of each threshold."""
    source = run.source
    most = max(setting("label-costs"), _LEAST_BINS * n_groups)
    plan = CostPlan(source.dtype, source.shape[1], method, options.by or "", most, tuple(source.rows))
    search = QuantileSearch(plan, source.shape[0], n_groups, options.alpha)
    first = search.next_pass()
    assert first is not None
    state = run.read(first)
    refuse_sums(state, source, method)
    if not state.n_labelled:
        raise LabelsError("labels must name the class of one sample at least; got none. Label some samples.")
    return drive(search.advance(state), run)


def _make_predictor(
    method: ConformalMethod, levels: Ints, counts: Ints, options: CalibrationOptions,
    groups: Ints | None, n_classes: int, reads: int, class_names: tuple[str, ...] | None,
) -> ConformalPredictor:  # fmt: skip
    """Return the predictor of the level of each threshold, and the number of samples that it was found on."""
    ranks = np.array([quantile_rank(n, options.alpha) for n in counts.tolist()], np.int64)
    threshold = method.shown_thresholds(levels, method.everything_in(levels, counts, ranks), n_classes)
    for array in (levels, counts, ranks, threshold):
        array.setflags(write=False)
    one = options.by is None
    number = int if method.shows_integers and math.isfinite(threshold[0]) else float
    return ConformalPredictor(
        method.name,
        float(options.alpha),
        number(threshold[0]) if one else threshold,
        int(ranks[0]) if one else ranks,
        int(counts[0]) if one else counts,
        n_classes,
        options.by,
        groups,
        float(options.penalty),
        options.k_reg,
        options.seed,
        reads,
        options.alpha,
        options.penalty,
        method,
        levels,
        class_names,
    )


def restore_predictor(content: dict[str, Any]) -> ConformalPredictor:
    """Return the predictor that a file holds; KeyError, TypeError or ValueError if it does not hold one."""
    by, n_classes, levels, counts, groups = (
        content[name] for name in ("by", "n_classes", "levels", "n_calibration", "groups")
    )
    if not all(isinstance(array, np.ndarray) for array in (levels, counts, groups)):
        raise TypeError("its thresholds are not arrays")
    groups = groups if by == "group" else None
    kind = METHODS.get(content["method"])
    of_penalty = (Fraction(content["penalty"]), content["k_reg"]) if kind and kind.has_penalty else (None, None)
    options = CalibrationOptions.parse(
        Fraction(content["alpha"]), content["method"], by if groups is None else groups, content["seed"], *of_penalty
    )
    method = options.method_for(check_dtype(content["dtype"]), n_classes)
    if whole_number(n_classes) < 1 or whole_number(content["reads"]) < 0:
        raise ValueError("its number of classes, or of reads, is none")
    n_thresholds = 1 if by is None else n_classes if groups is None else groups.size
    if not (levels.shape == counts.shape == (n_thresholds,)) or not method.allows(levels) or (counts < 0).any():
        raise ValueError("its thresholds do not fit its classes or groups, or its dtype")
    names = content.get("class_names")  # earlier files have none
    if names is not None and (len(names) != n_classes or not all(isinstance(name, str) for name in names)):
        raise ValueError("its names do not fit its classes")
    names = None if names is None else tuple(names)
    return _make_predictor(method, levels, counts, options, groups, n_classes, content["reads"], names)
