"""The folder of results: metrics.json, metrics.zarr and report.html."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from typing import Any

from ..errors import OptionError


def check_out(out: pathlib.Path) -> None:
    """Make the folder for results, or refuse one that is a store or no folder."""
    from ..store import is_store

    if is_store(out) or (out.exists() and not out.is_dir()):
        raise OptionError(f"--out must be a folder for the results; got {str(out)!r}, which is a store or a file.")
    out.mkdir(parents=True, exist_ok=True)


def write_results(result: Any, out: pathlib.Path, seconds: float) -> None:
    """Write all results to a folder beside the others first, then move them in: nothing half-written is left."""
    from ..report import write_report
    from ..schema import to_json
    from ..store import write_result

    with tempfile.TemporaryDirectory(dir=out, prefix=".writing-") as folder:
        fresh = pathlib.Path(folder)
        (fresh / "metrics.json").write_text(to_json(result), encoding="utf-8")
        write_result(result, fresh / "metrics.zarr")
        write_report(result, fresh / "report.html", seconds=seconds)
        for made in list(fresh.iterdir()):
            target = out / made.name
            if target.is_dir():
                shutil.rmtree(target)
            made.replace(target)
