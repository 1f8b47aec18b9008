"""Telling where a call is: by one bar over all of its stages, by log lines, or not at all."""

from __future__ import annotations

import logging
import math
import shutil
import sys
import time
import warnings
from typing import Any

from ..settings import setting

LOGGER = logging.getLogger("avgk_dask")
#: Bytes from which lines in the log count in GB.
_LARGE = 10e9


class Telling:
    """Where a call is. This one keeps it to itself; what goes wrong is logged all the same."""

    def __init__(self) -> None:
        self.stage, self.unit, self.n_done, self.total = "", "", 0, 0

    def begin(self, stage: str, unit: str, total: int | None, is_wave: bool = False) -> None:
        """Begin a stage, of which so many units are to be done; a wave goes on with the one before it."""
        if is_wave and stage == self.stage and self.n_done < self.total:
            return
        self.stage, self.unit, self.n_done, self.total = stage, unit, 0, total or 0
        self._begun()

    def advance(self, n: int) -> None:
        """Tell that so many more units are done."""
        self.n_done += n

    def look(self) -> float:
        """Tell what is due by now; return the seconds until more may be."""
        return math.inf

    def say(self, text: str) -> None:
        """Say what goes wrong."""
        LOGGER.warning(text)

    def close(self) -> None:
        """Tell no more."""

    def _begun(self) -> None: ...


class LogLines(Telling):
    """A line in the log each ``avgk.log-seconds``: how much is done, how fast, and the time left."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def _begun(self) -> None:
        self._start = time.monotonic()

    def advance(self, n: int) -> None:  # noqa: D102
        super().advance(n)
        self.look()

    def look(self) -> float:  # noqa: D102
        now, pause = time.monotonic(), setting("log-seconds")
        if now - self._last >= pause:
            self._last = now
            LOGGER.info(self._line(now - self._start))
        return float(self._last + pause - now)

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
    """Return a time in words.

    Examples
    --------
    >>> _clock(7.4), _clock(200), _clock(7325)
    ('7 s', '3 min 20 s', '2 h 2 min')

    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Bar(Telling):
    """One bar over all stages, opened with the first: a widget in a notebook that can show one, else text on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def _begun(self) -> None:
        shown = {"unit": self.unit, "unit_scale": self.unit == "B", "total": self.total or None}
        if self._bar is None:
            self._bar = new_bar(desc=f"avgk {self.stage}", **shown)
            return
        for name, value in shown.items():
            setattr(self._bar, name, value)
        self._bar.set_description(f"avgk {self.stage}", refresh=False)
        self._bar.reset(total=self.total or None)

    def advance(self, n: int) -> None:  # noqa: D102
        super().advance(n)
        self._bar.update(n)

    def say(self, text: str) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.write(f"avgk: {text}", file=sys.stderr)
        if self._bar is None or LOGGER.hasHandlers():  # without handlers, logging would print it into the bar
            super().say(text)

    def close(self) -> None:  # noqa: D102
        if self._bar is not None:
            self._bar.close()


def new_bar(**options: Any) -> Any:
    """Return a bar: a widget in a notebook that can show one, else text on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets is none to warn about: it gets text
        from tqdm.auto import tqdm
    if any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__):
        return tqdm(**options)
    screen = shutil.get_terminal_size()  # 80 x 24 where the terminal does not tell
    return tqdm(file=sys.stderr, ncols=screen.columns, nrows=screen.lines, **options)
