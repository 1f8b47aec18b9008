"""The command ``dask avgk``: all of ``avgk`` under Dask's own command, which finds it by the entry point ``dask_cli``."""

from __future__ import annotations

import sys

import click

from .group import Group
from .main import main


class _Inside(Group):
    """Hands its words on to ``avgk`` as they are, so that errors and exit statuses are told there, not by Dask's group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words; completion alone looks at them here."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> object:
        """Run ``avgk``, and exit as it does."""
        sys.exit(main.main(args=ctx.args, prog_name=ctx.command_path))


avgk = _Inside(
    "avgk",
    commands=main.commands,
    params=main.params,
    help=main.help,
    short_help="Evaluate average-k and top-k classification.",
    context_settings=main.context_settings,
    invoke_without_command=True,
)
