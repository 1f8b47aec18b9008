"""The options of utilities of sets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..errors import OptionError

if TYPE_CHECKING:
    from ..results.datasets import Result


@dataclass(frozen=True)
class UtilityChoice:
    """Which utilities of sets are asked for."""

    names: tuple[str, ...]
    beta: float | None
    cost: float | None
    cost_of: str | None

    def __post_init__(self) -> None:
        given = [name for name in ("beta", "cost", "cost_of") if getattr(self, name) is not None]
        if given and not self.names:
            option = f"--{given[0].replace('_', '-')}"
            raise OptionError(f"{option} must come with --utility; got it alone. Add --utility f.")
        if self.beta is not None and "f" not in self.names:
            raise OptionError(f"--beta must come with --utility f; got --utility {self.names[0]}. Leave it out.")

    def of(self, result: Result) -> Result | None:
        """Return the utilities of a result, along ``utility``; None where none are asked for."""
        from ..api.utilities import set_utility

        if not self.names:
            return None
        beta = 1.0 if self.beta is None else self.beta
        return set_utility(result, self.names, beta=beta, cost=self.cost or 0.0, cost_of=self.cost_of or "size")


def utility_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of utilities, as one argument ``utilities``."""

    @functools.wraps(command)
    def with_utilities(
        *args: object,
        utility: tuple[str, ...],
        beta: float | None,
        cost: float | None,
        cost_of: str | None,
        **rest: object,
    ) -> None:
        command(*args, utilities=UtilityChoice(utility, beta, cost, cost_of), **rest)

    made: Callable[..., None] = with_utilities
    least = click.FloatRange(min=0)
    for option in (
        click.option("--cost-of", type=click.Choice(["size", "log"]), help="What costs: the size, or its logarithm."),
        click.option("--cost", type=least, metavar="RATE", help="What a set's size takes off its utility, such as 0.01."),
        click.option("--beta", type=least, metavar="B", help="Of --utility f: above 1, a miss weighs more than size."),
        click.option(
            "--utility", multiple=True, type=click.Choice(["f", "discounted", "u65", "u80", "accuracy"]),
            help="What sets are worth, too: F-measure, 1 / size, u65, u80; may be given several times.",
        ),
    ):  # fmt: skip
        made = option(made)
    return made
