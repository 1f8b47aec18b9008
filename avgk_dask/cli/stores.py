"""``avgk ingest``, ``verify``, ``join``, ``info``, ``simulate``, ``demo`` and ``compile``: make and inspect stores."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from ..credentials import redact
from ..errors import OptionError
from .group import FAILED, Command, spelled
from .parameters import Call, call_options, options, parse_storage_options
from .printing import ResultsFolder, print_json, print_sentence, shows_progress, text_layout


@click.command(cls=Command, short_help="Copy a file or store into a fast, verified store.")
@click.argument("scores", type=click.Path(allow_dash=True))
@click.argument("labels", type=click.Path(), required=False)
@options("out")
@click.option("--scores", "scores_name", metavar="NAME", help="Column, member or array with the scores.")
@click.option("--labels", "labels_name", metavar="NAME", help="Column, member or array with the labels.")
@options("layout")
@click.option("--append", is_flag=True, help="Append the rows to the complete store at --out, in its layout.")
@options("overwrite missing storage json quiet")
def ingest(
    scores: str, labels: str | None, out: str, storage_option: tuple[str, ...], out_option: tuple[str, ...], as_json: bool,
    quiet: bool, **how: Any,
) -> None:  # fmt: skip
    """Copy scores from a file or another store into a store that is fast to read, and verify it.

    SCORES is an .npy, .npz, .parquet, .csv, .arrow or .feather file, a folder of Parquet or Arrow files, a Zarr store, or - for
    an .npy stream. LABELS is a separate file or store of the labels, if there is one.

    Example: avgk ingest scores.npy labels.npy --out new.zarr
    """
    from ..engine.progress import phase

    with phase("opening"):
        from ..api.ingestion import ingest as run
        from ..store.where.addresses import redact

    ingested = run(
        scores, labels, out=out, storage_options=parse_storage_options(storage_option),
        out_options=parse_storage_options(out_option, "--out-option"), progress=shows_progress(quiet), **how,
    )  # fmt: skip
    checked = ingested.verification
    if as_json:
        names: Sequence[str] = ("n_samples", "n_classes", "has_labels", "rounding", "class_names", "ignored")
        attributes = {name: getattr(ingested, name) for name in names}
        print_json({"store": redact(out), **attributes, "n_chunks": checked.n_chunks, "n_bytes": checked.n_bytes})
        return
    print_sentence(
        f"wrote {ingested.n_samples:,} samples x {ingested.n_classes:,} classes "
        f"{'with' if ingested.has_labels else 'without'} labels to {redact(out)}: "
        f"{checked.n_chunks:,} chunks, {checked.n_bytes:,} bytes, all verified"
    )
    if ingested.class_names:
        names = ingested.class_names
        middle = ", …, " if len(names) > 4 else ", " if len(names) > 3 else ""
        print_sentence(f"each column is a class: {', '.join(names[:3])}{middle}{names[-1] if len(names) > 3 else ''}")
    if ingested.ignored:
        more = f" and {len(ingested.ignored) - 20} more" if len(ingested.ignored) > 20 else ""
        print_sentence(f"not used: {', '.join(ingested.ignored[:20])}{more}")
    if ingested.rounding:
        print_sentence(f"the scores are {ingested.rounding}")


@click.command(cls=Command, short_help="Check every chunk of a store.")
@call_options("store storage json quiet cluster")
def verify(call: Call) -> None:
    """Read and check every chunk of a store; exit status 1 if any is damaged.

    Example: avgk verify scores.zarr
    """
    from ..api.stores import verify as run

    with call.computing():
        checked = run(call.store, storage_options=call.storage_options, progress=call.progress)
    if call.as_json:
        names = ("ok", "n_chunks", "n_bytes", "has_manifest", "damaged")
        print_json({name: getattr(checked, name) for name in names})
    else:
        for chunk, damage in checked.damaged:
            print_sentence(damage if chunk in damage else f"{chunk}: {damage}")
        how = "against the manifest" if checked.has_manifest else "by decoding (no manifest: changed values can pass)"
        print_sentence(
            f"{checked.n_chunks:,} chunks, {checked.n_bytes:,} bytes checked {how}: {len(checked.damaged)} damaged"
        )
    if not checked.ok:
        sys.exit(FAILED)


@click.command(cls=Command, short_help="Join the parts of several writers into one store.")
@click.argument("store", type=click.Path())
@click.option("--parts", type=click.IntRange(min=1), help="Number of parts required.")
@options("storage json quiet")
def join(store: str, parts: int | None, storage_option: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Join the parts that several processes wrote with ScoreWriter(..., part=i) into one store.

    Example: avgk join parts.zarr --parts 2
    """
    from ..store.read.opening import open_arrays
    from ..store.where.addresses import redact
    from ..store.write.joining import join_parts

    options = parse_storage_options(storage_option)
    join_parts(store, parts, storage_options=options)
    joined = open_arrays(store, storage_options=options)
    n_samples, n_classes = joined.scores.shape[0], joined.n_classes or joined.scores.shape[1]
    if as_json:
        has_labels = joined.labels is not None
        print_json({"store": redact(store), "n_samples": n_samples, "n_classes": n_classes, "has_labels": has_labels})
    else:
        print_sentence(f"{redact(store)} is complete: {n_samples:,} samples x {n_classes:,} classes")


