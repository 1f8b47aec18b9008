"""``avgk calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from ..errors import OptionError
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    SampleChoice,
    StoreChoice,
    json_option,
    labelled_store_options,
    missing_option,
    quiet_option,
    sample_options,
)
from .printing import print_json, remark, shows_progress, tell

if TYPE_CHECKING:
    from ..api.affine_scaling import AffineScaling
    from ..api.calibrators import TemperatureScaling


@click.command(cls=Command, short_help="Fit a calibrator to logits and their labels.")
@labelled_store_options
@sample_options
@click.option(
    "--method", type=click.Choice(["temperature", "vector", "matrix"]), default="temperature", show_default=True,
    help="One number for all logits, a weight and a bias a class, or a matrix.",
)  # fmt: skip
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False),
    help="The JSON file to write; one that is there is replaced.",
)
@click.option(
    "--penalty", type=float, help="Times the mean square of the weights off the diagonal, of a matrix.  [default: 1]"
)
@click.option("--bias-penalty", type=float, help="Times the mean square of the bias, of a matrix.  [default: 1]")
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    help="Steps of the optimiser, at most; each is a read.  [default: 500]",
)
@missing_option
@json_option
@quiet_option
@cluster_options
def calibrate(chosen: StoreChoice, samples: SampleChoice, method: str, out: str, penalty: float | None, bias_penalty: float | None,
              max_iterations: int | None, missing: str, as_json: bool, quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Fit what makes probabilities of logits to a calibration store, by the least NLL, and write it to a file.

    STORE has logits and labels, or is a file of logits, as for avgk evaluate, and LABELS has the labels. Other commands take the file as --calibration.

    Example: avgk calibrate logits.zarr --out temperature.json

    Example: avgk calibrate logits.zarr --method vector --out vector.json
    """
    asked = {"penalty": penalty, "bias_penalty": bias_penalty, "max_iterations": max_iterations}
    calibrator = _calibrator(method, {name: value for name, value in asked.items() if value is not None})
    arrays = chosen.open(missing)
    with cluster(where, quiet):
        calibrator.fit(arrays, **samples.open(chosen), progress=shows_progress(quiet))
    calibrator.save(out)
    if calibrator.message:
        remark(calibrator.message, quiet)
    if not as_json:
        tell(f"{calibrator}, {calibrator.n_reads} reads; wrote {out}")
        return
    names = ("nll_before", "nll_after", "n_reads", "n_iterations", "converged", "message")
    told = {name: getattr(calibrator, name) for name in names}
    print_json({"file": out, "method": method, "temperature": getattr(calibrator, "temperature", None), **told})


def _calibrator(method: str, options: dict[str, float]) -> TemperatureScaling | AffineScaling:
    """Return a calibrator to be fitted; options that it does not have are refused."""
    from ..calibration import MatrixScaling, TemperatureScaling, VectorScaling

    kinds = {"temperature": TemperatureScaling, "vector": VectorScaling, "matrix": MatrixScaling}
    known = {"temperature": (), "vector": ("max_iterations",), "matrix": ("penalty", "bias_penalty", "max_iterations")}
    for name in options:
        if name not in known[method]:
            option = "--" + name.replace("_", "-")
            raise OptionError(f"{option} must go with another --method; got {method}. Leave it out.")
    found: TemperatureScaling | AffineScaling = kinds[method](**options)
    return found
