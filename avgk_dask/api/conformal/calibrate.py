"""``conformal.calibrate``: thresholds whose sets hold the label of a new sample with a chosen probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...arrays import Dtype, Ints, whole_number
from ...bands.conformal import METHODS, ConformalMethod
from ...engine.run import Run, drive
from ...errors import BudgetError, LabelsError, OptionError
from ...exact.budgets import parse_budget
from ...exact.coverage import quantile_rank
from ...kernels.keys import check_dtype
from ...settings import setting
from ...statistics.costs import CostPlan, QuantileSearch
from ...statistics.truncated import certify_first_key, certify_ranks
from ..inputs.labels import Groups, labelled_source, refuse_soft
from ..inputs.names import open_once, recorded_names
from ..options import BudgetLike, LabelsLike, Missing, NanPolicy, ScanOptions, ScoresLike
from .evaluation import refuse_sums
from .predictors import ConformalPredictor, check_method

#: The smallest number of bins per group: each read then settles six more bits.
_LEAST_BINS = 64


@dataclass(frozen=True)
class CalibrationOptions:
    """The checked options of ``calibrate``."""

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
        """Check the options."""
        kind = METHODS.get(method) if isinstance(method, str) else None
        if kind is None:
            raise OptionError(f"method must be one of {', '.join(METHODS)}; got {method!r}. Leave it out for lac.")
        if isinstance(by, str) and by != "class":
            raise OptionError(
                f"by must be 'class' or one integer per sample; got {by!r}. Leave it out for a single threshold."
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
            f"alpha must be a number between 0 and 1; got {alpha!r}. Pass the allowed error rate, such as 0.1."
        )
    return value


def _parse_seed(seed: int | None, method: type[ConformalMethod]) -> int | None:
    if seed is None:
        return None
    if not method.has_seed:
        randomised = " and ".join(name for name, kind in METHODS.items() if kind.has_seed)
        raise OptionError(
            f"seed must be None for the method {method.name!r}; got {seed!r}. Only {randomised} can be randomised."
        )
    if not 0 <= whole_number(seed) < 2**64:
        raise OptionError(f"seed must be an integer from 0 to 2**64 - 1; got {seed!r}. Pass one such as 0.")
    return int(seed)


def _parse_penalty(
    penalty: BudgetLike | None, k_reg: int | None, method: type[ConformalMethod]
) -> tuple[Fraction, int]:
    """Return the penalty and the number of ranks without it: 0.01 and 5 by default for RAPS, 0 for other methods."""
    if not method.has_penalty:
        for name, value in (("penalty", penalty), ("k_reg", k_reg)):
            if value is not None:
                raise OptionError(
                    f"{name} must be None for the method {method.name!r}; got {value!r}. Use it with raps."
                )
        return Fraction(0), 0
    try:
        value = Fraction(1, 100) if penalty is None else parse_budget(penalty)
    except BudgetError:
        value = Fraction(-1)
    if value < 0:
        raise OptionError(f"penalty must be a number of at least 0; got {penalty!r}. Pass one such as 0.01.")
    if k_reg is not None and whole_number(k_reg) < 0:
        raise OptionError(
            f"k_reg must be an integer of at least 0; got {k_reg!r}. Pass the number of ranks without penalty."
        )
    return value, 5 if k_reg is None else int(k_reg)


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
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    missing: Missing | None = None,
) -> ConformalPredictor:
    """Find the threshold whose sets contain the label of a new sample with probability at least 1 - alpha.

    Split conformal prediction: each class has a cost, such as its negative score. The threshold is the r-th smallest cost
    of the n calibration labels, r = ceil((n + 1)(1 - alpha)), computed exactly. A set holds the classes that cost at most
    the threshold, and all classes if r > n. If calibration and new samples are exchangeable, a set contains the label
    with probability at least 1 - alpha and, without ties, at most 1 - alpha + 1 / (n + 1).

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds
        them. By default the labels stored with the scores.
    alpha
        The allowed error rate, between 0 and 1, exact like a budget: 0.1 means one in ten.
    method
        ``"lac"``: the classes with score >= threshold, ties included. It gives the smallest sets on average, and takes any
        scores. ``"aps"``: the cost of a class is the sum of the probabilities down to its rank, its own included.
        ``"raps"``: the same plus ``penalty * max(0, rank - k_reg)``, ranks from 1. ``"top_k"``: the cost is the rank, so
        that all sets have the same size. Ranks go by score, ties by class number.
    by
        ``"class"``: one threshold per class from the samples of that class, with the guarantee for each class. Or an
        array with one integer per sample: one threshold per group. If a class or group has too few samples for alpha,
        its sets hold all classes.
    seed
        For APS and RAPS, an integer makes the sets random: U times the probability of the class is subtracted from its
        cost, with one pseudo-random U in [0, 1) per sample, which depends on the seed and the sample's number only.
        Coverage is then close to 1 - alpha, and sets may be empty. None for deterministic sets, which cover more.
    penalty, k_reg
        For RAPS: a number of at least 0, by default 0.01, and an integer of at least 0, by default 5.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
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
        With ``threshold``, ``rank``, ``n_calibration``, and the methods ``sets``, ``evaluate`` and ``save``.

    Raises
    ------
    OptionError
        If an option is not one of the values it may take, or does not fit the method.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN; for APS and RAPS also if they are not in [0, 1] or
        a row sums to more than 2; if a truncated store does not determine the threshold.
    LabelsError
        If the labels do not fit the scores, are probabilities or missing; if groups do not fit.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store. If the labels have more than a million distinct costs (the setting ``avgk.label-costs``,
    at least 64 per class or group), costs are counted in bins of 24 bytes each, and a second read settles the threshold.
    Memory does not grow with N. A truncated store, which LAC and top_k accept, takes one more read.

    APS and RAPS round each probability once to a multiple of 2**-60 (a coarser one if the penalty needs the bits) and add
    these integers: the same bits for any chunking. With NaN ranked lowest, a class whose score is NaN is in no set at all.

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
    reading = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, missing=missing
    )
    options = CalibrationOptions.parse(alpha, method, by, seed, penalty, k_reg)
    scores = open_once(scores, missing)
    source = labelled_source(scores, labels, "conformal sets", hard=True, **reading.opening)
    refuse_soft(source, "conformal sets")
    check_method(options.method, source, options.by, nan_policy)
    costs = options.method_for(source.dtype, source.n_classes)
    groups, n_groups = None, source.n_classes if options.by == "class" else 1
    if options.by == "group":
        column = Groups.from_input(by, scores, source, "by", missing, labels=labels, where=where)
        groups = column.names()
        source, n_groups = column.pack_with_labels(source, groups), groups.size
    with reading.run(source) as run:
        search = _find_levels(run, costs, options, n_groups)
        levels, counts = search.levels(), search.counts
        assert counts is not None
        if groups is not None:  # groups without calibration samples are left out
            occurs = counts > 0
            groups, levels, counts = groups[occurs], levels[occurs], counts[occurs]
        first_key, last_rank = costs.least_key(levels), costs.last_rank(levels, source.n_classes)
        if first_key is not None:
            certify_first_key(run, first_key, "the threshold for alpha")
        if last_rank is not None:
            certify_ranks(run.source, last_rank, "alpha")
    return _make_predictor(costs, levels, counts, options, groups, source.n_classes, run.reads, recorded_names(scores))