@click.command(cls=Command, short_help="Content, layout and cost of a store, and advice.")
@call_options("store labels arrays json quiet")
def info(call: Call) -> None:
    """Describe a store or file: content, layout, the cost of evaluating it, and advice on the layout.

    STORE and LABELS are as for avgk evaluate.

    Example: avgk info scores.zarr
    """
    from ..api.stores import info as run
    from ..report import print_info

    description = run(call.store, scores=call.scores_name, labels=call.labels, storage_options=call.storage_options)
    description["advice"] = [spelled(text) for text in description["advice"]]
    if call.as_json:
        print_json(description)
    else:
        click.echo(print_info(description, **text_layout()))


@click.command(cls=Command, short_help="Write a store of simulated scores.")
@click.option("--out", required=True, type=click.Path(), help="Path or URL of the new store.")
@click.option("--example", type=click.IntRange(1, 4), help="One of the paper's toy problems, with six classes.")
@click.option("--samples", type=click.IntRange(min=1), default=100_000, show_default=True, help="Number of samples.")
@click.option("--classes", type=click.IntRange(min=1), default=1_000, show_default=True, help="Number of classes.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers.")
@click.option("--dtype", default="float32", show_default=True, help="Type of the scores, such as float16 or uint8.")
@click.option(
    "--ambiguity", type=float, default=1.0, show_default=True, help="Variation of the ambiguity between samples."
)
@click.option("--levels", type=click.IntRange(min=1), help="Round scores to this number of levels, which makes ties.")
@click.option("--soft", is_flag=True, help="Store the true probabilities as labels.")
@options("overwrite json quiet")
def simulate(out: str, example: int | None, samples: int, classes: int, seed: int, dtype: str, ambiguity: float,
             levels: int | None, soft: bool, overwrite: bool, as_json: bool, quiet: bool) -> None:  # fmt: skip
    """Simulate scores with labels: the paper's examples, or data of any size and ambiguity.

    Example: avgk simulate --example 2 --samples 3000 --out toy.zarr
    """
    from ..engine.progress import phase

    with phase("opening"):
        from ..testing.simulation import Simulation, simulate_store

    if example is not None and classes not in (6, 1_000):
        raise OptionError(f"--classes must be 6 for the paper's examples; got {classes}. Leave it out.")
    n_classes = 6 if example is not None else classes
    if example is not None and dtype == "float32":
        dtype = "float64"  # the examples' probabilities, exactly
    spec = Simulation(samples, n_classes, example, seed, dtype, ambiguity, levels)
    simulate_store(out, spec, soft=soft, overwrite=overwrite, progress=shows_progress(quiet))
    if as_json:
        print_json({"store": redact(out), "n_samples": samples, "n_classes": n_classes, "example": example, "seed": seed,
                    "dtype": dtype, "ambiguity": ambiguity, "levels": levels, "soft": soft})  # fmt: skip
    else:
        print_sentence(f"wrote {samples:,} samples x {n_classes:,} classes to {redact(out)}")


