"""Average-k and top-k evaluation of large-class models on score matrices too big for memory, exactly."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    AvgkError,
    BudgetError,
    ClusterError,
    DtypeError,
    LabelsError,
    LeftoverWarning,
    MemoryLimitError,
    OptionError,
    ReadError,
    ResultWarning,
    ScoresError,
    StoreError,
    UnsettledError,
    WriteError,
)

if TYPE_CHECKING:
    from . import calibration as calibration
    from . import conformal as conformal
    from . import losses as losses
    from . import plot as plot
    from . import report as report
    from . import testing as testing
    from .api.breakdowns import breakdown
    from .api.comparison import compare
    from .api.compilation import compile_kernels
    from .api.curves import SmallestK, error_curve, smallest_k
    from .api.ensembles import ensemble
    from .api.evaluate import evaluate
    from .api.ingestion import ingest
    from .api.inputs.lazy_scores import LazyScores
    from .api.loop.evaluator import Evaluator
    from .api.probabilities import balanced, sigmoid, softmax
    from .api.regrets import adaptive_gain, plug_in_regret, regret
    from .api.risks import BestThreshold, best_threshold, risk
    from .api.set_pairs import set_pairs, set_utility
    from .api.sets import average_k_sets, predict_sets, top_k_sets
    from .api.stores import info, open_scores, verify
    from .api.straddle import ranked_supports, straddle_strength, supports_overlap
    from .api.thresholds import Threshold, average_set_size_at, threshold, threshold_at
    from .api.transfer import transfer
    from .calibration import calibrated
    from .store.write.joining import join_parts
    from .store.write.writer import ScoreWriter


__version__ = "0.1.0"

__all__ = [
    "AvgkError",
    "BestThreshold",
    "BudgetError",
    "ClusterError",
    "DtypeError",
    "Evaluator",
    "LabelsError",
    "LazyScores",
    "LeftoverWarning",
    "MemoryLimitError",
    "OptionError",
    "ReadError",
    "ResultWarning",
    "ScoreWriter",
    "ScoresError",
    "SmallestK",
    "StoreError",
    "Threshold",
    "UnsettledError",
    "WriteError",
    "adaptive_gain",
    "average_k_sets",
    "average_set_size_at",
    "balanced",
    "best_threshold",
    "breakdown",
    "calibrated",
    "compare",
    "compile_kernels",
    "ensemble",
    "error_curve",
    "evaluate",
    "info",
    "ingest",
    "join_parts",
    "open_scores",
    "plug_in_regret",
    "predict_sets",
    "ranked_supports",
    "regret",
    "risk",
    "set_pairs",
    "set_utility",
    "sigmoid",
    "smallest_k",
    "softmax",
    "straddle_strength",
    "supports_overlap",
    "threshold",
    "threshold_at",
    "top_k_sets",
    "transfer",
    "verify",
]


#: The modules of public names. Names are imported on first use: workers, or a command that prints help, need no xarray.
_HOMES = {
    "api.breakdowns": ("breakdown",),
    "api.comparison": ("compare",),
    "api.compilation": ("compile_kernels",),
    "api.curves": ("SmallestK", "error_curve", "smallest_k"),
    "api.ensembles": ("ensemble",),
    "api.evaluate": ("evaluate",),
    "api.ingestion": ("ingest",),
    "api.inputs.lazy_scores": ("LazyScores",),
    "api.loop.evaluator": ("Evaluator",),
    "api.probabilities": ("balanced", "sigmoid", "softmax"),
    "api.regrets": ("adaptive_gain", "plug_in_regret", "regret"),
    "api.risks": ("BestThreshold", "best_threshold", "risk"),
    "api.set_pairs": ("set_pairs", "set_utility"),
    "api.sets": ("average_k_sets", "predict_sets", "top_k_sets"),
    "api.stores": ("info", "open_scores", "verify"),
    "api.straddle": ("ranked_supports", "straddle_strength", "supports_overlap"),
    "api.thresholds": ("Threshold", "average_set_size_at", "threshold", "threshold_at"),
    "api.transfer": ("transfer",),
    "calibration": ("calibrated",),
    "store.write.joining": ("join_parts",),
    "store.write.writer": ("ScoreWriter",),
}
_SUBMODULES = ("calibration", "conformal", "losses", "plot", "report", "testing")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name or submodule on first use."""
        if name in _HOME_OF:
            value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
            return value
        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_SUBMODULES]


# Importing xarray only for its accessor would cost half a second. ``import avgk_dask.xarray`` registers it explicitly.
if sys.modules.get("xarray") is not None:
    import_module(f"{__name__}.xarray")
