"""``avgk conformal``."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    SampleChoice,
    StoreChoice,
    activation_options,
    json_option,
    missing_option,
    nan_option,
    quiet_option,
    sample_options,
    store_options,
)
from .printing import print_json, remark, shows_progress

if TYPE_CHECKING:
    from ..conformal import ConformalPredictor
    from ..results.datasets import Result

#: What is told of a predictor.
_TOLD = (
    "method", "alpha", "by", "threshold", "rank", "n_calibration", "n_classes", "penalty", "k_reg", "seed", "reads",
)  # fmt: skip


@click.command(cls=Command, short_help="Sets that hold the label with a given probability.")
@partial(store_options, metavar="CALIBRATION")
@click.argument("new_store", type=click.Path(), metavar="[STORE]", required=False)
@activation_options
@sample_options
@click.option("--alpha", default="0.1", show_default=True, metavar="A", help="The error that is allowed.")
@click.option(
    "--method", type=click.Choice(["lac", "aps", "raps", "top_k"]), default="lac", show_default=True,
    help="What sets are made by: scores, sums of probabilities, those with a penalty for late ranks, or ranks.",
)  # fmt: skip
@click.option("--by", type=click.Choice(["class"]), help="class: a threshold for each class.")
@click.option("--penalty", metavar="P", help="Of raps, for each rank beyond --k-reg.  [default: 0.01]")
@click.option("--k-reg", type=click.IntRange(min=0), help="Of raps, the ranks without a penalty.  [default: 5]")
@click.option("--seed", type=click.IntRange(min=0), help="Of aps and raps: randomised sets, which are smaller.")
@click.option(
    "--new-labels", metavar="NAME", help="The labels of STORE, where --labels are those of CALIBRATION alone."
)
@click.option(
    "--out", type=click.Path(dir_okay=False), help="Write the predictor to this JSON file, over one that is there."
)
@nan_option
@missing_option
@json_option
@quiet_option
@cluster_options
def conformal(chosen: StoreChoice, samples: SampleChoice, new_store: str | None, alpha: str, method: str, by: str | None, penalty: str | None,
              k_reg: int | None, seed: int | None, new_labels: str | None, out: str | None, nan_policy: str, missing: str,
              as_json: bool, quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Find the threshold whose sets hold the label of a new sample with probability 1 - alpha.

    CALIBRATION has scores and labels. Where STORE is given, the sets of its samples are counted: coverage, sizes, and whether
    that coverage is plausible. Options that name arrays, an activation, and what samples exist speak of both.

    Example: avgk conformal scores.zarr --alpha 0.1 --out sets.json

    Example: avgk conformal scores.zarr scores.zarr --method aps --seed 0

    Example: avgk conformal scores.zarr scores.zarr --alpha 0.5 --by class
    """
    from ..conformal import calibrate

    arrays = chosen.open(missing)
    other = replace(chosen, store=new_store or chosen.store, labels=new_labels or chosen.labels)
    opened = None if new_store is None else other.open(missing)
    with cluster(where, quiet):
        found = calibrate(
            chosen.scored(arrays), None, alpha, method, by, seed, penalty=penalty, k_reg=k_reg,
            **samples.open(chosen), nan_policy=nan_policy, progress=shows_progress(quiet),
        )  # fmt: skip
        if out is not None:
            found.save(out)
            remark(f"wrote {out}", quiet)
        result = None
        if opened is not None:
            result = found.evaluate(
                other.scored(opened), **samples.open(other), nan_policy=nan_policy, progress=shows_progress(quiet)
            )
            result.attrs["store"] = opened.location
    _print(found, result, out, as_json)


def _print(found: ConformalPredictor, result: Result | None, out: str | None, as_json: bool) -> None:
    from ..report.text import print_coverage
    from ..results.json_text import plain_json, to_json

    if not as_json:
        click.echo(repr(found).partition(": ")[2])
        if result is not None:
            click.echo(f"\n{print_coverage(result)}")
        return
    told = {name: getattr(found, name) for name in _TOLD}
    plain = {name: plain_json(value.tolist() if hasattr(value, "tolist") else value) for name, value in told.items()}
    print_json({"file": out, **plain, "result": None if result is None else json.loads(to_json(result))})
