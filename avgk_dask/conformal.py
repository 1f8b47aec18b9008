"""Conformal sets: those that hold the label of a new sample with a chosen probability, out of core."""

from __future__ import annotations

from .api.conformal.calibrate import calibrate, restore_predictor
from .api.conformal.predictors import PREDICTOR_FILE, ConformalPredictor
from .api.options import PlaceLike

__all__ = ["ConformalPredictor", "calibrate", "load"]


def load(path: PlaceLike) -> ConformalPredictor:
    """Read a conformal predictor that ``save`` wrote.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    ConformalPredictor
        As it was saved, to the last bit.

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
    >>> found = avgk.conformal.calibrate(np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 1]), alpha=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found.save(os.path.join(folder, "sets.json"))
    ...     avgk.conformal.load(os.path.join(folder, "sets.json")) == found
    True

    """
    return PREDICTOR_FILE.read(path, restore_predictor)
