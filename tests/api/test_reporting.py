"""``on_error="report"`` names every chunk that cannot be read, and gives no result."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import avgk_dask as avgk
from avgk_dask.cli.main import main
from avgk_dask.testing import Simulation, simulate_store


@pytest.fixture
def damaged(tmp_path):
    path = tmp_path / "s.zarr"
    simulate_store(path, Simulation(1000, 20), chunks=(100, 20))
    for number, damage in ((2, b"nothing"), (7, None)):
        file = path / "scores" / "c" / str(number) / "0"
        file.unlink() if damage is None else file.write_bytes(damage)
    data = bytearray((path / "scores/c/4/0").read_bytes())
    data[100] ^= 1
    (path / "scores/c/4/0").write_bytes(data)
    return path


@pytest.mark.parametrize(
    "opened", [lambda path: path, zarr.open_group, lambda p: zarr.open_array(p / "scores"), avgk.softmax]
)
def test_report__names_every_bad_chunk(damaged, opened):
    with pytest.raises(avgk.ReadError) as error:
        avgk.evaluate(opened(damaged), on_error="report")
    assert [key for key, _ in error.value.chunks] == ["scores/c/2/0", "scores/c/4/0", "scores/c/7/0"]
    for key, _ in error.value.chunks:
        assert key in str(error.value)
    with pytest.raises(avgk.ReadError) as error:
        avgk.evaluate(damaged)
    assert error.value.chunks == ()


def test_report__names_bad_chunks_of_what_was_opened_before_and_of_labels_given_apart(tmp_path):
    path = tmp_path / "s.zarr"
    simulate_store(path, Simulation(1000, 20), chunks=(100, 20))
    opened = avgk.open_scores(path)
    (path / "scores/c/2/0").write_bytes(b"nothing")
    for scores in (opened, opened["scores"]):
        with pytest.raises(avgk.ReadError) as error:
            avgk.evaluate(scores, on_error="report")
        assert [key for key, _ in error.value.chunks] == ["scores/c/2/0"]
    scores, labels = Simulation(1000, 20).rows(0, 1000)[:2]
    stored = zarr.create_array(tmp_path / "l.zarr", data=labels, chunks=(100,))
    (tmp_path / "l.zarr" / "c" / "4").write_bytes(b"nothing")
    with pytest.raises(avgk.ReadError) as error:
        avgk.evaluate(scores, stored, on_error="report")
    assert [key for key, _ in error.value.chunks] == ["c/4"]


def test_report__names_bad_chunks_of_an_ensembles_members(tmp_path):
    for name, number in (("a", 2), ("b", 5)):
        simulate_store(tmp_path / name, Simulation(1000, 20), chunks=(100, 20))
        file = tmp_path / name / "scores" / "c" / str(number) / "0"
        file.write_bytes(bytes(len(file.read_bytes())))
    both = avgk.ensemble([tmp_path / "a", avgk.sigmoid(tmp_path / "b")])
    with pytest.raises(avgk.ReadError) as error:
        avgk.evaluate(both, on_error="report")
    assert sorted(key for key, _ in error.value.chunks) == ["scores/c/2/0", "scores/c/5/0"]


def test_report__passes_over_labels_and_masks_in_files(damaged, tmp_path):
    np.save(tmp_path / "labels.npy", np.zeros(1000, int))
    np.save(tmp_path / "where.npy", np.arange(1000) % 2 == 0)
    with pytest.raises(avgk.ReadError) as error:
        avgk.evaluate(damaged, tmp_path / "labels.npy", where=tmp_path / "where.npy", on_error="report")
    assert sorted(key for key, _ in error.value.chunks) == ["scores/c/2/0", "scores/c/4/0", "scores/c/7/0"]


def test_report__names_bad_chunks_of_masks(tmp_path):
    scores, labels = Simulation(1000, 20).rows(0, 1000)[:2]
    stored = zarr.create_array(tmp_path / "w.zarr", data=np.arange(1000) % 2 == 0, chunks=(100,))
    (tmp_path / "w.zarr" / "c" / "4").write_bytes(b"nothing")
    with pytest.raises(avgk.ReadError) as error:
        avgk.evaluate(scores, labels, where=stored, on_error="report")
    assert [key for key, _ in error.value.chunks] == ["c/4"]


def test_report__is_on_the_command_line(damaged):
    done = CliRunner().invoke(main, ["evaluate", str(damaged), "--on-error", "report"])
    assert done.exit_code == 1
    assert all(f"scores/c/{number}/0" in done.stderr for number in (2, 4, 7))
    assert done.stdout == ""


def test_report__of_other_values_is_refused(damaged):
    with pytest.raises(avgk.OptionError, match="on_error must be 'raise' or 'report'; got 'ignore'"):
        avgk.evaluate(damaged, on_error="ignore")


def test_report__changes_nothing_where_all_can_be_read(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(100, 5), chunks=(10, 5))
    assert avgk.evaluate(tmp_path / "s.zarr", on_error="report").identical(avgk.evaluate(tmp_path / "s.zarr"))


def test_report__of_one_chunk_speaks_of_it_once(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(1200, 20), chunks=(100, 20))
    for numbers, text in (((10,), "Restore it, or"), ((2, 10), "Restore them, or")):
        for number in numbers:
            file = tmp_path / "s.zarr" / "scores" / "c" / str(number) / "0"
            file.write_bytes(bytes(len(file.read_bytes())))
        with pytest.raises(avgk.ReadError, match=text) as error:
            avgk.evaluate(tmp_path / "s.zarr", on_error="report")
        assert [key for key, _ in error.value.chunks] == [f"scores/c/{number}/0" for number in numbers]
        assert str(error.value).count("scores/c/10/0") == 1
