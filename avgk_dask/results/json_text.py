"""Results as JSON text, and back."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from ..errors import OptionError
from .datasets import check_result


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
            f"result must hold numbers and text only to become JSON; got something else ({error}). "
            "Drop what you added to it."
        ) from error


def plain_json(value: object) -> object:
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
