"""Result Datasets: build and check them by the registry, hash them, convert them to JSON, and describe their scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias, TypedDict

import numpy as np
import xarray as xr

from ..arrays import Array, Dtype
from ..errors import DtypeError, OptionError
from .registry import COORDINATES, LEADING, VARIABLES, Variable

#: The results of the public functions.
Result: TypeAlias = xr.Dataset
Table: TypeAlias = Mapping[str, Variable]


def build_result(
    values: Mapping[str, object], coords: Mapping[str, object], attrs: Mapping[str, object], table: Table = VARIABLES
) -> xr.Dataset:
    """Build the Dataset of these values, described and checked by a table.

    Values may have leading dimensions: the names in ``LEADING`` that are coordinates.
    """
    leading = tuple(name for name in LEADING if name in coords)
    dataset = xr.Dataset(
        {name: _variable(table[name], value, leading) for name, value in values.items()},
        {name: _variable(COORDINATES.get(name) or table[name], value) for name, value in coords.items()},
        attrs,
    )
    validate(dataset, table)
    return dataset


def _variable(
    spec: Variable, value: object, leading: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], Array, dict[str, str]]:
    data = np.asarray(value)
    dtype = data.dtype if _fits(data.dtype, spec) else np.dtype(spec.dtypes[0])
    dims = (*leading, *spec.dims) if data.ndim == len(leading) + len(spec.dims) else spec.dims
    attrs = {"long_name": spec.long_name, "description": spec.description} if spec.long_name else {}
    return dims, data.astype(dtype), attrs


def _fits(dtype: Dtype, spec: Variable) -> bool:
    return dtype.name in spec.dtypes or (dtype.kind == "U" and "str" in spec.dtypes)


def validate(dataset: xr.Dataset, table: Table = VARIABLES) -> None:
    """Check that every variable of a result has the dimensions and dtype of the table."""
    for name, variable in dataset.variables.items():
        spec = COORDINATES.get(str(name)) or table.get(str(name))
        more = [d for d in variable.dims if spec is None or d not in spec.dims]
        if (
            spec is None
            or more != [d for d in LEADING if d in more]
            or variable.dims != (*more, *spec.dims)
            or not _fits(variable.dtype, spec)
        ):
            raise ValueError(
                f"result variable {name} must match the schema; got {variable.dims} {variable.dtype}. Correct the "
                "value or the table."
            )


def check_result(result: object, names: Sequence[str] = ()) -> None:
    """Check that an object is a single result Dataset that has these variables with their own dimensions.

    Raises
    ------
    DtypeError
        If it is not a Dataset.
    OptionError
        If a variable is missing, or has other dimensions because results were concatenated or selected from.
    """
    if not isinstance(result, xr.Dataset):
        raise DtypeError(
            f"result must be a Dataset that evaluate or another function of this package returned; got {type(result).__name__}. "
            "Pass the result as the first argument."
        )
    for name in names:
        if name not in result:
            known = ", ".join(map(str, list(result.data_vars)[:5])) or "none"
            raise OptionError(f"result must have {name}; got the variables {known}. Pass the result of evaluate.")
        _check_dims(name, tuple(map(str, result[name].dims)))


def check_source(
    result: xr.Dataset, source: str, names: Sequence[str], dims: Sequence[str] = (), argument: str = "result"
) -> None:
    """Check that a result has the variables or attributes, and the dimensions, of the function that is its source."""
    check_result(result)
    missing = [name for name in names if name not in result and name not in result.attrs]
    if missing:
        raise OptionError(
            f"{argument} must be the result of {source}; got one without {missing[0]}. Pass it unchanged."
        )
    for name in dims:
        if name not in result.dims:
            raise OptionError(
                f"result must have the dimension {name}; got one without it. Select with a list, which keeps the dimension: "
                f"result.isel({name}=[0])."
            )


def _check_dims(name: str, dims: tuple[str, ...]) -> None:
    expected = VARIABLES[name].dims
    more, less = [d for d in dims if d not in expected], [d for d in expected if d not in dims]
    if more:
        raise OptionError(
            f"result must be a single one, {name} over {' and '.join(expected)}; got several along {', '.join(more)}. "
            f"Select one of them: result.isel({more[0]}=0)."
        )
    if less:
        raise OptionError(
            f"result must have {name} over {' and '.join(expected)}; got it without {', '.join(less)}. "
            f"Select with a list, which keeps the dimension: result.isel({less[0]}=[0])."
        )


@cache
def versions() -> str:
    """Return the versions of the libraries that compute results."""
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
        data = dataset[name].values
        if data.dtype.kind not in "biuf":  # names: text, or objects from a file
            data = np.array([str(one) for one in data.reshape(-1).tolist()]).reshape(data.shape)
        values = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
        hashed.update(f"{name} {dataset[name].dims} {data.shape} {data.dtype.name}\n".encode())
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
        return json.dumps(content, indent=1, allow_nan=False).replace("\x7f", r"\u007f")  # JSON leaves DEL raw
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"result must contain only numbers and text to be written as JSON; got another type ({error}). Remove "
            "variables and attributes of other types."
        ) from error


def plain_json(value: object) -> object:
    """Replace NaN and infinities, at any depth, by text that JSON can hold."""
    if isinstance(value, dict):
        return {name: plain_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def from_json(text: str) -> xr.Dataset:
    """Return the result that ``to_json`` wrote.

    Raises
    ------
    OptionError
        If the text is not one.
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
            f"text must be the output of to_json; got an invalid {type(text).__name__} ({type(error).__name__}: "
            f"{error}). Pass the content of a metrics.json."
        ) from error


