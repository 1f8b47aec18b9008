"""Conformal sets: they contain the label of a new sample with a chosen probability; calibrated out of core."""

from __future__ import annotations

from .api.conformal.calibrate import calibrate, restore_predictor
from .api.conformal.predictors import PREDICTOR_FILE, ConformalPredictor
from .api.options import PlaceLike

__all__ = ["ConformalPredictor", "calibrate", "load"]


def load(path: PlaceLike) -> ConformalPredictor:
    """Load a conformal predictor that ``save`` wrote.

    Parameters
    ----------
    path
        Path of the file.

    Returns
    -------
    ConformalPredictor
        The saved predictor, identical to the last bit.

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
    >>> predictor = avgk.conformal.calibrate(np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 1]), alpha=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     predictor.save(os.path.join(folder, "sets.json"))
    ...     avgk.conformal.load(os.path.join(folder, "sets.json")) == predictor
    True
    """
    return PREDICTOR_FILE.read(path, restore_predictor)
