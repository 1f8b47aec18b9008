"""The paper's gain and regret for known probabilities: ``adaptive_gain``, ``regret`` and ``plug_in_regret``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

import dask.array as da
import numpy as np
import xarray as xr
from dask.delayed import delayed

from ..axis_names import check_axes
from ..engine.run import Run
from ..errors import BudgetError, LabelsError, ScoresError
from ..exact.budgets import parse_budgets
from ..exact.sums import error_of
from ..results.datasets import build_result
from ..sources.readers import BlockReader
from ..sources.row_values import blank, checked_matrix
from ..sources.source import Source
from ..statistics.outcome import Outcome
from ..statistics.regrets import set_pass, top_pass
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import refuse_truncated
from .evaluate import find_outcome
from .inputs.lazy_scores import flat_rows, restore_sample_axes
from .inputs.names import check_same_names, names_of
from .inputs.sources import as_source, lazy_matrix
from .options import BudgetsLike, LabelsLike, NanPolicy, ScanOptions, ScoresLike, result_attrs, rounded
from .thresholds import score_value


def adaptive_gain(
    eta: ScoresLike, k: BudgetsLike, *, where: LabelsLike = None, progress: bool | None = None
) -> xr.Dataset:
    """Compute how many fewer errors the best average-k sets make than the best top-k sets, in both forms of the paper.

    If the true probabilities eta are known, the best sets are the sets of eta itself.

    Parameters
    ----------
    eta
        N x C matrix of the true probabilities, whose rows sum to 1; as ``scores`` elsewhere.
    k
        Integer budget or sequence of integer budgets in 1..C; duplicates count once.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Dataset
        Over ``k``. Both gains are exact sums rounded once, computed independently, and equal to the last bit. Errors
        are clipped at 0; so if rows of eta sum to slightly more than 1, the gain may differ from their difference.
    ``threshold, top_k_error, average_k_error``
        As in ``evaluate``, with eta as scores and as soft labels.
    ``adaptive_gain``
        top_k_error - average_k_error.
    ``adaptive_gain_symmetric``
        The mean over samples of the sum of abs(eta - lambda) over the classes that are in exactly one of the two sets.

    Raises
    ------
    BudgetError
        If a budget is not an integer in 1..C.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If eta is not in [0, 1] or its rows do not sum to 1.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: two reads of eta, after a pilot; more if the pilot was misled, as for ``evaluate``. Tasks of the second read
    hold whole rows of a chunk.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.array([[1, 0, 0], [1/2, 1/2, 0], [1/3, 1/3, 1/3]])
    >>> gain = avgk.adaptive_gain(eta, 2)
    >>> float(gain.adaptive_gain[0]) == float(gain.adaptive_gain_symmetric[0])
    True
    """
    options = ScanOptions(straddle=False, where=where, progress=progress)
    source = as_source(eta, own_labels=False, **options.opening)
    refuse_truncated(source, "a gain", in_any_order=True)
    budgets = parse_budgets(k, source.shape[1])
    if any(b.denominator != 1 for b in budgets):
        raise BudgetError(f"k must be an integer for a gain over top-k; got {k!r}. Use evaluate for a fractional k.")
    with options.run(source) as run:
        with _name_eta():
            outcome = find_outcome(run.over(_labelled_by_itself(source)), budgets, options, with_extremes=False)
        thresholds = [score_value(s.key, source.dtype) for s in outcome.selections]
        pass_ = top_pass(source.dtype, source.shape[1], [int(b) for b in budgets], [float(t) for t in thresholds])
        tallies = run.read(pass_).tallies
    sums = [t.symmetric_difference(Fraction(value)) for t, value in zip(tallies, thresholds, strict=True)]
    values = {
        "threshold": [float(t) for t in thresholds],
        "top_k_error": rounded(outcome.top_errors),
        "average_k_error": rounded(outcome.average_errors),
        "adaptive_gain": _differences(_average_weights(outcome), outcome.top_weights, source.shape[0]),
        "adaptive_gain_symmetric": rounded([s / source.shape[0] for s in sums]),
    }
    attrs = result_attrs(source, run.reads)
    return build_result(values, {"k": [float(b) for b in budgets]}, attrs)


def regret(sets: ScoresLike, eta: ScoresLike, *, where: LabelsLike = None, progress: bool | None = None) -> xr.Dataset:
    """Compute how many more errors any sets make than the best sets with the same number of labels in total.

    Parameters
    ----------
    sets
        Boolean N x C matrix, such as ``average_k_sets`` or ``predict_sets`` return, lazy or not.
    eta
        N x C matrix of the true probabilities, whose rows sum to 1; as ``scores`` elsewhere.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Dataset
        Without dimensions; the attribute ``n_labels`` is the number of labels in the sets. Both forms of the regret
        are exact sums rounded once, computed independently, and equal to the last bit.
    ``set_error``
        1 - (sum of eta inside the sets) / N, but never below 0.
    ``optimal_error``
        The same for the sets of the ``n_labels`` largest eta.
    ``regret``
        set_error - optimal_error, before either is clipped at 0.
    ``regret_symmetric``
        The mean over samples of the sum of abs(eta - lambda) over the classes in exactly one of the set and the
        best set, lambda the threshold of the best sets.

    Raises
    ------
    ScoresError, DtypeError
        If the sets are not boolean or not of eta's shape, or eta is not a matrix of real numbers.
    LabelsError
        If eta is not in [0, 1] or its rows do not sum to 1.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: two reads of eta, after a pilot, and two of the sets (lazy ones are computed twice).

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.array([[0.75, 0.25, 0], [0.5, 0.25, 0.25]])
    >>> float(avgk.regret(np.array([[1, 1, 0], [0, 0, 0]], bool), eta).regret)
    0.125
    """
    options = ScanOptions(where=where, progress=progress)
    source = as_source(eta, own_labels=False, **options.opening)
    refuse_truncated(source, "a regret")
    members = _as_sets(sets, source)
    check_axes([names_of(eta, "eta"), names_of(sets, "sets", "labels")], len(source.sample_shape), ScoresError)
    with options.run(source) as run:
        (n_labels,) = run.compute([delayed(int)(members.sum(dtype=np.int64))], "count")
        with _name_eta():
            best = find_thresholds(run.over(_labelled_by_itself(source)), [n_labels]).selections[0]
        threshold = score_value(best.key, source.dtype)
        pass_ = set_pass(source.dtype, source.shape[1], float(threshold))
        (tally,) = run.over(source.with_labels(members)).read(pass_).tallies
    n, weight = source.shape[0], tally.weight[0]
    values = {
        "set_error": float(error_of(weight, n)),
        "optimal_error": float(error_of(best.weight, n)),
        "regret": float((best.weight - weight) / n),
        "regret_symmetric": float(tally.symmetric_difference(Fraction(threshold)) / n),
    }
    return build_result(values, {}, result_attrs(source, run.reads, n_labels=n_labels))


def plug_in_regret(
    scores: ScoresLike,
    eta: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the regret of the top-k and average-k sets of estimated scores against those of the true probabilities.

    The average-k errors compared are those of sets with exactly as many labels. Exact, rounded once.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    eta
        N x C matrix of the true probabilities, whose rows sum to 1.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once. Top-k needs integers.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Dataset
        Over ``k``; top-k errors and regrets are NaN for a fractional k.
    ``top_k_error, average_k_error``
        Expected errors of the sets of the scores: 1 - (sum of eta inside the sets) / N.
    ``top_k_regret, average_k_regret``
        These errors minus the errors of the sets of eta.
    ``plug_in_bound``
        The mean over samples of the sum over classes of abs(eta - score), an upper bound on both regrets. NaN if a
        score is not in [0, 1].

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If eta is not in [0, 1] or its rows do not sum to 1, or does not fit the scores.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the scores and two of eta, after a pilot of each; more if a pilot was misled, as for ``evaluate``.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.array([[0.75, 0.25, 0], [0.5, 0.25, 0.25]])
    >>> regrets = avgk.plug_in_regret(np.array([[0.25, 0.75, 0], [0.5, 0.25, 0.25]]), eta, 1)
    >>> float(regrets.top_k_regret[0]), float(regrets.plug_in_bound)
    (0.25, 0.5)
    """
    options = ScanOptions(straddle=False, where=where, nan_policy=nan_policy, progress=progress)
    truth = as_source(eta, own_labels=False, **options.opening)
    refuse_truncated(truth, "a regret")
    in_memory = isinstance(eta, (np.ndarray, da.Array, xr.DataArray, list, tuple))
    known = eta if in_memory else restore_sample_axes(truth.dask_array(), truth.sample_shape)
    check_same_names({"scores": scores, "eta": eta})
    source = as_source(scores, known, **options.opening)
    budgets = parse_budgets(k, source.shape[1])
    with options.run(source) as run, _name_eta():
        outcome = find_outcome(run, budgets, options, with_extremes=False)
        best_run = Run(_labelled_by_itself(truth), run.compute)
        best = find_outcome(best_run, budgets, options, with_extremes=False)
    n = source.shape[0]
    values = {
        "top_k_error": rounded(outcome.top_errors),
        "average_k_error": rounded(outcome.average_errors),
        "top_k_regret": _differences(best.top_weights, outcome.top_weights, n),
        "average_k_regret": _differences(_average_weights(best), _average_weights(outcome), n),
        "plug_in_bound": rounded([outcome.plug_in_bound])[0],
    }
    attrs = result_attrs(source, run.reads)
    return build_result(values, {"k": [float(b) for b in budgets]}, attrs)


