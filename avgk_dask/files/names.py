"""Names of columns and members: found, or refused with the nearest name."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Sequence

from ..credentials import shown
from ..errors import StoreError

#: How score files end.
CSV_SUFFIXES, ARROW_SUFFIXES = (".csv", ".csv.gz"), (".arrow", ".feather")
SUFFIXES = (".npy", ".npz", ".parquet", *CSV_SUFFIXES, *ARROW_SUFFIXES)
#: How files end that only unpickling could read.
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".dill")

#: Names under which models' scores are looked for, in this order; and labels: the second ones only where nothing else fits.
SCORE_NAMES = ("scores", "logits", "probabilities", "probs", "preds", "predictions")
LABEL_NAMES = ("labels", "label")
OTHER_LABEL_NAMES = ("y", "y_true", "targets", "target")

#: How many names an error lists; and how long they are at most if the nearest is looked for, which takes time with the square.
_LISTED, _COMPARED = 20, 200


def find_name(name: str, names: Sequence[str], what: str, location: str) -> str:
    """Return the name if it is among the names, or refuse it with the nearest.

    Examples
    --------
    >>> find_name("score", ["scores", "labels"], "member", "a.npz")
    Traceback (most recent call last):
    avgk_dask.errors.StoreError: a.npz has no member 'score'; it has scores, labels. Did you mean 'scores'?

    """
    if name in names:
        return name
    near = difflib.get_close_matches(name, [one for one in names if len(one) <= _COMPARED], n=1)
    advice = f"Did you mean {near[0]!r}?" if near else f"Name the {what} to use."
    raise StoreError(f"{location} has no {what} {shown(name)!r}; it has {listed(names)}. {advice}")


def listed(names: Sequence[str]) -> str:
    """Return the names as text, at most twenty of them.

    Examples
    --------
    >>> listed(["a", "b"]), listed([])
    ('a, b', 'none')

    """
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more or "none"


def check_distinct(scores: str | None, labels: str | None) -> None:
    """Refuse one name for both."""
    if scores is not None and scores == labels:
        raise StoreError(f"scores and labels must have different names; got {shown(scores)!r} for both. Name two.")


def check_plain(path: str) -> None:
    """Refuse a pipe, a device or a socket: reading it may never end."""
    if not (os.path.isfile(path) or os.path.isdir(path)):
        raise StoreError(
            f"a path must be that of a file or folder; got {path!r}, a pipe or device. "
            "Copy it to a file, or pass - to read an .npy stream from standard input."
        )


def path_advice(path: str) -> str:
    """Say what to do about a path where nothing is: the nearest name in its folder, or to check it."""
    folder, name = os.path.split(path.rstrip("/"))
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
    except OSError:
        return "Check the path: its folder cannot be listed, either."
    return f"Did you mean {os.path.join(folder, near[0])!r}?" if near else "Check the path."


def is_pickle(path: str) -> bool:
    """Whether a file is, by its name, one that only unpickling could read."""
    return path.lower().endswith(_PICKLES)


def file_advice(path: str) -> str:
    """Say what to do with a file that is no store: ingest it, or save it in a format that is read here.

    Examples
    --------
    >>> file_advice("my scores.npy")
    "Copy it into a store first: avgk ingest 'my scores.npy' [LABELS] --out 'my scores.zarr'"

    """
    if path.lower().endswith(SUFFIXES):
        name = next(s for s in SUFFIXES[::-1] if path.lower().endswith(s))
        out = os.path.basename(path)[: -len(name)] + ".zarr"
        return f"Copy it into a store first: avgk ingest {shlex.quote(path)} [LABELS] --out {shlex.quote(out)}"
    taken = f"Formats read here: {listed(SUFFIXES)}, folders of .parquet or .arrow files, Zarr stores."
    if is_pickle(path):
        return f"Pickles are never loaded, as they can run any code: load it yourself, and use numpy.save. {taken}"
    return f"Convert it, for example with numpy.save. {taken}"
