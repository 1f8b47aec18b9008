"""Calibrators: what all of them have in common, and the one of a single temperature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from ..arrays import Array
from ..errors import LabelsError, OptionError, ScoresError, warn_of
from ..passes.certifying import refuse_truncated
from ..passes.run import drive
from ..passes.running import running
from ..searches.temperature_search import BOUND, TemperatureSearch
from ..sources.source import Source
from ..states.loss_tally import ScaleTally
from .calibrator_files import write_calibrator
from .checkpoints import asked_checkpoint
from .given import LabelsLike, PlaceLike, ScoresLike
from .given_probabilities import logits_of
from .input_names import check_class_names, open_once, recorded_names
from .labelled import labelled_source
from .lazy_scores import LazyScores
from .probabilities import softmax
from .shared_text import documented


class Calibrator(ABC):
    """Turns logits into probabilities that it has been fitted to make likely."""

    #: How files name it; what they tell of a fit beside its arrays, and the kind of each.
    METHOD: ClassVar[str]
    TOLD: ClassVar[dict[str, type]] = {
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

    @abstractmethod
    def transform(self, logits: ScoresLike) -> LazyScores:
        """Return probabilities of logits, lazily."""

    @abstractmethod
    def _arrays(self) -> dict[str, Array]:
        """Return what was fitted, by name."""

    @abstractmethod
    def _take_arrays(self, arrays: dict[str, Array]) -> None:
        """Take what was fitted, as ``_arrays`` gave it; ValueError where it cannot be."""

    def save(self, path: PlaceLike) -> None:
        """Write the fitted calibrator to a JSON file, which ``calibration.load`` reads.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced.

        """
        self._check_fitted()
        told = {name: getattr(self, name) for name in self.TOLD}
        told["class_names"] = None if self.class_names is None else list(self.class_names)
        write_calibrator(path, self.METHOD, told, self._arrays())

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise OptionError(
                f"{type(self).__name__} must be fitted first; got one that is not. Call fit, or load one that was saved."
            )

    def __repr__(self) -> str:
        if not self.is_fitted:
            return f"{type(self).__name__}(), not fitted"
        end = "" if self.converged else f"; {self.message}"
        return f"{type(self).__name__}: {self._shown()}, NLL {self.nll_before:.6g} to {self.nll_after:.6g}{end}"

    def _shown(self) -> str:
        return ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in self._arrays().items())

    @classmethod
    def _restored(cls, told: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Return the calibrator that was saved; KeyError, TypeError or ValueError where it was not."""
        found = cls()
        for name, kind in cls.TOLD.items():
            value = told[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{name} is {value!r}")
            setattr(found, name, value)
        found._take_arrays(arrays)
        names = told.get("class_names")  # files of before have none
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise TypeError(f"class_names is {names!r:.80}")
        found.class_names = None if names is None else tuple(names)
        return found

    def _check_classes(self, logits: ScoresLike) -> None:
        """Refuse to transform before it is fitted, and logits whose classes have other names than those it was fitted to."""
        self._check_fitted()
        check_class_names(logits, self.class_names, "the calibrator", "list(calibrator.class_names)")


def logits_to_fit(
    logits: ScoresLike, labels: LabelsLike, where: LabelsLike = None, ignore_index: int | None = None
) -> Source:
    """Return the source of logits and hard labels to fit a calibrator to."""
    source = labelled_source(logits, labels, "a calibrator", where=where, ignore_index=ignore_index)
    refuse_truncated(source, "a calibrator")
    if logits_of(source)[1]:
        raise ScoresError("logits must be those that a softmax has not seen; got probabilities. Pass its argument.")
    if source.has_soft_labels:
        raise LabelsError(
            "labels must be class numbers for a calibrator; got a matrix. Pass one label for each sample."
        )
    return source


def refuse_fit(tally: ScaleTally, source: Source) -> None:
    """Raise where logits or labels tell nothing about probabilities."""
    if tally.n_refused:
        sample = source.sample(*tally.first_refused[:2])
        raise ScoresError(
            f"logits must be finite, at least the largest of each row; those of sample {sample} are not. "
            "Correct them, or leave the sample out."
        )
    if tally.n_labelled == 0:
        raise LabelsError("labels must be there for a calibrator; got none. Pass the labels of a calibration set.")
    if tally.has_one_class:
        raise LabelsError(
            f"labels must name two classes at least for a calibrator; got {tally.most_seen} alone. "
            "Pass a calibration set with several classes."
        )
    if tally.losses.n_infinite.any():
        raise ScoresError(
            f"logits of labels must be finite for a calibrator; got {int(tally.losses.n_infinite.max()):,} of -inf. "
            "Leave those samples out."
        )


class TemperatureScaling(Calibrator):
    """Divides logits by one number, the temperature, before the softmax; that of least NLL on a calibration set.

    The order of the scores of a sample stays as it is, and so do top-k sets; average-k sets change, since scores of different samples
    are compared there.

    Attributes
    ----------
    temperature
        The temperature; None before it was fitted.
    nll_before, nll_after
        The NLL at temperature 1, and at the fitted one, to the last bit what ``losses.nll`` gives.
    n_reads, n_iterations
        How often all logits were read in this call, and how many temperatures were tried.
    converged
        Whether the optimum was found. Not where the labels always have the highest logit (the best temperature is 0),
        or the logits tell nothing about them (infinite).
    message
        What was found instead.
    class_names
        Names of the classes, if the logits had some; ``transform`` refuses logits with other names, or in another order.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10)
    >>> found = avgk.calibration.TemperatureScaling().fit(logits, np.array([0] * 7 + [1] * 3))
    >>> np.asarray(found.transform(logits))[0].round(3).tolist(), round(found.temperature, 3)
    ([0.7, 0.3], 2.593)

    """

    METHOD = "temperature"

    def __init__(self) -> None:
        super().__init__()
        self.temperature: float | None = None

    @documented
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
        """Find the temperature of least NLL; three reads usually.

        The NLL is convex in 1 / temperature, and its sums are exact: the same temperature to the last bit for any chunking.

        Parameters
        ----------
        logits
            N x C matrix of logits; as ``scores`` elsewhere.
        labels
            N integers (negative, masked or null: unlabelled). By default the labels stored beside the logits.
        {where}
        {ignore_index}
        {progress}
        {checkpoint}

        """
        logits = open_once(logits)
        source = logits_to_fit(logits, labels, where, ignore_index)
        with running(source, progress, "raise", asked_checkpoint(checkpoint, "temperature")) as run:
            search = TemperatureSearch(source.dtype, source.shape[1])
            first = search.next_pass()
            assert first is not None
            search = search.advance(run.read(first))
            assert search.first is not None
            refuse_fit(search.first, run.source)
            search = drive(search, run)
        self._take(search)
        self.n_reads, self.class_names = run.reads, recorded_names(logits)
        warn_of(self.message)
        return self

    def _take(self, search: TemperatureSearch) -> None:
        best = search.best
        self.temperature, self.nll_before, self.nll_after = best.temperature, search.before.loss, best.loss
        self.n_iterations, self.converged = len(search.known), search.converged
        self.message = ""
        if search.is_bounded:
            end = f"{1 / BOUND:g}" if best.temperature < 1 else f"{BOUND:g}"
            why = "labels have the highest logit" if best.temperature < 1 else "logits tell nothing about the labels"
            self.message = f"the NLL still falls at the last temperature tried, {end}: the {why}"
        elif not search.converged:
            self.message = f"not settled after {search.n_reads} reads"

    def transform(self, logits: ScoresLike) -> LazyScores:
        """Return the probabilities softmax(logits / temperature), lazily; every function takes them as scores.

        Parameters
        ----------
        logits
            N x C matrix of logits; as ``scores`` elsewhere.

        """
        self._check_classes(logits)
        assert self.temperature is not None
        return softmax(logits, temperature=self.temperature)

    def _arrays(self) -> dict[str, Array]:
        return {"temperature": np.array([self.temperature])}

    def _take_arrays(self, arrays: dict[str, Array]) -> None:
        (value,) = arrays["temperature"].tolist()
        if not 1 / BOUND <= value <= BOUND:
            raise ValueError(f"temperature is {value}")
        self.temperature = value

    def _shown(self) -> str:
        return f"temperature {self.temperature:.6g}"
