"""Strongly proper losses and calibration errors: how good scores are as probabilities, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import xarray as xr

from .api.calibration.errors import calibration_at_threshold, expected_calibration_error
from .api.inputs.labels import logits_of, probabilities, refuse_scores
from .api.options import LabelsLike, Named, NanPolicy, PlaceLike, ScanOptions, ScoresLike, result_attrs
from .arrays import whole_number
from .errors import OptionError
from .results.datasets import build_result
from .results.registry import LOSSES
from .statistics.losses import PAIRS, LossPlan, LossTally, loss_pass

#: The constants of strong properness, and whether they are divided by the number of classes. Those of the losses that
#: ``one_versus_all`` sums are the constants of the binary losses, as Agarwal (2014) defines them.
_MU = {"nll": (1, False), "brier": (1, True), "logistic": (4, True), "squared": (2, True), "exponential": (4, True)}
#: The losses that ``one_versus_all`` sums over the classes.
_BINARY = ("logistic", "squared", "exponential")


def nll(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> float:
    """Compute the negative log-likelihood of probabilities: the mean of -log p[label].

    For ``softmax(z)`` it is computed from the logits, as log(sum exp(z)) - z[label], which stays finite and exact even
    if p itself is too small for a float.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    float
        The mean over the labelled samples, in nats; the expected value for soft labels. Infinite if a label has
        probability 0, NaN if no sample is labelled.

    Raises
    ------
    ScoresError, DtypeError
        If the scores are not probabilities in [0, 1], contain NaN, or a row of logits has an infinite maximum.
    LabelsError
        If the labels do not fit the scores, or are missing.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read of the store. The loss of each sample is computed in float64. Sums are exact and rounded once, so
    that the bits are the same for any chunking. Tasks hold whole rows of a band.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.losses.nll(np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0]]), np.array([0, 1]))
    0.6931471805599453
    >>> avgk.losses.nll(avgk.softmax(np.array([[2000.0, 0.0]])), np.array([1]))
    2000.0
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    return _mean_losses(scores, labels, ("nll",), options)[0][0]


