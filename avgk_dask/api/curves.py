"""``error_curve``: both errors for every integer K, from the ranks of the labels."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import xarray as xr

from ..arrays import Ints
from ..errors import LabelsError
from ..exact.sums import error_of
from ..passes.certifying import refuse_truncated
from ..passes.finding import find_thresholds
from ..passes.run import Run, drive
from ..passes.running import running
from ..results.datasets import build_result
from ..searches.label_ranks import LabelRankSearch
from .attributes import Named, result_attrs
from .checkpoints import asked_checkpoint
from .given import LabelsLike, PlaceLike, ScoresLike
from .inputs import as_source
from .policies import check_nan_policy
from .shared_text import documented

#: Label weight inside the sets for each K.
Weights: TypeAlias = list[int] | list[Fraction]


@documented
def error_curve(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute top-K and average-K error for every K = 1..C, and their means over K. Exact, ties included.

    A label's rank r in its row tells for which K it is in its top-K set, K >= r, and its rank R among all N C
    scores (ties in row-major order) for which K it is in its average-K set, N K >= R.

    Parameters
    ----------
    {scores}
    {labels}
    {where}
    {ignore_index}
    {nan_policy}
    {progress}
    {checkpoint}

    Returns
    -------
    Dataset
        Over ``k`` = 1..C, with the variables below; all NaN where no sample is labelled.
    ``top_k_error, average_k_error``
        Fraction of the labelled samples whose label is outside its set, expected with soft labels.
    ``mean_top_k_error, mean_average_k_error``
        Their means over K: (sum over K = 1..C of the error) / C.

    Raises
    ------
    {refused_scores}
    LabelsError
        Where the labels do not fit the scores, or there are none.
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: two reads of the store with hard labels, whatever the data, and some 20 ns for each score. Memory grows with the
    number of distinct label scores (32 bytes each in every tally, of which a process holds up to some 20);
    tasks hold whole rows of a band. With soft labels every score is a label: a search for all C thresholds, whose
    reads grow with C (``attrs["reads"]`` tells).

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> curve = avgk.error_curve(np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]]), np.array([0, 1]))
    >>> curve.top_k_error.values.tolist(), curve.average_k_error.values.tolist()
    ([0.5, 0.0, 0.0], [0.5, 0.0, 0.0])

    """
    check_nan_policy(nan_policy)
    source = as_source(scores, labels, where=where, ignore_index=ignore_index)
    if source.labels is None:
        raise LabelsError(
            "labels must be given for an error curve; got None, and none are stored beside the scores. "
            "Pass class numbers or probabilities."
        )
    refuse_truncated(source, "an error curve, which goes up to K = C", in_any_order=True)
    asked = asked_checkpoint(checkpoint, "error_curve", nan_policy=nan_policy)
    with running(source, progress, nan_policy, asked) as run:
        source = run.source
        n_labelled, top, average = (_soft_curves if source.has_soft_labels else _hard_curves)(run)
    n_classes = source.shape[1]
    values: Named = {}
    for name, inside in (("top_k_error", top), ("average_k_error", average)):
        values[name], values[f"mean_{name}"] = _errors(inside, n_labelled)
    attrs = result_attrs(source, run.reads, n_labelled=n_labelled)
    return build_result(values, {"k": np.arange(1, n_classes + 1)}, attrs)


def _hard_curves(run: Run) -> tuple[int, Weights, Weights]:
    """Return the number of labelled samples, and of labels inside the sets for each K, both ways."""
    n_samples, n_classes = run.source.shape
    search = drive(LabelRankSearch(run.source.dtype, n_classes), run)
    assert search.labels is not None
    top = np.cumsum(search.row_ranks()).tolist()
    first_k: Ints = -(-search.ranks() // n_samples)
    average = np.cumsum(np.bincount(first_k, minlength=n_classes + 1)[1:]).tolist()
    return search.labels.n_labelled, top, average


def _soft_curves(run: Run) -> tuple[int, Weights, Weights]:
    """Return the number of samples, and the label weight inside the sets for each K, both ways."""
    n_samples, n_classes = run.source.shape
    search = find_thresholds(run, [n_samples * k for k in range(1, n_classes + 1)], n_ranks=n_classes)
    assert search.first_tally is not None
    top = list(accumulate(search.first_tally.weight_at_rank.fractions()))
    return n_samples, top, [search.found[i].weight for i in range(n_classes)]


def _errors(inside: Weights, n_labelled: int) -> tuple[list[float], float]:
    """Return the error for each K, and the mean of them all; NaN without labels."""
    if not n_labelled:
        return [math.nan] * len(inside), math.nan
    errors = [error_of(Fraction(weight), n_labelled) for weight in inside]
    return [float(error) for error in errors], float(sum(errors, Fraction(0)) / len(errors))
