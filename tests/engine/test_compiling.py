"""While kernels are compiled, a run says so."""

from __future__ import annotations

import logging

import pytest

from avgk_dask.engine.progress import Bar, LogLines, Progress


def test_log_lines__tell_of_compiling_once(caplog):
    progress = LogLines()
    with caplog.at_level(logging.INFO, "avgk_dask"):
        progress.compiling(True)
        progress.compiling(False)
    assert [record.message.split(",")[0] for record in caplog.records] == ["compiling kernels"]


def test_bars__name_compiling_and_then_the_stage_again(capfd):
    bar = Bar()
    bar.compiling(True)  # before the first stage there is no bar
    bar.begin("scan", "B", 100)
    bar.compiling(True)
    assert "avgk compiling" in capfd.readouterr().err
    bar.compiling(False)
    bar.close()
    assert "avgk scan" in capfd.readouterr().err


@pytest.mark.parametrize("begins", [True, False])
def test_progress__that_keep_to_themselves_say_nothing(begins, capfd, caplog):
    Progress().compiling(begins)
    assert capfd.readouterr().err == ""
    assert caplog.records == []


def test_compiling__told_twice_goes_back_to_the_phase_before():
    progress = Progress()
    progress.enter("settling")
    progress.compiling(True)
    progress.compiling(True)
    progress.compiling(False)
    assert progress.phase == "settling"
