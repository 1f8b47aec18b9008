"""``calibration.temperature_curve``: what a temperature does to the NLL and to both errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsFloat

import numpy as np
import xarray as xr

from ..errors import OptionError
from ..exact.budgets import parse_one
from ..passes.running import running
from ..results.datasets import build_result
from ..results.registry import TEMPERATURES
from ..scans.scaled_rows import Scale, ScalePlan, scale_pass
from .calibrators import logits_to_fit, refuse_fit
from .evaluation import evaluate_run
from .given import BudgetLike, LabelsLike, ScoresLike
from .inputs import as_source
from .probabilities import softmax
from .shared_text import documented

#: The temperatures that are taken by default: from 1/4 to 4.
_USUAL = tuple(2.0 ** (n / 4) for n in range(-8, 9))


@documented
def temperature_curve(
    logits: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetLike = 1,
    temperatures: Iterable[SupportsFloat] = _USUAL,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the NLL and both errors as functions of the temperature.

    The top-k error does not change with it, but for ties that rounding makes; the average-k error does.

    Parameters
    ----------
    logits
        N x C matrix of logits; as ``scores`` elsewhere.
    labels
        N integers (negative, masked or null: unlabelled). By default the labels stored beside the logits.
    k
        Budget in (0, C].
    temperatures
        Positive numbers. By default 17 of them from 1/4 to 4.
    {where}
    {ignore_index}
    {progress}

    Returns
    -------
    Dataset
        Over ``temperature``, in the order given; ``plot.temperatures`` draws it.
    ``nll``
        The mean of -log p[label].
    ``top_k_error, average_k_error``
        As in ``evaluate``; the first is NaN for a fractional k.

    Raises
    ------
    OptionError
        Where a temperature is no positive number.
    {refused_budgets}
    {refused_scores}
    LabelsError
        Where there are no class numbers, or only one.
    {refused_memory}
    {refused_store}

    Notes
    -----
    Cost: one read for all NLL together, and one for each temperature.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.tile([2.197, 0.0], (10, 1))
    >>> found = avgk.calibration.temperature_curve(logits, np.array([0] * 7 + [1] * 3), temperatures=[1, 2.593])
    >>> found.nll.values.round(3).tolist(), found.top_k_error.values.tolist()
    ([0.764, 0.611], [0.3, 0.3])

    """
    values = _checked(temperatures)
    source = logits_to_fit(logits, labels, where, ignore_index)
    budget = parse_one(k, source.n_classes)
    plan = ScalePlan(source.dtype, source.shape[1], tuple(Scale(1.0 / value) for value in values))
    with running(source, progress) as run:
        tally = run.read(scale_pass(plan))
        refuse_fit(tally, run.source)
    found = []
    for value in values:
        probabilities = as_source(softmax(logits, temperature=value), labels, where=where, ignore_index=ignore_index)
        with running(probabilities, progress) as run:
            found.append(evaluate_run(run, (budget,)))
    errors = {name: [one[name].item() for one in found] for name in ("top_k_error", "average_k_error")}
    nll = [tally.losses.mean(i, tally.n_labelled) for i in range(len(values))]
    attrs = {**found[0].attrs, "k": float(found[0].k[0]), "reads": 1 + sum(one.attrs["reads"] for one in found)}
    return build_result({"nll": nll, **errors}, {"temperature": values}, attrs, TEMPERATURES)


def _checked(temperatures: Iterable[SupportsFloat]) -> list[float]:
    """Return temperatures as floats; refuse what is none."""
    try:
        values = np.atleast_1d(
            np.array(temperatures if hasattr(temperatures, "__len__") else list(temperatures), float)
        )
    except (TypeError, ValueError):
        values = np.array([math.nan])
    if not values.size or values.ndim > 1 or not ((values > 0) & np.isfinite(values)).all():
        raise OptionError(
            f"temperatures must be positive numbers; got {temperatures!r}. Pass some such as [0.5, 1, 2]."
        )
    return [float(value) for value in values]
