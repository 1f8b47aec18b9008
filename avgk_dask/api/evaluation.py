"""``evaluate``: every budget's threshold, errors, gains and set sizes from one scan."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import xarray as xr

from ..budgets import DEFAULT_BUDGETS, count_labels, largest_integer, parse_budgets
from ..errors import OptionError
from ..graph.analysis import Ambiguity, analyse
from ..graph.engine import run_search, search_again
from ..graph.progress import computing
from ..graph.source import Source
from ..graph.tie_order import settle_extremes
from ..schema import build_result
from ..selection.search import Search, Selection
from ..summaries.exact import as_fraction
from ..summaries.tally import ScanTally
from .ambiguity import ambiguity_values, integers, n_ranked
from .attributes import result_attrs
from .inputs import as_source
from .options import check_nan_policy, check_ties
from .thresholds import score_value, threshold_values


def evaluate(
    scores: Any,
    labels: Any = None,
    k: Any = DEFAULT_BUDGETS,
    *,
    straddle: bool = True,
    ties: str = "first",
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: None = None,
) -> xr.Dataset:
    """Evaluate top-k and average-k classification for all budgets in one scan.

    Parameters
    ----------
    scores
        N x C matrix: NumPy, Dask or Zarr array, xarray object, or the path of a store.
    labels
        N integers (negative: unlabelled), or an N x C matrix of true probabilities, or None. By
        default the labels stored beside the scores.
    k
        Budget or sequence of budgets in (0, C]; top-k results need an integer. By default 1 to 10,
        or to C where there are fewer classes.
    straddle
        Whether to analyse the ambiguity, too: straddle strengths and the supports of the ranked scores,
        in the same scan (``straddle_strength`` explains them).
    ties
        Which ties at a threshold are kept where not all fit: ``"first"`` the first ones in row-major
        order, as in the paper's listing; ``"spread"`` those that come first in a fixed pseudo-random
        order of (sample, class), the same for any chunking, for one more read.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr.
    checkpoint
        Reserved; this version keeps no checkpoints and refuses a place for them.

    Returns
    -------
    Dataset over ``k``: ``threshold, n_above, n_ties, n_kept, average_set_size, average_k_error``, its lowest,
    highest and expected value over all ways to keep ``n_kept`` of the ties (``average_k_error_lowest,
    average_k_error_highest, average_k_error_expected``), ``top_k_error, adaptive_gain, relative_gain`` and ``set_size_count(k, size)``; and with ``straddle``
    ``straddle_strength, straddle_weight, straddle_magnitude`` over ``k`` and ``order``, ``straddle_bound``
    and ``supports_overlap`` over ``k``, ``support_low`` and ``support_high`` over ``rank``. Exact, and the
    same to the last bit for any chunking and scheduler. Errors are NaN without labels.

    Raises
    ------
    BudgetError, ScoresError, LabelsError, DtypeError, MemoryLimitError, StoreError

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> eta = np.repeat([[1, 0, 0], [1/2, 1/2, 0], [1/3, 1/3, 1/3]], 4, axis=0)
    >>> result = avgk.evaluate(eta, labels=eta, k=2)
    >>> float(result.top_k_error[0].round(3)), float(result.average_k_error[0].round(3))
    (0.111, 0.0)

    """
    check_nan_policy(nan_policy)
    check_ties(ties)
    if checkpoint is not None:
        raise OptionError(f"checkpoint must be None in this version; got {checkpoint!r}.")
    source = as_source(scores, labels)
    budgets = parse_budgets(k, source.shape[1])
    counts = [count_labels(b, source.shape[0]) for b in budgets]
    n_ranks = 0 if source.labels is None else largest_integer(budgets)
    compute = computing(progress)
    ranked = n_ranked(budgets, source.shape[1]) if straddle else 0
    search = run_search(
        source, counts, n_ranks=n_ranks, n_ranked=ranked, nan_policy=nan_policy, ties=ties, compute=compute
    )
    search = settle_extremes(source, search, search_again(compute))
    ambiguity = None
    if straddle:
        assert search.first_tally is not None
        ambiguity = analyse(search.first_tally.ranked, integers(budgets), source.dtype, source.shape[1])
    return _result(source, budgets, search, ambiguity)


def _result(source: Source, budgets: tuple[Fraction, ...], search: Search, ambiguity: Ambiguity | None) -> xr.Dataset:
    found = [search.found[i] for i in range(len(budgets))]
    tally = search.first_tally
    assert tally is not None
    n_labelled = tally.n_labelled
    top = [_top_error(tally, budget) for budget in budgets]

    def error(weight: Fraction) -> Fraction | None:
        return 1 - weight / n_labelled if n_labelled else None

    average = [error(s.weight) for s in found]
    n_sizes = max(s.set_sizes.size for s in found)
    values = {
        "threshold": threshold_values([score_value(s.key, source.dtype) for s in found], source.dtype),
        "n_above": [s.n_above for s in found],
        "n_ties": [s.n_ties for s in found],
        "n_kept": [s.n_kept for s in found],
        "average_set_size": [(s.n_above + s.n_kept) / source.shape[0] for s in found],
        "average_k_error": [_float(a) for a in average],
        "average_k_error_lowest": [_float(error(s.weight_above + _extremes(s)[1])) for s in found],
        "average_k_error_highest": [_float(error(s.weight_above + _extremes(s)[0])) for s in found],
        "average_k_error_expected": [_float(error(s.expected_weight)) for s in found],
        "top_k_error": [_float(t) for t in top],
        "adaptive_gain": [_float(None if t is None or a is None else t - a) for t, a in zip(top, average, strict=True)],
        "relative_gain": [
            _float(None if not t or a is None else (t - a) / t) for t, a in zip(top, average, strict=True)
        ],
        "set_size_count": [np.pad(s.set_sizes, (0, n_sizes - s.set_sizes.size)) for s in found],
    }
    coords: dict[str, Any] = {"k": [float(b) for b in budgets], "size": np.arange(n_sizes)}
    if ambiguity is not None:
        more, ranks = ambiguity_values(ambiguity, budgets, source)
        values, coords = values | more, coords | ranks
    return build_result(values, coords, result_attrs(source, search.n_scans, n_labelled=n_labelled))


def _top_error(tally: ScanTally, budget: Fraction) -> Fraction | None:
    """Give the exact top-k error: labels of rank beyond k, or the soft labels' weight there."""
    if budget.denominator != 1 or not tally.n_labelled:
        return None
    k = int(budget)
    hits = sum(
        (as_fraction(limbs) for limbs in tally.weight_at_rank[:k]), Fraction(int(tally.rank_counts[1 : k + 1].sum()))
    )
    return 1 - hits / tally.n_labelled


def _extremes(selection: Selection) -> tuple[Fraction, Fraction]:
    assert selection.extremes is not None  # settled for all budgets
    return selection.extremes


def _float(value: Fraction | None) -> float:
    return math.nan if value is None else float(value)
