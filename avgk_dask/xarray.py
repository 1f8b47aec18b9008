"""The accessor ``.avgk`` of xarray's Datasets and DataArrays: ``ds.avgk.evaluate(k=5)`` is ``avgk_dask.evaluate(ds, k=5)``.

Importing this module registers it. ``import avgk_dask`` does so only if xarray is already imported: importing xarray takes
half a second and 90 MB, and workers do not need it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any

import xarray as xr

#: The functions whose first argument is the scores.
METHODS = (
    "adaptive_gain",
    "average_k_sets",
    "average_set_size_at",
    "balanced",
    "best_threshold",
    "breakdown",
    "error_curve",
    "evaluate",
    "plug_in_regret",
    "predict_sets",
    "ranked_supports",
    "risk",
    "set_pairs",
    "sigmoid",
    "smallest_k",
    "softmax",
    "straddle_strength",
    "supports_overlap",
    "threshold",
    "threshold_at",
    "top_k_sets",
    "transfer",
)


@xr.register_dataset_accessor("avgk")  # type: ignore[no-untyped-call]
@xr.register_dataarray_accessor("avgk")  # type: ignore[no-untyped-call]
class ScoresAccessor:
    """The functions of avgk_dask for these scores.

    Examples
    --------
    >>> import numpy as np, xarray as xr, avgk_dask.xarray
    >>> scores = xr.DataArray(np.eye(3), dims=("sample", "class"))
    >>> scores.avgk.threshold(1).n_above
    3
    """

    def __init__(self, scores: xr.Dataset | xr.DataArray) -> None:
        self._scores = scores

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of the package with these scores as its first argument."""
        if name not in METHODS:
            raise AttributeError(f"{name!r} is not a function of .avgk, which has {', '.join(METHODS)}")
        function = getattr(import_module("avgk_dask"), name)
        bound = update_wrapper(partial(function, self._scores), function)
        del bound.__wrapped__  # so that its signature omits the scores
        return bound

    def __dir__(self) -> list[str]:
        return list(METHODS)
