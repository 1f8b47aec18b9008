"""What commands print: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


def shows_progress(quiet: bool) -> bool | None:
    """Return how to show progress: True for a bar, on a terminal, None for lines in the log, False where told to be quiet."""
    return False if quiet else sys.stderr.isatty() or None


@contextmanager
def printing_log(quiet: bool) -> Iterator[None]:
    """Print the log of the package on stderr where that is no terminal; on one, bars tell as much."""
    log = logging.getLogger("avgk_dask")
    handler, before = logging.NullHandler() if quiet else _Lines(), log.level
    if shows_progress(quiet):
        yield
        return
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Lines(logging.Handler):
    """Prints each record as a line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        click.echo(f"avgk: {record.getMessage()}", err=True)


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
