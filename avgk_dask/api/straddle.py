"""The ambiguity analysis without an evaluation: ``straddle_strength``, ``ranked_supports`` and ``supports_overlap``.

``evaluate`` computes the same variables from its own scan; these functions scan the ranked scores only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import xarray as xr

from ..errors import OptionError
from ..exact.budgets import parse_budgets
from ..results.datasets import build_result
from ..sources.source import Source
from ..statistics.straddle import Ambiguity, analyse, n_ranked, overlap_values, rank_values, straddle_values
from ..statistics.thresholds import find_thresholds
from ..statistics.truncated import certify_ranks
from .inputs.sources import as_source
from .options import (
    BudgetsLike,
    LabelsLike,
    Named,
    NanPolicy,
    PlaceLike,
    RanksLike,
    ScanOptions,
    ScoresLike,
    are_several,
    check_count,
    check_flag,
    result_attrs,
)


def straddle_strength(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute the straddle strengths of integer budgets: how much the ambiguity differs between samples.

    ``straddle_strength[k, order]`` is the mean, over all N * N ordered pairs of samples x and x', of
    max(0, s(x)[k + order] - s(x')[k + 1 - order]), where s(x) are the sample's scores in descending
    order. It is positive if a sample's score of a rank beyond k exceeds another sample's score of a rank within k.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    Dataset
        Over ``k`` and ``order`` = 1..min(k, C - k), with the variables below. Strengths are NaN if a score of the
        compared ranks is infinite or NaN; weights are still exact.
    ``straddle_strength``
        The mean defined above.
    ``straddle_weight, straddle_magnitude``
        The fraction of pairs with a positive difference, and their mean difference (0 if there are no such pairs);
        strength = weight * magnitude.
    ``straddle_bound``
        Over ``k``: the sum of the strengths over all orders, or the strength of order 1 if k > C / 2. If the scores are
        the true probabilities, average-k has a lower error than top-k, by at least this bound.
    ``straddle_strength_error, straddle_weight_error, straddle_bound_error``
        Upper bounds on the numerical errors of these values; 0 if the values are exact.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store, and k (k + 1) / 2 sums over pairs for budgets up to k: little for k = 10, several
    times the read for k = 100. The result is exact, rounded once, if the N x 2k ranked scores or their distinct values
    fit ``avgk.ranked-bytes`` (128 MB: 33 million scores of 32 bits). Otherwise it is computed from histograms, with
    error bounds.

    Examples
    --------
    The paper's second example, three kinds of samples: d(2, 1) = 1/9 * 1/3.

    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.repeat([[1, 0, 0], [1/2, 1/2, 0], [1/3, 1/3, 1/3]], 4, axis=0)
    >>> float(avgk.straddle_strength(eta, 2).straddle_strength.sel(k=2, order=1).round(4))
    0.037
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = as_source(scores, own_labels=False, **options.opening)
    budgets = parse_budgets(k, source.n_classes)
    certify_ranks(source, n_ranked(budgets, source.n_classes), "k")
    ambiguity, attrs = _scan(source, n_ranked(budgets, source.shape[1]), budgets, options)
    values, coords = straddle_values(ambiguity, budgets, source)
    return build_result(values, {"k": [float(b) for b in budgets], **coords}, attrs)


def ranked_supports(
    scores: ScoresLike,
    ranks: RanksLike,
    *,
    bins: int = 50,
    log: bool = False,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute the support and the histogram of the scores of each rank.

    The support of rank r is the range from the smallest to the largest r-th highest score over all samples.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    ranks
        Rank or sequence of ranks in 1..C; 1 is the highest score of each sample.
    bins
        Number of bins of the histograms, equally wide over the support of each rank.
    log
        Whether the bins have equal width on a log scale instead. It applies to ranks whose scores are all positive and
        span more than a factor of ten.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    Dataset
        Over ``rank``, and ``bin`` for the histograms. Supports and counts are exact.
    ``support_low, support_high``
        Smallest and largest value of the score of that rank over all samples.
    ``ranked_count(rank, bin), bin_low(rank, bin)``
        Number of samples with a score between ``bin_low`` and the ``bin_low`` of the next bin; the last bin ends at
        ``support_high``.

    Raises
    ------
    OptionError
        If a rank is not in 1..C, or bins is not a positive integer.
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store, and 4 or 8 bytes of memory per ranked score. If these exceed ``avgk.ranked-bytes``
    (128 MB), histograms of ``avgk.ranked-bins`` bins are held instead.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> supports = avgk.ranked_supports(np.array([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]]), [1, 2])
    >>> supports.support_low.values.tolist(), supports.support_high.values.tolist()
    ([0.4, 0.2], [0.7, 0.4])
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = as_source(scores, own_labels=False, **options.opening)
    numbers = _parse_ranks(ranks, source.n_classes)
    certify_ranks(source, max(numbers), "ranks")
    check_count("bins", bins, "Pass at least 1.")
    check_flag("log", log)
    ambiguity, attrs = _scan(source, max(numbers), [], options)
    values, coords = rank_values(ambiguity, numbers, source, int(bins), log)
    return build_result(values, coords, attrs)


def supports_overlap(
    scores: ScoresLike,
    k: BudgetsLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.DataArray:
    """Return for each k whether the supports of ranks k and k + 1 overlap: 1 or 0; NaN for a fractional k.

    They overlap if some sample's (k + 1)-th highest score exceeds the k-th highest score of another:
    max over x of s(x)[k + 1] > min over x of s(x)[k]. If the scores are the true probabilities, this is necessary and
    sufficient for average-k to make fewer errors than top-k.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    DataArray
        Over ``k``: 1, 0 or NaN.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.array([[1, 0, 0], [1/2, 1/2, 0], [1/3, 1/3, 1/3]])
    >>> avgk.supports_overlap(eta, [1, 2, 3]).values.tolist()
    [1.0, 1.0, 0.0]
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    source = as_source(scores, own_labels=False, **options.opening)
    budgets = parse_budgets(k, source.n_classes)
    n_ranks = min(source.n_classes, max(math.ceil(b) + 1 for b in budgets))
    certify_ranks(source, n_ranks, "k")
    ambiguity, attrs = _scan(source, n_ranks, [], options)
    values = {"supports_overlap": overlap_values(ambiguity, budgets)}
    return build_result(values, {"k": [float(b) for b in budgets]}, attrs)["supports_overlap"]


def _scan(source: Source, n_ranks: int, budgets: Sequence[Fraction], options: ScanOptions) -> tuple[Ambiguity, Named]:
    """Read only the ranked scores, and analyse them."""
    with options.run(source, "straddle") as run:
        source = run.source
        search = find_thresholds(run, [], n_ranked=n_ranks)
    assert search.first_tally is not None
    ambiguity = analyse(search.first_tally.ranked.first(n_ranks), budgets, source.dtype, source.n_classes)
    return ambiguity, result_attrs(source, run.reads)


def _parse_ranks(ranks: RanksLike, n_classes: int) -> list[int]:
    values: object = np.asarray(ranks).tolist() if hasattr(ranks, "dtype") else ranks
    numbers = []
    for rank in list(values) if are_several(values) else [values]:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 1 <= rank <= n_classes:
            raise OptionError(
                f"ranks must be integers in 1..{n_classes}; got {rank!r}. Rank 1 is the highest score of a row."
            )
        numbers.append(int(rank))
    if not numbers:
        raise OptionError("ranks must contain at least one rank; got an empty sequence. Pass a number or several.")
    return numbers
