"""``avgk conformal``."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..errors import OptionError
from ..results.registry import CONFORMAL_METHODS
from .group import Command
from .parameters import Call, call_options, choice_option, options
from .printing import look, print_json, tell

if TYPE_CHECKING:
    from ..conformal import ConformalPredictor
    from ..results.datasets import Result


#: What is told of a predictor.
_TOLD = (
    "method", "alpha", "by", "groups", "threshold", "rank", "n_calibration", "n_classes", "penalty", "k_reg", "seed", "reads",
)  # fmt: skip


@click.command(cls=Command, short_help="Sets that hold the label with a given probability.")
@call_options("calibration arrays")
@click.argument("new_store", type=click.Path(), metavar="[STORE]", required=False)
@options("activation samples")
@click.option("--alpha", default="0.1", show_default=True, metavar="A", help="The error that is allowed.")
@choice_option(
    "--method", words=tuple(CONFORMAL_METHODS),
    text="What sets are made by: scores, sums of probabilities, those with a penalty for late ranks, or ranks.",
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
@options("nan missing json quiet cluster")
def conformal(
    call: Call, new_store: str | None, alpha: str, method: str, by: str | None, new_by: str | None, penalty: str | None,
    k_reg: int | None, seed: int | None, new_labels: str | None, out: str | None, report: str | None,
) -> None:  # fmt: skip
    """Find the threshold whose sets hold the label of a new sample with probability 1 - alpha.

    CALIBRATION has scores and labels; both stores may be files, as for avgk evaluate. Where STORE is given, the sets of its samples are counted: coverage, sizes, and whether
    that coverage is plausible. Options that name arrays, an activation, and what samples exist speak of both.

    Example: avgk conformal scores.zarr --alpha 0.1 --out sets.json

    Example: avgk conformal scores.zarr scores.zarr --method aps --seed 0

    Example: avgk conformal scores.zarr scores.zarr --alpha 0.5 --by class

    Example: avgk conformal scores.zarr scores.zarr --by labels --report page.html
    """
    from ..conformal import calibrate
    from ..report import write_coverage

    _check_options(call, new_store, by, new_by, new_labels, report)
    arrays, existing = call.open(), call.existing()
    groups = call.groups(by)
    with call.computing():
        start = time.perf_counter()
        call = call.with_frequencies(arrays, existing)
        other = replace(call, store=new_store or call.store, labels=new_labels or call.labels)
        opened = None if new_store is None else other.open()
        by_name = opened is not None and by not in (None, "class")
        new_groups = other.column(new_by or by, "--new-by") if by_name else None
        found = calibrate(
            call.scored(arrays, existing), None, alpha, method, groups, seed, penalty=penalty, k_reg=k_reg,
            **existing, **call.how,
        )  # fmt: skip
        if out is not None:
            found.save(out)
            call.remark(f"wrote {out}")
        result = None
        if opened is not None:
            known = other.existing()
            result = found.evaluate(other.scored(opened, known), groups=new_groups, **known, **call.how)
            result.attrs["store"] = opened.location
            if report is not None:
                write_coverage(result, report, seconds=time.perf_counter() - start)
                call.remark(f"wrote {report}")
    _print(found, result, out, call.as_json)


def _check_options(
    call: Call, new_store: str | None, by: str | None, new_by: str | None, new_labels: str | None, report: str | None
) -> None:
    """Refuse options that speak of a second store, its labels or its groups, where there are none."""
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
    if new_store is not None and new_labels is None and call.labels is not None and is_row_file(call.labels):
        raise OptionError(
            "--new-labels must tell the labels of STORE; got --labels with a file of those of CALIBRATION. Name a file with the others."
        )


def _print(found: ConformalPredictor, result: Result | None, out: str | None, as_json: bool) -> None:
    from ..report import print_coverage
    from ..results.datasets import to_json

    if not as_json:
        tell(repr(found).partition(": ")[2])
        if result is not None:
            click.echo(f"\n{print_coverage(result, **look())}")
        return
    values = ((name, getattr(found, name)) for name in _TOLD)
    told = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in values}
    print_json({"file": out, **told, "result": None if result is None else json.loads(to_json(result))})
