"""Average-k and top-k evaluation of large-class models on score matrices too big for memory, exactly."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
    from .store import ScoreWriter, join_parts


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


#: Where public names live; they are imported when first used: a worker never needs xarray, nor a command that only helps.
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
    "store": ("ScoreWriter", "join_parts"),
}
_SUBMODULES = ("calibration", "conformal", "losses", "plot", "report", "testing")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # type checkers would take any name for one of ours

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


class _AfterXarray:
    """Registers the accessor ``.avgk`` once xarray is imported: importing it for that alone would cost half a second."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find xarray as the other finders do, and add to what its import does."""
        if name != "xarray":
            return None
        others = (finder.find_spec for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for find in others if (found := find(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader, self)  # type: ignore[assignment]
        return spec


class _Registering:
    """Loads xarray as its own loader does, then registers the accessor and leaves no trace."""

    def __init__(self, loader: Any, finder: _AfterXarray) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        import_module(f"{__name__}.api.accessor")
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)


if sys.modules.get("xarray") is not None:
    import_module(f"{__name__}.api.accessor")
else:
    sys.meta_path.insert(0, _AfterXarray())