def _find_levels(run: Run, method: ConformalMethod, options: CalibrationOptions, n_groups: int) -> QuantileSearch:
    """Find the level of each threshold."""
    source = run.source
    n_bins = max(setting("label-costs"), _LEAST_BINS * n_groups)
    plan = CostPlan(source.dtype, source.shape[1], method, options.by or "", n_bins, tuple(source.rows))
    search = QuantileSearch(plan, source.shape[0], n_groups, options.alpha)
    first = search.next_pass()
    assert first is not None
    state = run.read(first)
    refuse_sums(state, source, method)
    if not state.n_labelled:
        raise LabelsError("at least one sample must be labelled; got none. Label some samples.")
    return drive(search.advance(state), run)


def _make_predictor(
    method: ConformalMethod, levels: Ints, counts: Ints, options: CalibrationOptions,
    groups: Ints | None, n_classes: int, reads: int, class_names: tuple[str, ...] | None,
) -> ConformalPredictor:  # fmt: skip
    """Return the predictor with the level of each threshold and the number of its calibration samples."""
    ranks = np.array([quantile_rank(n, options.alpha) for n in counts.tolist()], np.int64)
    threshold = method.shown_thresholds(levels, method.everything_in(levels, counts, ranks), n_classes)
    for array in (levels, counts, ranks, threshold):
        array.setflags(write=False)
    single = options.by is None
    number = int if method.shows_integers and math.isfinite(threshold[0]) else float
    return ConformalPredictor(
        method=method.name,
        alpha=float(options.alpha),
        threshold=number(threshold[0]) if single else threshold,
        rank=int(ranks[0]) if single else ranks,
        n_calibration=int(counts[0]) if single else counts,
        n_classes=n_classes,
        by=options.by,
        groups=groups,
        penalty=float(options.penalty),
        k_reg=options.k_reg,
        seed=options.seed,
        reads=reads,
        _alpha=options.alpha,
        _penalty=options.penalty,
        _method=method,
        _levels=levels,
        class_names=class_names,
    )


def restore_predictor(content: dict[str, Any]) -> ConformalPredictor:
    """Return the predictor that a file holds; KeyError, TypeError or ValueError if it does not hold one."""
    by, n_classes, levels, counts, groups = (
        content[name] for name in ("by", "n_classes", "levels", "n_calibration", "groups")
    )
    if not all(isinstance(array, np.ndarray) for array in (levels, counts, groups)):
        raise TypeError("its thresholds are not stored as arrays")
    groups = groups if by == "group" else None
    kind = METHODS.get(content["method"])
    penalty = (Fraction(content["penalty"]), content["k_reg"]) if kind and kind.has_penalty else (None, None)
    options = CalibrationOptions.parse(
        Fraction(content["alpha"]), content["method"], by if groups is None else groups, content["seed"], *penalty
    )
    method = options.method_for(check_dtype(content["dtype"]), n_classes)
    if whole_number(n_classes) < 1 or whole_number(content["reads"]) < 0:
        raise ValueError("its number of classes or of reads is out of range")
    n_thresholds = 1 if by is None else n_classes if groups is None else groups.size
    if not (levels.shape == counts.shape == (n_thresholds,)) or not method.allows(levels) or (counts < 0).any():
        raise ValueError("its thresholds do not fit its classes or groups, or its dtype")
    names = content.get("class_names")  # earlier files have none
    if names is not None and (len(names) != n_classes or not all(isinstance(name, str) for name in names)):
        raise ValueError("its names do not fit its classes")
    names = None if names is None else tuple(names)
    return _make_predictor(method, levels, counts, options, groups, n_classes, content["reads"], names)