class ValuesInfo(TypedDict):
    """The kind and range of the scores in the first rows of a store."""

    kind: str
    low: float | None
    high: float | None
    n_nan: int
    n_rows_sampled: int


class StoreInfo(TypedDict):
    """The content and layout of a store, the cost of evaluating it, and advice."""

    store: str
    #: None for a file.
    zarr_format: int | None
    n_samples: int
    n_classes: int
    truncated: str | None
    dtype: str
    rounding: str | None
    encoding: str | None
    chunks: list[int]
    shards: list[int] | None
    codecs: list[str]
    n_chunks: int
    n_bytes: int
    n_stored_bytes: int | None
    n_missing_chunks: int | None
    has_manifest: bool
    labels: str | None
    values: ValuesInfo | None
    task_memory: int
    merge_memory: int
    client_memory: int
    memory_limit: int
    reads: str
    advice: list[str]


#: The attribute of a result that describes its scores, and its values.
ATTRIBUTE = "score_kind"
PROBABILITIES, OUTSIDE, UNNORMALISED, CUT = "probabilities", "outside [0, 1]", "rows do not sum to 1", "mostly absent"

_REASONS = {OUTSIDE: "they lie outside [0, 1]", UNNORMALISED: "their rows do not sum to 1"}


def are_probabilities(result: xr.Dataset) -> bool:
    """Whether the scores look like probabilities; results without that attribute are judged by their ranked scores."""
    kind = result.attrs.get(ATTRIBUTE)
    if kind is not None:
        return bool(kind == PROBABILITIES)
    return "support_low" not in result or (
        float(result.support_low.min()) >= 0 and float(result.support_high.max()) <= 1
    )


def kind_sentence(result: xr.Dataset) -> str:
    """Warn if the scores are not probabilities, with advice; empty if they are."""
    kind = result.attrs.get(ATTRIBUTE)
    if kind == CUT:
        return (
            "Most scores of each row are -inf, or 0 after the softmax. If a server returned only the largest logits, their "
            "softmax differs from that of all classes."
        )
    if kind not in _REASONS:
        return ""
    return (
        f"These scores are not probabilities: {_REASONS[kind]}. Average-k compares scores of different samples, which needs "
        "probabilities; for logits, pass softmax(scores) or --activation softmax."
    )
