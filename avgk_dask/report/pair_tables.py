"""Classes that are in sets together, in words and as a table."""

from __future__ import annotations

import xarray as xr

from ..errors import OptionError
from ..results.datasets import check_dimensions, check_result
from ..results.fitting import Screen
from .tables import Table, percent


def print_pairs(result: xr.Dataset, n: int = 20, *, width: int | None = None, colour: bool = False) -> str:
    """Return the most frequent pairs of what ``set_pairs`` gave as text, and one sentence; the rest as for ``print_table``."""
    screen = Screen(width, colour)
    return "\n".join([*screen.table(pairs_table(result, n)), "", *screen.text(pairs_sentence(result), "strong")])


def check_pairs(result: xr.Dataset) -> None:
    """Refuse what ``set_pairs`` did not give."""
    check_result(result)
    lost = [name for name in ("class_a", "class_b", "count", "n_sets_a", "n_sets_b") if name not in result]
    if lost:
        raise OptionError(f"result must be what set_pairs gives; got one without {lost[0]}. Pass its result.")
    check_dimensions(result, ("pair",))


def pairs_table(result: xr.Dataset, n: int = 20) -> Table:
    """Return a row for each of the first pairs: both classes, the sets with both, and their share of each one's sets."""
    check_pairs(result)
    rows = [_row(result.isel(pair=i)) for i in range(min(n, result.sizes["pair"]))]
    header = ("class", "and class", "sets with both", "of the first's", "of the second's")
    return Table(header, rows, least=header[:2:-1], names=header[:2])


def _row(one: xr.Dataset) -> tuple[str, ...]:
    count = int(one["count"])
    return (
        _name(one, "a"),
        _name(one, "b"),
        f"{count:,}",
        percent(count / int(one.n_sets_a)),
        percent(count / int(one.n_sets_b)),
    )


def _name(one: xr.Dataset, end: str) -> str:
    return str(one[f"name_{end}"].item()) if f"name_{end}" in one else str(int(one[f"class_{end}"]))


def pairs_sentence(result: xr.Dataset) -> str:
    """Say how many pairs there are, and of what."""
    attrs = result.attrs
    n = int(attrs["n_pairs"])
    pairs = "no two classes are" if not n else "1 pair of classes is" if n == 1 else f"{n:,} pairs of classes are"
    return f"In the average-k sets of {attrs['n_samples']:,} samples at k = {attrs['k']:g}, {pairs} together at least once."
