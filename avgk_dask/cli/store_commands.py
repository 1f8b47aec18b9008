"""``avgk ingest``, ``avgk verify``, ``avgk join`` and ``avgk info``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Unpack

import click

from .clusters import ClusterChoice, cluster, cluster_options
from .group import FAILED, Command
from .parameters import (
    LayoutChoice,
    StoreChoice,
    json_option,
    labelled_store_options,
    layout_options,
    missing_option,
    out_options,
    overwrite_option,
    parse_storage_options,
    quiet_option,
    storage_option,
)
from .printing import look, print_json, shows_progress, tell

if TYPE_CHECKING:
    from ..api.ingestion import Ingestion


class IngestChoice(LayoutChoice):
    """What to ingest, and how it is stored, as the options say it."""

    scores_name: str | None
    labels_name: str | None
    append: bool
    overwrite: bool
    missing: str


@click.command(cls=Command, short_help="Make a store of a file or another store.")
@click.argument("scores", type=click.Path(allow_dash=True))
@click.argument("labels", type=click.Path(), required=False)
@out_options
@click.option("--scores", "scores_name", metavar="NAME", help="Column, member or array that holds the scores.")
@click.option("--labels", "labels_name", metavar="NAME", help="Column, member or array that holds the labels.")
@layout_options
@click.option("--append", is_flag=True, help="Add the rows to the finished store at --out, laid out as that is.")
@overwrite_option
@missing_option
@storage_option
@json_option
@quiet_option
def ingest(scores: str, labels: str | None, out: str, storage_option: tuple[str, ...], out_option: tuple[str, ...],
           as_json: bool, quiet: bool, **how: Unpack[IngestChoice]) -> None:  # fmt: skip
    """Copy scores from a file or another store into a store that reads fast, and verify it.

    SCORES is an .npy, .npz, .parquet, .csv, .arrow or .feather file, a folder of Parquet or Arrow files,
    a Zarr store, or - for an .npy stream; LABELS a file or store of their own, if they have one.

    Example: avgk ingest scores.npy labels.npy --out new.zarr
    """
    from ..passes.telling import phase

    with phase("opening"):
        from ..api.ingestion import ingest as run
        from ..store import shown

    found = run(
        scores, labels, out=out, storage_options=parse_storage_options(storage_option),
        out_options=parse_storage_options(out_option, "--out-option"), progress=shows_progress(quiet), **how,
    )  # fmt: skip
    if as_json:
        print_json({
            "store": shown(out), "n_samples": found.n_samples, "n_classes": found.n_classes,
            "has_labels": found.has_labels, "rounding": found.rounding, "class_names": found.class_names,
            "ignored": list(found.ignored),
            "n_chunks": found.verification.n_chunks, "n_bytes": found.verification.n_bytes,
        })  # fmt: skip
    else:
        _print_ingestion(found, shown(out))


def _print_ingestion(found: Ingestion, store: str) -> None:
    checked = found.verification
    tell(
        f"wrote {found.n_samples:,} samples x {found.n_classes:,} classes "
        f"{'with' if found.has_labels else 'without'} labels to {store}: "
        f"{checked.n_chunks:,} chunks, {checked.n_bytes:,} bytes, all verified"
    )
    if found.class_names:
        names = found.class_names
        middle = ", …, " if len(names) > 4 else ", " if len(names) > 3 else ""
        tell(f"each column is a class: {', '.join(names[:3])}{middle}{names[-1] if len(names) > 3 else ''}")
    if found.ignored:
        more = f" and {len(found.ignored) - 20} more" if len(found.ignored) > 20 else ""
        tell(f"not used: {', '.join(found.ignored[:20])}{more}")
    if found.rounding:
        tell(f"the scores are {found.rounding}")


@click.command(cls=Command, short_help="Check every chunk of a store.")
@click.argument("store", type=click.Path())
@storage_option
@json_option
@quiet_option
@cluster_options
def verify(
    store: str, storage_option: tuple[str, ...], as_json: bool, quiet: bool, **where: Unpack[ClusterChoice]
) -> None:
    """Read every chunk of a store and check it; exit status 1 where any is damaged.

    Example: avgk verify scores.zarr
    """
    from ..passes.telling import phase

    with phase("opening"):
        from ..api.store_functions import verify as run

    with cluster(where, quiet):
        found = run(store, storage_options=parse_storage_options(storage_option), progress=shows_progress(quiet))
    if as_json:
        print_json({"ok": found.ok, "n_chunks": found.n_chunks, "n_bytes": found.n_bytes,
                    "has_manifest": found.has_manifest, "damaged": found.damaged})  # fmt: skip
    else:
        for chunk, what in found.damaged:
            tell(what if chunk in what else f"{chunk}: {what}")
        how = "against the manifest" if found.has_manifest else "by decoding (no manifest: changed values can pass)"
        tell(f"{found.n_chunks:,} chunks, {found.n_bytes:,} bytes checked {how}: {len(found.damaged)} damaged")
    if not found.ok:
        sys.exit(FAILED)


@click.command(cls=Command, short_help="Make one store of the parts of several writers.")
@click.argument("store", type=click.Path())
@click.option("--parts", type=click.IntRange(min=1), help="Number of parts that must be there.")
@storage_option
@json_option
@quiet_option
def join(store: str, parts: int | None, storage_option: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Make one store of the parts that several processes wrote with ScoreWriter(..., part=i).

    Example: avgk join parts.zarr --parts 2
    """
    from ..store import join_parts, open_arrays, shown

    options = parse_storage_options(storage_option)
    join_parts(store, parts, storage_options=options)
    made = open_arrays(store, storage_options=options)
    n_samples, n_classes = made.scores.shape[0], made.n_classes or made.scores.shape[1]
    if as_json:
        has_labels = made.labels is not None
        print_json({"store": shown(store), "n_samples": n_samples, "n_classes": n_classes, "has_labels": has_labels})
    else:
        tell(f"{shown(store)} is complete: {n_samples:,} samples x {n_classes:,} classes")


@click.command(cls=Command, short_help="What a store holds and costs, and advice.")
@labelled_store_options
@json_option
@quiet_option
def info(chosen: StoreChoice, as_json: bool, quiet: bool) -> None:
    """What a store or file holds, what evaluating it costs, and how its layout could be better.

    STORE and LABELS are as for avgk evaluate.

    Example: avgk info scores.zarr
    """
    from ..api.description import info as run
    from ..report import print_info
    from .spelling import spelled

    found = run(chosen.store, scores=chosen.scores, labels=chosen.labels, storage_options=chosen.options)
    found["advice"] = [spelled(text) for text in found["advice"]]
    if as_json:
        print_json(found)
    else:
        click.echo(print_info(found, **look()))
