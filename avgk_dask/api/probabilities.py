"""Lazy scores: ``softmax`` and ``sigmoid`` of logits, and ``balanced`` scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat, Unpack

import dask.array as da
import numpy as np

from ..arrays import Array, Floats, Ints
from ..errors import AvgkError, OptionError
from ..sources.row_values import blank, lazy_array
from ..sources.source import Source
from ..sources.transforms import ACTIVATIONS, Balance
from ..statistics.truncated import refuse_truncated
from .inputs.labels import labelled_source, refuse_soft
from .inputs.lazy_scores import LazyScores, LazyTransform, place_of
from .inputs.names import class_vector
from .inputs.sources import as_source
from .options import LabelsLike, ScoresLike, SourceOptions, is_stored

#: Temperatures above this, or below its inverse, are refused: they calibrate no model.
_MAX_TEMPERATURE = 2.0**64


@dataclass(frozen=True, repr=False, eq=False)
class Activated(LazyTransform):
    """Probabilities from logits; see ``softmax`` and ``sigmoid``."""

    activation: str
    temperature: float

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        logits = as_source(self.scores, labels, **options)
        refuse_truncated(logits, f"a {self.activation}")
        return logits.with_transform(ACTIVATIONS[self.activation].from_logits(logits, self.temperature))

    def __repr__(self) -> str:
        return self._describe(f"{self.activation} of {place_of(self.scores)}, temperature {self.temperature:g}")


def apply_activation(scores: ScoresLike, activation: str, temperature: SupportsFloat = 1.0) -> Activated:
    """Apply an activation to logits, lazily."""
    if activation not in ACTIVATIONS:
        raise OptionError(
            f"activation must be {' or '.join(map(repr, ACTIVATIONS))}; got {activation!r}. Use one of these."
        )
    try:
        value = float(temperature)
    except (TypeError, ValueError):
        value = 0.0
    if not 1 / _MAX_TEMPERATURE <= value <= _MAX_TEMPERATURE:
        raise OptionError(
            f"temperature must be a positive number such as 1.5; got {temperature!r}. Pass 1 to leave the logits unchanged."
        )
    return Activated(scores, activation, value)


def softmax(scores: ScoresLike, temperature: SupportsFloat = 1.0) -> LazyScores:
    """Return the softmax of logits, exp(z / T) divided by the sum of its row, computed while the logits are read.

    Nothing is stored, and every function accepts the result as scores, at the cost of the same reads.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file. These
        are logits: any real numbers. -inf gives 0.
    temperature
        T: each logit is first divided by it. Values above 1 flatten the probabilities, values below 1 sharpen them.

    Returns
    -------
    LazyScores
        float32, or float64 for 64-bit logits. Computed in float64 and rounded once: within one unit in the last place of
        the true value (four in float64), with the same bits for any chunking on any machine. Keeps the labels stored
        with the logits.

    Raises
    ------
    OptionError
        If the temperature is not a positive number.
    ScoresError
        Later, if a row's largest logit is infinite. The message names the sample.

    Notes
    -----
    Cost: nothing by itself. Functions of the result read the logits as often as they would read scores, and compute one
    exponential per logit. Tasks hold whole rows of a chunk.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    >>> np.asarray(avgk.softmax(logits)).round(3).tolist()
    [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]
    """
    return apply_activation(scores, "softmax", temperature)


def sigmoid(scores: ScoresLike, temperature: SupportsFloat = 1.0) -> LazyScores:
    """Return the sigmoid of each logit, 1 / (1 + exp(-z / T)), computed while the logits are read.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file. These
        are logits: any real numbers. -inf gives 0, inf gives 1.
    temperature
        T: each logit is first divided by it.

    Returns
    -------
    LazyScores
        With the dtype, precision and reproducibility of ``softmax``.

    Raises
    ------
    OptionError
        If the temperature is not a positive number.

    Notes
    -----
    Cost: nothing by itself. Functions of the result read the logits as often as they would read scores, and compute one
    exponential per logit.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> np.asarray(avgk.sigmoid(np.array([[0.0, 2.0, -2.0]]))).round(3).tolist()
    [[0.5, 0.881, 0.119]]
    """
    return apply_activation(scores, "sigmoid", temperature)


@dataclass(frozen=True, repr=False, eq=False)
class Balanced(LazyTransform):
    """Scores divided by the frequency of their class; see ``balanced``."""

    frequencies: Floats

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        source = as_source(self.scores, labels, **options)
        refuse_truncated(source, "balanced scores")
        if source.n_classes != self.frequencies.size:
            raise OptionError(
                f"frequencies must have {source.n_classes} numbers, one per class; got {self.frequencies.size}. Count "
                "the labels with numpy.bincount(labels, minlength=C)."
            )
        return source.with_transform(Balance(self.frequencies, source.dtype))

    def __repr__(self) -> str:
        return self._describe(f"{place_of(self.scores)} divided by class frequencies")


def count_labels_by_class(scores: ScoresLike, *, where: LabelsLike = None, ignore_index: int | None = None) -> Ints:
    """Count the labels of each class that are stored with scores, block by block; negative labels do not count."""
    source = labelled_source(scores, None, "their frequencies", where=where, ignore_index=ignore_index, hard=True)
    refuse_soft(source, "their frequencies")
    labels: Any = source.labels
    column = (lazy_array(labels) if is_stored(labels) else da.asarray(labels)).astype(np.int64)
    column = column if source.mask is None else blank(column, source.mask, -1)
    n = source.n_classes
    counts = column.map_blocks(_count, n, chunks=((1,) * column.npartitions, (n,)), new_axis=1, dtype=np.int64)
    return np.asarray(counts.sum(axis=0).compute())


def _count(labels: Array, n_classes: int) -> Ints:
    """Count the classes in a block. Functions that evaluate refuse other labels."""
    return np.bincount(labels[(labels >= 0) & (labels < n_classes)], minlength=n_classes)[None]


def balanced(scores: ScoresLike, frequencies: Array | Sequence[float]) -> LazyScores:
    """Return scores divided by the frequency of their class: macro average-k.

    Among all sets with the same number of labels, those from a threshold on p(y | x) have the fewest errors. Those from a
    threshold on p(y | x) / p(y) have the smallest error averaged over classes: rare classes count as much as frequent
    ones. All functions accept the result, and stay exact.

    Parameters
    ----------
    scores
        N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file. These
        should be probabilities.
    frequencies
        C numbers of at least 0: the share or count of each class, such as ``numpy.bincount(labels, minlength=C)`` of
        training labels. The score of a class with frequency 0 becomes 0.

    Returns
    -------
    LazyScores
        float32, or float64 for 64-bit scores, divided in float64 and rounded once. Keeps the labels stored with the
        scores. The rows do not sum to 1: these are not probabilities.

    Raises
    ------
    OptionError
        If the frequencies are not numbers of at least 0, all are 0, or (later) their number is not C.

    Notes
    -----
    Cost: nothing by itself. Functions of the result read the scores as often as without it.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> np.asarray(avgk.balanced(np.array([[0.6, 0.4], [0.9, 0.1]]), [3, 1])).round(2).tolist()
    [[0.8, 1.6], [1.2, 0.4]]
    """
    try:
        n_classes = len(frequencies)
        values = np.asarray(class_vector(frequencies, "frequencies", scores, n_classes), np.float64)
    except AvgkError:
        raise
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or not values.size or not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        shown = " ".join(repr(frequencies).split())
        raise OptionError(
            f"frequencies must be nonnegative numbers, one per class and not all 0; got {shown!s:.80}. Count the "
            "labels with numpy.bincount(labels, minlength=C)."
        )
    return Balanced(scores, values / values.sum())
