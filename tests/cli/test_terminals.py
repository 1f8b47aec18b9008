"""What commands print on terminals of several widths and into a pipe, as recorded in ``terminals/``; and a real terminal.

``AVGK_RECORD=1 python -m pytest tests/cli/test_terminals.py`` records anew. Then read what has changed.
"""

from __future__ import annotations

import os
import pathlib
import re
import struct
import subprocess
import sys

import dask
import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.cli import printing
from avgk_dask.results.text import display_width

RECORDED = pathlib.Path(__file__).parent / "terminals"
WIDTHS = (40, 80, 120, None)
COMMANDS = {
    "evaluate": "evaluate small.zarr -k 1,2.5,10",
    "evaluate-unlabelled": "evaluate plain.zarr -k 1:3 --quiet",
    "evaluate-logits": "evaluate logits.zarr -k 1,5",
    "evaluate-soft": "evaluate soft.zarr -k 1:2",
    "evaluate-forest": "evaluate forest.zarr -k 1:6",
    "evaluate-two-classes": "evaluate two.zarr",
    "breakdown": "breakdown small.zarr -k 2 --worst 6",
    "compare": "compare small.zarr large.zarr -k 1,2",
    "conformal": "conformal small.zarr large.zarr",
    "conformal-classes": "conformal small.zarr large.zarr --by class --alpha 0.4",
    "transfer": "transfer small.zarr large.zarr -k 1,2.5,10",
    "info": "info small.zarr",
    "threshold": "threshold small.zarr -k 1,2.5,10",
}  # fmt: skip
#: Of the worst classes: wide characters, characters that a terminal would obey, and a name longer than any line.
NAMES = {12: "北極熊" * 9, 14: "a\tb\x1b[31m", 10: "x" * 300, 16: "Ursus maritimus"}


