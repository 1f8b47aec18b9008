"""What docstrings of several public functions have in common: said once, and inserted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

#: The parameters, by the name under which a docstring asks for them: ``{scores}`` on a line of its own.
PARAMETERS = {
    "scores": """scores
    N x C matrix: NumPy, Dask or Zarr array, xarray object, frame (a column a class), tensor on the CPU, or the path of a store or
    of a file (.npy, .npz, .parquet, .csv, .arrow, .feather). Of more dimensions, the last one is the classes and all others are
    samples, in row-major order.""",
    "labels": """labels
    N integers (negative, masked or null: unlabelled), N class names of the scores, or an N x C matrix of true probabilities;
    of more dimensions, the samples' shape or the scores'. Also the path of a file or store with any of these. Names of samples
    must be those of the scores, in the same order. By default the labels stored beside the scores.""",
    "where": """where
    Boolean, one value a sample, as labels are given: samples where it is False do not exist (padding). They are not in N, in
    thresholds, sizes or errors, and what they hold is not looked at. By default all exist.""",
    "ignore_index": """ignore_index
    The label of samples that do not exist: short for ``where = labels != ignore_index``. With ``where``, samples exist that
    meet both. A negative label alone is something else: that sample counts for thresholds and sizes, not for errors.""",
    "clusters": """clusters
    An integer a sample, such as the document of a token or the patient of a picture: samples of the same one may be alike,
    and standard errors are those of independent clusters. They change nothing else. By default each sample is independent.""",
    "budgets": """k
    Budget or sequence of budgets in (0, C]; one given twice counts once.""",
    "nan_policy": """nan_policy
    ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.""",
    "nan_policy_of_ranks": """nan_policy
    ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers.""",
    "nan_policy_of_counts": """nan_policy
    ``"raise"`` refuses NaN; ``"lowest"`` never counts NaN.""",
    "nan_policy_of_losses": """nan_policy
    ``"raise"``: there is no other way with NaN here.""",
    "progress": """progress
    Whether to show a progress bar on stderr. With None, the log ``avgk_dask`` has a line each minute instead.""",
    "checkpoint": """checkpoint
    Path or URL of a folder that keeps what is found, as it is found. A run that was interrupted and is started again reads
    only what is missing; so does one over a store that has grown. A finished one is answered at once, with 0 reads. What is
    kept of another request, store or version is refused.""",
    "refused_scores": """ScoresError, DtypeError
    Where the scores are no matrix of real numbers, or hold NaN.""",
    "refused_probabilities": """ScoresError, DtypeError
    Where the scores are no probabilities in [0, 1], or hold NaN; where a row of logits has an infinite largest one.""",
    "refused_without_labels": """LabelsError
    Where the labels do not fit the scores, or there are none.""",
    "refused_budgets": """BudgetError
    Where a budget is no number in (0, C].""",
    "refused_memory": """MemoryLimitError
    Where a task cannot fit its share of memory; before anything is read.""",
    "refused_store": """StoreError
    Where the store cannot be opened or read.""",
}


def documented(function: Function) -> Function:
    """Put the shared descriptions into a function's docstring."""

    def insert(found: re.Match[str]) -> str:
        return PARAMETERS[found[2]].replace("\n", f"\n{found[1]}").join((found[1], ""))

    if function.__doc__:
        function.__doc__ = re.sub(r"^( *)\{(\w+)\}$", insert, function.__doc__, flags=re.M)
    return function
