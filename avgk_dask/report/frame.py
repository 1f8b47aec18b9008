"""What all pages are made of: the frame around them, shortened tables and texts, provenance, and files written whole.

Everything from users is escaped, and nothing is fetched.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TypeAlias

import numpy as np
import xarray as xr
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ..credentials import is_url, shown
from ..errors import DtypeError, OptionError, visible
from ..results.datasets import fingerprint
from ..results.text import Table

#: Budgets that tables and pictures of a page show at most.
MOST_BUDGETS = 100
#: Rows that a table may have before it is folded.
MOST_OPEN = 15
#: Characters that a page shows of one text, and texts that users may add.
MOST_CHARACTERS, MOST_FACTS = 2_000, 40
#: Characters of a name in a table.
MOST_NAME = 100

#: A table and, of a long one, the few rows that stay in sight while it is folded.
Folded: TypeAlias = tuple[Table, Table | None]
#: The sections of a page: their places, titles, and values of which one must be there; pictures as ``pictures:name``.
Sections: TypeAlias = Sequence[tuple[str, str, tuple[str, ...]]]


def places(n: int, most: int, keep: int | None = None) -> list[int]:
    """Return which of n to show where they are too many: evenly spaced ones, the first and the last, and one to keep.

    Examples
    --------
    >>> places(3, 5), places(100, 4), places(100, 4, keep=5)
    ([0, 1, 2], [0, 33, 66, 99], [0, 5, 33, 66, 99])

    """
    if n <= most:
        return list(range(n))
    spaced = np.linspace(0, n - 1, most).round().astype(int).tolist()
    return sorted({*spaced, *([] if keep is None else [keep])})


def spaced(result: xr.Dataset, keep: float | None = None, most: int = MOST_BUDGETS) -> xr.Dataset:
    """Return a result with so many of its budgets at most, and one to keep."""
    kept = None if keep is None else int(np.flatnonzero(result.k.values == keep)[0])
    return result.isel(k=places(result.sizes["k"], most, kept))


def fold(
    table: Table | None, choose: Callable[[list[tuple[str, ...]]], list[tuple[str, ...]]] | None = None
) -> Folded | None:
    """Return a table with a few rows to keep in sight if it is long: those chosen, or the first ones; nothing for none."""
    if table is None:
        return None
    if len(table.rows) <= MOST_OPEN:
        return table, None
    return table, Table(table.header, table.rows[:MOST_OPEN] if choose is None else choose(table.rows))


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the beginning of a text that is too long to show, and how long it is.

    Examples
    --------
    >>> clipped("abc"), clipped("abcdef", 3)
    ('abc', 'abc … (6 characters)')

    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def clipped_cells(table: Table, most: int = MOST_NAME) -> Table:
    """Return a table in which no cell is longer than the name of a class should be."""
    return Table(table.header, [tuple(clipped(cell, most) for cell in row) for row in table.rows])


def render(name: str, sections: Sections, pictures: Mapping[str, object], **values: object) -> str:
    """Return a page of this folder: everything in it is escaped, and its own script is allowed by its hash."""
    environment = Environment(
        loader=FunctionLoader(_text_of),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    script = _text_of("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}  # a file of ours
    there = {name for name, value in values.items() if value} | {f"pictures:{name}" for name in pictures}
    contents = [(place, title) for place, title, needs in sections if there.intersection(needs)]
    return environment.get_template(name).render(sections=contents, pictures=pictures, **values)


def _text_of(name: str) -> str:
    """Return a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def write_page(path: str | os.PathLike[str], render_page: Callable[[], str]) -> None:
    """Write a page to a file, which is there whole or as it was."""
    from ..store import writing, written_whole

    if not isinstance(path, (str, os.PathLike)):
        raise DtypeError(
            f"path must be that of the new file; got {type(path).__name__}. Pass the result, then its path."
        )
    if is_url(path):
        raise OptionError(f"path must be that of a file on this machine; got {shown(path)!r}. Choose a local one.")
    page = render_page()
    with writing(str(path)), written_whole(pathlib.Path(path)) as place:
        place.write_text(page, encoding="utf-8")


#: Attributes that have names of their own among the facts.
_NAMED = ("store", "fingerprint", "n_samples", "n_classes", "n_labelled", "reads", "versions")


def provenance(result: xr.Dataset, seconds: float | None, written: str | None) -> Table:
    """Return what a result was computed from, with what and when."""
    attrs = result.attrs
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    store = attrs.get("store") or [""]
    stores = [store] if isinstance(store, str) else list(store)
    labelled = attrs.get("n_labelled", 0)
    facts: dict[str, str] = {
        "Store": ", ".join(shown(one) if one else "none: an array" for one in stores),
        "Fingerprint of the stored scores": attrs.get("fingerprint", ""),
        "Fingerprint of the result": fingerprint(result),
        "Samples": f"{attrs['n_samples']:,}",
        "Classes": f"{attrs['n_classes']:,}",
        "Labelled samples": f"{labelled:,}" if labelled else "none",
        "Full reads": f"{attrs['reads']} for these results (besides a pilot of some chunks, where there was one, and what other sections took)",
        "Computed in": "" if seconds is None else f"{seconds:.2f} s",
        "Written": written or now,
        "Versions": attrs.get("versions", ""),
    }
    more = {name: value for name, value in attrs.items() if name not in _NAMED}
    told = [(str(n), ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for n, v in (facts | more).items()]
    some: list[tuple[str, ...]] = [(clipped(name, MOST_NAME), clipped(value)) for name, value in told if value]
    return Table(("what", "value"), some[: len(facts) + MOST_FACTS])
