"""Vector and matrix scaling: logistic regression on logits, fitted out of core, and applied inside the tasks that read them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from scipy import optimize

from ...arrays import Array, Floats, whole_number
from ...engine.run import Run, running
from ...errors import OptionError, ScoresError, warn_of
from ...sources.source import Source
from ...sources.transforms import Affine, Softmax
from ...statistics.losses import ScaleTally
from ...statistics.scaling import (
    EXPONENTS,
    MOST_ROWS,
    AffinePlan,
    Scale,
    ScalePlan,
    affine_pass,
    gradient_of,
    scale_pass,
)
from ...statistics.truncated import refuse_truncated
from ..inputs.lazy_scores import LazyScores, place_of
from ..inputs.names import open_once, recorded_names
from ..inputs.sources import as_source
from ..options import LabelsLike, ScoresLike, SourceOptions, check_flag
from .temperature import Calibrator, logits_to_fit, refuse_fit

#: The optimiser stops once a step gains less than the first, relative to the loss, or no part of the gradient is
#: above the second.
_GAIN, _GRADIENT = 1e-11, 1e-7
#: Logits of a smaller exponent count as if it were this one: units of sums stay floats.
_LEAST_EXPONENT = -900


@dataclass(frozen=True, repr=False, eq=False)
class WeightedSoftmax(LazyScores):
    """The softmax of weighted logits."""

    scores: ScoresLike
    weights: Floats
    bias: Floats

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        logits = as_source(self.scores, labels, **options)
        refuse_truncated(logits, "a calibrator")
        if logits.shape[1] != self.bias.size:
            raise ScoresError(
                f"logits must have the {self.bias.size} classes that the calibrator was fitted to; got {logits.shape[1]}. "
                "Fit one to such logits."
            )
        weighted = logits.with_transform(Affine(self.weights, self.bias))
        return weighted.with_transform(Softmax(1.0, weighted.dtype, logits.location, logits.mask is not None))

    def __repr__(self) -> str:
        return self._told(f"softmax of weighted {place_of(self.scores)}")

    @property
    def parts(self) -> Sequence[object]:  # noqa: D102
        return (self.scores,)


@dataclass
class _Objective:
    """The NLL with penalties as a function of all parameters in one vector; each call is a read."""

    run: Run
    calibrator: AffineScaling
    exponent: int
    #: Penalised loss, NLL and parameters of the best call so far.
    best: tuple[float, float, Floats] | None = None

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Return the penalised loss and its gradient."""
        source = self.run.source
        weights, bias = self.calibrator._unpacked(x, source.shape[1])
        plan = AffinePlan(source.dtype, source.shape[1], weights, bias, self.exponent)
        tally = self.run.read(affine_pass(plan))
        nll = tally.losses.mean(0, tally.n_labelled)
        more, *gradients = self.calibrator._penalties(weights, bias)
        parts = [g + p for g, p in zip(gradient_of(tally, plan), gradients, strict=True)]
        if self.best is None or nll + more < self.best[0]:
            self.best = nll + more, nll, x.copy()
        return nll + more, np.concatenate([part.reshape(-1) for part in parts])


