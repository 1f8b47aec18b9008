"""``avgk breakdown`` and ``avgk compare``."""

from __future__ import annotations

import pathlib
import time
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

import click

from ..errors import OptionError
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    BY,
    CLUSTERS,
    SampleChoice,
    Shared,
    StoreChoice,
    activation_options,
    budget_option,
    checkpoint_options,
    checkpoint_place,
    json_option,
    labelled_store_options,
    missing_option,
    nan_option,
    open_column,
    quiet_option,
    sample_options,
    store_options,
)
from .printing import ResultsFolder, look, remark, shows_progress

if TYPE_CHECKING:
    from ..api.breakdowns import Thresholds
    from ..api.options import NanPolicy


@click.command(cls=Command, short_help="Errors and set sizes by class or group, the worst first.")
@labelled_store_options
@activation_options
@sample_options
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5. The table is of the largest.", required=True)
@click.option("--by", default="class", show_default=True, metavar="NAME", help=BY)
@click.option(
    "--thresholds", type=click.Choice(["shared", "own"]), default="shared", show_default=True,
    help="One threshold for all, or one for each class or group: k labels a sample for every one of them.",
)  # fmt: skip
@click.option("--worst", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@click.option(
    "--out",
    type=click.Path(path_type=pathlib.Path),
    help="Write metrics.json and metrics.zarr, with all classes or groups, and report.html here, over those of an earlier run.",
)
@click.option(
    "--pairs", "n_pairs", type=click.IntRange(min=1), metavar="N",
    help="The N pairs of classes that are most often in sets together, too, for two more reads.",
)  # fmt: skip
@nan_option
@missing_option
@json_option
@quiet_option
@checkpoint_options
@cluster_options
def breakdown(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction], by: str, thresholds: Thresholds, worst: int, out: pathlib.Path | None, n_pairs: int | None,
              as_json: bool, nan_policy: NanPolicy, missing: str, quiet: bool, checkpoint: str | None, checkpoint_option: tuple[str, ...],
              **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
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
    from ..results.datasets import to_json

    if n_pairs is not None and thresholds == "own":
        raise OptionError(
            "--pairs must come with one threshold for all; got --thresholds own. Leave one of them out, or use avgk pairs."
        )
    if n_pairs is not None and as_json and out is None:
        raise OptionError(
            "--pairs must come with --out or without --json; got it for JSON alone. Use avgk pairs --json."
        )
    folder = nullcontext() if out is None else ResultsFolder(out)
    with folder:
        arrays, existing = chosen.open(missing), samples.open(chosen)
        with cluster(where, quiet):
            start = time.perf_counter()
            scores = chosen.with_frequencies(arrays, existing).scored(arrays)
            groups = by if by == "class" else open_column(chosen, by, "--by", missing)
            shared: Shared = {**existing, "nan_policy": nan_policy, "progress": shows_progress(quiet)}
            result = run(
                scores, None, k, groups, thresholds=thresholds, **shared,
                checkpoint=checkpoint_place(checkpoint, checkpoint_option),
            )  # fmt: skip
            together = None if n_pairs is None else set_pairs(scores, max(k), n_pairs=n_pairs, **shared)
            seconds = time.perf_counter() - start
        result.attrs["store"] = arrays.location
        if isinstance(folder, ResultsFolder):
            folder.write(result, lambda path: write_breakdown(result, path, pairs=together, seconds=seconds))
            remark(f"wrote {folder.out / 'report.html'}, metrics.json and metrics.zarr", quiet)
    click.echo(to_json(result) if as_json else print_breakdown(result, n=worst, **look()))
    if together is not None and not as_json:
        click.echo(f"\n{print_pairs(together, together.sizes['pair'], **look())}")


@click.command(cls=Command, short_help="Several models on the same samples.")
@store_options
@click.argument("others", metavar="STORE...", nargs=-1, required=True, type=click.Path())
@activation_options
@sample_options
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.  [default: 1:10, or all classes if fewer]")
@click.option("--name", "names", multiple=True, help="Name of a model, once for each store, in their order.")
@click.option("--clusters", "clusters_name", metavar="NAME", help=CLUSTERS)
@click.option(
    "--out",
    type=click.Path(path_type=pathlib.Path),
    help="Write metrics.json, metrics.zarr and report.html here, over those of an earlier run.",
)
@click.option("--straddle/--no-straddle", default=False, help="Analyse the ambiguity, too, or not (default).")
@nan_option
@missing_option
@json_option
@quiet_option
@cluster_options
def compare(chosen: StoreChoice, samples: SampleChoice, others: tuple[str, ...], k: list[Fraction] | None, names: tuple[str, ...],
            clusters_name: str | None, out: pathlib.Path | None, straddle: bool, as_json: bool, nan_policy: NanPolicy, missing: str,
            quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Errors of several models on the same samples, their differences sample by sample, and exact tests.

    The stores, or files as for avgk evaluate, must hold scores of the same samples in the same order, and the same labels;
    --labels, --where and --clusters are those of the first. An activation and a temperature are those of all. A model is called as its store
    unless --name says otherwise.

    Example: avgk compare scores.zarr scores.zarr -k 1:5 --name small --name large
    """
    from ..api.comparison import compare as run
    from ..exact.budgets import DEFAULT_BUDGETS
    from ..report import print_comparison, write_comparison
    from ..results.datasets import to_json

    stores = (chosen.store, *others)
    called = _model_names(stores, names)
    folder = nullcontext() if out is None else ResultsFolder(out)
    with folder:
        all_chosen = [chosen, *(replace(chosen, store=other, labels=None) for other in others)]
        arrays = [one.open(missing) for one in all_chosen]
        existing = samples.open(chosen)
        with cluster(where, quiet):
            balance = chosen.with_frequencies(arrays[0], existing).balanced
            all_chosen = [replace(one, balanced=balance) for one in all_chosen]
            start = time.perf_counter()
            result = run(
                {name: one.scored(mine) for name, one, mine in zip(called, all_chosen, arrays, strict=True)},
                None if chosen.labels is None else arrays[0].labels,
                k or DEFAULT_BUDGETS,
                **existing,
                straddle=straddle,
                clusters=open_column(chosen, clusters_name, "--clusters", missing),
                nan_policy=nan_policy,
                progress=shows_progress(quiet),
            )
            seconds = time.perf_counter() - start
        result.attrs["store"] = [one.location for one in arrays]
        if isinstance(folder, ResultsFolder):
            folder.write(result, lambda path: write_comparison(result, path, seconds=seconds))
            remark(f"wrote {folder.out / 'report.html'}, metrics.json and metrics.zarr", quiet)
    click.echo(to_json(result) if as_json else print_comparison(result, **look()))


def _model_names(stores: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Return what models are called: as said, or the last parts of their stores' paths."""
    from ..store import shown

    if names and len(names) != len(stores):
        raise OptionError(
            f"--name must be given once for each of the {len(stores)} stores; got {len(names)}. Name all, or none."
        )
    called = list(names) or [_bare_name(shown(store)) for store in stores]
    if len(set(called)) == len(called):
        return called
    if names:
        raise OptionError(f"--name must be different for each store; got {', '.join(called)}. Choose others.")
    return [f"{name} ({i + 1})" for i, name in enumerate(called)]


def _bare_name(store: str) -> str:
    """Return the last part of a path, without what tells its format."""
    from ..files.names import SUFFIXES

    name = store.rstrip("/").rpartition("/")[2]
    return next((name[: -len(end)] for end in (".zarr", *SUFFIXES[::-1]) if name.endswith(end)), name)


# ``avgk pairs``.


@click.command(cls=Command, short_help="Classes that are in sets together.")
@store_options
@activation_options
@sample_options
@budget_option("Budget: labels per sample on average, such as 5 or 2.5.", required=True)
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="How many pairs to show.")
@nan_option
@missing_option
@json_option
@quiet_option
@cluster_options
def pairs(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction], most: int, as_json: bool, nan_policy: NanPolicy,
          missing: str, quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Which classes are in average-k sets together, the most frequent pairs first.

    These the model takes for each other. Names of classes are those stored beside the scores. Two reads.

    Example: avgk pairs scores.zarr -k 2

    Example: avgk pairs scores.zarr -k 2.5 --most 100 --json
    """
    from ..api.set_pairs import set_pairs
    from ..report import print_pairs
    from ..results.datasets import to_json

    if len(k) != 1:
        raise OptionError(f"-k must be one budget for pairs; got {len(k)}. Ask for one at a time.")
    arrays, existing = chosen.open(missing), samples.open(chosen)
    with cluster(where, quiet):
        scores = chosen.with_frequencies(arrays, existing).scored(arrays)
        result = set_pairs(
            scores, k[0], n_pairs=most, **existing, nan_policy=nan_policy, progress=shows_progress(quiet)
        )
    result.attrs["store"] = arrays.location
    click.echo(to_json(result) if as_json else print_pairs(result, most, **look()))
