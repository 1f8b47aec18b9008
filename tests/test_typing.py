"""Types as a user's type checker sees them."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

import avgk_dask

pytestmark = pytest.mark.slow

PACKAGE = pathlib.Path(avgk_dask.__file__).parent

RIGHT = """
import avgk_dask as avgk
import numpy as np
import xarray as xr
from avgk_dask.testing import simulate


def show(threshold: avgk.Threshold) -> str:
    return f"{threshold.value:g}: {threshold.n_above + threshold.n_kept} labels"


def main() -> None:
    scores = np.random.default_rng(0).dirichlet(np.full(5, 0.1), 20)
    labels = scores.argmax(axis=1)
    result: xr.Dataset = avgk.evaluate(scores, labels, k=[1, 2.5])
    print(show(avgk.threshold(scores, 2.5)), avgk.threshold(scores, [1, 2]).n_ties.values)
    print(avgk.average_k_sets(scores, k=2.5).sum().compute())
    print(avgk.evaluate(scores, [0, None] * 10, np.arange(1, 3)).k.values, avgk.ranked_supports(scores, np.int64(2)).sizes)
    threshold = avgk.threshold(scores, 1)
    print(avgk.risk(scores, labels, [threshold, 0.5, np.float32(0.25)], cost="0.1").risk.values)
    print(avgk.predict_sets(scores, threshold=threshold).shape)
    with avgk.ScoreWriter("mine.zarr", n_classes=5) as writer:
        writer.append(scores, labels)
        last: int = writer.n_samples
    print(last, avgk.info("mine.zarr")["dtype"], avgk.verify("mine.zarr"))
    avgk.plot.errors(result).set_title("errors")
    avgk.report.write_report(result, "report.html")
    table: str = avgk.report.print_table(result)
    print(table, avgk.__version__, avgk.testing.oracle_threshold(scores, 2), simulate(10).scores.shape)
    try:
        print(avgk.best_threshold(scores, labels, cost=0.1).risk)
        print(avgk.smallest_k(scores, labels, max_error=0.1).threshold)
    except avgk.BudgetError as error:
        print(error)
    except avgk.AvgkError as error:
        raise SystemExit(str(error)) from error


main()
"""

WRONG = """
import avgk_dask as avgk
import numpy as np

scores = np.zeros((2, 3))
avgk.evaluate(scores, budgets=[1])  # [call-arg]
avgk.threshold(scores, 2).n_over  # [attr-defined]
avgk.ScoreWriter("mine.zarr", n_classes="three")  # [arg-type]
avgk.evaluated(scores)  # [attr-defined]
avgk.plot.error(scores)  # [attr-defined]
avgk.report.print_table(scores)  # [arg-type]
n: int = avgk.info("mine.zarr")  # [assignment]
n = avgk.info("mine.zarr")["dtype"]  # [assignment]
avgk.evaluate(scores, k=None)  # [arg-type]
avgk.predict_sets(scores, threshold="high")  # [arg-type]
avgk.ranked_supports(scores, 1.5)  # [arg-type]
"""


MYPY = ["-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache"]


def python(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder outside the repository, with the package importable."""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True)


def test_type_checker__accepts_right_and_rejects_wrong_scripts(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    right = python(tmp_path, *MYPY, "right.py")
    assert right.returncode == 0, right.stdout + right.stderr
    ran = python(tmp_path, "right.py")
    assert ran.returncode == 0, ran.stderr
    wrong = python(tmp_path, *MYPY, "wrong.py")
    errors = [(int(line), code) for line, code in re.findall(r"wrong.py:(\d+): error: .*(\[[\w-]+\])", wrong.stdout)]
    lines = enumerate(WRONG.splitlines(), start=1)
    assert errors == [(number, line.split("# ")[1]) for number, line in lines if "# " in line], wrong.stdout


def test_public_names__are_visible_to_type_checkers():
    imports = (PACKAGE / "__init__.py").read_text().split("if TYPE_CHECKING:")[1].split("\n\n")[0]
    late = [*avgk_dask._HOME_OF, *avgk_dask._SUBMODULES]
    assert [name for name in late if not re.search(rf"import .*\b{name}\b", imports)] == []
    assert (PACKAGE / "py.typed").is_file()
