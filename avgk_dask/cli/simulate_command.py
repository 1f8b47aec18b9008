"""``avgk simulate`` and ``avgk demo``: data with known answers, and the whole product on it."""

from __future__ import annotations

import json
import pathlib
import time
from typing import TYPE_CHECKING

import click

from ..credentials import shown
from ..errors import OptionError
from .group import Command
from .parameters import json_option, overwrite_option, quiet_option
from .printing import look, print_json, shows_progress, tell
from .result_files import ResultsFolder

if TYPE_CHECKING:
    from ..results.datasets import Result


@click.command(cls=Command, short_help="Write a store of simulated scores.")
@click.option("--out", required=True, type=click.Path(), help="Where to write the store.")
@click.option("--example", type=click.IntRange(1, 4), help="One of the paper's toy problems, with six classes.")
@click.option("--samples", type=click.IntRange(min=1), default=100_000, show_default=True, help="Number of samples.")
@click.option("--classes", type=click.IntRange(min=1), default=1_000, show_default=True, help="Number of classes.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same data.")
@click.option("--dtype", default="float32", show_default=True, help="Type of the scores, such as float16 or uint8.")
@click.option("--ambiguity", type=float, default=1.0, show_default=True, help="How much samples differ in ambiguity.")
@click.option("--levels", type=click.IntRange(min=1), help="Round scores to so many levels, for ties.")
@click.option("--soft", is_flag=True, help="Store the true probabilities as labels.")
@overwrite_option
@json_option
@quiet_option
def simulate(out: str, example: int | None, samples: int, classes: int, seed: int, dtype: str, ambiguity: float,
             levels: int | None, soft: bool, overwrite: bool, as_json: bool, quiet: bool) -> None:  # fmt: skip
    """Simulated scores with labels: the paper's examples, or large data with chosen ambiguity.

    Example: avgk simulate --example 2 --samples 3000 --out toy.zarr
    """
    from ..passes.telling import phase

    with phase("opening"):
        from ..testing.simulation import Simulation, simulate_store

    if seed < 0:
        raise OptionError(f"--seed must not be negative; got {seed}.")
    if example is not None and classes not in (6, 1_000):
        raise OptionError(f"--classes must be 6 for the paper's examples; got {classes}. Leave it out.")
    n_classes = 6 if example is not None else classes
    if example is not None and dtype == "float32":
        dtype = "float64"  # the examples' probabilities, exactly
    spec = Simulation(samples, n_classes, example, seed, dtype, ambiguity, levels)
    simulate_store(out, spec, soft=soft, overwrite=overwrite, progress=shows_progress(quiet))
    if as_json:
        print_json({"store": shown(out), "n_samples": samples, "n_classes": n_classes, "example": example, "seed": seed,
                    "dtype": dtype, "ambiguity": ambiguity, "levels": levels, "soft": soft})  # fmt: skip
    else:
        tell(f"wrote {samples:,} samples x {n_classes:,} classes to {shown(out)}")


def _check_demo(out: pathlib.Path) -> None:
    """Refuse a folder that holds anything but an earlier demo, or what a killed one left."""
    from ..store import holds_anything, recover, writable

    store = out / "scores.zarr"
    if out.is_dir():
        recover(store.resolve(), str(store))
    if holds_anything(writable(out)[0]) and not (out.is_dir() and _is_simulated(store)):
        raise OptionError(f"--out must be a new or empty folder, or one of an earlier demo; got {str(out)!r}.")


def _is_simulated(store: pathlib.Path) -> bool:
    """Whether a simulation wrote a store, or had begun to, and so may replace it."""
    from ..store import holds_anything, writable

    for name, where in (("scores/zarr.json", ()), ("zarr.json", ("avgk_dask",))):
        try:
            found = json.loads((store / name).read_text())["attributes"]
            for part in where:
                found = found[part]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if "simulation" in found:
            return True
    return store.is_dir() and not holds_anything(writable(store)[0])


@click.command(cls=Command, short_help="Simulate, evaluate and report, in one command.")
@click.option(
    "--out", type=click.Path(path_type=pathlib.Path), default="avgk-demo", show_default=True, help="Folder to write to."
)
@click.option("--samples", type=click.IntRange(min=1), default=50_000, show_default=True, help="Number of samples.")
@click.option("--classes", type=click.IntRange(min=10), default=1_000, show_default=True, help="Number of classes.")
@json_option
@quiet_option
def demo(out: pathlib.Path, samples: int, classes: int, as_json: bool, quiet: bool) -> None:
    """The whole product in one command: simulate a store, evaluate it, write the report.

    Example: avgk demo --samples 5000 --classes 100
    """
    from ..passes.telling import phase

    with phase("opening"):
        from ..report import print_table, write_report
        from ..results.json_text import to_json

    store = out / "scores.zarr"
    results = ResultsFolder(out)
    _check_demo(out)
    with results as folder:
        result, curve, seconds = _simulate_and_evaluate(store, samples, classes, shows_progress(quiet))
        folder.write(result, lambda path: write_report(result, path, seconds=seconds, curve=curve))
    if as_json:
        print_json({"store": str(store), "report": str(out / "report.html"), "result": json.loads(to_json(result))})
        return
    click.echo(print_table(result, **look()))
    click.echo()
    tell(f"The report is {out / 'report.html'}; the scores are in {store}.")


def _simulate_and_evaluate(
    store: pathlib.Path, samples: int, classes: int, progress: bool | None
) -> tuple[Result, Result | None, float]:
    from ..api.evaluation import evaluate_with_curve
    from ..store import open_arrays
    from ..testing.simulation import Simulation, simulate_store

    simulate_store(store, Simulation(samples, classes), overwrite=True, progress=progress)
    start = time.perf_counter()
    result, curve = evaluate_with_curve(store, progress=progress)
    seconds = time.perf_counter() - start
    result.attrs |= {"store": str(store), "fingerprint": open_arrays(store).fingerprint}
    return result, curve, seconds
