"""What commands print: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

import json
import math
import sys

import click


def shows_progress(quiet: bool) -> bool:
    """Whether to show a progress bar: on a terminal, unless told to be quiet."""
    return not quiet and sys.stderr.isatty()


def remark(text: str, quiet: bool) -> None:
    """Say something that is no result."""
    if not quiet:
        click.echo(text, err=True)


def print_json(value: object) -> None:
    """Print one JSON document; NaN and infinities are the strings "NaN", "Infinity" and "-Infinity"."""
    click.echo(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
