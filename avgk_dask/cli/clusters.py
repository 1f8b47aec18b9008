"""The cluster of a command: this process, local workers, or a running cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from logging import CRITICAL, getLogger
from typing import Any, TypedDict

import click

from ..credentials import environment_secrets, hide, redact, secrets_of, shown_address
from ..errors import OptionError, ReadError, WriteError, refuse
from .printing import remark

#: Workers that one task may kill before it fails; each is replaced within seconds.
_MOST_DEATHS = 20


class ClusterChoice(TypedDict):
    """The values of the cluster options."""

    scheduler: str | None
    scheduler_file: str | None
    workers: int | None
    threads: int | None
    memory_limit: str | None
    performance_report: str | None


#: The options that choose where to compute.
CLUSTER_OPTIONS = (
    click.option("--scheduler", metavar="ADDRESS", help="Use the cluster at this address."),
    click.option("--scheduler-file", type=click.Path(), help="Use the cluster described in this file."),
    click.option("--workers", type=click.IntRange(min=1), help="Number of local worker processes to start."),
    click.option("--threads", type=click.IntRange(min=1), help="Threads of each local worker."),
    click.option("--memory-limit", metavar="BYTES", help="Memory of each local worker, such as 4GB."),
    click.option(
        "--performance-report",
        type=click.Path(dir_okay=False),
        help="Write Dask's performance report to this HTML file.",
    ),
)


@contextmanager
def cluster(choice: ClusterChoice, quiet: bool) -> Iterator[None]:
    """Compute on the chosen cluster, or with the threaded scheduler if none was chosen."""
    local = (choice["workers"], choice["threads"], choice["memory_limit"]) != (None, None, None)
    remote = choice["scheduler"] or choice["scheduler_file"]
    _check(choice, local)
    if not local and not remote and not os.environ.get("DASK_SCHEDULER_ADDRESS"):
        yield
        return
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise OptionError("distributed is not installed: pip install 'avgk_dask[distributed]'") from None
    from ..engine.cluster import new_dashboard
    from ..engine.progress import phase

    with ExitStack() as stack:
        with phase("starting workers" if local else "reaching the cluster"):
            client = stack.enter_context(_own_cluster(choice) if local else _running_cluster(choice))
        if (address := new_dashboard(client)) is not None:
            remark(f"avgk: dashboard {hide(address, environment_secrets())}", quiet)
        with _reporting(choice["performance_report"]):
            yield


def _check(choice: ClusterChoice, local: bool) -> None:
    """Check that the cluster options fit together."""
    remote = choice["scheduler"] or choice["scheduler_file"]
    if remote and local:
        raise OptionError(
            "--scheduler and --scheduler-file use a running cluster. Leave out --workers, --threads and --memory-limit."
        )
    if choice["scheduler"] and choice["scheduler_file"]:
        raise OptionError("--scheduler and --scheduler-file are mutually exclusive. Leave one of them out.")
    if choice["scheduler_file"]:
        _check_file(choice["scheduler_file"])
    report = choice["performance_report"]
    if report is None:
        return
    if not (local or remote or os.environ.get("DASK_SCHEDULER_ADDRESS")):
        raise OptionError("--performance-report needs a cluster. Add --workers 2 or --scheduler ADDRESS.")
    if not os.path.isdir(os.path.dirname(os.path.abspath(report))):
        raise OptionError(f"no such folder for --performance-report: {report!r}. Check the path.")


def _check_file(path: str) -> None:
    """Check that a scheduler file has an address."""
    if not os.path.isfile(path):
        raise OptionError(f"no such scheduler file: {redact(path)!r}. Check the path.")
    try:
        with open(path, encoding="utf-8") as file:
            address = json.load(file)["address"]
    except (OSError, ValueError, TypeError, KeyError):
        address = None
    if not isinstance(address, str):
        raise OptionError(
            f"not a scheduler file: {redact(path)!r} has no JSON with an address. Start one with dask scheduler "
            f"--scheduler-file {redact(path)}."
        )


@contextmanager
def _own_cluster(choice: ClusterChoice) -> Iterator[Any]:
    """Yield the client of a new local cluster that replaces dead workers."""
    from distributed import Client, LocalCluster

    size = {"n_workers": choice["workers"], "threads_per_worker": choice["threads"]}
    limit = choice["memory_limit"] or "auto"
    place = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    with LocalCluster(**size, **place, memory_limit=limit, silence_logs=CRITICAL) as own, Client(own) as client:
        own.scheduler.allowed_failures = _MOST_DEATHS
        own.adapt(minimum=len(own.workers), maximum=len(own.workers))
        yield client


@contextmanager
def _running_cluster(choice: ClusterChoice) -> Iterator[Any]:
    """Yield the client of the cluster named by an option or the environment."""
    from distributed import Client

    file = choice["scheduler_file"]
    remote = choice["scheduler"] or file or os.environ.get("DASK_SCHEDULER_ADDRESS")
    try:
        client = Client(address=None if file else remote, scheduler_file=file)
    except (OSError, ValueError) as error:  # unreachable, or not an address
        reason = hide(str(error), {*secrets_of({"host": remote}), *environment_secrets()})
        refuse(
            ReadError(f"could not reach a scheduler at {shown_address(remote)}: {reason}. Check that it is running.")
        )
    log = getLogger("distributed.client")
    before = log.level
    log.setLevel(CRITICAL)  # a lost scheduler is reported once, as an error
    try:
        with client:
            yield client
    finally:
        log.setLevel(before)


@contextmanager
def _reporting(path: str | None) -> Iterator[None]:
    """Write Dask's performance report, even after an error."""
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
