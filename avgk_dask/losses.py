"""Strongly proper losses and calibration errors: how good scores are as probabilities, exactly."""

from __future__ import annotations

from .api.calibration.errors import calibration_at_threshold, expected_calibration_error
from .api.losses import brier, evaluate_losses, mu, nll, one_versus_all, regret_bound

__all__ = [
    "brier",
    "calibration_at_threshold",
    "evaluate_losses",
    "expected_calibration_error",
    "mu",
    "nll",
    "one_versus_all",
    "regret_bound",
]
