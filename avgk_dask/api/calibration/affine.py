"""Vector and matrix scaling: logistic regression on logits, fitted out of core, and applied lazily."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from scipy import optimize

from ...arrays import Array, Floats, whole_number
from ...engine.run import Run
from ...errors import OptionError, ScoresError, warn_about
from ...sources.source import Source
from ...sources.transforms import Affine, Softmax
from ...statistics.scaling import (
    EXPONENTS,
    MOST_ROWS,
    AffinePlan,
    Scale,
    ScalePlan,
    ScaleTally,
    affine_pass,
    gradient_of,
    scale_pass,
)
from ...statistics.truncated import refuse_truncated
from ..inputs.lazy_scores import LazyScores, LazyTransform, place_of
from ..inputs.names import open_once, recorded_names
from ..inputs.sources import as_source
from ..options import LabelsLike, ScanOptions, ScoresLike, SourceOptions
from .temperature import Calibrator, logits_to_fit, refuse_fit

#: The optimiser stops once a step gains less than the first, relative to the loss, or every component of the gradient is
#: below the second.
_GAIN, _GRADIENT = 1e-11, 1e-7
#: Smaller exponents of logits are replaced by this one, so that the unit of a sum stays a float.
_LEAST_EXPONENT = -900


@dataclass(frozen=True, repr=False, eq=False)
class WeightedSoftmax(LazyTransform):
    """The softmax of weighted logits."""

    weights: Floats
    bias: Floats

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        logits = as_source(self.scores, labels, **options)
        refuse_truncated(logits, "a calibrator")
        if logits.shape[1] != self.bias.size:
            raise ScoresError(
                f"logits must have the {self.bias.size} classes that the calibrator was fitted to; got {logits.shape[1]}. "
                "Fit a calibrator to logits with these classes."
            )
        weighted = logits.with_transform(Affine(self.weights, self.bias))
        return weighted.with_transform(Softmax(1.0, weighted.dtype, logits.location, logits.mask is not None))

    def __repr__(self) -> str:
        return self._describe(f"softmax of weighted {place_of(self.scores)}")


@dataclass
class _Objective:
    """The penalised NLL as a function of the vector of all parameters; each call is one read."""

    run: Run
    calibrator: AffineScaling
    exponent: int
    #: Penalised loss, NLL and parameters of the best call so far.
    best: tuple[float, float, Floats] | None = None

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Return the penalised loss and its gradient."""
        source = self.run.source
        weights, bias = self.calibrator._unpack(x, source.shape[1])
        plan = AffinePlan(source.dtype, source.shape[1], weights, bias, self.exponent)
        tally = self.run.read(affine_pass(plan))
        nll = tally.losses.mean(0, tally.n_labelled)
        more, *gradients = self.calibrator._penalties(weights, bias)
        parts = [g + p for g, p in zip(gradient_of(tally, plan), gradients, strict=True)]
        if self.best is None or nll + more < self.best[0]:
            self.best = nll + more, nll, x.copy()
        return nll + more, np.concatenate([part.reshape(-1) for part in parts])