def _check_demo(out: pathlib.Path) -> None:
    """Check that a folder is empty or has only an earlier demo, which may have been killed."""
    from ..store.write.targets import holds_anything, recover, writable

    store = out / "scores.zarr"
    if out.is_dir():
        recover(store.resolve(), str(store))
    if holds_anything(writable(out)[0]) and not (out.is_dir() and _is_simulated(store)):
        raise OptionError(f"--out must be a new or empty folder, or one of an earlier demo; got {str(out)!r}.")


def _is_simulated(store: pathlib.Path) -> bool:
    """Return whether a simulation wrote a store, completely or not, and may replace it."""
    from ..store.write.targets import holds_anything, writable

    for name, keys in (("scores/zarr.json", ()), ("zarr.json", ("avgk_dask",))):
        try:
            attributes = json.loads((store / name).read_text())["attributes"]
            for key in keys:
                attributes = attributes[key]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if "simulation" in attributes:
            return True
    return store.is_dir() and not holds_anything(writable(store)[0])


@click.command(cls=Command, short_help="Simulate, evaluate and report, in one command.")
@click.option(
    "--out", type=click.Path(path_type=pathlib.Path), default="avgk-demo", show_default=True, help="Folder to write to."
)
@click.option("--samples", type=click.IntRange(min=1), default=50_000, show_default=True, help="Number of samples.")
@click.option("--classes", type=click.IntRange(min=10), default=1_000, show_default=True, help="Number of classes.")
@options("json quiet")
def demo(out: pathlib.Path, samples: int, classes: int, as_json: bool, quiet: bool) -> None:
    """Simulate a store, evaluate it, and write the report.

    Example: avgk demo --samples 5000 --classes 100
    """
    from ..engine.progress import phase

    with phase("opening"):
        from ..api.evaluate import evaluate_with_curve
        from ..api.options import ScanOptions
        from ..exact.budgets import DEFAULT_BUDGETS
        from ..report import print_table, write_report
        from ..results.datasets import to_json
        from ..store.read.opening import open_arrays
        from ..testing.simulation import Simulation, simulate_store

    store, progress = out / "scores.zarr", shows_progress(quiet)
    results = ResultsFolder(out)
    _check_demo(out)
    with results as folder:
        simulate_store(store, Simulation(samples, classes), overwrite=True, progress=progress)
        start = time.perf_counter()
        result, curve = evaluate_with_curve(store, None, DEFAULT_BUDGETS, ScanOptions(progress=progress))
        seconds = time.perf_counter() - start
        result.attrs |= {"store": str(store), "fingerprint": open_arrays(store).fingerprint}
        folder.write(result, write_report, seconds=seconds, curve=curve)
    if as_json:
        print_json({"store": str(store), "report": str(out / "report.html"), "result": json.loads(to_json(result))})
        return
    click.echo(f"{print_table(result, **text_layout())}\n")
    print_sentence(f"The report is {out / 'report.html'}; the scores are in {store}.")


@click.command(cls=Command, name="compile", short_help="Compile the kernels for large matrices ahead of time.")
@click.option(
    "--dtype", "dtypes", metavar="NAME", multiple=True, help="Compile only for scores of this type; repeatable."
)
@options("quiet")
def compile_ahead(dtypes: tuple[str, ...], quiet: bool) -> None:
    """Compile the kernels for large matrices and cache them, for example in a container image or on each worker.

    Otherwise the first run on a large matrix compiles them. Small matrices do not need them.

    Example: avgk compile --dtype float32
    """
    from ..api.compilation import DTYPES, compile_kernels

    done = compile_kernels(dtypes=dtypes or DTYPES, progress=shows_progress(quiet))
    if not quiet:
        click.echo(
            f"{f'compiled in {done.seconds:.1f} s' if done.n_compiled else 'all kernels are compiled'}, cached in {done.cache}"
        )
