"""``avgk pairs``."""

from __future__ import annotations

from fractions import Fraction
from typing import Unpack

import click

from ..errors import OptionError
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    SampleChoice,
    StoreChoice,
    activation_options,
    budget_option,
    json_option,
    missing_option,
    nan_option,
    quiet_option,
    sample_options,
    store_options,
)
from .printing import look, shows_progress


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
def pairs(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction], most: int, as_json: bool, nan_policy: str,
          missing: str, quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Which classes are in average-k sets together, the most frequent pairs first.

    These the model takes for each other. Names of classes are those stored beside the scores. Two reads.

    Example: avgk pairs scores.zarr -k 2

    Example: avgk pairs scores.zarr -k 2.5 --most 100 --json
    """
    from ..api.set_pairs import set_pairs
    from ..report import print_pairs
    from ..results.json_text import to_json

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
