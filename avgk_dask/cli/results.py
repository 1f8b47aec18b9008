"""The folder of results: metrics.json, metrics.zarr and report.html."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from typing import Any

from ..credentials import is_url, shown
from ..errors import OptionError

#: What is written; where all are there already, they are replaced.
_NAMES = ("metrics.json", "metrics.zarr", "report.html")


def check_out(out: pathlib.Path) -> None:
    """Refuse a place for results that is a store or no folder, or holds files of their names that are none."""
    from ..store import is_store

    if is_url(out):
        raise OptionError(f"--out must be a folder on this machine; got {shown(out)!r}. Choose a local one.")
    if is_store(out) or (out.exists() and not out.is_dir()):
        raise OptionError(
            f"--out must be a folder for the results; got {str(out)!r}, which is a store or a file. Choose another."
        )
    there = [name for name in _NAMES if (out / name).exists()]
    if 0 < len(there) < len(_NAMES):
        raise OptionError(
            f"--out must be a folder without {', '.join(_NAMES)}, or with all three of an earlier run, which are replaced; "
            f"got {str(out)!r} with {', '.join(there)}. Choose another."
        )


def write_results(result: Any, out: pathlib.Path, seconds: float) -> None:
    """Write all results to a folder beside their own first, then move them in: nothing half-written is left."""
    from ..report import write_report
    from ..schema import to_json
    from ..store import remove_for_good, write_result

    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = pathlib.Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        (fresh / "metrics.json").write_text(to_json(result), encoding="utf-8")
        write_result(result, fresh / "metrics.zarr")
        write_report(result, fresh / "report.html", seconds=seconds)
    except BaseException:
        remove_for_good(fresh)
        raise
    out.mkdir(exist_ok=True)
    for name in _NAMES:
        if (out / name).is_dir():
            shutil.rmtree(out / name)
        (fresh / name).replace(out / name)
    fresh.rmdir()
