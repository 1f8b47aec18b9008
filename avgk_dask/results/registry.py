"""The result Dataset: every variable with its dimensions, dtype and meaning, in one table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import xarray as xr

from ..arrays import Dtype
from ..errors import DtypeError, OptionError


@dataclass(frozen=True)
class Variable:
    """One variable of a result."""

    dims: tuple[str, ...]
    #: The dtypes it may have; the first one unless the values need another.
    dtypes: tuple[str, ...]
    long_name: str
    description: str


#: Scores are float64, which holds every dtype's values but 64-bit integers; those stay as they are.
_SCORES = ("float64", "int64", "uint64")

COORDINATES = {
    "k": Variable(("k",), ("float64",), "budget", "Labels per sample on average, as asked."),
    "size": Variable(("size",), ("int64",), "set size", "Number of labels in a set."),
    "order": Variable(("order",), ("int64",), "straddle order", "Compares rank k + order with rank k + 1 - order."),
    "rank": Variable(("rank",), ("int64",), "rank", "Place of a score in its row; 1 is the highest."),
    "bin": Variable(("bin",), ("int64",), "bin", "Number of a bin of a histogram."),
    "model": Variable(("model",), ("str",), "model", "Name of a model."),
    "group": Variable(("group",), ("str", "int64"), "group", "Name or number of a group of samples."),
}

#: Dimensions that any variable may have before its own, in this order.
LEADING = ("model", "group")

VARIABLES = {
    "threshold": Variable(
        ("k",),
        _SCORES,
        "threshold lambda",
        "The (B+1)-th largest of all scores, B = floor(N k); the smallest one where B = N C.",
    ),
    "n_above": Variable(("k",), ("int64",), "scores above", "Number of scores greater than the threshold."),
    "n_ties": Variable(("k",), ("int64",), "ties", "Number of scores equal to the threshold."),
    "n_kept": Variable(
        ("k",), ("int64",), "kept ties", "Ties kept to fill the budget: the first ones in row-major order, or spread."
    ),
    "average_set_size": Variable(("k",), ("float64",), "average set size", "Labels in all sets together, over N."),
    "average_k_error": Variable(
        ("k",),
        ("float64",),
        "average-k error",
        "Fraction of labelled samples whose label is outside its average-k set; expected fraction with soft labels.",
    ),
    "average_k_error_lowest": Variable(
        ("k",), ("float64",), "lowest average-k error", "The least over all ways to keep n_kept of the n_ties."
    ),
    "average_k_error_highest": Variable(
        ("k",), ("float64",), "highest average-k error", "The greatest over all ways to keep n_kept of the n_ties."
    ),
    "average_k_error_expected": Variable(
        ("k",), ("float64",), "expected average-k error", "The mean over all ways to keep n_kept of the n_ties."
    ),
    "top_k_error": Variable(
        ("k",),
        ("float64",),
        "top-k error",
        "Fraction of labelled samples whose label is not among its k highest scores, expected with soft labels; NaN for a fractional k.",
    ),
    "adaptive_gain": Variable(("k",), ("float64",), "adaptive gain", "top_k_error - average_k_error."),
    "relative_gain": Variable(
        ("k",), ("float64",), "relative gain", "adaptive_gain / top_k_error; NaN where that is 0."
    ),
    "plug_in_bound": Variable(
        (),
        ("float64",),
        "plug-in bound",
        "Mean over samples of the sum of |eta - score|: bounds the regret of both plug-in rules. NaN where a score is "
        "not in [0, 1].",
    ),
    "adaptive_gain_symmetric": Variable(
        ("k",),
        ("float64",),
        "adaptive gain, second form",
        "Mean over samples of the sum of |eta - threshold| over the classes in exactly one of the top-k and average-k sets.",
    ),
    "top_k_regret": Variable(
        ("k",), ("float64",), "top-k regret", "top_k_error less that of the best top-k sets, those of eta."
    ),
    "average_k_regret": Variable(
        ("k",), ("float64",), "average-k regret", "average_k_error less that of the best average-k sets, those of eta."
    ),
    "set_error": Variable((), ("float64",), "error of the sets", "Expected fraction of labels outside the sets."),
    "optimal_error": Variable(
        (), ("float64",), "optimal error", "Expected error of the best sets with as many labels in all."
    ),
    "regret": Variable((), ("float64",), "regret", "set_error - optimal_error."),
    "regret_symmetric": Variable(
        (),
        ("float64",),
        "regret, second form",
        "Mean over samples of the sum of |eta - threshold| over the classes in exactly one of the set and the best set.",
    ),
    "mean_top_k_error": Variable((), ("float64",), "mean top-k error", "Mean of the top-k error over k = 1..C."),
    "mean_average_k_error": Variable(
        (), ("float64",), "mean average-k error", "Mean of the average-k error over k = 1..C."
    ),
    "set_size_count": Variable(
        (
            "k",
            "size",
        ),
        ("int64",),
        "sets of each size",
        "Number of samples whose average-k set has that size.",
    ),
    "straddle_strength": Variable(
        ("k", "order"),
        ("float64",),
        "straddle strength",
        "Mean over all pairs of samples of max(0, s(x)[k + order] - s(x')[k + 1 - order]), s sorted decreasingly; "
        "NaN where the order does not exist or a score is infinite.",
    ),
    "straddle_strength_error": Variable(
        ("k", "order"), ("float64",), "error of the straddle strength", "Certified bound on its error; 0 when exact."
    ),
    "straddle_weight": Variable(
        ("k", "order"), ("float64",), "straddle weight", "Fraction of the pairs with a positive difference."
    ),
    "straddle_weight_error": Variable(
        ("k", "order"), ("float64",), "error of the straddle weight", "Certified bound on its error; 0 when exact."
    ),
    "straddle_magnitude": Variable(
        ("k", "order"),
        ("float64",),
        "straddle magnitude",
        "Mean difference of the pairs where it is positive; 0 where there are none. As exact as strength and weight are.",
    ),
    "straddle_bound": Variable(
        ("k",),
        ("float64",),
        "straddle bound",
        "Sum of the straddle strengths over the orders, for k > C / 2 order 1 alone: a lower bound on the adaptive "
        "gain where the scores are the true probabilities.",
    ),
    "straddle_bound_error": Variable(
        ("k",), ("float64",), "error of the straddle bound", "Certified bound on its error; 0 when exact."
    ),
    "support_low": Variable(
        ("rank",), _SCORES, "lower end of the support", "Smallest value of the score of that rank."
    ),
    "support_high": Variable(
        ("rank",), _SCORES, "upper end of the support", "Largest value of the score of that rank."
    ),
    "supports_overlap": Variable(
        ("k",),
        ("float64",),
        "supports overlap",
        "1 where the largest score of rank k + 1 exceeds the smallest of rank k, else 0; NaN for a fractional k. "
        "Average-k can gain on top-k only where they overlap, if the scores are the true probabilities.",
    ),
    "ranked_count": Variable(
        ("rank", "bin"), ("int64",), "samples in the bin", "Number of samples whose score of that rank is in the bin."
    ),
    "bin_low": Variable(
        ("rank", "bin"),
        _SCORES,
        "lower edge of the bin",
        "The bin holds scores from here up to the next bin's lower edge; the last one up to the support's end.",
    ),
}


#: Results over given thresholds.
AT_THRESHOLDS = {
    "threshold": Variable(("threshold",), ("float64",), "", ""),
    "error": Variable(
        ("threshold",),
        ("float64",),
        "error",
        "Fraction of labelled samples whose label is outside {score > threshold}.",
    ),
    "average_set_size": Variable(
        ("threshold",),
        ("float64",),
        "average set size",
        "Number of scores greater than the threshold, over N: the paper's function G.",
    ),
    "risk": Variable(("threshold",), ("float64",), "risk", "error + cost * average_set_size"),
}

#: Results over given average set sizes.
AT_SIZES = {
    "average_set_size": Variable(("average_set_size",), ("float64",), "", ""),
    "threshold": Variable(
        ("average_set_size",), _SCORES, "threshold", "The least t with at most that many scores above it, over N."
    ),
}

Table = Mapping[str, Variable]


def build_result(
    values: dict[str, Any], coords: dict[str, Any], attrs: dict[str, Any], table: Table = VARIABLES
) -> xr.Dataset:
    """Return the Dataset of these values, described and checked against a table.

    Values may have the dimensions ``LEADING`` before their own, as far as those are among the coordinates.
    """
    leading = tuple(name for name in LEADING if name in coords)
    dataset = xr.Dataset(
        {name: _variable(table[name], value, leading) for name, value in values.items()},
        {name: _variable(COORDINATES.get(name) or table[name], value) for name, value in coords.items()},
        attrs,
    )
    validate(dataset, table)
    return dataset


def _variable(spec: Variable, value: Any, leading: tuple[str, ...] = ()) -> tuple[tuple[str, ...], Any, dict[str, str]]:
    data = np.asarray(value)
    dtype = data.dtype if _fits(data.dtype, spec) else np.dtype(spec.dtypes[0])
    dims = (*leading, *spec.dims) if data.ndim == len(leading) + len(spec.dims) else spec.dims
    attrs = {"long_name": spec.long_name, "description": spec.description} if spec.long_name else {}
    return dims, data.astype(dtype), attrs


def _fits(dtype: Dtype, spec: Variable) -> bool:
    return dtype.name in spec.dtypes or (dtype.kind == "U" and "str" in spec.dtypes)


def validate(dataset: xr.Dataset, table: Table = VARIABLES) -> None:
    """Check that every variable of a result is known, with the dimensions and dtype of the table."""
    for name, variable in dataset.variables.items():
        spec = table.get(str(name)) or COORDINATES.get(str(name))
        more = [d for d in variable.dims if spec is None or d not in spec.dims]
        if (
            spec is None
            or more != [d for d in LEADING if d in more]
            or variable.dims != (*more, *spec.dims)
            or not _fits(variable.dtype, spec)
        ):
            raise ValueError(
                f"result variable {name} must be as the schema says; got {variable.dims} {variable.dtype}. "
                "Correct the value or the table."
            )


def check_result(result: Any, names: Sequence[str] = ()) -> None:
    """Refuse what is no result Dataset, or not a single one with these variables over their own dimensions.

    Raises
    ------
    DtypeError
        For anything but a Dataset.
    OptionError
        Where a variable is missing, or has other dimensions: several results in one, or a part of one.

    """
    if not isinstance(result, xr.Dataset):
        raise DtypeError(
            f"result must be a Dataset that evaluate or another function here gave; got {type(result).__name__}. "
            "Pass the result as the first argument."
        )
    for name in names:
        if name not in result:
            has = ", ".join(map(str, list(result.data_vars)[:5])) or "none"
            raise OptionError(f"result must have {name}; got the variables {has}. Pass what evaluate gives.")
        _check_dims(name, tuple(map(str, result[name].dims)))


def _check_dims(name: str, dims: tuple[str, ...]) -> None:
    wanted = VARIABLES[name].dims
    more, less = [d for d in dims if d not in wanted], [d for d in wanted if d not in dims]
    if more:
        raise OptionError(
            f"result must be a single one, {name} over {' and '.join(wanted)}; got several along {', '.join(more)}. "
            f"Take one of them: result.isel({more[0]}=0)."
        )
    if less:
        raise OptionError(
            f"result must have {name} over {' and '.join(wanted)}; got it without {', '.join(less)}. "
            f"Select with a list, which keeps the dimension: result.isel({less[0]}=[0])."
        )


@cache
def versions() -> str:
    """Return the versions that a result was computed with."""
    return ", ".join(f"{name} {_version(name)}" for name in ("avgk_dask", "numpy", "numba", "dask", "zarr", "xarray"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def fingerprint(dataset: xr.Dataset) -> str:
    """Return the SHA-256 of a result's numbers: the same for any chunking, store and cluster.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> a, b = avgk.evaluate(np.eye(3), k=1), avgk.evaluate(np.eye(3)[::-1], k=1)
    >>> fingerprint(a) == fingerprint(b)
    True

    """
    check_result(dataset)
    hashed = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        data = dataset[name]
        values = np.ascontiguousarray(data.values, data.dtype.newbyteorder("<"))
        hashed.update(f"{name} {data.dims} {data.shape} {data.dtype.name}\n".encode())
        if values.dtype.kind == "f":  # one NaN for all
            values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
        hashed.update(values.tobytes())
    return hashed.hexdigest()


def to_json(dataset: xr.Dataset) -> str:
    """Return a result as JSON text; NaN and infinities are the strings "NaN", "Infinity", "-Infinity".

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(3), np.arange(3), k=1)
    >>> from_json(to_json(result)).identical(result)
    True
    """
    check_result(dataset)
    variables = {
        str(name): {
            "dims": list(v.dims),
            "dtype": str(v.dtype),
            "data": plain_json(v.values.tolist()),
            "attrs": v.attrs,
        }
        for name, v in dataset.variables.items()
    }
    attrs = {name: value.item() if isinstance(value, np.generic) else value for name, value in dataset.attrs.items()}
    content = {"variables": variables, "coords": [str(c) for c in dataset.coords], "attrs": attrs}
    try:
        return json.dumps(content, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"result must hold numbers and text only to become JSON; got something else ({error}). "
            "Drop what you added to it."
        ) from error


def plain_json(value: Any) -> Any:
    """Return a value as JSON can hold it: NaN and infinities as text."""
    if isinstance(value, list):
        return [plain_json(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def from_json(text: str) -> xr.Dataset:
    """Return the result that ``to_json`` wrote.

    Raises
    ------
    OptionError
        For other text.

    """
    try:
        content = json.loads(text)
        variables = {}
        for name, v in content["variables"].items():
            data = np.array(v["data"], dtype=object).astype(v["dtype"])
            variables[name] = (tuple(v["dims"]), data, v["attrs"])
        coords = {name: variables.pop(name) for name in content["coords"]}
        return xr.Dataset(variables, coords, content["attrs"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OptionError(
            f"text must be a result as to_json writes it; got {type(text).__name__} that is none "
            f"({type(error).__name__}: {error}). Pass the content of a metrics.json."
        ) from error