def scores_of(n_samples: int, n_classes: int, step: int, power: int = 4) -> np.ndarray:
    """Return probabilities made of integers, the same on any machine."""
    numbers = (np.arange(n_samples)[:, None] * 7_919 + np.arange(n_classes) * 104_729 + step) % 1_009 + 1
    weights = numbers.astype(object) ** power
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def write(folder: pathlib.Path, name: str, scores: np.ndarray, labels: np.ndarray | None, **attributes: object) -> None:
    with avgk.ScoreWriter(
        folder / f"{name}.zarr", scores.shape[1], chunk_rows=200, codec="none", attributes=attributes
    ) as writer:
        writer.append(scores, labels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminals")
    labels = np.arange(600) * 37 % 600
    small = scores_of(600, 20, 0)
    labels = (small.cumsum(1) < ((labels + 0.5) / 600)[:, None]).sum(1).clip(0, 19)
    write(folder, "small", small, labels, class_names=[NAMES.get(i, f"class {i}") for i in range(20)])
    write(folder, "large", scores_of(600, 20, 0, 5), labels)
    write(folder, "plain", small, None)
    write(folder, "logits", np.round(32 * np.log(small)) / 32, labels)
    write(folder, "soft", small, small.astype(np.float64))
    votes = np.zeros((4, 20))
    votes[0, 0], votes[1, :2], votes[2, :3], votes[3, :4] = 10, (7, 3), (5, 3, 2), (4, 3, 2, 1)
    trees = np.array([np.roll(votes[i % 4], i * 7) for i in range(600)]) / 10  # ten of them
    write(folder, "forest", trees, np.where(np.arange(600) % 5, np.arange(600) * 7 % 20, labels))
    write(folder, "two", np.stack([small[:, 0], 1 - small[:, 0]], 1), labels % 2)
    return folder


@pytest.fixture
def on_terminal(monkeypatch):
    """Give a function that makes stdout and stderr terminals so wide, or pipes with None."""

    def be(width, colour=False):
        monkeypatch.setenv("COLUMNS", str(width or 33))
        monkeypatch.setenv("NO_COLOR", "" if colour else "1")
        monkeypatch.setenv("TERM", "xterm")
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(f"sys.{name}.isatty", lambda: width is not None, raising=False)

    return be


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", COMMANDS)
def test_commands__fit_the_terminal(name, folder, run, on_terminal):
    shown = []
    for width in WIDTHS:
        on_terminal(width)
        with dask.config.set({"avgk.memory-limit": 4_000_000_000}):
            done = run(*COMMANDS[name].split(), cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        if width is not None:
            assert max(map(display_width, done.stdout.splitlines())) <= width
        shown.append(f"$ {COMMANDS[name]}   # {f'{width} columns' if width else 'a pipe'}\n{done.stdout}")
    path, text = RECORDED / f"{name}.txt", "\n".join(shown)
    if os.environ.get("AVGK_RECORD"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.sample(2)
@pytest.mark.parametrize("width", [200, 60, 40, 30])
def test_compare__has_room_for_long_names_of_models(width, folder, run, on_terminal):
    on_terminal(width)
    names = "北極熊" * 40, "efficientnet-lite2-" + "b" * 300
    done = run("compare", "small.zarr", "large.zarr", "-k", 1, "--name", names[0], "--name", names[1], cwd=folder)
    lines = done.stdout.splitlines()
    assert max(map(display_width, lines)) <= width
    assert any("北" in line and "…" in line for line in lines)
    on_terminal(None)
    done = run("compare", "small.zarr", "large.zarr", "-k", 1, "--name", names[0], "--name", names[1], cwd=folder)
    assert all(name in done.stdout.splitlines()[row] for row, name in enumerate(names, 1))


def test_remarks_and_errors__fit_the_terminal_and_are_one_line_elsewhere(folder, run, on_terminal):
    on_terminal(40)
    done = run("evaluate", "plain.zarr", "-k", 1, cwd=folder)
    said = done.stderr.rpartition("\r")[2].partition("errors need")[2]
    assert said.count("\n") > 1
    refused = run("evaluate", "nowhere.zarr", cwd=folder)
    assert refused.returncode == 2
    lines = refused.stderr.rpartition("\r")[2].splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    on_terminal(None)
    assert run("evaluate", "nowhere.zarr", cwd=folder).stderr == " ".join(line.strip() for line in lines) + "\n"


def test_text_layout__has_colours_on_terminals_that_have_them(on_terminal, monkeypatch):
    on_terminal(70, colour=True)
    assert printing.text_layout() == {"width": 70, "colour": True}
    monkeypatch.setenv("TERM", "dumb")
    assert printing.text_layout() == {"width": 70, "colour": False}
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert printing.text_layout() == {"width": 70, "colour": False}
    monkeypatch.setenv("COLUMNS", "none")
    assert printing.text_layout()["width"] == 80
    on_terminal(None, colour=True)
    assert printing.text_layout() == {"width": None, "colour": False}


def on_pty(width, *command, cwd, piped=False):
    """Run the real command on a terminal so wide; return what it printed there, and into a pipe where stdout is one."""
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "avgk_dask", *command], cwd=cwd, env={**env, "TERM": "xterm"},
        stdin=theirs, stdout=subprocess.PIPE if piped else theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        out = process.stdout.read() if piped else b""
    os.close(ours)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n"), out.decode()


def _read(terminal: int) -> bytes:
    """Return what a terminal shows next; nothing once nobody writes to it any more."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


@pytest.mark.slow
def test_terminal__has_its_width_colours_and_phases_in_order(folder, tmp_path):
    shown, _ = on_pty(60, "evaluate", "small.zarr", "-k", "1:3", "--out", str(tmp_path / "out"), cwd=folder)
    phases = re.findall(r"avgk (\w+)", shown)
    order = [phase for i, phase in enumerate(phases) if phase not in phases[:i]]
    assert order == ["opening", "scan", "settling", "writing"]
    table = shown.rpartition("\r")[2].partition("metrics.zarr\n")[2]
    assert "\x1b[1mavg-k error\x1b[0m" in table
    plain = re.sub(r"\x1b\[\d+m", "", table)
    assert "left out: " in plain
    assert 50 < max(map(len, plain.splitlines())) <= 60


def test_terminal__with_a_pipe_for_results_keeps_them_plain_and_whole(folder):
    shown, piped = on_pty(60, "evaluate", "small.zarr", "-k", "1:3", cwd=folder, piped=True)
    assert "avgk scan" in shown
    assert "\x1b" not in piped
    assert "left out" not in piped
    assert max(map(len, piped.splitlines())) > 120
