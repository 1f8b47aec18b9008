"""What several commands share: budgets, stores, clusters, output."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from logging import CRITICAL
from typing import Any

import click

from ..budgets import parse_budget
from ..errors import BudgetError, OptionError

#: More budgets than this in one range are a typing error.
_MOST_BUDGETS = 100_000


class Budgets(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Budgets as people write them: ``5``, ``1,3,5``, ``1:10``, ``0.5,2.5``."""

    name = "K"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Give the list of budgets."""
        if not isinstance(value, str):
            return value
        try:
            return [k for part in value.split(",") for k in _range(part.strip())]
        except BudgetError as error:
            self.fail(str(error), param, ctx)


def _range(part: str) -> list[Fraction]:
    if ":" not in part:
        return [parse_budget(part)]
    ends = re.fullmatch(r"(\d+):(\d+)", part)
    if not ends or not 0 <= int(ends[2]) - int(ends[1]) < _MOST_BUDGETS:
        raise BudgetError(
            f"a range of budgets must be two integers, the lower first, such as 1:10 (at most {_MOST_BUDGETS:,}); got {part!r}."
        )
    return [Fraction(k) for k in range(int(ends[1]), int(ends[2]) + 1)]


def budget_option(default: range | None) -> Callable[..., Any]:
    """Give the option ``-k``."""
    text = "Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5." + ("  [default: 1:10, or all classes if fewer]" if default else "")
    if default is None:
        return click.option("-k", "k", type=Budgets(), required=True, help=text)
    return click.option("-k", "k", type=Budgets(), default=default, help=text)


def nan_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--nan-policy``."""
    policies = click.Choice(["raise", "lowest"])
    text = "What to do with NaN: refuse it, or rank it last."
    return click.option("--nan-policy", type=policies, default="raise", show_default=True, help=text)(command)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a store's arrays and how to reach it."""
    for option in (
        click.option(
            "--storage-option",
            multiple=True,
            metavar="KEY=VALUE",
            help="How to reach the store, such as endpoint_url=http://host:9000 or anon=true.",
        ),
        click.option(
            "--labels",
            "labels_name",
            metavar="NAME",
            help="Name of the labels inside the store, or the path of an .npy file or another store.",
        ),
        click.option("--scores", "scores_name", metavar="NAME", help="Name of the scores inside the store."),
        click.argument("store"),
    ):
        command = option(command)
    return command


def missing_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--missing``."""
    text = "A chunk that is not there: refuse it, or take it as the fill value."
    choice = click.Choice(["raise", "fill"])
    return click.option("--missing", type=choice, default="raise", show_default=True, help=text)(command)


def layout_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how scores are stored."""
    for option in (
        click.option("--overwrite", is_flag=True, help="Replace a store that is there."),
        click.option("--top-m", type=click.IntRange(min=1), help="Keep only the M largest scores of each row."),
        click.option("--shard-chunks", type=click.IntRange(min=1), help="Chunks to a shard (4 on object stores)."),
        click.option(
            "--codec",
            type=click.Choice(["blosc", "zstd", "gzip", "none"]),
            default="blosc",
            show_default=True,
            help="How chunks are compressed; each has a checksum.",
        ),
        click.option("--chunk-rows", type=click.IntRange(min=1), help="Rows of a chunk (about 10 MB of them)."),
        click.option("--dtype", help="Type of the stored scores, such as float16; rounding is said."),
    ):
        command = option(command)
    return command


def parse_storage_options(pairs: tuple[str, ...]) -> dict[str, str] | None:
    """Give the storage options as a mapping; None where there are none."""
    for pair in pairs:
        if "=" not in pair:
            raise OptionError("--storage-option must be KEY=VALUE; got one without '='.")
    return dict(pair.split("=", 1) for pair in pairs) or None


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose where to compute."""
    for option in (
        click.option("--memory-limit", help="Memory of each local worker, such as 4GB."),
        click.option("--threads", type=click.IntRange(min=1), help="Threads of each local worker."),
        click.option("--workers", type=click.IntRange(min=1), help="Start so many local worker processes."),
        click.option("--scheduler-file", type=click.Path(), help="Use the cluster that wrote this file."),
        click.option("--scheduler", metavar="ADDRESS", help="Use the cluster at this address."),
    ):
        command = option(command)
    return command


@contextmanager
def cluster(
    scheduler: str | None,
    scheduler_file: str | None,
    workers: int | None,
    threads: int | None,
    memory_limit: str | None,
) -> Iterator[None]:
    """Compute on the cluster asked for; with none asked for, the threaded scheduler runs at once."""
    local = (workers, threads, memory_limit) != (None, None, None)
    remote = scheduler or scheduler_file or os.environ.get("DASK_SCHEDULER_ADDRESS")
    if (scheduler or scheduler_file) and local:
        raise OptionError(
            "--scheduler and --scheduler-file use a running cluster; drop --workers, --threads and --memory-limit."
        )
    if not remote and not local:
        yield
        return
    if scheduler_file and not os.path.isfile(scheduler_file):
        raise OptionError(f"--scheduler-file must exist; got {scheduler_file!r}.")
    from distributed import Client, LocalCluster

    if local:
        size = {"n_workers": workers, "threads_per_worker": threads, "memory_limit": memory_limit or "auto"}
        with (
            LocalCluster(**size, dashboard_address="127.0.0.1:0", host="127.0.0.1", silence_logs=CRITICAL) as own,
            Client(own),
        ):
            yield
    else:
        with Client(address=scheduler, scheduler_file=scheduler_file) as _:
            yield
