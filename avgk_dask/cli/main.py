"""The commands. Errors are one line on stderr; exit 0 done, 1 failed, 2 refused, 130 interrupted."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import tempfile
import traceback
from typing import Any

import click

from ..budgets import DEFAULT_BUDGETS
from ..errors import AvgkError, OptionError, ReadError
from .options import (
    budget_option,
    cluster,
    cluster_options,
    layout_options,
    missing_option,
    nan_option,
    parse_storage_options,
    store_options,
)


class _OneLineErrors(click.Group):
    """Turns exceptions into one line on stderr and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        debug = "--debug" in (kwargs.get("args") or sys.argv)
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.Exit as stop:
            sys.exit(stop.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), 2)
        except (KeyboardInterrupt, click.Abort):
            _fail("interrupted", 130)
        except Exception as error:
            if debug:
                traceback.print_exc()
            refused = isinstance(error, AvgkError) and not isinstance(error, ReadError)
            _fail(" ".join(str(error).split()) or type(error).__name__, 2 if refused else 1)


def _fail(message: str, status: int) -> None:
    click.echo(f"avgk: {message}", err=True)
    sys.exit(status)


@click.group(cls=_OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="avgk_dask")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Evaluate average-k and top-k classification on score matrices of any size, exactly.

    Try: avgk demo
    """


def _progress(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


@main.command()
@store_options
@budget_option(DEFAULT_BUDGETS)
@click.option(
    "--out", type=click.Path(path_type=pathlib.Path), help="Write metrics.json, metrics.zarr and report.html here."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--straddle/--no-straddle", default=True, help="Analyse the ambiguity, too (default), or not.")
@click.option(
    "--ties",
    type=click.Choice(["first", "spread"]),
    default="first",
    show_default=True,
    help="Which ties are kept: the first ones, or spread over the samples.",
)
@nan_option
@missing_option
@click.option("--quiet", is_flag=True, help="No progress bar.")
@cluster_options
def evaluate(store: str, scores_name: str | None, labels_name: str | None, storage_option: tuple[str, ...], k: Any,
             out: pathlib.Path | None, as_json: bool, straddle: bool, ties: str, nan_policy: str, missing: str,
             quiet: bool, **where: Any) -> None:  # fmt: skip
    """Thresholds, errors, gains, set sizes and ambiguity of a store, all budgets in one scan.

    Example: avgk evaluate scores.zarr -k 1:10 --out results
    """
    from ..api.evaluation import evaluate as run
    from ..report import print_table
    from ..schema import to_json

    if out is not None:
        _check_out(out)
    arrays = _open(store, scores_name, labels_name, storage_option, missing)
    with cluster(**where):
        result = run(
            arrays, None, k, straddle=straddle, ties=ties, nan_policy=nan_policy,
            progress=_progress(quiet),
        )  # fmt: skip
    result.attrs["store"] = arrays.location
    if out is not None:
        _write_results(result, out)
        click.echo(f"wrote {out / 'report.html'}, metrics.json and metrics.zarr", err=True)
    click.echo(to_json(result) if as_json else print_table(result))


def _open(
    store: str, scores_name: str | None, labels_name: str | None, storage_option: tuple[str, ...], missing: str
) -> Any:
    from ..api.stores import open_stored

    return open_stored(store, scores_name, labels_name, parse_storage_options(storage_option), missing)


def _check_out(out: pathlib.Path) -> None:
    """Make the folder for results, or refuse one that is a store or no folder."""
    from ..store import is_store

    if is_store(out) or (out.exists() and not out.is_dir()):
        raise OptionError(f"--out must be a folder for the results; got {str(out)!r}, which is a store or a file.")
    out.mkdir(parents=True, exist_ok=True)


def _write_results(result: Any, out: pathlib.Path) -> None:
    """Write all results to a folder beside the others first, then move them in: nothing half-written is left."""
    from ..report import render_report
    from ..schema import to_json
    from ..store import write_result

    with tempfile.TemporaryDirectory(dir=out, prefix=".writing-") as folder:
        fresh = pathlib.Path(folder)
        (fresh / "metrics.json").write_text(to_json(result), encoding="utf-8")
        write_result(result, fresh / "metrics.zarr")
        (fresh / "report.html").write_text(render_report(result), encoding="utf-8")
        for made in list(fresh.iterdir()):
            target = out / made.name
            if target.is_dir():
                shutil.rmtree(target)
            made.replace(target)


@main.command()
@store_options
@budget_option(None)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@nan_option
@missing_option
@cluster_options
def threshold(store: str, scores_name: str | None, labels_name: str | None, storage_option: tuple[str, ...], k: Any,
              as_json: bool, nan_policy: str, missing: str, **where: Any) -> None:  # fmt: skip
    """The threshold of each budget, exactly, with the scores above it, its ties and those kept.

    Example: avgk threshold scores.zarr -k 5
    """
    from ..api.thresholds import threshold as run
    from ..schema import plain_json

    arrays = _open(store, scores_name, labels_name, storage_option, missing)
    with cluster(**where):
        found: Any = run(arrays, k, nan_policy=nan_policy)
    names = ("threshold", "n_above", "n_ties", "n_kept")
    rows = [{"k": float(found.k[i]), **{n: found[n][i].item() for n in names}} for i in range(found.sizes["k"])]
    if as_json:
        click.echo(json.dumps([{n: plain_json(v) for n, v in row.items()} for row in rows], indent=1))
        return
    for row in rows:
        click.echo(f"k = {row['k']:g}: threshold {row['threshold']!r}, above {row['n_above']}, "
                   f"ties {row['n_ties']}, kept {row['n_kept']}")  # fmt: skip


@main.command()
@click.argument("scores")
@click.argument("labels", required=False)
@click.option("--out", required=True, help="Path or URL of the new store.")
@click.option("--scores", "scores_name", metavar="NAME", help="Column, member or array that holds the scores.")
@click.option("--labels", "labels_name", metavar="NAME", help="Column, member or array that holds the labels.")
@layout_options
@missing_option
@click.option("--storage-option", multiple=True, metavar="KEY=VALUE", help="How to reach the scores.")
@click.option("--out-option", multiple=True, metavar="KEY=VALUE", help="How to reach the new store.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def ingest(scores: str, labels: str | None, out: str, scores_name: str | None, labels_name: str | None,
           storage_option: tuple[str, ...], out_option: tuple[str, ...], quiet: bool, **layout: Any) -> None:  # fmt: skip
    """Copy scores from a file or another store into a store that reads fast, and verify it.

    SCORES is an .npy, .npz, .parquet, .csv, .arrow or .feather file, a folder of Parquet or Arrow files,
    a Zarr store, or - for an .npy stream; LABELS a file or store of their own, if they have one.

    Example: avgk ingest scores.npy labels.npy --out scores.zarr
    """
    from ..api.ingestion import ingest as run

    found = run(
        scores, labels, out=out, scores_name=scores_name, labels_name=labels_name,
        storage_options=parse_storage_options(storage_option), out_options=parse_storage_options(out_option),
        progress=_progress(quiet), **layout,
    )  # fmt: skip
    from ..store import shown

    checked = found.verification
    click.echo(
        f"wrote {found.n_samples:,} samples x {found.n_classes:,} classes "
        f"{'with' if found.has_labels else 'without'} labels to {shown(out)}: "
        f"{checked.n_chunks:,} chunks, {checked.n_bytes:,} bytes, all verified"
    )
    if found.class_names:
        names = found.class_names
        middle = ", …, " if len(names) > 4 else ", " if len(names) > 3 else ""
        click.echo(f"each column is a class: {', '.join(names[:3])}{middle}{names[-1] if len(names) > 3 else ''}")
    if found.rounding:
        click.echo(f"the scores are {found.rounding}")


@main.command()
@click.argument("store")
@click.option("--storage-option", multiple=True, metavar="KEY=VALUE", help="How to reach the store.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@cluster_options
def verify(store: str, storage_option: tuple[str, ...], as_json: bool, quiet: bool, **where: Any) -> None:
    """Read every chunk of a store and check it; exit status 1 where any is damaged.

    Example: avgk verify scores.zarr
    """
    from ..api.stores import verify as run

    with cluster(**where):
        found = run(store, storage_options=parse_storage_options(storage_option), progress=_progress(quiet))
    if as_json:
        click.echo(json.dumps({"ok": found.ok, "n_chunks": found.n_chunks, "n_bytes": found.n_bytes,
                               "has_manifest": found.has_manifest, "damaged": found.damaged}, indent=1))  # fmt: skip
    else:
        for key, what in found.damaged:
            click.echo(what if key in what else f"{key}: {what}")
        how = "against the manifest" if found.has_manifest else "by decoding (no manifest: changed values can pass)"
        click.echo(f"{found.n_chunks:,} chunks, {found.n_bytes:,} bytes checked {how}: {len(found.damaged)} damaged")
    if not found.ok:
        sys.exit(1)


@main.command()
@click.argument("store")
@click.option("--parts", type=click.IntRange(min=1), help="Number of parts that must be there.")
@click.option("--storage-option", multiple=True, metavar="KEY=VALUE", help="How to reach the store.")
def join(store: str, parts: int | None, storage_option: tuple[str, ...]) -> None:
    """Make one store of the parts that several processes wrote with ScoreWriter(..., part=i).

    Example: avgk join scores.zarr --parts 8
    """
    from ..store import join_parts, shown

    join_parts(store, parts, storage_options=parse_storage_options(storage_option))
    click.echo(f"{shown(store)} is complete")


@main.command()
@store_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(store: str, scores_name: str | None, labels_name: str | None, storage_option: tuple[str, ...],
         as_json: bool) -> None:  # fmt: skip
    """What a store holds, what evaluating it costs, and how its layout could be better.

    Example: avgk info scores.zarr
    """
    from ..api.description import info as run
    from ..report import print_info

    found = run(store, scores=scores_name, labels=labels_name, storage_options=parse_storage_options(storage_option))
    click.echo(json.dumps(found, indent=1) if as_json else print_info(found))


def _is_simulated(store: pathlib.Path) -> bool:
    """Whether a store was written by a simulation, and so may be replaced by another."""
    try:
        metadata = json.loads((store / "scores" / "zarr.json").read_text())
    except (OSError, ValueError):
        return False
    return "simulation" in metadata.get("attributes", {})


@main.command()
@click.option("--out", required=True, type=click.Path(path_type=pathlib.Path), help="Where to write the store.")
@click.option("--example", type=click.IntRange(1, 4), help="One of the paper's toy problems, with six classes.")
@click.option("--samples", type=click.IntRange(min=1), default=100_000, show_default=True, help="Number of samples.")
@click.option("--classes", type=click.IntRange(min=1), default=1_000, show_default=True, help="Number of classes.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same data.")
@click.option("--dtype", default="float32", show_default=True, help="Type of the scores, such as float16 or uint8.")
@click.option("--ambiguity", type=float, default=1.0, show_default=True, help="How much samples differ in ambiguity.")
@click.option("--levels", type=click.IntRange(min=1), help="Round scores to so many levels, for ties.")
@click.option("--soft", is_flag=True, help="Store the true probabilities as labels.")
@click.option("--overwrite", is_flag=True, help="Replace an existing store.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def simulate(out: pathlib.Path, example: int | None, samples: int, classes: int, seed: int, dtype: str, ambiguity: float,
             levels: int | None, soft: bool, overwrite: bool, quiet: bool) -> None:  # fmt: skip
    """Simulated scores with labels: the paper's examples, or large data with chosen ambiguity.

    Example: avgk simulate --example 2 --samples 3000 --out toy.zarr
    """
    from ..testing.simulation import Simulation, simulate_store

    if seed < 0:
        raise OptionError(f"--seed must not be negative; got {seed}.")
    if example is not None and classes not in (6, 1_000):
        raise OptionError(f"--classes must be 6 for the paper's examples; got {classes}. Leave it out.")
    n_classes = 6 if example is not None else classes
    if example is not None and dtype == "float32":
        dtype = "float64"  # the examples' probabilities, exactly
    spec = Simulation(samples, n_classes, example, seed, dtype, ambiguity, levels)
    simulate_store(out, spec, soft=soft, overwrite=overwrite, progress=_progress(quiet))
    click.echo(f"wrote {samples:,} samples x {n_classes:,} classes to {out}")


@main.command()
@click.option(
    "--out", type=click.Path(path_type=pathlib.Path), default="avgk-demo", show_default=True, help="Folder to write to."
)
@click.option("--samples", type=click.IntRange(min=1), default=50_000, show_default=True, help="Number of samples.")
@click.option("--classes", type=click.IntRange(min=10), default=1_000, show_default=True, help="Number of classes.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def demo(out: pathlib.Path, samples: int, classes: int, quiet: bool) -> None:
    """The whole product in one command: simulate a store, evaluate it, write the report.

    Example: avgk demo --out avgk-demo
    """
    from ..api.evaluation import evaluate as run
    from ..report import print_table
    from ..testing.simulation import Simulation, simulate_store

    store = out / "scores.zarr"
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or _is_simulated(store))):
        raise OptionError(f"--out must be a new or empty folder, or one of an earlier demo; got {str(out)!r}.")
    _check_out(out)
    show = _progress(quiet)
    simulate_store(store, Simulation(samples, classes), overwrite=True, progress=show)
    result = run(store, progress=show)
    result.attrs["store"] = str(store)
    _write_results(result, out)
    click.echo(print_table(result))
    click.echo(f"\nThe report is {out / 'report.html'}; the scores are in {store}.")
