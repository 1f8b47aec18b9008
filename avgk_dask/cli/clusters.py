"""Where commands compute: in this process, on workers of their own, or on a cluster that runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from logging import CRITICAL, getLogger
from typing import Any, TypedDict

import click

from ..credentials import environment_secrets, hide, secrets_of, shown, shown_address
from ..errors import OptionError, ReadError, WriteError, refuse
from .printing import remark

#: Workers that may die in one task before it is given up, where all of them are replaced: each takes seconds to begin.
_MOST_DEATHS = 20


class ClusterChoice(TypedDict):
    """Where to compute, as the options say it."""

    scheduler: str | None
    scheduler_file: str | None
    workers: int | None
    threads: int | None
    memory_limit: str | None
    performance_report: str | None


#: The options that choose where to compute.
CLUSTER_OPTIONS = (
    click.option("--scheduler", metavar="ADDRESS", help="Use the cluster at this address."),
    click.option("--scheduler-file", type=click.Path(), help="Use the cluster that wrote this file."),
    click.option("--workers", type=click.IntRange(min=1), help="Start so many local worker processes."),
    click.option("--threads", type=click.IntRange(min=1), help="Threads of each local worker."),
    click.option("--memory-limit", metavar="BYTES", help="Memory of each local worker, such as 4GB."),
    click.option("--performance-report", type=click.Path(dir_okay=False), help="Write the cluster's report (HTML)."),
)


@contextmanager
def cluster(where: ClusterChoice, quiet: bool) -> Iterator[None]:
    """Compute on the cluster asked for; with none asked for, the threaded scheduler runs at once."""
    local = (where["workers"], where["threads"], where["memory_limit"]) != (None, None, None)
    given = where["scheduler"] or where["scheduler_file"]
    _check(where, local)
    if not local and not given and not os.environ.get("DASK_SCHEDULER_ADDRESS"):
        yield
        return
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise OptionError("clusters must have distributed; it is not here. Install avgk_dask[distributed].") from None
    from ..engine.cluster import new_dashboard
    from ..engine.progress import phase

    with ExitStack() as stack:
        with phase("starting workers" if local else "reaching the cluster"):
            client = stack.enter_context(_own_cluster(where) if local else _running_cluster(where))
        if (address := new_dashboard(client)) is not None:
            remark(f"avgk: dashboard {hide(address, environment_secrets())}", quiet)
        with _reporting(where["performance_report"]):
            yield


def _check(where: ClusterChoice, local: bool) -> None:
    """Refuse options that do not fit together."""
    given = where["scheduler"] or where["scheduler_file"]
    if given and local:
        raise OptionError(
            "--scheduler and --scheduler-file use a running cluster; drop --workers, --threads and --memory-limit."
        )
    if where["scheduler"] and where["scheduler_file"]:
        raise OptionError("--scheduler and --scheduler-file name one cluster; got both. Leave one of them out.")
    if where["scheduler_file"]:
        _check_file(where["scheduler_file"])
    report = where["performance_report"]
    if report is None:
        return
    if not (local or given or os.environ.get("DASK_SCHEDULER_ADDRESS")):
        raise OptionError("--performance-report must have a cluster; got none. Add --workers 2, or a --scheduler.")
    if not os.path.isdir(os.path.dirname(os.path.abspath(report))):
        raise OptionError(f"--performance-report must be in a folder that exists; got {report!r}. Check the path.")


def _check_file(path: str) -> None:
    """Refuse a scheduler file that is none."""
    if not os.path.isfile(path):
        raise OptionError(f"--scheduler-file must exist; got {shown(path)!r}. Check the path.")
    try:
        with open(path, encoding="utf-8") as file:
            address = json.load(file)["address"]
    except (OSError, ValueError, TypeError, KeyError):
        address = None
    if not isinstance(address, str):
        raise OptionError(
            f"--scheduler-file must be what a scheduler wrote, JSON with its address; got {shown(path)!r}. Start one with "
            f"dask scheduler --scheduler-file {shown(path)}."
        )


@contextmanager
def _own_cluster(where: ClusterChoice) -> Iterator[Any]:
    """Lend the client of a new cluster in this machine, whose workers are replaced whatever ends them."""
    from distributed import Client, LocalCluster

    size = {"n_workers": where["workers"], "threads_per_worker": where["threads"]}
    limit = where["memory_limit"] or "auto"
    place = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    with LocalCluster(**size, **place, memory_limit=limit, silence_logs=CRITICAL) as own, Client(own) as client:
        own.scheduler.allowed_failures = _MOST_DEATHS
        own.adapt(minimum=len(own.workers), maximum=len(own.workers))
        yield client


@contextmanager
def _running_cluster(where: ClusterChoice) -> Iterator[Any]:
    """Lend the client of the cluster that an option or the environment names."""
    from distributed import Client

    file = where["scheduler_file"]
    remote = where["scheduler"] or file or os.environ.get("DASK_SCHEDULER_ADDRESS")
    try:
        client = Client(address=None if file else remote, scheduler_file=file)
    except (OSError, ValueError) as error:  # out of reach, or no address
        why = hide(str(error), {*secrets_of({"host": remote}), *environment_secrets()})
        refuse(ReadError(f"could not reach a scheduler at {shown_address(remote)}: {why}. Check that it runs there."))
    log = getLogger("distributed.client")
    before = log.level
    log.setLevel(CRITICAL)  # a scheduler that is lost is told in one line
    try:
        with client:
            yield client
    finally:
        log.setLevel(before)


@contextmanager
def _reporting(path: str | None) -> Iterator[None]:
    """Write what the cluster did to a page, also where it failed."""
    if path is None:
        yield
        return
    from distributed import performance_report

    report = performance_report(filename=os.path.abspath(path), mode="inline")
    report.__enter__()
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the cluster may be gone
            report.__exit__(None, None, None)
        raise
    try:
        report.__exit__(None, None, None)
    except Exception as error:
        raise WriteError(
            f"could not write the performance report {path!r}: {error}. Check the place, and that the scheduler has bokeh."
        ) from error
