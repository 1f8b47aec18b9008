"""Fixtures that run an example with --quick, once for all tests and processes, and check its files."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pathlib
import runpy
from dataclasses import dataclass

import matplotlib
import pytest

pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'avgk_dask[examples]'")
matplotlib.use("Agg")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Written:
    """The output of an example: its claims by text, and its numbers."""

    claims: dict[str, dict]
    numbers: dict

    @property
    def disagreeing(self) -> list[str]:
        """The claims that do not agree with the paper."""
        return [text for text, claim in self.claims.items() if claim["agrees"] is False]


def read(folder: pathlib.Path, name: str) -> Written:
    """Read the output of an example and check its form."""
    (path,) = folder.glob("*.json")
    assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(folder.iterdir()) == [path, path.with_suffix(".png")]
    written = json.loads(path.read_text())
    assert written["example"] == name
    assert len(written["claims"]) >= 4
    for claim in written["claims"]:
        assert set(claim) == {"claim", "paper", "ours", "agrees"}
        assert claim["agrees"] in (True, False, None)
        assert math.isfinite(claim["ours"])
    claims = {claim["claim"]: claim for claim in written["claims"]}
    assert len(claims) == len(written["claims"])
    return Written(claims, written["numbers"])


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Return a function that runs an example with --quick and returns its output."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def run_once(name: str, *arguments: str) -> Written:
        folder = shared / "_".join(["example", name, *(pathlib.Path(word).name for word in arguments)])
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](["--quick", "--out", str(folder), *arguments])
        return read(folder, name)

    return run_once


@pytest.fixture(scope="session")
def fashion(data) -> str:
    """The folder that has Fashion-MNIST, as --data takes it."""
    if not (data / "fashion_mnist" / "fashion_mnist.npz").is_file():
        pytest.skip("Fashion-MNIST (../shared/data/fashion_mnist) is not here")
    return str(data)
