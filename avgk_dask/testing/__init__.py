"""A kit for tests: the definitions as an oracle, data with known answers, strategies, a counting store.

``strategies`` needs hypothesis and is imported on its own.
"""

from .counting import CountingStore
from .oracle import (
    oracle_average_k_sets,
    oracle_evaluate,
    oracle_smallest_k,
    oracle_straddle,
    oracle_supports,
    oracle_threshold,
    oracle_tie_sensitivity,
    oracle_top_k_sets,
    oracle_transfer,
)
from .simulation import Simulation, simulate, simulate_store
from .statistics import oracle_breakdown, oracle_conformal, oracle_conformal_costs, oracle_influences, oracle_stderr

__all__ = [
    "CountingStore",
    "Simulation",
    "oracle_average_k_sets",
    "oracle_breakdown",
    "oracle_conformal",
    "oracle_conformal_costs",
    "oracle_evaluate",
    "oracle_influences",
    "oracle_smallest_k",
    "oracle_stderr",
    "oracle_straddle",
    "oracle_supports",
    "oracle_threshold",
    "oracle_tie_sensitivity",
    "oracle_top_k_sets",
    "oracle_transfer",
    "simulate",
    "simulate_store",
]
