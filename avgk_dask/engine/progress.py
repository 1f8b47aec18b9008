"""Progress of a call: one bar over all of its stages, log lines, or nothing.

A *stage* is counted, such as a scan in bytes. A *phase* has only a name: opening, compiling, settling, writing. A terminal or
notebook shows it in place of the bar. ``report_to`` sets the current progress; code anywhere names its phases with ``phase``.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TextIO

from ..errors import clean

LOGGER = logging.getLogger("avgk_dask")
#: From this number of bytes on, log lines count in GB.
_LARGE = 10e9


def _clean(record: logging.LogRecord) -> bool:
    """Make the text of a record one line without control characters."""
    record.msg, record.args = clean(record.getMessage()), None
    return True


LOGGER.addFilter(_clean)


class Progress:
    """The stage and the phase of a call. This class shows neither, and only logs problems."""

    def __init__(self) -> None:
        self.stage, self.unit, self.n_done, self.total, self.phase = "", "", 0, 0, ""
        self._before = ""

    def begin(self, stage: str, unit: str, total: int | None, is_wave: bool = False) -> None:
        """Begin a stage of ``total`` units; a wave continues the stage of the wave before."""
        if is_wave and stage == self.stage and self.n_done < self.total:
            self.enter("")
            return
        self.phase = ""
        self.stage, self.unit, self.n_done, self.total = stage, unit, 0, total or 0
        self._show_stage()

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done."""
        self.n_done += n

    def enter(self, phase: str) -> None:
        """Enter a phase, until a stage or another phase begins; "" returns to the stage."""
        if phase != self.phase:
            self.phase = phase
            self._show_phase()

    def look(self) -> float:
        """Show a line if it is due; return the seconds until the next one."""
        return math.inf

    def compiling(self, begins: bool) -> None:
        """Report that compiling kernels begins or ends; called by the thread that compiles."""
        if begins and self.phase != "compiling":
            self._before = self.phase
            self.enter("compiling")
        if not begins and self.phase == "compiling":
            self.enter(self._before)

    def say(self, text: str) -> None:
        """Report a problem."""
        LOGGER.warning(text)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Make room for other lines on stderr."""
        yield

    def close(self) -> None:
        """Remove the bar or line."""

    def _show_stage(self) -> None: ...

    def _show_phase(self) -> None: ...


#: The progress of all current calls, the innermost last, to which tasks report phases from other threads.
_ALL: list[Progress] = [Progress()]
#: The progress of the call in this context.
_MINE: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def report_to(progress: Progress) -> Iterator[Progress]:
    """Within the block, report stages and phases to this progress; close it at the end."""
    _ALL.append(progress)
    before = _MINE.set(progress)
    try:
        yield progress
    finally:
        _MINE.reset(before)
        _ALL.remove(progress)
        progress.close()


def current_progress(*, mine: bool = False) -> Progress:
    """Return the progress of the innermost call; with ``mine``, of the call in this context, or one that shows nothing."""
    return _ALL[-1] if not mine else _MINE.get() or _ALL[0]


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Within the block, show the name of a phase in a bar, a terminal or a notebook."""
    progress = _MINE.get() or current_progress()
    before = progress.phase
    progress.enter(name)
    try:
        yield
    finally:
        progress.enter(before)


