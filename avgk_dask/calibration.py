"""Calibration: well-calibrated probabilities from logits, fitted to a calibration set out of core."""

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
    """Return the lazy probabilities of logits by a fitted calibrator, like its method ``transform``.

    Parameters
    ----------
    logits
        N x C matrix of logits; as ``scores`` elsewhere.
    calibrator
        A fitted calibrator, from ``fit`` or ``calibration.load``.

    Returns
    -------
    LazyScores
        The probabilities; every function accepts them as scores.

    Raises
    ------
    OptionError
        If the calibrator is not a calibrator, or not fitted.

    Notes
    -----
    Cost: nothing is read.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10)
    >>> calibrator = avgk.calibration.TemperatureScaling().fit(logits, np.array([0] * 7 + [1] * 3))
    >>> avgk.losses.nll(avgk.calibrated(logits, calibrator), np.array([0] * 7 + [1] * 3)) == calibrator.nll_after
    True
    """
    if not isinstance(calibrator, Calibrator):
        raise OptionError(
            f"calibrator must be a fitted calibrator; got {type(calibrator).__name__}. Pass one from fit or calibration.load."
        )
    return calibrator.transform(logits)


def load(path: PlaceLike) -> Calibrator:
    """Load a calibrator that ``save`` wrote.

    Parameters
    ----------
    path
        Path of the file.

    Returns
    -------
    Calibrator
        The saved calibrator, identical to the last bit.

    Raises
    ------
    StoreError
        If the file cannot be read, is damaged, or is of another version.

    Notes
    -----
    Cost: no scores are read.

    Examples
    --------
    >>> import os, tempfile, numpy as np, avgk_dask as avgk
    >>> logits = np.log([[0.9, 0.1]] * 10)
    >>> calibrator = avgk.calibration.TemperatureScaling().fit(logits, np.array([0] * 7 + [1] * 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     calibrator.save(os.path.join(folder, "temperature.json"))
    ...     avgk.calibration.load(os.path.join(folder, "temperature.json")).temperature == calibrator.temperature
    True
    """
    return CALIBRATOR_FILE.read(path, _restore)


def _restore(content: dict[str, Any]) -> Calibrator:
    (kind,) = (kind for kind in _KINDS if content["method"] == kind.METHOD)
    return kind._restore(content["fit"], content["arrays"])
