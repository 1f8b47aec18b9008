"""The table of kernels: each is compiled in one module, and stands as plain NumPy in ``plain_`` and that name.

Both are called the same way, under the same name, and do the same to the arrays passed. Modules are imported when they are
asked for: the plain side needs no numba.
"""

from __future__ import annotations

from importlib import import_module
from threading import RLock
from typing import Any

from ..threads import forkable
from .compiling import listen

#: The module each kernel is compiled in.
KERNELS = {
    "add_exact": "bits",
    "find_brackets": "bracketing",
    "scatter_rows": "bracketing",
    "count_apart": "bits",
    "count_bins": "bits",
    "count_cells": "bits",
    "half_keys": "bits",
    "join_bins": "bits",
    "exponentials": "exponentials",
    "logarithms": "exponentials",
    "sigmoid_narrow": "exponentials",
    "sigmoid_wide": "exponentials",
    "softmax_narrow": "exponentials",
    "softmax_norms": "exponentials",
    "softmax_part": "exponentials",
    "softmax_wide": "exponentials",
    "mix_rows": "row_products",
    "row_sums": "logit_losses",
    "scaled_losses": "logit_losses",
    "collect_near": "events",
    "group_order": "events",
    "move_cells": "events",
    "step_events": "events",
    "find_labels": "gathering",
    "gather_above": "gathering",
    "rank_labels": "gathering",
    "add_products": "pairs",
    "count_lower": "pairs",
    "find_edge": "edge_counts",
    "count_at_edges": "edge_counts",
    "rank_in_row": "edge_counts",
    "add_strata": "row_scans",
    "count_sets": "row_scans",
    "hold_rows": "row_scans",
    "scan_rows": "row_scans",
    "split_rows": "row_scans",
    "tell_sets": "row_scans",
    "order_top": "tops",
    "rank_top": "tops",
    "row_floor": "tops",
}


#: Threads that import numba at once see it half made, or wait for each other for ever: they hold different locks of its own.
_importing = forkable(RLock())


def compiled_kernel(name: str) -> Any:
    """Return the compiled kernel of a name."""
    with _importing:
        listen()
        return getattr(import_module(f".{KERNELS[name]}", __package__), name)


def plain_twin(name: str) -> Any:
    """Return the plain twin of a kernel."""
    return getattr(import_module(f".plain_{KERNELS[name]}", __package__), name)


def kept_in() -> str:
    """Return the folder in which numba keeps what it has compiled of the kernels."""
    return str(compiled_kernel("hold_rows")._cache.cache_path)
