"""The command ``avgk``: the group of all commands, with ``schema`` and ``completion``."""

from __future__ import annotations

import json
import sys

import click

from .calibrate import calibrate, conformal, transfer
from .decisions import breakdown, compare, pairs
from .evaluate import evaluate, sets, threshold
from .group import Command, Group, debug_option
from .schemas import SCHEMAS
from .stores import compile_ahead, demo, info, ingest, join, simulate, verify


@click.group(cls=Group, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="avgk_dask")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Evaluate average-k and top-k classification on score matrices of any size, exactly.

    Top-k returns the k labels with the highest scores of each sample. Average-k returns every label whose score exceeds one
    threshold, which is set so that samples have k labels on average.

    Exit status: 0 done, 1 failed, 2 invalid input or usage, 130 interrupted, 143 terminated.

    Example: avgk demo --samples 5000 --classes 100
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command(cls=Command, short_help="Print the JSON Schema of the output of a command.")
@click.argument("command", metavar="[COMMAND]", required=False, type=click.Choice(list(SCHEMAS)))
def schema(command: str | None) -> None:
    """Print the JSON Schema of the output of COMMAND --json; without COMMAND, list the commands that have one.

    Example: avgk schema evaluate
    """
    click.echo("\n".join(SCHEMAS) if command is None else json.dumps(SCHEMAS[command], indent=1))


@click.command(cls=Command, short_help="Print the completion script of a shell.")
@click.argument("shell", metavar="{bash|zsh|fish}", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes avgk's commands and options in a SHELL.

    In ~/.bashrc: eval "$(avgk completion bash)"

    In ~/.zshrc: eval "$(avgk completion zsh)"

    For fish: avgk completion fish > ~/.config/fish/completions/avgk.fish

    Example: avgk completion bash
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # one of the choices
    click.echo(kind(main, {}, "avgk", "_AVGK_COMPLETE").source())


main.params.append(debug_option())
for _command in (
    evaluate, threshold, compare, breakdown, pairs, transfer, conformal, sets, calibrate, ingest, info, verify, join, simulate,
    demo, compile_ahead, schema, completion,
):  # fmt: skip
    main.add_command(_command)


# The command ``dask avgk``, which Dask finds by the entry point ``dask_cli``.


class _Inside(Group):
    """Passes its arguments on to ``avgk``, so that errors and exit statuses do not come from Dask's group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments unparsed, except for completion."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> object:
        """Run ``avgk`` and exit with its status."""
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
