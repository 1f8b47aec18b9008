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
from .parameters import BY, CLUSTERS, Call, budget_option, call_options, choice_option, options, results_option
from .printing import ResultsFolder, look

if TYPE_CHECKING:
    from ..api.breakdowns import Thresholds


@click.command(cls=Command, short_help="Errors and set sizes by class or group, the worst first.")
@call_options("store labels arrays activation samples")
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5. The table is of the largest.", required=True)
@click.option("--by", default="class", show_default=True, metavar="NAME", help=BY)
@choice_option(
    "--thresholds", words=("shared", "own"),
    text="One threshold for all, or one for each class or group: k labels a sample for every one of them.",
)  # fmt: skip
@click.option("--worst", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@results_option(
    "Write metrics.json and metrics.zarr, with all classes or groups, and report.html here, over those of an earlier run."
)
@click.option(
    "--pairs", "n_pairs", type=click.IntRange(min=1), metavar="N",
    help="The N pairs of classes that are most often in sets together, too, for two more reads.",
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
    """Errors and set sizes of each class, or of groups of samples, and the worst of them.

    STORE and LABELS are as for avgk evaluate. Names of classes are those stored beside the scores, or the columns of a table.

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
            "--pairs must come with one threshold for all; got --thresholds own. Leave one of them out, or use avgk pairs."
        )
    if n_pairs is not None and call.as_json and out is None:
        raise OptionError(
            "--pairs must come with --out or without --json; got it for JSON alone. Use avgk pairs --json."
        )
    with ResultsFolder(out, quiet=call.quiet) as folder:
        arrays, existing = call.open(), call.existing()
        with call.computing():
            start = time.perf_counter()
            scores = call.scored(arrays, existing)
            shared = existing | call.how
            groups = call.groups(by)
            result = run(scores, None, k, groups, thresholds=thresholds, **shared, checkpoint=call.checkpoint_place)
            together = None if n_pairs is None else set_pairs(scores, max(k), n_pairs=n_pairs, **shared)
            seconds = time.perf_counter() - start
        result.attrs["store"] = arrays.location
        folder.write(result, write_breakdown, pairs=together, seconds=seconds)
    call.show(result, print_breakdown, None, worst)
    if together is not None and not call.as_json:
        click.echo(f"\n{print_pairs(together, together.sizes['pair'], **look())}")


@click.command(cls=Command, short_help="Several models on the same samples.")
@call_options("store arrays")
@click.argument("others", metavar="STORE...", nargs=-1, required=True, type=click.Path())
@options("activation samples")
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.  [default: 1:10, or all classes if fewer]")
@click.option("--name", "names", multiple=True, help="Name of a model, once for each store, in their order.")
@click.option("--clusters", "clusters_name", metavar="NAME", help=CLUSTERS)
@results_option("Write metrics.json, metrics.zarr and report.html here, over those of an earlier run.")
@click.option("--straddle/--no-straddle", default=False, help="Analyse the ambiguity, too, or not (default).")
@options("nan missing json quiet cluster")
def compare(
    call: Call, others: tuple[str, ...], k: list[Fraction] | None, names: tuple[str, ...], clusters_name: str | None,
    out: pathlib.Path | None, straddle: bool,
) -> None:  # fmt: skip
    """Errors of several models on the same samples, their differences sample by sample, and exact tests.

    The stores, or files as for avgk evaluate, must hold scores of the same samples in the same order, and the same labels;
    --labels, --where and --clusters are those of the first. An activation and a temperature are those of all. A model is called as its store
    unless --name says otherwise.

    Example: avgk compare scores.zarr scores.zarr -k 1:5 --name small --name large
    """
    from ..api.comparison import compare as run
    from ..exact.budgets import DEFAULT_BUDGETS
    from ..report import print_comparison, write_comparison

    stores = (call.store, *others)
    called = _model_names(stores, names)
    with ResultsFolder(out, quiet=call.quiet) as folder:
        calls = [call, *(replace(call, store=other, labels=None) for other in others)]
        arrays = [one.open() for one in calls]
        existing = call.existing()
        with call.computing():
            frequencies = call.with_frequencies(arrays[0], existing).balanced
            calls = [replace(one, balanced=frequencies) for one in calls]
            start = time.perf_counter()
            result = run(
                {name: one.scored(mine, existing) for name, one, mine in zip(called, calls, arrays, strict=True)},
                None if call.labels is None else arrays[0].labels,
                k or DEFAULT_BUDGETS,
                straddle=straddle,
                clusters=call.column(clusters_name, "--clusters"),
                **existing,
                **call.how,
            )
            seconds = time.perf_counter() - start
        result.attrs["store"] = [one.location for one in arrays]
        folder.write(result, write_comparison, seconds=seconds)
    call.show(result, print_comparison)


def _model_names(stores: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Return what models are called: as said, or the last parts of their stores' paths."""
    from ..files.rows import SUFFIXES
    from ..store import shown

    if names and len(names) != len(stores):
        raise OptionError(
            f"--name must be given once for each of the {len(stores)} stores; got {len(names)}. Name all, or none."
        )
    last = [shown(store).rstrip("/").rpartition("/")[2] for store in stores]
    ends = (".zarr", *SUFFIXES[::-1])
    called = list(names) or [next((name[: -len(end)] for end in ends if name.endswith(end)), name) for name in last]
    if len(set(called)) == len(called):
        return called
    if names:
        raise OptionError(f"--name must be different for each store; got {', '.join(called)}. Choose others.")
    return [f"{name} ({i + 1})" for i, name in enumerate(called)]


@click.command(cls=Command, short_help="Classes that are in sets together.")
@call_options("store arrays activation samples")
@budget_option("Budget: labels per sample on average, such as 5 or 2.5.", required=True)
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="How many pairs to show.")
@options("nan missing json quiet cluster")
def pairs(call: Call, k: list[Fraction], most: int) -> None:
    """Which classes are in average-k sets together, the most frequent pairs first.

    These the model takes for each other. Names of classes are those stored beside the scores. Two reads.

    Example: avgk pairs scores.zarr -k 2

    Example: avgk pairs scores.zarr -k 2.5 --most 100 --json
    """
    from ..api.set_pairs import set_pairs
    from ..report import print_pairs

    if len(k) != 1:
        raise OptionError(f"-k must be one budget for pairs; got {len(k)}. Ask for one at a time.")
    arrays, existing = call.open(), call.existing()
    with call.computing():
        scores = call.scored(arrays, existing)
        result = set_pairs(scores, k[0], n_pairs=most, **existing, **call.how)
    result.attrs["store"] = arrays.location
    call.show(result, print_pairs, most)