def brier(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> float:
    """Compute the Brier score of probabilities: the mean of 1/2 sum over the classes of (p - y)**2, as in the paper.

    Many libraries leave out the 1/2. With soft labels it is the expected score: 1/2 sum (p - eta)**2 plus a term that
    does not depend on p.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    float
        The mean over the labelled samples; NaN if no sample is labelled.

    Raises
    ------
    ScoresError, DtypeError, LabelsError, MemoryLimitError, StoreError
        As for ``nll``.

    Notes
    -----
    Cost: one read of the store. Sums are exact and rounded once: the same bits for any chunking.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.losses.brier(np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0]]), np.array([0, 1]))
    0.21875
    """
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    return _mean_losses(scores, labels, ("brier",), options)[0][0]


def one_versus_all(
    scores: ScoresLike,
    labels: LabelsLike = None,
    loss: str = "logistic",
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> float:
    """Compute a one-versus-all loss: the mean of l(+1, p[label]) + sum over the other classes of l(-1, p).

    For logits, pass ``sigmoid(z)``: each class then has its own probability, and the logistic and exponential losses
    are those of margins, log(1 + exp(-z)) and exp(-z / 2), computed from the logits.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    loss
        ``"logistic"``: l(+1, p) = -log p, l(-1, p) = -log(1 - p). ``"squared"``: (1 - p)**2 and p**2. ``"exponential"``:
        sqrt((1 - p) / p) and sqrt(p / (1 - p)).
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    float
        The mean over the labelled samples, the expected value for soft labels; NaN if no sample is labelled.

    Raises
    ------
    ScoresError, DtypeError, LabelsError, MemoryLimitError, StoreError
        As for ``nll``.
    OptionError
        If the loss has another name.

    Notes
    -----
    Cost: one read of the store. Sums are exact and rounded once: the same bits for any chunking.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.losses.one_versus_all(np.array([[0.5, 0.25, 0.25]]), np.array([0]), loss="squared")
    0.375
    """
    if loss not in _BINARY:
        raise OptionError(f"loss must be one of {', '.join(_BINARY)}; got {loss!r}. Leave it out for the logistic one.")
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    return _mean_losses(scores, labels, (loss,), options)[0][0]


def evaluate_losses(
    scores: ScoresLike,
    labels: LabelsLike = None,
    losses: Sequence[str] = ("nll", "brier", "logistic"),
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> xr.Dataset:
    """Compute several losses in one read.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
    labels
        N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or
        the path of a store or file that holds them. By default the labels stored with the scores.
    losses
        ``"nll"``, ``"brier"``, or a loss of ``one_versus_all``: ``"logistic"``, ``"squared"``, ``"exponential"``.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    nan_policy
        Only ``"raise"`` is supported: NaN is refused.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    checkpoint
        Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.

    Returns
    -------
    Dataset
        Over ``loss``. The attribute ``n_labelled`` is the number of labelled samples.
    ``mean_loss``
        The same as from ``nll``, ``brier`` and ``one_versus_all``, to the last bit.
    ``mu``
        The constant of strong properness; see ``losses.mu``.

    Raises
    ------
    ScoresError, DtypeError, LabelsError, MemoryLimitError, StoreError
        As for ``nll``.
    OptionError
        If a loss has another name.

    Notes
    -----
    Cost: one read of the store.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.losses.evaluate_losses(np.array([[0.5, 0.25, 0.25]]), np.array([0]), ["brier", "squared"])
    >>> result.mean_loss.values.tolist()
    [0.1875, 0.375]
    """
    names = [losses] if isinstance(losses, str) else list(dict.fromkeys(losses))
    if not names or any(name not in PAIRS for name in names):
        raise OptionError(f"losses must be some of {', '.join(PAIRS)}; got {losses!r}. Name at least one.")
    options = ScanOptions(
        where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, checkpoint=checkpoint
    )
    means, attrs = _mean_losses(scores, labels, tuple(names), options)
    constants = [mu(name, int(str(attrs["n_classes"]))) for name in names]
    return build_result({"mean_loss": means, "mu": constants}, {"loss": names}, attrs, LOSSES)


def mu(name: str, n_classes: int | None = None) -> float:
    """Return how strongly proper a loss is: the regret at a sample is at least mu/2 times ||eta - eta_hat||_1 squared.

    mu is 1 for the NLL (Pinsker's inequality) and 1/C for the Brier score. For a one-versus-all loss it is the constant
    of the binary loss (logistic 4, squared 2, exponential 4) divided by C.

    Parameters
    ----------
    name
        ``"nll", "brier", "logistic", "squared"`` or ``"exponential"``.
    n_classes
        C; not needed for the NLL.

    Returns
    -------
    float
        mu, in the 1-norm of the paper.

    Raises
    ------
    OptionError
        If the name is not one of these, or the number of classes is needed and is not at least 1.

    Notes
    -----
    Cost: nothing is read.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.losses.mu("nll"), avgk.losses.mu("brier", 10)
    (1.0, 0.1)
    """
    if name not in _MU:
        raise OptionError(f"name must be one of {', '.join(_MU)}; got {name!r}. Name the loss.")
    constant, shared = _MU[name]
    if not shared:
        return float(constant)
    if whole_number(n_classes) < 1:
        raise OptionError(f"n_classes must be an integer of at least 1 for {name}; got {n_classes!r}. Pass C.")
    return constant / whole_number(n_classes)


def regret_bound(name: str, regret: float, n_classes: int | None = None) -> float:
    """Return how far estimated probabilities can be from the true ones: E ||eta - eta_hat||_1 <= sqrt(2 / mu * regret).

    The regret is the mean loss of the estimates minus the mean loss of the true probabilities eta. The bounded quantity
    is the mean over samples of the sum over classes of abs(eta - eta_hat). It in turn bounds the loss of accuracy of
    average-k and top-k sets that are made from estimates.

    Parameters
    ----------
    name
        As for ``mu``.
    regret
        At least 0. An upper estimate, such as the mean loss itself, gives a valid but looser bound.
    n_classes
        C; not needed for the NLL.

    Returns
    -------
    float
        The bound. The 1-norm itself is at most 2.

    Raises
    ------
    OptionError
        If the regret is not a number of at least 0, or as for ``mu``.

    Notes
    -----
    Cost: nothing is read.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.losses.regret_bound("nll", 0.02)
    0.2
    """
    try:
        value = float(regret)
    except (TypeError, ValueError):
        value = math.nan
    if not value >= 0:
        raise OptionError(
            f"regret must be a number of at least 0; got {regret!r}. Pass the loss minus the smallest possible loss."
        )
    return math.sqrt(2 / mu(name, n_classes) * value)


def _mean_losses(
    scores: ScoresLike, labels: LabelsLike, names: tuple[str, ...], options: ScanOptions
) -> tuple[list[float], Named]:
    """Return the mean of each loss, and the attributes of a result; one read."""
    estimates = probabilities(scores, labels, "a loss", options)
    source, link, temperature = logits_of(estimates)
    plan = LossPlan(source.dtype, source.shape[1], names, link, temperature)
    with options.run(source, "losses") as run:
        tally: LossTally = run.read(loss_pass(plan))
        refuse_scores(tally, run.source, link)
    means = [tally.losses.mean(i, tally.n_labelled) for i in range(len(names))]
    return means, result_attrs(estimates, run.reads, n_labelled=tally.n_labelled)


__all__ = [
    "brier",
    "calibration_at_threshold",
    "evaluate_losses",
    "expected_calibration_error",
    "mu",
    "nll",
    "one_versus_all",
    "regret_bound",
]
