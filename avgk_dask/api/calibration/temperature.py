"""Temperature scaling, and the base class of all calibrators."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Self, SupportsFloat

import numpy as np
import xarray as xr

from ...arrays import Array
from ...engine.run import drive, open_run
from ...errors import LabelsError, OptionError, ScoresError, warn_about
from ...exact.budgets import parse_one
from ...files.sealed import FileKind
from ...results.datasets import build_result
from ...results.registry import TEMPERATURES
from ...sources.source import Source
from ...statistics.scaling import BOUND, Scale, ScalePlan, ScaleTally, TemperatureSearch, scale_pass
from ...statistics.truncated import refuse_truncated
from ..evaluate import find_outcome, outcome_result
from ..inputs.labels import activation_of, labelled_source, refuse_soft
from ..inputs.lazy_scores import LazyScores
from ..inputs.names import check_class_names, open_once, recorded_names
from ..inputs.sources import as_source
from ..options import BudgetLike, LabelsLike, PlaceLike, ScanOptions, ScoresLike, checkpoint_key
from ..probabilities import softmax

CALIBRATOR_FILE = FileKind("calibrator", "avgk_dask calibrator", 2, "Fit and save it again.", "float64")
#: The default temperatures of a curve: from 1/4 to 4.
_TEMPERATURES = tuple(2.0 ** (n / 4) for n in range(-8, 9))


class Calibrator(ABC):
    """Turns logits into probabilities; fitted to a calibration set by minimising the NLL."""

    #: Its name in files; the scalars of a fit that files hold next to the arrays, and their types.
    METHOD: ClassVar[str]
    FIT: ClassVar[dict[str, type]] = {
        "nll_before": float, "nll_after": float, "n_reads": int, "n_iterations": int, "converged": bool, "message": str
    }  # fmt: skip

    def __init__(self) -> None:
        self.nll_before: float | None = None
        self.nll_after: float | None = None
        self.n_reads = 0
        self.n_iterations = 0
        self.converged = False
        self.message = ""
        self.class_names: tuple[str, ...] | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether it was fitted, or loaded."""
        return self.nll_after is not None

    def transform(self, logits: ScoresLike) -> LazyScores:
        """Return the probabilities of logits, lazily; every function takes them as scores.

        Parameters
        ----------
        logits
            N x C matrix of logits, with the same classes as in ``fit``; as ``scores`` elsewhere.
        """
        self._check_fitted()
        check_class_names(logits, self.class_names, "the calibrator", "list(calibrator.class_names)")
        return self._apply(logits)

    @abstractmethod
    def _apply(self, logits: ScoresLike) -> LazyScores:
        """Return the probabilities of logits whose classes fit."""

    @abstractmethod
    def _arrays(self) -> dict[str, Array]:
        """Return the fitted arrays by name."""

    @abstractmethod
    def _take_arrays(self, arrays: dict[str, Array]) -> None:
        """Set the fitted arrays from those that ``_arrays`` returned; ValueError if they are invalid."""

    def save(self, path: PlaceLike) -> None:
        """Write the fitted calibrator to a JSON file, which ``calibration.load`` reads.

        Parameters
        ----------
        path
            Path of the file. An existing file is replaced.
        """
        self._check_fitted()
        fit = {name: getattr(self, name) for name in self.FIT}
        fit["class_names"] = None if self.class_names is None else list(self.class_names)
        CALIBRATOR_FILE.write(path, {"method": self.METHOD, "fit": fit, "arrays": self._arrays()})

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise OptionError(
                f"this {type(self).__name__} is not fitted yet. Call fit first, or load a saved calibrator."
            )

    def __repr__(self) -> str:
        if not self.is_fitted:
            return f"{type(self).__name__}(), not fitted"
        end = "" if self.converged else f"; {self.message}"
        return f"{type(self).__name__}: {self._summary()}, NLL {self.nll_before:.6g} to {self.nll_after:.6g}{end}"

    def _summary(self) -> str:
        return ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in self._arrays().items())

    @classmethod
    def _restore(cls, fit: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Return the saved calibrator; KeyError, TypeError or ValueError if the content is invalid."""
        calibrator = cls()
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise TypeError("a field that should be an array is not one")
        for name, kind in cls.FIT.items():
            value = fit[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{name} is {value!r}")
            setattr(calibrator, name, value)
        calibrator._take_arrays(arrays)
        names = fit.get("class_names")  # earlier files have none
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise TypeError(f"class_names is {names!r:.80}")
        calibrator.class_names = None if names is None else tuple(names)
        return calibrator


def logits_to_fit(logits: ScoresLike, labels: LabelsLike, options: ScanOptions) -> Source:
    """Return the source of logits and hard labels to fit a calibrator to."""
    source = labelled_source(logits, labels, "a calibrator", **options.opening)
    refuse_truncated(source, "a calibrator")
    activation = activation_of(source)
    if activation is not None:
        raise ScoresError(
            f"logits must not be probabilities; got the output of a {activation.name}. Pass the logits themselves."
        )
    refuse_soft(source, "a calibrator")
    return source


def refuse_fit(tally: ScaleTally, source: Source) -> None:
    """Raise if no calibrator can be fitted to the logits and labels."""
    if tally.n_refused:
        sample = source.sample_number(*tally.first_refused[:2])
        raise ScoresError(
            f"logits must have a finite maximum in each row; the maximum of sample {sample} is infinite. Correct it, "
            "or leave the sample out."
        )
    if tally.n_labelled == 0:
        raise LabelsError(
            "at least one sample must be labelled for a calibrator; got none. Pass the labels of a calibration set."
        )
    if tally.has_one_class:
        raise LabelsError(
            f"labels must contain at least two classes for a calibrator; got only {tally.most_seen}. Pass a "
            "calibration set with several classes."
        )
    if tally.losses.n_infinite.any():
        raise ScoresError(
            f"the logit of each label must be finite for a calibrator; {int(tally.losses.n_infinite.max()):,} are "
            "-inf. Leave those samples out."
        )


class TemperatureScaling(Calibrator):
    """Divides logits by a temperature before the softmax; the temperature minimises the NLL on a calibration set.

    The order of a sample's scores stays the same, and so do top-k sets. Average-k sets change, because they compare scores
    of different samples.

    Attributes
    ----------
    temperature
        The temperature; None before fitting.
    nll_before, nll_after
        The NLL at temperature 1 and at the fitted one, equal to ``losses.nll`` to the last bit.
    n_reads, n_iterations
        Number of reads of all logits in this call, and number of temperatures tried.
    converged
        Whether the optimum was found. False if the labels always have the highest logit (the best temperature is 0), or
        if logits are unrelated to them (it is infinite).
    message
        Why it did not converge, or an empty string.
    class_names
        Names of the classes, or None if the logits had none. ``transform`` refuses logits whose names differ.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10)
    >>> calibrator = avgk.calibration.TemperatureScaling().fit(logits, np.array([0] * 7 + [1] * 3))
    >>> np.asarray(calibrator.transform(logits))[0].round(3).tolist(), round(calibrator.temperature, 3)
    ([0.7, 0.3], 2.593)
    """

    METHOD = "temperature"

    def __init__(self) -> None:
        super().__init__()
        self.temperature: float | None = None

    def fit(
        self,
        logits: ScoresLike,
        labels: LabelsLike = None,
        *,
        where: LabelsLike = None,
        ignore_index: int | None = None,
        progress: bool | None = None,
        checkpoint: PlaceLike = None,
    ) -> Self:
        """Find the temperature that minimises the NLL; usually in three reads.

        The NLL is convex in 1 / temperature, and its sums are exact: the same bits for any chunking.

        Parameters
        ----------
        logits
            N x C matrix of logits; as ``scores`` elsewhere.
        labels
            N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that
            holds them. By default the labels stored with the scores.
        where
            One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
        ignore_index
            Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
        progress
            Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
        checkpoint
            Path or URL of a folder for intermediate results: a repeated run reads only the missing parts.
        """
        options = ScanOptions(where=where, ignore_index=ignore_index, progress=progress, checkpoint=checkpoint)
        logits = open_once(logits)
        source = logits_to_fit(logits, labels, options)
        with open_run(source, progress, checkpoint=checkpoint_key(checkpoint, "temperature")) as run:
            search = TemperatureSearch(source.dtype, source.shape[1])
            first = search.next_pass()
            assert first is not None
            search = search.advance(run.read(first))
            assert search.first is not None
            refuse_fit(search.first, run.source)
            search = drive(search, run)
        best = search.best
        self.temperature, self.nll_before, self.nll_after = best.temperature, search.before.loss, best.loss
        self.n_iterations, self.converged = len(search.known), search.converged
        self.message = ""
        if search.is_bounded:
            end = f"{1 / BOUND:g}" if best.temperature < 1 else f"{BOUND:g}"
            why = "labels have the highest logit" if best.temperature < 1 else "logits are unrelated to the labels"
            self.message = f"the NLL still falls at the last temperature tried, {end}: the {why}"
        elif not search.converged:
            self.message = f"no convergence after {search.n_reads} reads"
        self.n_reads, self.class_names = run.reads, recorded_names(logits)
        warn_about(self.message)
        return self

    def _apply(self, logits: ScoresLike) -> LazyScores:
        assert self.temperature is not None
        return softmax(logits, temperature=self.temperature)

    def _arrays(self) -> dict[str, Array]:
        return {"temperature": np.array([self.temperature])}

    def _take_arrays(self, arrays: dict[str, Array]) -> None:
        (value,) = arrays["temperature"].tolist()
        if not 1 / BOUND <= value <= BOUND:
            raise ValueError(f"temperature is {value}")
        self.temperature = value

    def _summary(self) -> str:
        return f"temperature {self.temperature:.6g}"


def temperature_curve(
    logits: ScoresLike,
    labels: LabelsLike = None,
    k: BudgetLike = 1,
    temperatures: Iterable[SupportsFloat] = _TEMPERATURES,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the NLL and both errors as functions of the temperature.

    The average-k error depends on the temperature. The top-k error does not, apart from ties due to rounding.

    Parameters
    ----------
    logits
        N x C matrix of logits; as ``scores`` elsewhere.
    labels
        N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds
        them. By default the labels stored with the scores.
    k
        Budget in (0, C].
    temperatures
        Positive numbers. By default 17 numbers from 1/4 to 4.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Dataset
        Over ``temperature``, in the given order; ``plot.temperatures`` draws it.
    ``nll``
        The mean of -log p[label].
    ``top_k_error, average_k_error``
        As in ``evaluate``; the first is NaN for a fractional k.

    Raises
    ------
    OptionError
        If a temperature is not a positive number.
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If there are no class numbers, or all labels are the same class.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Notes
    -----
    Cost: one read for the NLL at all temperatures, and one read per temperature for the errors.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.tile([2.197, 0.0], (10, 1))
    >>> curve = avgk.calibration.temperature_curve(logits, np.array([0] * 7 + [1] * 3), temperatures=[1, 2.593])
    >>> curve.nll.values.round(3).tolist(), curve.top_k_error.values.tolist()
    ([0.764, 0.611], [0.3, 0.3])
    """
    options = ScanOptions(straddle=False, where=where, ignore_index=ignore_index, progress=progress)
    values = _parse_temperatures(temperatures)
    source = logits_to_fit(logits, labels, options)
    budget = parse_one(k, source.n_classes)
    plan = ScalePlan(source.dtype, source.shape[1], tuple(Scale(1.0 / value) for value in values))
    with options.run(source) as run:
        tally = run.read(scale_pass(plan))
        refuse_fit(tally, run.source)
    results = []
    for value in values:
        with options.run(as_source(softmax(logits, temperature=value), labels, **options.opening)) as run:
            results.append(outcome_result(find_outcome(run, (budget,), options), straddle=False, reads=run.reads))
    errors = {name: [result[name].item() for result in results] for name in ("top_k_error", "average_k_error")}
    nll = [tally.losses.mean(i, tally.n_labelled) for i in range(len(values))]
    reads = 1 + sum(result.attrs["reads"] for result in results)
    attrs = {**results[0].attrs, "k": float(results[0].k[0]), "reads": reads}
    return build_result({"nll": nll, **errors}, {"temperature": values}, attrs, TEMPERATURES)


def _parse_temperatures(temperatures: Iterable[SupportsFloat]) -> list[float]:
    try:
        values = np.atleast_1d(
            np.array(temperatures if hasattr(temperatures, "__len__") else list(temperatures), float)
        )
    except (TypeError, ValueError):
        values = np.array([math.nan])
    if not values.size or values.ndim > 1 or not ((values > 0) & np.isfinite(values)).all():
        raise OptionError(
            f"temperatures must be positive numbers; got {temperatures!r}. Pass a list such as [0.5, 1, 2]."
        )
    return [float(value) for value in values]
