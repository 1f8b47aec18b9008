"""``avgk conformal``."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from ..errors import OptionError
from ..results.registry import CONFORMAL_METHODS
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    SampleChoice,
    StoreChoice,
    activation_options,
    json_option,
    missing_option,
    nan_option,
    open_column,
    quiet_option,
    sample_options,
    store_options,
)
from .printing import look, print_json, remark, shows_progress, tell

if TYPE_CHECKING:
    from ..conformal import ConformalPredictor
    from ..results.datasets import Result


#: What is told of a predictor.
_TOLD = (
    "method", "alpha", "by", "groups", "threshold", "rank", "n_calibration", "n_classes", "penalty", "k_reg", "seed", "reads",
)  # fmt: skip


@click.command(cls=Command, short_help="Sets that hold the label with a given probability.")
@partial(store_options, metavar="CALIBRATION")
@click.argument("new_store", type=click.Path(), metavar="[STORE]", required=False)
@activation_options
@sample_options
@click.option("--alpha", default="0.1", show_default=True, metavar="A", help="The error that is allowed.")
@click.option(
    "--method", type=click.Choice(list(CONFORMAL_METHODS)), default="lac", show_default=True,
    help="What sets are made by: scores, sums of probabilities, those with a penalty for late ranks, or ranks.",
)  # fmt: skip
@click.option(
    "--by",
    metavar="NAME",
    help="class, or the name or path, as for --labels, of an integer a sample: a threshold for each class or group.",
)
@click.option("--new-by", metavar="NAME", help="The groups of STORE, where --by names those of CALIBRATION alone.")
@click.option("--penalty", metavar="P", help="Of raps, for each rank beyond --k-reg.  [default: 0.01]")
@click.option("--k-reg", type=click.IntRange(min=0), help="Of raps, the ranks without a penalty.  [default: 5]")
@click.option("--seed", type=click.IntRange(min=0), help="Of aps and raps: randomised sets, which are smaller.")
@click.option(
    "--new-labels", metavar="NAME", help="The labels of STORE, where --labels are those of CALIBRATION alone."
)
@click.option(
    "--out", type=click.Path(dir_okay=False), help="Write the predictor to this JSON file, over one that is there."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False),
    help="With STORE: write what its sets are to this HTML file, over one that is there.",
)
@nan_option
@missing_option
@json_option
@quiet_option
@cluster_options
def conformal(chosen: StoreChoice, samples: SampleChoice, new_store: str | None, alpha: str, method: str, by: str | None, new_by: str | None, penalty: str | None,
              k_reg: int | None, seed: int | None, new_labels: str | None, out: str | None, report: str | None, nan_policy: str, missing: str,
              as_json: bool, quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Find the threshold whose sets hold the label of a new sample with probability 1 - alpha.

    CALIBRATION has scores and labels; both stores may be files, as for avgk evaluate. Where STORE is given, the sets of its samples are counted: coverage, sizes, and whether
    that coverage is plausible. Options that name arrays, an activation, and what samples exist speak of both.

    Example: avgk conformal scores.zarr --alpha 0.1 --out sets.json

    Example: avgk conformal scores.zarr scores.zarr --method aps --seed 0

    Example: avgk conformal scores.zarr scores.zarr --alpha 0.5 --by class

    Example: avgk conformal scores.zarr scores.zarr --by labels --report page.html
    """
    from ..conformal import calibrate
    from ..files import is_row_file
    from ..report import write_coverage

    _check_options(new_store, by, new_by, report)
    if new_store is not None and new_labels is None and chosen.labels is not None and is_row_file(chosen.labels):
        raise OptionError(
            "--new-labels must tell the labels of STORE; got --labels with a file of those of CALIBRATION. Name a file with the others."
        )
    arrays, existing = chosen.open(missing), samples.open(chosen)
    groups = by if by == "class" else open_column(chosen, by, "--by", missing)
    with cluster(where, quiet):
        start = time.perf_counter()
        chosen = chosen.with_frequencies(arrays, existing)
        other = replace(chosen, store=new_store or chosen.store, labels=new_labels or chosen.labels)
        opened = None if new_store is None else other.open(missing)
        new_groups = (
            None if opened is None or by in (None, "class") else open_column(other, new_by or by, "--new-by", missing)
        )
        found = calibrate(
            chosen.scored(arrays), None, alpha, method, groups, seed, penalty=penalty, k_reg=k_reg,
            **existing, nan_policy=nan_policy, progress=shows_progress(quiet),
        )  # fmt: skip
        if out is not None:
            found.save(out)
            remark(f"wrote {out}", quiet)
        result = None
        if opened is not None:
            result = found.evaluate(
                other.scored(opened), groups=new_groups, **samples.open(other), nan_policy=nan_policy,
                progress=shows_progress(quiet),
            )  # fmt: skip
            result.attrs["store"] = opened.location
            if report is not None:
                write_coverage(result, report, seconds=time.perf_counter() - start)
                remark(f"wrote {report}", quiet)
    _print(found, result, out, as_json)


def _check_options(new_store: str | None, by: str | None, new_by: str | None, report: str | None) -> None:
    """Refuse options that speak of a second store, or of its groups, where there are none."""
    from ..credentials import shown
    from ..files import is_row_file

    if report is not None and new_store is None:
        raise OptionError("--report must come with STORE, whose sets it tells of; got CALIBRATION alone. Add a store.")
    if new_by is not None and (new_store is None or by in (None, "class")):
        raise OptionError("--new-by must come with STORE and --by NAME; got it without one of them. Leave it out.")
    if new_store is not None and new_by is None and by is not None and is_row_file(by):
        raise OptionError(
            f"--new-by must tell the groups of STORE; got --by {shown(by)} alone. Name a file with those groups."
        )


def _print(found: ConformalPredictor, result: Result | None, out: str | None, as_json: bool) -> None:
    from ..report.text import print_coverage
    from ..results.datasets import plain_json, to_json

    if not as_json:
        tell(repr(found).partition(": ")[2])
        if result is not None:
            click.echo(f"\n{print_coverage(result, **look())}")
        return
    told = {name: getattr(found, name) for name in _TOLD}
    plain = {name: plain_json(value.tolist() if hasattr(value, "tolist") else value) for name, value in told.items()}
    print_json({"file": out, **plain, "result": None if result is None else json.loads(to_json(result))})
