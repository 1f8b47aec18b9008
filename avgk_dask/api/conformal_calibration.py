"""``conformal.calibrate``: thresholds whose sets hold the label of a new sample with a chosen probability."""

from __future__ import annotations

from dataclasses import replace

from ..arrays import Ints
from ..errors import LabelsError
from ..passes.certifying import certify_first_key, certify_ranks
from ..passes.run import Run, drive
from ..passes.running import running
from ..scans.cost_scan import CostPlan
from ..scans.costs import Costs
from ..searches.label_quantiles import QuantileSearch
from ..settings import setting
from ..sources.source import Source
from .conformal_evaluation import refuse_sums
from .conformal_levels import Told, check_method_on
from .conformal_making import made_predictor
from .conformal_options import AskedSets
from .conformal_predictors import ConformalPredictor
from .given import BudgetLike, LabelsLike, ScoresLike
from .input_names import open_once, recorded_names
from .inputs import as_source
from .policies import check_nan_policy
from .sample_groups import Groups
from .shared_text import documented

#: Bins for each group at least: a read then tells six bits more.
_LEAST_BINS = 64


@documented
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
    {scores}
    labels
        N integers (negative, masked or null: unlabelled). By default the labels stored beside the scores.
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
    {where}
    {ignore_index}
    {nan_policy}
    {progress}
    missing
        What a chunk that a store does not hold means: ``"raise"`` an error that names it (the default),
        ``"fill"`` the array's fill value.

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
    {refused_memory}
    {refused_store}

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
