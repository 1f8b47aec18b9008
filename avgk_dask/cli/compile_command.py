"""``avgk compile``."""

from __future__ import annotations

import click

from .group import Command
from .parameters import quiet_option
from .printing import shows_progress


@click.command(cls=Command, name="compile", short_help="Compile ahead what large matrices need.")
@click.option("--dtype", "dtypes", metavar="NAME", multiple=True, help="Only for scores of this type; may be repeated.")
@quiet_option
def compile_ahead(dtypes: tuple[str, ...], quiet: bool) -> None:
    """Compile ahead what evaluating large matrices needs, once for all later runs: in an image, on each worker.

    Small matrices never wait for it.

    Example: avgk compile --dtype float32
    """
    from ..api.compilation import DTYPES, compile_kernels

    done = compile_kernels(dtypes=dtypes or DTYPES, progress=shows_progress(quiet))
    if not quiet:
        click.echo(
            f"{f'compiled in {done.seconds:.1f} s' if done.n_compiled else 'all is there'}, kept in {done.cache}"
        )
