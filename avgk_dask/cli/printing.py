"""Printing and writing the results of commands: results go to stdout, progress and remarks to stderr.

On a terminal, lines fit its width (or ``COLUMNS``) and have colours unless ``NO_COLOR`` or ``TERM=dumb`` is set. In a pipe, lines
have any length and no colours.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, TypedDict

import click

from ..credentials import is_url, redact
from ..errors import OptionError, clean

if TYPE_CHECKING:
    from ..results.datasets import Result


def shows_progress(quiet: bool) -> bool | None:
    """Return True for a progress bar on a terminal, None for lines in the log, or False if quiet."""
    return False if quiet else sys.stderr.isatty() or None


class Layout(TypedDict):
    """The options of the functions of ``report`` for the layout of text."""

    width: int | None
    colour: bool


def text_layout(stream: TextIO | None = None) -> Layout:
    """Return the layout of text for a stream, by default stdout."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return {"width": None, "colour": False}
    from ..engine.progress import terminal_size

    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return {"width": terminal_size(stream).columns, "colour": not plain}


def print_sentence(text: str) -> None:
    """Print a sentence on stdout, wrapped on a terminal."""
    click.echo("\n".join(_wrapped(text, sys.stdout)))


def print_error(text: str) -> None:
    """Print a sentence on stderr, wrapped on a terminal."""
    from ..engine.progress import current_progress

    with current_progress().aside():
        click.echo("\n".join(_wrapped(text, sys.stderr)), err=True)


def _wrapped(text: str, stream: TextIO) -> list[str]:
    width = text_layout(stream)["width"]
    if width is None:
        return [clean(text)]
    from ..results.text import wrap

    return wrap(text, width, indent=2)


@contextmanager
def status(quiet: bool) -> Iterator[None]:
    """Show the phases of a command on a line of the terminal."""
    if not shows_progress(quiet):
        yield
        return
    from ..engine.progress import StatusLine, report_to

    with report_to(StatusLine()):
        yield


@contextmanager
def printing_log(quiet: bool) -> Iterator[None]:
    """Print the log of the package on stderr unless that is a terminal, which has progress bars."""
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
        print_error(f"avgk: {record.getMessage()}")


def remark(text: str, quiet: bool) -> None:
    """Print a remark on stderr, unless quiet."""
    if not quiet:
        print_error(text)


def print_json(value: object) -> None:
    """Print one JSON document; NaN and infinities are the strings "NaN", "Infinity" and "-Infinity"."""
    from ..results.datasets import plain_json

    click.echo(
        json.dumps(plain_json(value), indent=1, allow_nan=False).replace("\x7f", r"\u007f")
    )  # JSON leaves DEL raw


# The folder of results: metrics.json, metrics.zarr and report.html.


#: The files of a folder of results.
_NAMES = ("metrics.json", "metrics.zarr", "report.html")


class ResultsFolder:
    """A folder for results, locked and written atomically; with ``out=None`` nothing is written."""

    def __init__(self, out: pathlib.Path | None, *, quiet: bool = True, with_report: bool = True) -> None:
        if is_url(out):
            raise OptionError(f"--out must be a local folder; got {redact(out)!r}. Choose one on this machine.")
        self.out, self.quiet, self.names = out, quiet, _NAMES if with_report else _NAMES[:2]

    def __enter__(self) -> Self:
        from ..store.where.addresses import writing
        from ..store.write.targets import claim, writable

        if self.out is not None:
            out = self.out
            store, location = writable(out)
            with writing(location):
                self._leased = claim(store, location, lambda: check_out(out, self.names))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.out is not None:
            self._leased.release()

    def write(self, result: Result, write_page: Callable[..., None] | None = None, **parts: object) -> None:
        """Write all results to a temporary folder, move them to theirs, and say so unless quiet."""
        from ..engine.progress import phase
        from ..results.datasets import to_json
        from ..store.where.addresses import writing
        from ..store.write.drafts import write_result
        from ..store.write.targets import StagingDir

        if self.out is None:
            return
        is_done = False
        with phase("writing"), writing(str(self.out)):
            staged = StagingDir.under(self._leased.lease, self.out.resolve())
            try:
                staged.new.mkdir()
                (staged.new / "metrics.json").write_text(to_json(result), encoding="utf-8")
                write_result(result, staged.new / "metrics.zarr")
                if write_page is not None:
                    write_page(result, staged.new / "report.html", **parts)
                self._leased.lease.check(always=True)
                staged.move_in()
                is_done = True
            finally:
                staged.remove(for_good=not is_done)
        if write_page is None:
            remark(f"wrote {self.out / 'metrics.json'} and metrics.zarr", self.quiet)
        else:
            remark(f"wrote {self.out / 'report.html'}, metrics.json and metrics.zarr", self.quiet)


def check_out(out: pathlib.Path, names: tuple[str, ...] = _NAMES) -> None:
    """Check that a folder for results is not a store, and has no results of another command."""
    from ..store.write.targets import is_store

    if is_store(out) or (out.exists() and not out.is_dir()):
        raise OptionError(f"--out must be a folder; {str(out)!r} is a store or a file. Choose another.")
    existing = [name for name in _NAMES if (out / name).exists()]
    if existing and existing != list(names):
        raise OptionError(
            f"--out {str(out)!r} has the results of another command: {', '.join(existing)}. Choose another folder."
        )
