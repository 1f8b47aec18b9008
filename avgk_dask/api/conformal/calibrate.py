"""Conformal predictors made of what was found, or of what a file tells."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ...arrays import Ints, whole_number
from ...engine.run import Run, drive, running
from ...errors import LabelsError
from ...exact.coverage import quantile_rank
from ...kernels.keys import check_dtype, key_range
from ...settings import setting
from ...sources.source import Source
from ...statistics.costs import CostPlan, Costs, QuantileSearch
from ...statistics.truncated import certify_first_key, certify_ranks
from ..inputs.labels import Groups
from ..inputs.names import open_once, recorded_names
from ..inputs.sources import as_source
from ..options import BudgetLike, LabelsLike, ScoresLike, check_flag, check_nan_policy
from .evaluation import refuse_sums
from .methods import AskedSets, Told, are_everything, check_method_on, shown_thresholds
from .predictors import ConformalPredictor


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


# ``conformal.calibrate``: thresholds whose sets hold the label of a new sample with a chosen probability.


#: Bins for each group at least: a read then tells six bits more.
_LEAST_BINS = 64


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
        more than 2; where a truncated store does not tell the threshold for certain.
    LabelsError
        Where the labels do not fit the scores, are probabilities, or there are none; where groups do not fit.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

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
    asked = AskedSets.of(alpha, method, by, seed, penalty, k_reg)
    scores = open_once(scores, missing)
    source = as_source(scores, labels, missing=missing, where=where, ignore_index=ignore_index)
    _check_labels(source)
    check_method_on(source, method, asked.by, nan_policy)
    costs, names = asked.costs(source.dtype, source.n_classes), None
    if asked.by == "group":
        groups = Groups.of(by, scores, source, "by", missing, labels=labels, where=where)
        names = groups.names()
        source = groups.beside_labels(source, names)
    with running(source, progress, nan_policy) as run:
        search = _search(run, costs, asked, source.n_classes if names is None else names.size)
        found = _found(search, run, costs, asked, names)
    return replace(found, class_names=recorded_names(scores))


def _search(run: Run, costs: Costs, asked: AskedSets, n_names: int) -> QuantileSearch:
    """Find the level of each threshold."""
    source = run.source
    n_groups = 1 if asked.by is None else n_names
    most = max(setting("label-costs"), _LEAST_BINS * n_groups)
    plan = CostPlan(source.dtype, source.shape[1], costs, asked.by or "", most, tuple(source.rows))
    search = QuantileSearch(plan, source.shape[0], n_groups, asked.alpha)
    first = search.next_pass()
    assert first is not None
    state = run.read(first)
    refuse_sums(state, source, asked.method)
    if not state.n_labelled:
        raise LabelsError("labels must name the class of one sample at least; got none. Label some samples.")
    return drive(search.advance(state), run)


def _found(search: QuantileSearch, run: Run, costs: Costs, asked: AskedSets, names: Ints | None) -> ConformalPredictor:
    """Return the predictor of a search that has ended; groups without a calibration sample are left out."""
    levels, counts = search.levels(), search.counts
    assert counts is not None
    if names is not None:
        met = counts > 0
        names, levels, counts = names[met], levels[met], counts[met]
    if asked.method == "lac":
        certify_first_key(run, ~int(levels.max()), "the threshold for alpha")
    if asked.method == "top_k":
        certify_ranks(run.source, min(int(levels.max()), run.source.n_classes), "alpha")
    return made_predictor(costs, levels, counts, Told(asked, run.source.n_classes, names, run.reads))


def _check_labels(source: Source) -> None:
    if source.labels is None:
        raise LabelsError(
            "labels must be given for conformal sets; got None, and none are stored beside the scores. Pass class numbers "
            "(in a terminal, --labels and --new-labels)."
        )
    if source.has_soft_labels:
        raise LabelsError(
            "labels must be class numbers for conformal sets; got a matrix. Pass one label for each sample."
        )
