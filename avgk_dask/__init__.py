"""Average-k and top-k evaluation of large-class models on score matrices too big for memory, exactly."""

from .api.ambiguity import ranked_supports, straddle_strength, supports_overlap
from .api.curves import error_curve
from .api.description import info
from .api.evaluation import evaluate
from .api.ingestion import ingest
from .api.regrets import adaptive_gain, plug_in_regret, regret
from .api.risks import BestThreshold, best_threshold, risk
from .api.set_sizes import average_set_size_at, threshold_at
from .api.sets import average_k_sets, predict_sets, top_k_sets
from .api.stores import open_scores, verify
from .api.thresholds import Threshold, threshold
from .errors import (
    AvgkError,
    BudgetError,
    DtypeError,
    LabelsError,
    MemoryLimitError,
    OptionError,
    ReadError,
    ScoresError,
    StoreError,
)
from .store import ScoreWriter, join_parts

__version__ = "0.1.0"

__all__ = [
    "AvgkError",
    "BestThreshold",
    "BudgetError",
    "DtypeError",
    "LabelsError",
    "MemoryLimitError",
    "OptionError",
    "ReadError",
    "ScoreWriter",
    "ScoresError",
    "StoreError",
    "Threshold",
    "adaptive_gain",
    "average_k_sets",
    "average_set_size_at",
    "best_threshold",
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
    "straddle_strength",
    "supports_overlap",
    "threshold",
    "threshold_at",
    "top_k_sets",
    "verify",
]


def __getattr__(name: str) -> object:
    """Import the submodules ``testing`` and ``report`` when they are first used."""
    if name in ("report", "testing"):
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
