"""What commands print: results on stdout, progress and remarks on stderr.

On a terminal, lines fit its width (or ``COLUMNS``) and have colours, unless ``NO_COLOR`` or ``TERM=dumb`` is set. Elsewhere they
are as long as they are, and plain.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, TypedDict

import click

from ..errors import clean


def shows_progress(quiet: bool) -> bool | None:
    """Return how to show progress: True for a bar, on a terminal, None for lines in the log, False where told to be quiet."""
    return False if quiet else sys.stderr.isatty() or None


class Look(TypedDict):
    """How text is laid out, as the functions of ``report`` take it."""

    width: int | None
    colour: bool


def look(stream: TextIO | None = None) -> Look:
    """Return how text is laid out for a stream, by default stdout."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return {"width": None, "colour": False}
    from ..passes.telling import terminal_size

    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return {"width": terminal_size(stream).columns, "colour": not plain}


def tell(text: str) -> None:
    """Print a sentence of a result, which fits a terminal."""
    click.echo("\n".join(_wrapped(text, sys.stdout)))


def tell_error(text: str) -> None:
    """Print a sentence on stderr: one line, or as many as it takes on a terminal."""
    from ..passes.telling import now_telling

    with now_telling().aside():
        click.echo("\n".join(_wrapped(text, sys.stderr)), err=True)


def _wrapped(text: str, stream: TextIO) -> list[str]:
    """Return a sentence as the lines that a stream has room for."""
    width = look(stream)["width"]
    if width is None:
        return [clean(text)]
    from ..results.fitting import wrapped

    return wrapped(text, width, indent=2)


@contextmanager
def status(quiet: bool) -> Iterator[None]:
    """Name the phases of a command on a line of the terminal."""
    if not shows_progress(quiet):
        yield
        return
    from ..passes.telling import StatusLine, told_by

    with told_by(StatusLine()):
        yield


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
        tell_error(f"avgk: {record.getMessage()}")


def remark(text: str, quiet: bool) -> None:
    """Say something that is no result."""
    if not quiet:
        tell_error(text)


def print_json(value: object) -> None:
    """Print one JSON document; NaN and infinities are the strings "NaN", "Infinity" and "-Infinity"."""
    click.echo(json.dumps(_plain(value), indent=1, allow_nan=False).replace("\x7f", r"\u007f"))  # JSON leaves DEL raw


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
