"""Average-k and top-k evaluation of large-class models on score matrices too big for memory, exactly."""

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
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


#: Where public names live; they are imported when first used: a worker never needs xarray, nor a command that only helps.
_HOMES = {
    "api.ambiguity": ("ranked_supports", "straddle_strength", "supports_overlap"),
    "api.curves": ("error_curve",),
    "api.description": ("info",),
    "api.evaluation": ("evaluate",),
    "api.ingestion": ("ingest",),
    "api.regrets": ("adaptive_gain", "plug_in_regret", "regret"),
    "api.risks": ("BestThreshold", "best_threshold", "risk"),
    "api.set_sizes": ("average_set_size_at", "threshold_at"),
    "api.sets": ("average_k_sets", "predict_sets", "top_k_sets"),
    "api.stores": ("open_scores", "verify"),
    "api.thresholds": ("Threshold", "threshold"),
    "store": ("ScoreWriter", "join_parts"),
}
_SUBMODULES = ("plot", "report", "testing")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name or submodule when it is first used."""
    if name in _HOME_OF:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        return value
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_SUBMODULES]
