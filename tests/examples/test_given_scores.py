"""Examples that load or simulate scores (01, 02, 09, 12), and the table of all examples: effects have the documented direction and size."""

from __future__ import annotations

import json
import pathlib
import runpy

import numpy as np
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def test_toy_examples__have_the_numbers_of_table_1(run):
    written = run("01_toy_examples")
    lines = [list(written.numbers[f"example_{i}"].values())[:6] for i in (1, 2, 3, 4)]
    expected = [
        [0, 0, 0, 0, 0, 0],
        [1 / 9, 0, 1 / 9, 1 / 3, 1 / 27, 1 / 9],
        [1 / 9, 0.91 / 9, 0.01, 1 / 3, 0.01 / 3, 0.09 / 9],
        [1 / 9, 0.97 / 9, 1 / 9, 0.01, 0.01 / 9, 0.03 / 9],
    ]
    np.testing.assert_allclose(lines, expected, atol=1e-12)
    # One sentence of the paper does not hold for its own way to break ties.
    assert all(text.startswith("Example 3,") for text in written.disagreeing)
    assert written.numbers["example_3"]["set_size_shares"][2] == pytest.approx(0.6367, abs=0.002)
    assert len(written.claims) == 19


def test_human_ambiguity__saturates_where_all_votes_are_in_the_sets(run, data):
    written = run("02_human_ambiguity", "--data", str(data))
    oracle = json.loads((data / "cifar10h" / "oracle.json").read_text())["by_k"]
    for i in range(3):
        assert written.numbers["top_k_error"][i] == pytest.approx(oracle[str(i + 1)]["top_error"], abs=1e-12)
        assert written.numbers["average_k_error"][i] == pytest.approx(oracle[str(i + 1)]["avg_error"], abs=1e-12)
    assert written.numbers["saturated_from_k"] == 1.9404
    assert (written.numbers["threshold_at_2"], written.numbers["n_ties_at_2"], written.numbers["n_kept_at_2"]) == (
        0,
        80_596,
        596,
    )
    assert written.numbers["average_k_error_one_label_before"] > 1e-6 > 1e-15 > written.numbers["average_k_error_there"]
    assert (written.numbers["top_1_error_by_label"], written.numbers["average_1_error_by_label"]) == (0.0079, 0.0082)
    assert written.disagreeing == []


def test_large_class_models__gain_as_the_paper_says_and_sizes_as_told(run, data):
    written = run("09_large_class_models", "--data", str(data))
    for name, folder in {"ImageNet": "imagenet5k", "CIFAR-100": "cifar100_wide_resnet"}.items():
        five = json.loads((data / folder / "oracle.json").read_text())["by_k"]["5"]
        assert written.numbers[name]["top_5_error"] == pytest.approx(five["top_error"], abs=5e-4), name
        assert written.numbers[name]["average_5_error"] == pytest.approx(five["avg_error"], abs=5e-4), name
        assert written.numbers[name]["relative_gain"] == pytest.approx(five["rel"], abs=0.01), name
    assert written.numbers["ImageNet"]["relative_gain"] == pytest.approx(0.347, abs=0.005)
    sharp, flat, cifar = (written.numbers[name] for name in ("ImageNet, sharpened", "ImageNet", "CIFAR-100"))
    assert sharp["temperature"] == pytest.approx(0.687, abs=0.01)
    assert flat["largest_set"] < sharp["largest_set"] < cifar["largest_set"]
    assert (flat["sizes_1_to_10_decrease"], sharp["sizes_1_to_10_decrease"]) == (False, True)
    assert flat["least_k_with_more_errors"] == 520
    assert cifar["least_k_with_more_errors"] is None


@pytest.mark.parametrize("name", ["02_human_ambiguity", "09_large_class_models"])
def test_examples__without_their_data_say_so_and_write_nothing(name, tmp_path, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](["--out", str(tmp_path / "out")])
    assert "is skipped" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_theory__every_inequality_holds_and_regret_vanishes(run):
    written = run("12_what_the_theory_says")
    # The paper proves all of it but this one.
    assert all("on estimated scores" in text for text in written.disagreeing)
    gains = written.numbers["gains"]["simulation"]
    assert gains["gain"] == gains["gain_symmetric"]
    assert all(
        0 < d <= bound < gain
        for d, bound, gain in zip(gains["first_order"], gains["straddle_bound"], gains["gain"], strict=True)
        if d
    )
    # Neither a bound that lacks orders nor one that is too loose would do.
    bound, first, gain = (np.array(gains[name][1:]) for name in ("straddle_bound", "first_order", "gain"))
    assert (bound[1:] > 1.2 * first[1:]).all()  # from K = 3 on
    assert ((bound / gain > 0.35) & (bound / gain < 0.6)).all()
    assert max(written.numbers["gains"]["simulation, all rows alike"]["gain"]) == 0
    first, *_, last = written.numbers["regrets"]["simulation"]
    for row in (first, last):
        assert max(row["average_k_regret"] + row["top_k_regret"]) < row["distance"]
        for name in ("nll", "brier", "logistic"):
            assert 0.2 < row["distance"] / row[f"{name}_bound"] < 1
    assert max(last["average_k_regret"]) < 0.05 * max(first["average_k_regret"])
    assert last["distance"] < 0.15 * first["distance"]  # as 1 / sqrt(votes)


def test_make_table__has_a_line_for_each_claim_in_order(tmp_path):
    for name, agrees in (("02_b", False), ("01_a", True), ("03_c", None)):
        claim = {"claim": f"x | {name}", "paper": 1 / 3, "ours": 2, "agrees": agrees}
        (tmp_path / f"{name}.json").write_text(json.dumps({"example": name, "claims": [claim], "numbers": {}}))
    table = runpy.run_path(str(EXAMPLES / "make_table.py"))["make_table"](tmp_path)
    assert table.splitlines()[2:] == [
        "| 01 | x \\| 01_a | 0.3333 | 2 | yes |",
        "| 02 | x \\| 02_b | 0.3333 | 2 | **no** |",
        "| 03 | x \\| 03_c | 0.3333 | 2 | not stated |",
    ]


def test_readme__has_the_table_of_the_results():
    make_table = runpy.run_path(str(EXAMPLES / "make_table.py"))["make_table"]
    assert make_table(EXAMPLES / "results") in (EXAMPLES / "README.md").read_text()


def test_results__are_those_of_every_example():
    names = [path.stem for path in sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))]
    assert len(names) == 12
    for name in names:
        results = sorted((EXAMPLES / "results").glob(f"{name}*.json"))
        assert results, name
        assert all(json.loads(path.read_text())["example"] == name for path in results)
        assert all(path.with_suffix(".png").is_file() for path in results)
