"""``softmax`` and ``sigmoid``: logits as probabilities, made while they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsFloat, Unpack

import xarray as xr

from ..errors import OptionError
from ..passes.certifying import refuse_truncated
from ..sources.activations import Sigmoid, Softmax
from ..sources.source import Source
from ..sources.transformed import TransformedSource
from ..sources.transforms import Transform
from .given import LabelsLike, ScoresLike
from .input_names import frame_of
from .inputs import as_source
from .lazy_scores import LazyScores, SourceOptions, place_of
from .shared_text import documented

#: Temperatures beyond these, or below their inverse, are refused: no model is calibrated by them.
_MOST = 2.0**64


@dataclass(frozen=True, repr=False, eq=False)
class Activated(LazyScores):
    """Probabilities made of logits; see ``softmax`` and ``sigmoid``."""

    scores: ScoresLike
    activation: str
    temperature: float

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        logits = as_source(self.scores, labels, **options)
        refuse_truncated(logits, f"a {self.activation}")
        return TransformedSource(logits, _TRANSFORMS[self.activation](self, logits))

    def __repr__(self) -> str:
        return self._told(f"{self.activation} of {place_of(self.scores)}, temperature {self.temperature:g}")

    @property
    def parts(self) -> Sequence[object]:  # noqa: D102
        return (self.scores,)

    @property
    def frame(self) -> xr.DataArray | None:  # noqa: D102
        return frame_of(self.scores)


def _softmax(what: Activated, logits: Source) -> Transform:
    return Softmax(what.temperature, logits.dtype, logits.location, logits.mask is not None)


def _sigmoid(what: Activated, logits: Source) -> Transform:
    return Sigmoid(what.temperature, logits.dtype)


_TRANSFORMS: dict[str, Callable[[Activated, Source], Transform]] = {"softmax": _softmax, "sigmoid": _sigmoid}


def activated(scores: ScoresLike, activation: str, temperature: SupportsFloat = 1.0) -> Activated:
    """Return the probabilities that an activation makes of logits."""
    if activation not in _TRANSFORMS:
        raise OptionError(
            f"activation must be {' or '.join(map(repr, _TRANSFORMS))}; got {activation!r}. Use one of these."
        )
    try:
        value = float(temperature)
    except (TypeError, ValueError):
        value = 0.0
    if not 1 / _MOST <= value <= _MOST:
        raise OptionError(
            f"temperature must be a positive number such as 1.5; got {temperature!r}. Pass 1 to leave the logits as they are."
        )
    return Activated(scores, activation, value)


@documented
def softmax(scores: ScoresLike, temperature: SupportsFloat = 1.0) -> LazyScores:
    """Return logits as probabilities: exp(z / T) over the sum of its row, made while the logits are read.

    Nothing is stored, and every function takes the result as scores, at the cost of the same reads.

    Parameters
    ----------
    {scores}
        These are logits: any real numbers. -inf gives 0.
    temperature
        T: each logit is divided by it first. Above 1 it makes probabilities more alike, below 1 less.

    Returns
    -------
    LazyScores
        float32, or float64 for logits of 64 bits, computed in float64 and rounded once: within one unit in the last
        place of the true value (four in float64), and the same bits for any chunking on any machine. With the labels
        stored beside the logits.

    Raises
    ------
    OptionError
        Where the temperature is no positive number.
    ScoresError
        Later, where a row's largest logit is infinite: the sample is named.

    Notes
    -----
    Cost: nothing by itself. What takes the result reads the logits as often as it would read scores, and computes one
    exponential for each. Tasks hold whole rows of a chunk.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    >>> np.asarray(avgk.softmax(logits)).round(3).tolist()
    [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]

    """
    return activated(scores, "softmax", temperature)


@documented
def sigmoid(scores: ScoresLike, temperature: SupportsFloat = 1.0) -> LazyScores:
    """Return logits as probabilities, each by itself: 1 / (1 + exp(-z / T)), made while the logits are read.

    Parameters
    ----------
    {scores}
        These are logits: any real numbers. -inf gives 0, inf gives 1.
    temperature
        T: each logit is divided by it first.

    Returns
    -------
    LazyScores
        As exact as those of ``softmax``, and with the same bits everywhere.

    Raises
    ------
    OptionError
        Where the temperature is no positive number.

    Notes
    -----
    Cost: nothing by itself. What takes the result reads the logits as often as it would read scores, and computes one
    exponential for each.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> np.asarray(avgk.sigmoid(np.array([[0.0, 2.0, -2.0]]))).round(3).tolist()
    [[0.5, 0.881, 0.119]]

    """
    return activated(scores, "sigmoid", temperature)
