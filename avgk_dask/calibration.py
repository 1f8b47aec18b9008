"""Calibration: probabilities that fit a calibration set, from logits, out of core."""

from __future__ import annotations

from typing import Any

from .api.calibration.affine import MatrixScaling, VectorScaling
from .api.calibration.temperature import CALIBRATOR_FILE, Calibrator, TemperatureScaling, temperature_curve
from .api.inputs.lazy_scores import LazyScores
from .api.options import PlaceLike, ScoresLike
from .errors import OptionError

__all__ = ["MatrixScaling", "TemperatureScaling", "VectorScaling", "calibrated", "load", "temperature_curve"]

_KINDS: tuple[type[Calibrator], ...] = (TemperatureScaling, VectorScaling, MatrixScaling)


def calibrated(logits: ScoresLike, calibrator: Calibrator) -> LazyScores:
    """Return the probabilities that a fitted calibrator makes of logits, lazily: what its ``transform`` returns.

    Parameters
    ----------
    logits
        N x C matrix of logits; as ``scores`` elsewhere.
    calibrator
        What ``fit`` or ``calibration.load`` gave.

    Returns
    -------
    LazyScores
        The probabilities; every function takes them as scores.

    Raises
    ------
    OptionError
        Where the calibrator is none, or not fitted.

    Notes
    -----
    Cost: nothing is read.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10)
    >>> found = avgk.calibration.TemperatureScaling().fit(logits, np.array([0] * 7 + [1] * 3))
    >>> avgk.losses.nll(avgk.calibrated(logits, found), np.array([0] * 7 + [1] * 3)) == found.nll_after
    True

    """
    if not isinstance(calibrator, Calibrator):
        raise OptionError(
            f"calibrator must be a fitted one; got {type(calibrator).__name__}. Pass what fit or calibration.load gave."
        )
    return calibrator.transform(logits)


def load(path: PlaceLike) -> Calibrator:
    """Read a calibrator that ``save`` wrote.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Calibrator
        Of the kind that was saved, fitted as it was, to the last bit.

    Raises
    ------
    StoreError
        Where the file cannot be read, is damaged, or is of another version.

    Notes
    -----
    Cost: no scores are read.

    Examples
    --------
    >>> import os, tempfile, numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10)
    >>> found = avgk.calibration.TemperatureScaling().fit(logits, np.array([0] * 7 + [1] * 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found.save(os.path.join(folder, "temperature.json"))
    ...     avgk.calibration.load(os.path.join(folder, "temperature.json")).temperature == found.temperature
    True

    """
    return CALIBRATOR_FILE.read(path, _restore)


def _restore(content: dict[str, Any]) -> Calibrator:
    (kind,) = (kind for kind in _KINDS if content["method"] == kind.METHOD)
    return kind._restore(content["fit"], content["arrays"])
