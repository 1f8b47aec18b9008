"""``avgk breakdown``, ``avgk compare`` and ``avgk pairs``."""

from __future__ import annotations

import pathlib
import time
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from ..errors import OptionError
from .group import Command
from .parameters import CLUSTERS, GROUPS, Call, budget_option, call_options, choice_option, options, results_option
from .printing import ResultsFolder, text_layout

if TYPE_CHECKING:
    from ..api.breakdowns import Thresholds


@click.command(cls=Command, short_help="Errors and set sizes by class or group.")
@call_options("store labels arrays activation samples")
@budget_option(
    "Labels per sample on average (budgets): 5 or 1,3,5 or 1:10 or 0.5,2.5. The table is for the largest.",
    required=True,
)
@click.option("--by", default="class", show_default=True, metavar="NAME", help=f"Break errors down by: {GROUPS}")
@choice_option(
    "--thresholds", words=("shared", "own"),
    text="One threshold for all samples, or one for each class or group, with k labels per sample in each.",
)  # fmt: skip
@click.option(
    "--worst", type=click.IntRange(min=1), default=10, show_default=True, help="Number of classes or groups to show."
)
@results_option(
    "Write metrics.json and metrics.zarr, with all classes or groups, and report.html to this folder, replacing the "
    "results of an earlier run."
)
@click.option(
    "--pairs", "n_pairs", type=click.IntRange(min=1), metavar="N",
    help="Also show the N pairs of classes that are most often in sets together. Takes two more reads.",
)  # fmt: skip
@options("nan missing json quiet checkpoint cluster")
def breakdown(
    call: Call,
    k: list[Fraction],
    by: str,
    thresholds: Thresholds,
    worst: int,
    out: pathlib.Path | None,
    n_pairs: int | None,
) -> None:
    """Print the classes or groups of samples with the highest errors, and their set sizes.

    STORE and LABELS are as for avgk evaluate. Class names are those in the store, or the columns of a table.

    Example: avgk breakdown scores.zarr -k 5

    Example: avgk breakdown scores.zarr -k 5 --pairs 20 --out classes

    Example: avgk breakdown scores.npy labels.npy -k 5

    Example: avgk breakdown scores.zarr -k 1,5 --worst 20 --json
    """
    from ..api.breakdowns import breakdown as run
    from ..api.set_pairs import set_pairs
    from ..report import print_breakdown, print_pairs, write_breakdown

    if n_pairs is not None and thresholds == "own":
        raise OptionError(
            "--pairs and --thresholds own are mutually exclusive. Leave one of them out, or use avgk pairs."
        )
    if n_pairs is not None and call.as_json and out is None:
        raise OptionError("--pairs with --json needs --out. Add --out DIR, or use avgk pairs --json.")
    with ResultsFolder(out, quiet=call.quiet) as folder:
        arrays, mask = call.open(), call.sample_mask()
        with call.computing():
            start = time.perf_counter()
            scores = call.scores(arrays, mask)
            shared = mask | call.run_options
            groups = call.groups(by)
            result = run(scores, None, k, groups, thresholds=thresholds, **shared, checkpoint=call.checkpoint_place)
            together = None if n_pairs is None else set_pairs(scores, max(k), n_pairs=n_pairs, **shared)
            seconds = time.perf_counter() - start
        result.attrs["store"] = arrays.location
        folder.write(result, write_breakdown, pairs=together, seconds=seconds)
    call.show(result, print_breakdown, None, worst)
    if together is not None and not call.as_json:
        click.echo(f"\n{print_pairs(together, together.sizes['pair'], **text_layout())}")


