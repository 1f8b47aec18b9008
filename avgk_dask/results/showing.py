"""How result objects show themselves in a notebook."""

from __future__ import annotations

from dataclasses import fields
from html import escape

from ..errors import visible

#: Longer values are shortened where they are shown.
_MOST = 300


class ShownAsTable:
    """A dataclass that a notebook shows as a table of its fields; what users named is escaped."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(field.name)}</th>"
            f"<td style='text-align:left'>{_shown(getattr(self, field.name))}</td></tr>"
            for field in fields(self)  # type: ignore[arg-type]
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption><tbody>{rows}</tbody></table>"


def _shown(value: object) -> str:
    if isinstance(value, ShownAsTable):
        return value._repr_html_()
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(visible(text if len(text) <= _MOST else f"{text[:_MOST]} …"))