@contextmanager
def _name_eta() -> Iterator[None]:
    """Name eta instead of labels in errors, since eta is also the labels here."""
    try:
        yield
    except LabelsError as error:
        raise LabelsError(str(error).replace("labels", "eta", 1)) from error


def _average_weights(outcome: Outcome) -> list[Fraction]:
    """Return the label weight in the average-k sets of each budget."""
    return [s.weight for s in outcome.selections]


def _differences(a: Sequence[Fraction | None], b: Sequence[Fraction | None], n: int) -> list[float]:
    """Return the differences of weights over the number of samples, rounded once."""
    return rounded([None if x is None or y is None else (x - y) / n for x, y in zip(a, b, strict=True)])


def _labelled_by_itself(truth: Source) -> Source:
    """Return probabilities with themselves as soft labels."""
    blocks = truth.dask_array()
    whole = Source(BlockReader(blocks, truth.location)).with_labels(blocks)
    return whole if truth.mask is None else whole.with_conditions(truth.mask.conditions)


def _as_sets(sets: ScoresLike, source: Source) -> da.Array:
    """Return boolean sets of the right shape as a Dask array; the sets of excluded samples are empty."""
    array, shape = lazy_matrix(sets, "sets"), (*source.sample_shape, source.shape[1])
    if array.dtype != bool or tuple(array.shape) != tuple(shape):
        raise ScoresError(
            f"sets must be a boolean matrix of eta's shape {tuple(shape)}; got {array.dtype} and shape {array.shape}. "
            "Pass the sets that average_k_sets, top_k_sets or predict_sets returns for the same samples."
        )
    members = checked_matrix(flat_rows(array), array.dtype, "sets")
    return members if source.mask is None else blank(members, source.mask, value=0)
