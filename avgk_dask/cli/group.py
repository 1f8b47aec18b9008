"""Running of commands: an error becomes one line on stderr, in terms of the command line and without secrets, and an exit status.

0 done, 1 failed, 2 refused, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM).
"""

from __future__ import annotations

import difflib
import errno
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ..credentials import SECRET_NAME, environment_secrets, has_short, hide, secrets_of
from ..errors import AvgkError, ClusterError, LeftoverWarning, ReadError, ResultWarning, WriteError, clean, visible
from .printing import print_error, printing_log, status

#: Texts of Python errors, and their form on the command line.
_FORMS = (
    (r"[\w=\"']+ \(on the command line (--[^)]+)\)", r"\1"),
    (r"Name the array to use\.", "Name the array to use with --scores NAME or --labels NAME."),
    (r"Name the (column|member) to use\.", r"Name the \1 to use with --scores NAME or --labels NAME."),
    (r"Drop the names\.", "Drop --scores and --labels."),
    (r"^out must", "--out must"),
    (r"^threshold must", "--threshold must"),
    (r"^(ties|ambiguity|dtype|levels|top_m|chunk_rows|shard_chunks|alpha|seed|penalty|k_reg) must", lambda m: f"--{m[1].replace('_', '-')} must"),
    (r"anon=True", "--storage-option anon=true"),
    (r"pass them as storage options", "pass them with --storage-option"),
    (r"^k must", "-k must"),
    (r"guarantee='expected'", "--guarantee expected"),
    (r"^calibration_scores must", "CALIBRATION must"),
    (r"Use average_k_sets for a fractional k\.", "Use --rule average for a fractional k."),
)  # fmt: skip


def spelled(message: str) -> str:
    """Return a message with the options of the command line in place of Python's arguments.

    Examples
    --------
    >>> spelled('scores must be whole; got c/0 missing. Read it with missing="fill" (on the command line --missing fill).')
    'scores must be whole; got c/0 missing. Read it with --missing fill.'
    """
    for pattern, form in _FORMS:
        message = re.sub(pattern, form, message)
    return message


def secrets_in(words: Sequence[str]) -> tuple[str, ...]:
    """Return the secrets among the words of a command line.

    Examples
    --------
    >>> secrets_in(["info", "s3://bucket/a.zarr", "--storage-option", "secret=swordfish"])
    ('swordfish',)
    """
    secrets: list[str] = []
    awaited = False
    for word in words:
        text = re.sub(r"^--(storage|out|calibration|checkpoint)-option(=|$)", "", word)
        awaited = awaited or text != word
        name, equals, value = text.partition("=")
        if not awaited or (word.startswith("-") and text == word):
            awaited = False
            secrets += secrets_of({name: value}) if SECRET_NAME.search(name) and equals else secrets_of(word, value)
        elif name and value:
            awaited = False
            secrets += secrets_of({name: value})
        else:  # secret = swordfish
            secrets += [part for part in (name, value) if part]
    return tuple(secrets)


#: Error numbers of a full disk, a used-up quota, and a file that may not grow.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FAILED, REFUSED, INTERRUPTED, TERMINATED = 1, 2, 130, 143
#: A secret of this length is unlikely to be a word of an error message.
_LONG = 8


class Command(click.Command):
    """A command with the option ``--debug``, which the group also takes before its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(debug_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments and refuse empty ones, which unset shell variables leave."""
        if not ctx.resilient_parsing:
            values, _, _ = self.make_parser(ctx).parse_args(list(args))
            for param in self.get_params(ctx):
                value = values.get(param.name or "")
                texts = value if isinstance(value, (list, tuple)) else [value]
                if any(isinstance(text, str) and not text.strip() for text in texts):
                    action = "Pass one" if param.required else "Pass one, or leave it out"
                    raise click.BadParameter(
                        f"it must not be empty. {action}; an unset shell variable is empty.", ctx, param
                    )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command with its phases shown on a terminal."""
        with status(ctx.params.get("quiet", True)):  # without that option there is nothing to wait for
            return super().invoke(ctx)


def debug_option() -> click.Option:
    """Return the option ``--debug``, which the group looks up among the arguments."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error.")


class _InterruptError(Exception):
    """Caused by Ctrl-C or SIGTERM, for which click would print an empty line."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which undoes unfinished writes as Ctrl-C does."""


@contextmanager
def _handle_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, unless the process handles it already; a second one is ignored."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _print_leftovers(quiet: bool) -> Iterator[None]:
    """Print warnings about leftovers of earlier runs as lines on stderr, unless quiet; commands print those about results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", LeftoverWarning)
        warnings.simplefilter("ignore", ResultWarning)  # printed with the result
        show = warnings.showwarning

        def print_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, LeftoverWarning):
                print_error(f"avgk: {message}")
            else:
                show(clean(str(message)), category, *place, **more)

        warnings.showwarning = print_warning
        yield


class Group(click.Group):
    """Turns exceptions into one line on stderr and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line; exits with the status of what failed."""
        arguments = args[0] if args else kwargs.get("args")
        words = list(sys.argv[1:] if arguments is None else arguments)
        try:
            quiet = "--quiet" in words
            with _handle_sigterm(), _print_leftovers(quiet), printing_log(quiet):
                return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            status = _report(error, error.format_message(), REFUSED, words)
        except (KeyboardInterrupt, click.Abort, _InterruptError) as error:
            if isinstance(error.__cause__ or error, _Terminated):
                status = _report(error, "terminated", TERMINATED, words)
            else:
                status = _report(error, "interrupted", INTERRUPTED, words)
        except Exception as error:
            refused = isinstance(error, AvgkError) and not isinstance(error, (ClusterError, ReadError, WriteError))
            status = _report(error, _message(error), REFUSED if refused else FAILED, words)
        sys.exit(status)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command of a context."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order they were added: the most used first."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by its name, or refuse it with the nearest."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "avgk --help lists them."
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


def _message(error: Exception) -> str:
    """Return the message of an error; errors of the operating system get an explanation."""
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        return f"could not write the output: {error.strerror}. Make room, or choose another place."
    if isinstance(error, OSError) and not isinstance(error, AvgkError) and error.filename is not None:
        return f"could not read or write {str(error.filename)!r}: {error.strerror}. Check the path and its permissions."
    return str(error) or type(error).__name__


def _report(error: BaseException, message: str, status: int, words: list[str]) -> int:
    """Print the message of an error without the secrets of the command line; return the status."""
    secrets = {*secrets_in(words), *environment_secrets()}
    own = isinstance(error, AvgkError)  # its message has no secrets
    # A secret may have been parsed as a name.
    names = [s for s in secrets_in(words) if len(s) >= _LONG]
    if " characters) … " in message:  # the cut may have gone through one
        names += [s[i : i + _LONG] for s in names for i in range(0, len(s), _LONG)]
    text = hide(" ".join(message.split()), names if own else secrets)
    trace = hide("".join(traceback.format_exception(error)), secrets)
    if not own and not isinstance(error, click.ClickException) and has_short(text + trace, secrets):
        text = type(error).__name__  # the message of a library may have any content
        trace = f"{''.join(traceback.format_tb(error.__traceback__))}{text}\n"
    if "--debug" in words:
        click.echo(visible(trace, keep="\n"), err=True, nl=False)
    print_error(f"avgk: {spelled(text)}")
    return status