class AffineScaling(Calibrator):
    """What vector and matrix scaling have in common."""

    FIT: ClassVar[dict[str, type]] = {**Calibrator.FIT, "max_iterations": int}

    def __init__(self, *, max_iterations: int = 500) -> None:
        super().__init__()
        if whole_number(max_iterations) < 1:
            raise OptionError(
                f"max_iterations must be an integer of at least 1; got {max_iterations!r}. Leave it out for 500."
            )
        self.max_iterations = int(max_iterations)
        self.weights: Floats | None = None
        self.bias: Floats | None = None

    def fit(
        self,
        logits: ScoresLike,
        labels: LabelsLike = None,
        *,
        where: LabelsLike = None,
        ignore_index: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Find the weights and the bias of least NLL with penalties, by L-BFGS: one read for each evaluation.

        Losses and gradients are sums that no order of adding changes: the same fit to the last bit for any chunking.

        Parameters
        ----------
        logits
            N x C matrix of finite logits; as ``scores`` elsewhere.
        labels
            N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that
            holds them. By default the labels stored with the scores.
        where
            One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
        ignore_index
            Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
        progress
            Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

        """
        check_flag("progress", progress, or_none=True)
        logits = open_once(logits)
        source = logits_to_fit(logits, labels, where, ignore_index)
        if source.shape[0] > MOST_ROWS:
            raise ScoresError(
                f"logits must have at most {MOST_ROWS:,} samples for vector and matrix scaling; got {source.shape[0]:,}. "
                "Fit them to a part of those, or fit a temperature."
            )
        with running(source, progress, "raise") as run:
            unscaled = ScalePlan(run.source.dtype, run.source.shape[1], (Scale(1.0),), only_finite=True)
            first: ScaleTally = run.read(scale_pass(unscaled))
            refuse_fit(first, run.source)
            self.nll_before = first.losses.mean(0, first.n_labelled)
            objective = _Objective(run, self, max(first.magnitude - EXPONENTS, _LEAST_EXPONENT))
            found = optimize.minimize(
                objective, self._start(source.shape[1]), jac=True, method="L-BFGS-B",
                options={"maxiter": self.max_iterations, "maxfun": 4 * self.max_iterations, "ftol": _GAIN, "gtol": _GRADIENT},
            )  # fmt: skip
        assert objective.best is not None
        _, self.nll_after, best = objective.best
        self.weights, self.bias = self._unpacked(best, source.shape[1])
        self.n_iterations, self.converged = int(found.nit), bool(found.success)
        self.message = "" if found.success else f"the optimiser stopped early: {str(found.message).lower()}"
        self.n_reads, self.class_names = run.reads, recorded_names(logits)
        warn_of(self.message)
        return self

    def transform(self, logits: ScoresLike) -> LazyScores:
        """Return the probabilities of logits, lazily; every function takes them as scores.

        Parameters
        ----------
        logits
            N x C matrix of logits, with the classes of those it was fitted to; as ``scores`` elsewhere.

        """
        self._check_classes(logits)
        assert self.weights is not None
        assert self.bias is not None
        return WeightedSoftmax(logits, self.weights, self.bias)

    @abstractmethod
    def _start(self, n_classes: int) -> Floats:
        """Return the parameters that change nothing."""

    @abstractmethod
    def _unpacked(self, x: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return weights and bias of a vector of parameters."""

    @abstractmethod
    def _penalties(self, weights: Floats, bias: Floats) -> tuple[Any, Any, Any]:
        """Return the penalty that is added to the NLL, and its gradients by weights and bias."""

    def _arrays(self) -> dict[str, Array]:
        assert self.weights is not None
        assert self.bias is not None
        return {"weights": self.weights, "bias": self.bias}

    def _take_arrays(self, arrays: dict[str, Array]) -> None:
        self.weights, self.bias = arrays["weights"], arrays["bias"]
        shape = self._unpacked(self._start(self.bias.size), self.bias.size)[0].shape
        if self.bias.ndim != 1 or self.weights.shape != shape:
            raise ValueError(f"weights have the shape {self.weights.shape}, and the bias {self.bias.shape}")


class VectorScaling(AffineScaling):
    """Weights each class's logit and shifts it before the softmax: softmax(w z + b), of least NLL on a calibration set.

    Parameters
    ----------
    max_iterations
        How many steps L-BFGS may take.

    Attributes
    ----------
    weights, bias
        One a class; None before it was fitted.
    nll_before, nll_after
        The NLL of the logits as they are, and of the weighted ones, to the last bit what ``losses.nll`` gives.
    n_reads, n_iterations
        How often all logits were read, and the steps taken.
    converged, message
        Whether the optimum was found, and what the optimiser said otherwise.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 10)
    >>> labels = np.array([0] * 7 + [1] * 3 + [0] * 4 + [1] * 6)
    >>> found = avgk.calibration.VectorScaling().fit(logits, labels)
    >>> np.asarray(found.transform(logits))[[0, 10], 0].round(3).tolist()
    [0.7, 0.4]

    """

    METHOD = "vector"

    def _start(self, n_classes: int) -> Floats:
        return np.repeat([1.0, 0.0], n_classes)

    def _unpacked(self, x: Floats, n_classes: int) -> tuple[Floats, Floats]:
        return x[:n_classes].copy(), x[n_classes:].copy()

    def _penalties(self, weights: Floats, bias: Floats) -> tuple[Any, Any, Any]:
        return 0.0, 0.0, 0.0


class MatrixScaling(AffineScaling):
    """Mixes the logits of all classes before the softmax: softmax(W z + b), of least penalised NLL on a calibration set.

    Fitted from the identity. The penalties are those of Kull et al. (2019), who call it ODIR: without them C**2 weights fit any small
    calibration set too well.

    Parameters
    ----------
    penalty
        Times the mean square of the weights off the diagonal.
    bias_penalty
        Times the mean square of the bias.
    max_iterations
        How many steps L-BFGS may take.

    Attributes
    ----------
    penalty, bias_penalty
        As given.
    weights, bias
        W, by class made and class read, and b; None before it was fitted.
    nll_before, nll_after
        The NLL of the logits as they are, and of the mixed ones, without the penalties.
    n_reads, n_iterations
        How often all logits were read, and the steps taken.
    converged, message
        Whether the optimum was found, and what the optimiser said otherwise.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 10)
    >>> labels = np.array([0] * 7 + [1] * 3 + [0] * 4 + [1] * 6)
    >>> found = avgk.calibration.MatrixScaling(penalty=1e-6, bias_penalty=1e-6).fit(logits, labels)
    >>> np.asarray(found.transform(logits))[[0, 10], 0].round(3).tolist()
    [0.7, 0.4]

    """

    METHOD = "matrix"
    FIT: ClassVar[dict[str, type]] = {**AffineScaling.FIT, "penalty": float, "bias_penalty": float}

    def __init__(self, penalty: float = 1.0, bias_penalty: float = 1.0, *, max_iterations: int = 500) -> None:
        super().__init__(max_iterations=max_iterations)
        self.penalty = _check_penalty(penalty, "penalty")
        self.bias_penalty = _check_penalty(bias_penalty, "bias_penalty")

    def _start(self, n_classes: int) -> Floats:
        return np.concatenate([np.eye(n_classes).reshape(-1), np.zeros(n_classes)])

    def _unpacked(self, x: Floats, n_classes: int) -> tuple[Floats, Floats]:
        return x[: n_classes**2].reshape(n_classes, n_classes).copy(), x[n_classes**2 :].copy()

    def _penalties(self, weights: Floats, bias: Floats) -> tuple[Any, Any, Any]:
        n = bias.size
        off = weights - np.diag(np.diag(weights))
        each, shift = self.penalty / max(n * (n - 1), 1), self.bias_penalty / n
        return each * float((off * off).sum()) + shift * float((bias * bias).sum()), 2 * each * off, 2 * shift * bias


def _check_penalty(value: float, name: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found < np.inf:
        raise OptionError(f"{name} must be a finite number of at least 0; got {value!r}. Leave it out for 1.")
    return found
