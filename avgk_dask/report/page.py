"""The HTML page: everything from users is escaped, nothing is fetched."""

from __future__ import annotations

from importlib.resources import files

import xarray as xr
from jinja2 import Environment

from .text import HEADER, sentences, table_rows


def render_report(result: xr.Dataset) -> str:
    """Give the report of a result as one self-contained HTML page."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        sentences=sentences(result),
        header=HEADER,
        rows=table_rows(result),
        bars=[_bars(result.isel(k=i)) for i in range(result.sizes["k"])],
        facts={name: value for name, value in result.attrs.items() if value != ""},
    )


def _bars(one: xr.Dataset) -> dict[str, object]:
    """Give the set sizes of one budget as bars of at most 40 sizes, the last one gathering the rest."""
    counts = one.set_size_count.values
    shown = counts[:40].copy()
    shown[-1] += counts[40:].sum()
    top = max(int(shown.max()), 1)
    bars = [{"size": size, "count": f"{n:,}", "height": round(100 * int(n) / top, 2)} for size, n in enumerate(shown)]
    return {"k": f"{float(one.k):g}", "bars": bars, "more": counts.size > 40}