class LogLines(Progress):
    """Log lines, one every ``avgk.log-seconds``: progress, rate, and the time left."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def _show_stage(self) -> None:
        self._start = time.monotonic()

    def advance(self, n: int) -> None:  # noqa: D102
        super().advance(n)
        self.look()

    def look(self) -> float:  # noqa: D102
        from ..settings import setting  # late: it imports Dask, which a status line does not need

        now, pause = time.monotonic(), setting("log-seconds")
        if now - self._last >= pause:
            self._last = now
            LOGGER.info(self._line(now - self._start))
        return float(self._last + pause - now)

    def compiling(self, begins: bool) -> None:  # noqa: D102
        if begins:
            LOGGER.info("compiling kernels, which are cached for later runs (avgk compile does this in advance)")

    def _line(self, seconds: float) -> str:
        large = (1e9, "GB") if self.total >= _LARGE else (1e6, "MB")
        size, unit = large if self.unit == "B" else (1, f"{self.unit}s")
        digits = 2 if size == 1e9 else 0
        rate = self.n_done / max(seconds, 1e-9)
        whole = f" of {self.total / size:,.{digits}f}" if self.total else ""
        text = f"{self.stage}: {self.n_done / size:,.{digits}f}{whole} {unit}, {rate / size:,.2f} {unit}/s"
        if self.total and rate:
            text += f", {_clock((self.total - self.n_done) / rate)} left"
        return text


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Bar(Progress):
    """One bar over all stages, opened with the first: a widget in a notebook that can show one, else text on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def _show_stage(self) -> None:
        shown = {"unit": self.unit, "unit_scale": self.unit == "B"}
        if self._bar is None:
            self._bar = new_bar(desc=f"avgk {self.stage}", total=self.total or None, **shown)
            return
        for name, value in {**shown, "bar_format": None}.items():
            setattr(self._bar, name, value)
        if not self.total:  # otherwise reset sets it, with the width of a widget
            self._bar.total = None
        self._bar.set_description(f"avgk {self.stage}", refresh=False)
        self._bar.reset(total=self.total or None)

    def _show_phase(self) -> None:
        if self._bar is None:
            self._bar = new_bar(desc=f"avgk {self.phase}", bar_format="{desc}")
            return
        if self.stage and self.phase:
            self._bar.refresh()  # the last count, before the phase replaces it
        self._describe()
        self._bar.refresh()

    def _describe(self) -> None:
        """Show the phase, or else the stage, or nothing."""
        is_counted = bool(self.stage and not self.phase)
        self._bar.bar_format = None if is_counted else "{desc}"
        named = f"avgk {self.stage}: " if is_counted else f"avgk {self.phase}" if self.phase else ""
        self._bar.set_description_str(named, refresh=False)

    def advance(self, n: int) -> None:  # noqa: D102
        super().advance(n)
        self._bar.update(n)

    @contextmanager
    def aside(self) -> Iterator[None]:  # noqa: D102
        with nullcontext() if self._bar is None else self._bar.external_write_mode(file=sys.stderr):
            yield

    def say(self, text: str) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.write(f"avgk: {clean(text)}", file=sys.stderr)
        if self._bar is None or LOGGER.hasHandlers():  # without handlers, logging would print it into the bar
            super().say(text)

    def close(self) -> None:  # noqa: D102
        if self._bar is None:
            return
        self.phase = ""
        if self.stage:
            self._describe()  # the last stage stays visible
        else:
            self._bar.leave = False
        self._bar.close()


class StatusLine(Progress):
    """Phases alone, on a line of the terminal that is cleared when they end: for work before and after bars."""

    def _show_phase(self) -> None:
        self._draw(f"avgk {self.phase}" if self.phase else "")

    def _draw(self, text: str) -> None:
        width = terminal_size(sys.stderr).columns - 1
        sys.stderr.write(f"\r{text[:width].ljust(width)}\r{text[:width]}")
        sys.stderr.flush()

    @contextmanager
    def aside(self) -> Iterator[None]:  # noqa: D102
        if self.phase:
            self._draw("")
        try:
            yield
        finally:
            if self.phase:
                self._show_phase()

    def close(self) -> None:  # noqa: D102
        self.enter("")


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Return the size of a stream's terminal: ``COLUMNS`` and ``LINES`` if set, or its own, or 80 x 24."""
    try:
        own = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):  # no terminal
        own = os.terminal_size((0, 0))
    texts = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    sizes = [int(text) if text.isdecimal() and int(text) else mine for text, mine in zip(texts, own, strict=True)]
    return os.terminal_size((sizes[0] or 80, sizes[1] or 24))


def new_bar(**options: Any) -> Any:
    """Return a bar: a widget in a notebook that can show one, else text on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets shows text
        from tqdm.auto import tqdm
    if any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__):
        return tqdm(**options)
    screen = terminal_size(sys.stderr)
    return tqdm(file=sys.stderr, ncols=screen.columns, nrows=screen.lines, **options)
