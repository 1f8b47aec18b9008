"""The folder of results: metrics.json, metrics.zarr and report.html."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..credentials import is_url, shown
from ..errors import OptionError

if TYPE_CHECKING:
    from ..results.datasets import Result

#: What is written; where all are there already, they are replaced.
_NAMES = ("metrics.json", "metrics.zarr", "report.html")


class ResultsFolder:
    """A folder for results, which no other run may write meanwhile: nothing half-written is left in it.

    Only those of ``evaluate`` and ``compare`` have a report.
    """

    def __init__(self, out: pathlib.Path, *, with_report: bool = True) -> None:
        if is_url(out):
            raise OptionError(f"--out must be a folder on this machine; got {shown(out)!r}. Choose a local one.")
        self.out, self.names = out, _NAMES if with_report else _NAMES[:2]

    def __enter__(self) -> Self:
        from ..store import claim, writable, writing

        store, location = writable(self.out)
        with writing(location):
            self._leased = claim(store, location, lambda: check_out(self.out, self.names))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leased.release()

    def write(self, result: Result, write_page: Callable[[pathlib.Path], None] | None = None) -> None:
        """Write all results to a folder beside their own first, then move them in."""
        from ..passes.telling import phase
        from ..results.json_text import to_json
        from ..store import Aside, write_result, writing

        is_done = False
        with phase("writing"), writing(str(self.out)):
            aside = Aside.under(self._leased.lease, self.out.resolve())
            try:
                aside.new.mkdir()
                (aside.new / "metrics.json").write_text(to_json(result), encoding="utf-8")
                write_result(result, aside.new / "metrics.zarr")
                if write_page is not None:
                    write_page(aside.new / "report.html")
                self._leased.lease.check(surely=True)
                aside.move_in()
                is_done = True
            finally:
                aside.remove(for_good=not is_done)


def check_out(out: pathlib.Path, names: tuple[str, ...] = _NAMES) -> None:
    """Refuse a place for results that is a store or no folder, or holds files of their names that are none."""
    from ..store import is_store

    if is_store(out) or (out.exists() and not out.is_dir()):
        raise OptionError(
            f"--out must be a folder for the results; got {str(out)!r}, which is a store or a file. Choose another."
        )
    there = [name for name in _NAMES if (out / name).exists()]
    if there and there != list(names):
        raise OptionError(
            f"--out must be a folder without {', '.join(_NAMES)}, or with those of an earlier run of the same command, which are replaced; "
            f"got {str(out)!r} with {', '.join(there)}. Choose another."
        )