@click.command(cls=Command, short_help="Compare several models on the same samples.")
@call_options("store arrays")
@click.argument("others", metavar="STORE...", nargs=-1, required=True, type=click.Path())
@options("activation samples")
@budget_option(
    "Labels per sample on average (budgets): 5 or 1,3,5 or 1:10 or 0.5,2.5.  [default: 1:10, or all classes if fewer]"
)
@click.option("--name", "names", multiple=True, help="Name of a model; repeat for each store, in their order.")
@click.option("--clusters", "clusters_name", metavar="NAME", help=CLUSTERS)
@results_option(
    "Write metrics.json, metrics.zarr and report.html to this folder, replacing the results of an earlier run."
)
@click.option(
    "--straddle/--no-straddle", default=False, help="Compute straddle strengths, which explain gains, or not (default)."
)
@options("nan missing json quiet cluster")
def compare(
    call: Call, others: tuple[str, ...], k: list[Fraction] | None, names: tuple[str, ...], clusters_name: str | None,
    out: pathlib.Path | None, straddle: bool,
) -> None:  # fmt: skip
    """Compare the errors of several models on the same samples, with standard errors and exact tests.

    The stores, or files as for avgk evaluate, must have scores of the same samples in the same order, and the same labels.
    --labels, --where and --clusters refer to the first store, --activation and --temperature to all. Models are named after
    their stores unless --name is used.

    Example: avgk compare scores.zarr scores.zarr -k 1:5 --name small --name large
    """
    from ..api.comparison import compare as run
    from ..exact.budgets import DEFAULT_BUDGETS
    from ..report import print_comparison, write_comparison

    stores = (call.store, *others)
    model_names = _model_names(stores, names)
    with ResultsFolder(out, quiet=call.quiet) as folder:
        calls = [call, *(replace(call, store=other, labels=None) for other in others)]
        arrays = [one.open() for one in calls]
        mask = call.sample_mask()
        with call.computing():
            frequencies = call.with_frequencies(arrays[0], mask).balanced
            calls = [replace(one, balanced=frequencies) for one in calls]
            start = time.perf_counter()
            result = run(
                {name: one.scores(opened, mask) for name, one, opened in zip(model_names, calls, arrays, strict=True)},
                None if call.labels is None else arrays[0].labels,
                k or DEFAULT_BUDGETS,
                straddle=straddle,
                clusters=call.column(clusters_name, "--clusters"),
                **mask,
                **call.run_options,
            )
            seconds = time.perf_counter() - start
        result.attrs["store"] = [one.location for one in arrays]
        folder.write(result, write_comparison, seconds=seconds)
    call.show(result, print_comparison)


def _model_names(stores: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Return the names of the models: the values of --name, or the last parts of the stores' paths."""
    from ..files.rows import SUFFIXES
    from ..store.where.addresses import redact

    if names and len(names) != len(stores):
        raise OptionError(
            f"--name must be repeated for each of the {len(stores)} stores; got {len(names)}. Name all, or none."
        )
    last = [redact(store).rstrip("/").rpartition("/")[2] for store in stores]
    ends = (".zarr", *SUFFIXES[::-1])
    called = list(names) or [next((name[: -len(end)] for end in ends if name.endswith(end)), name) for name in last]
    if len(set(called)) == len(called):
        return called
    if names:
        raise OptionError(f"--name must be different for each store; got {', '.join(called)}. Choose others.")
    return [f"{name} ({i + 1})" for i, name in enumerate(called)]


@click.command(cls=Command, short_help="Classes that are often in sets together.")
@call_options("store arrays activation samples")
@budget_option("Labels per sample on average (budget), such as 5 or 2.5.", required=True)
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Number of pairs to show.")
@options("nan missing json quiet cluster")
def pairs(call: Call, k: list[Fraction], most: int) -> None:
    """Print the pairs of classes that are most often in average-k sets together: the model confuses them.

    Class names are those in the store. Takes two reads.

    Example: avgk pairs scores.zarr -k 2

    Example: avgk pairs scores.zarr -k 2.5 --most 100 --json
    """
    from ..api.set_pairs import set_pairs
    from ..report import print_pairs

    if len(k) != 1:
        raise OptionError(f"-k must be one budget for pairs; got {len(k)}. Pass one at a time.")
    arrays, mask = call.open(), call.sample_mask()
    with call.computing():
        scores = call.scores(arrays, mask)
        result = set_pairs(scores, k[0], n_pairs=most, **mask, **call.run_options)
    result.attrs["store"] = arrays.location
    call.show(result, print_pairs, most)