class AffineScaling(Calibrator):
    """Base class of vector and matrix scaling."""

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
        """Find the weights and the bias that minimise the penalised NLL, by L-BFGS: one read per evaluation.

        Losses and gradients are order-independent sums: the same fit to the last bit for any chunking.

        Parameters
        ----------
        logits
            N x C matrix of finite logits; as ``scores`` elsewhere.
        labels
            N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that
            holds them. By default the labels stored with the scores.
        where
            One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
        ignore_index
            Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
        progress
            Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
        """
        options = ScanOptions(where=where, ignore_index=ignore_index, progress=progress)
        logits = open_once(logits)
        source = logits_to_fit(logits, labels, options)
        if source.shape[0] > MOST_ROWS:
            raise ScoresError(
                f"logits must have at most {MOST_ROWS:,} samples for vector and matrix scaling; got {source.shape[0]:,}. "
                "Fit it to some of the samples, or fit a temperature."
            )
        with options.run(source) as run:
            unscaled = ScalePlan(run.source.dtype, run.source.shape[1], (Scale(1.0),), only_finite=True)
            first: ScaleTally = run.read(scale_pass(unscaled))
            refuse_fit(first, run.source)
            self.nll_before = first.losses.mean(0, first.n_labelled)
            objective = _Objective(run, self, max(first.magnitude - EXPONENTS, _LEAST_EXPONENT))
            solution = optimize.minimize(
                objective, self._start(source.shape[1]), jac=True, method="L-BFGS-B",
                options={"maxiter": self.max_iterations, "maxfun": 4 * self.max_iterations, "ftol": _GAIN, "gtol": _GRADIENT},
            )  # fmt: skip
        assert objective.best is not None
        _, self.nll_after, best = objective.best
        self.weights, self.bias = self._unpack(best, source.shape[1])
        self.n_iterations, self.converged = int(solution.nit), bool(solution.success)
        self.message = (
            ""
            if solution.success
            else f"the optimiser stopped early: {str(solution.message).removeprefix('STOP: ').lower()}"
        )
        self.n_reads, self.class_names = run.reads, recorded_names(logits)
        warn_about(self.message)
        return self

    def _apply(self, logits: ScoresLike) -> LazyScores:
        assert self.weights is not None
        assert self.bias is not None
        return WeightedSoftmax(logits, self.weights, self.bias)

    @abstractmethod
    def _start(self, n_classes: int) -> Floats:
        """Return the parameters of the identity."""

    @abstractmethod
    def _unpack(self, x: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return weights and bias from the vector of parameters."""

    @abstractmethod
    def _penalties(self, weights: Floats, bias: Floats) -> tuple[Any, Any, Any]:
        """Return the penalty on the NLL, and its gradients with respect to weights and bias."""

    def _arrays(self) -> dict[str, Array]:
        assert self.weights is not None
        assert self.bias is not None
        return {"weights": self.weights, "bias": self.bias}

    def _take_arrays(self, arrays: dict[str, Array]) -> None:
        self.weights, self.bias = arrays["weights"], arrays["bias"]
        shape = self._unpack(self._start(self.bias.size), self.bias.size)[0].shape
        if self.bias.ndim != 1 or self.weights.shape != shape:
            raise ValueError(f"weights have the shape {self.weights.shape}, and the bias {self.bias.shape}")


class VectorScaling(AffineScaling):
    """Scales and shifts each class's logit before the softmax: softmax(w z + b), with minimal NLL on a calibration set.

    Parameters
    ----------
    max_iterations
        Maximal number of L-BFGS steps.

    Attributes
    ----------
    weights, bias
        One number per class; None before fitting.
    nll_before, nll_after
        The NLL of the logits before and after scaling, equal to ``losses.nll`` to the last bit.
    n_reads, n_iterations
        Number of reads of all logits, and of steps.
    converged, message
        Whether the optimum was found, and the optimiser's message if not.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 10)
    >>> labels = np.array([0] * 7 + [1] * 3 + [0] * 4 + [1] * 6)
    >>> calibrator = avgk.calibration.VectorScaling().fit(logits, labels)
    >>> np.asarray(calibrator.transform(logits))[[0, 10], 0].round(3).tolist()
    [0.7, 0.4]
    """

    METHOD = "vector"

    def _start(self, n_classes: int) -> Floats:
        return np.repeat([1.0, 0.0], n_classes)

    def _unpack(self, x: Floats, n_classes: int) -> tuple[Floats, Floats]:
        return x[:n_classes].copy(), x[n_classes:].copy()

    def _penalties(self, weights: Floats, bias: Floats) -> tuple[Any, Any, Any]:
        return 0.0, 0.0, 0.0


class MatrixScaling(AffineScaling):
    """Mixes the logits of all classes before the softmax: softmax(W z + b), with minimal penalised NLL on a calibration set.

    The fit starts at the identity. The penalties are the off-diagonal and intercept regularisation (ODIR) of Kull et al.
    (2019): without them, C**2 weights overfit any small calibration set.

    Parameters
    ----------
    penalty
        Factor of the mean square of the off-diagonal weights.
    bias_penalty
        Factor of the mean square of the bias.
    max_iterations
        Maximal number of L-BFGS steps.

    Attributes
    ----------
    penalty, bias_penalty
        The parameters.
    weights, bias
        W (output class x input class) and b; None before fitting.
    nll_before, nll_after
        The NLL of the logits before and after scaling, without penalties.
    n_reads, n_iterations
        Number of reads of all logits, and of steps.
    converged, message
        Whether the optimum was found, and the optimiser's message if not.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 10)
    >>> labels = np.array([0] * 7 + [1] * 3 + [0] * 4 + [1] * 6)
    >>> calibrator = avgk.calibration.MatrixScaling(penalty=1e-6, bias_penalty=1e-6).fit(logits, labels)
    >>> np.asarray(calibrator.transform(logits))[[0, 10], 0].round(3).tolist()
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

    def _unpack(self, x: Floats, n_classes: int) -> tuple[Floats, Floats]:
        return x[: n_classes**2].reshape(n_classes, n_classes).copy(), x[n_classes**2 :].copy()

    def _penalties(self, weights: Floats, bias: Floats) -> tuple[Any, Any, Any]:
        n = bias.size
        off = weights - np.diag(np.diag(weights))
        each, shift = self.penalty / max(n * (n - 1), 1), self.bias_penalty / n
        return each * float((off * off).sum()) + shift * float((bias * bias).sum()), 2 * each * off, 2 * shift * bias


def _check_penalty(value: float, name: str) -> float:
    try:
        penalty = float(value)
    except (TypeError, ValueError):
        penalty = -1.0
    if not 0 <= penalty < np.inf:
        raise OptionError(f"{name} must be a finite number of at least 0; got {value!r}. Leave it out for 1.")
    return penalty
