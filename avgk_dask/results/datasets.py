"""Result Datasets: built from values and the registry, checked against it, and told apart by their numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias

import numpy as np
import xarray as xr

from ..arrays import Array, Dtype
from ..errors import DtypeError, OptionError
from .registry import COORDINATES, LEADING, VARIABLES, Variable

#: What the public functions give.
Result: TypeAlias = xr.Dataset
Table: TypeAlias = Mapping[str, Variable]


def build_result(
    values: Mapping[str, object],
    coords: Mapping[str, object],
    attrs: Mapping[str, object],
    table: Table = VARIABLES,
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
    """Check that every variable of a result is known, with the dimensions and dtype of the table."""
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
                f"result variable {name} must be as the schema says; got {variable.dims} {variable.dtype}. "
                "Correct the value or the table."
            )


def check_result(result: object, names: Sequence[str] = ()) -> None:
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


def check_dimensions(result: xr.Dataset, dims: Sequence[str]) -> None:
    """Refuse a part of a result in which a dimension was selected away."""
    for name in dims:
        if name not in result.dims:
            raise OptionError(
                f"result must have the dimension {name}; got one without it. Select with a list, which keeps the dimension: "
                f"result.isel({name}=[0])."
            )


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
        data = dataset[name].values
        if data.dtype.kind not in "biuf":  # names, of whichever kind a file gave them
            data = np.array([str(one) for one in data.reshape(-1).tolist()]).reshape(data.shape)
        values = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
        hashed.update(f"{name} {dataset[name].dims} {data.shape} {data.dtype.name}\n".encode())
        if values.dtype.kind == "f":  # one NaN for all
            values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
        hashed.update(values.tobytes())
    return hashed.hexdigest()
