"""What several commands share: options, each declared once, and the ``Call`` that holds what was chosen with them.

``@call_options(...)`` above a command adds options and hands all shared ones over as one argument ``call``;
``@options(...)`` adds options alone, so that a command's own ones can stand between them in its help.
"""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import AvgkError, BudgetError, OptionError
from .clusters import CLUSTER_OPTIONS, ClusterChoice, cluster
from .printing import look, remark, shows_progress

if TYPE_CHECKING:
    from ..api.options import NanPolicy, Ties
    from ..arrays import Array
    from ..results.datasets import Result
    from ..store import StoredArrays


#: What click makes a command of, or a command.
Decorated = TypeVar("Decorated", bound=Callable[..., object])

#: More budgets than this in one range are a typing error.
_MOST_BUDGETS = 100_000
#: What groups of samples are, on the command line.
CLUSTERS = "Name or path, as for --labels, of an integer a sample: standard errors are those of independent clusters."
NO_LABELS = "errors need labels: name them with --labels NAME, or give a file with --labels labels.npy"
BY = "class, or the name or path, as for --labels, of an integer a sample: the groups to break errors down by."


class Budgets(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Budgets as people write them: ``5``, ``1,3,5``, ``1:10``, ``0.5,2.5``."""

    name = "K"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the list of budgets."""
        if not isinstance(value, str):
            return value
        return [k for part in value.split(",") for k in self._range(part.strip(), param, ctx)]

    def _range(self, part: str, param: click.Parameter | None, ctx: click.Context | None) -> list[Fraction]:
        if ":" in part:
            ends = re.fullmatch(r"(\d+):(\d+)", part)
            if ends and 0 <= int(ends[2]) - int(ends[1]) < _MOST_BUDGETS:
                return [Fraction(k) for k in range(int(ends[1]), int(ends[2]) + 1)]
            self.fail(
                "a range of budgets must be two integers, the lower first, such as 1:10 "
                f"(at most {_MOST_BUDGETS:,}); got {part!r}.", param, ctx,
            )  # fmt: skip
        from ..exact.budgets import parse_budget  # late: it brings NumPy along, which help and completion do not need

        try:
            return [parse_budget(part)]
        except BudgetError:
            self.fail(
                f"a budget must be a number such as 5 or 2.5, or several: 1,3,5 or 1:10; got {part!r}.", param, ctx
            )


def budget_option(text: str, *, required: bool = False) -> Callable[[Decorated], Decorated]:
    """Return the option ``-k``."""
    return click.option("-k", "k", type=Budgets(), required=required, help=text)


def results_option(what: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--out`` of commands that write a folder of results."""
    return click.option("--out", type=click.Path(path_type=pathlib.Path), help=what)


def choice_option(*names: str, words: Sequence[str], text: str) -> Callable[[Decorated], Decorated]:
    """Return an option that takes one of some words, by default the first."""
    return click.option(*names, type=click.Choice(words), default=words[0], show_default=True, help=text)


def _pairs(name: str, text: str) -> Any:
    """Return an option for settings of a file system."""
    return click.option(name, multiple=True, metavar="KEY=VALUE", help=text)


_AT_LEAST_1, _PATH = click.IntRange(min=1), click.Path()
_STORAGE = _pairs("--storage-option", "How to reach the store, such as endpoint_url=http://host:9000 or anon=true.")
#: Options that several commands have, by what they are about, in the order of the help text.
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "store": (click.argument("store", type=_PATH),),
    "calibration": (click.argument("store", type=_PATH, metavar="CALIBRATION"),),
    "labels": (click.argument("labels_file", type=_PATH, metavar="[LABELS]", required=False),),
    "arrays": (
        click.option("--scores", "scores_name", metavar="NAME", help="Name of the scores inside the store or file."),
        click.option(
            "--labels", "labels_name", metavar="NAME",
            help="Name of the labels inside the store or file, or the path of a file, such as .npy, or of another store.",
        ),
        _STORAGE,
    ),
    "storage": (_STORAGE,),
    "activation": (
        click.option(
            "--activation", type=click.Choice(["softmax", "sigmoid"]),
            help="The scores are logits: make probabilities of them while they are read.",
        ),
        click.option("--temperature", type=float, metavar="T", help="Divide the logits by T first."),
        click.option(
            "--calibration", "calibration_file", metavar="FILE",
            help="The file that avgk calibrate wrote: make probabilities of logits by it.",
        ),
        click.option(
            "--balanced", metavar="FILE",
            help="labels, or a file with a number for each class: divide scores by how frequent their class is, so that rare "
            "ones count as much.",
        ),
    ),
    "samples": (
        click.option(
            "--where", "where_name", metavar="NAME",
            help="Name or path, as for --labels, of booleans: samples where it is False do not exist (padding).",
        ),
        click.option("--ignore-index", type=int, metavar="N", help="Samples with this label do not exist."),
    ),
    "ties": (
        choice_option("--ties", words=("first", "spread"), text="Which ties are kept: the first ones, or spread over the samples."),
    ),
    "nan": (choice_option("--nan-policy", words=("raise", "lowest"), text="What to do with NaN: refuse it, or rank it last."),),
    "missing": (
        choice_option("--missing", words=("raise", "fill"), text="A chunk that is not there: refuse it, or take it as the fill value."),
    ),
    "json": (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document (avgk schema describes it)."),
    ),
    "quiet": (click.option("--quiet", is_flag=True, help="No progress bar and no remarks: errors alone on stderr."),),
    "checkpoint": (
        click.option(
            "--checkpoint", metavar="PLACE",
            help="Keep what is found in this folder or below this URL: started again, the command reads only what is missing.",
        ),
        _pairs("--checkpoint-option", "How to reach the checkpoint, such as anon=true."),
    ),
    "cluster": CLUSTER_OPTIONS,
    "overwrite": (click.option("--overwrite", is_flag=True, help="Replace a store that is there."),),
    "out": (
        click.option("--out", required=True, type=_PATH, help="Path or URL of the new store."),
        _pairs("--out-option", "How to reach the new store, such as anon=true."),
    ),
    "layout": (
        click.option("--dtype", metavar="DTYPE", help="Type of the stored scores, such as float16; rounding is said."),
        click.option("--chunk-rows", type=_AT_LEAST_1, help="Rows of a chunk (about 10 MB of them)."),
        click.option(
            "--codec", type=click.Choice(["blosc", "zstd", "gzip", "none"]),
            help="How chunks are compressed (blosc); each has a checksum.",
        ),
        click.option("--shard-chunks", type=_AT_LEAST_1, help="Chunks to a shard (4 on object stores)."),
        click.option("--top-m", type=_AT_LEAST_1, help="Keep only the M largest scores of each row."),
    ),
}  # fmt: skip


def options(names: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds shared options to a command, in this order."""

    def add(command: Decorated) -> Decorated:
        for option in reversed([option for name in names.split() for option in _OPTIONS[name]]):
            command = option(command)
        return command

    return add


def call_options(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds shared options to a command, and hands over all it has as one argument ``call``."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_call(**chosen: Any) -> None:
            command(Call.of(chosen), **chosen)

        return options(names)(with_call)

    return add


@dataclass(frozen=True, repr=False)
class Call:
    """What was chosen with the shared options: the store and its samples, where to compute, and how to print."""

    store: str = ""
    scores_name: str | None = None
    #: Their name inside the store, or the path of a file.
    labels: str | None = None
    storage_options: dict[str, str] | None = None
    activation: str | None = None
    temperature: float | None = None
    calibration_file: str | None = None
    #: What classes are divided by: ``labels``, a file or an array of the store; or the numbers themselves.
    balanced: str | Array | None = None
    where_name: str | None = None
    ignore_index: int | None = None
    ties: Ties = "first"
    nan_policy: NanPolicy = "raise"
    missing: str = "raise"
    as_json: bool = False
    quiet: bool = False
    checkpoint: str | None = None
    checkpoint_option: tuple[str, ...] = ()
    cluster: ClusterChoice = field(default_factory=dict)  # type: ignore[assignment]

    @classmethod
    def of(cls, chosen: dict[str, Any]) -> Call:
        """Take what is shared out of the options of a command."""
        labels, named = chosen.pop("labels_file", None), chosen.pop("labels_name", None)
        if labels is not None and named is not None:
            raise OptionError("labels must be said once; got LABELS and --labels. Leave one of them out.")
        own: dict[str, Any] = {
            "labels": named if labels is None else str(labels),
            "storage_options": parse_storage_options(chosen.pop("storage_option", ())),
            "cluster": {name: chosen.pop(name) for name in ClusterChoice.__annotations__ if name in chosen},
        }
        shared = {one.name: chosen.pop(one.name) for one in fields(cls) if one.name in chosen}
        from ..engine.progress import phase

        with phase("opening"):
            from ..api.inputs import sources as inputs  # noqa: F401  # which every command needs, and which takes a second to load
        return cls(**shared, **own)

    @property
    def progress(self) -> bool | None:
        """Whether and how progress is shown."""
        return shows_progress(self.quiet)

    @property
    def how(self) -> dict[str, Any]:
        """What most functions are told besides which samples exist."""
        return {"nan_policy": self.nan_policy, "progress": self.progress}

    @property
    def checkpoint_place(self) -> object:
        """Where a run keeps what it finds; None for nowhere."""
        from ..store.where.locations import locate

        if self.checkpoint is None and self.checkpoint_option:
            raise OptionError("--checkpoint-option must come with --checkpoint; got it alone. Leave it out.")
        if not self.checkpoint_option:
            return self.checkpoint
        return locate(self.checkpoint, parse_storage_options(self.checkpoint_option, "--checkpoint-option"), write=True)

    def computing(self) -> AbstractContextManager[None]:
        """Compute on the cluster that was chosen."""
        return cluster(self.cluster, self.quiet)

    def remark(self, text: str) -> None:
        """Say something that is no result."""
        remark(text, self.quiet)

    def show(self, result: Result, print_text: Callable[..., str], *args: object) -> None:
        """Print a result as JSON, or as text."""
        from ..results.datasets import to_json

        click.echo(to_json(result) if self.as_json else print_text(result, *args, **look()))

    def open(self, *, with_labels: bool = True) -> StoredArrays:
        """Open the arrays; reads metadata only."""
        from ..engine.progress import phase

        with phase("opening"):
            from ..api.stores import open_stored
            from ..store import open_arrays

            if not with_labels and self.labels is None:
                return open_arrays(
                    self.store,
                    scores=self.scores_name,
                    storage_options=self.storage_options,
                    missing=self.missing,
                    own_labels=False,
                )
            return open_stored(self.store, self.scores_name, self.labels, self.storage_options, self.missing)

    def existing(self) -> dict[str, Any]:
        """Open what says which samples exist, as the functions take it; reads metadata only."""
        from ..api.stores import open_stored
        from ..files import is_row_file

        where: object = self.where_name
        if self.where_name is not None and not is_row_file(self.where_name):
            where = open_stored(self.store, self.scores_name, self.where_name, self.storage_options, "fill").labels
        return {"where": where, "ignore_index": self.ignore_index}

    def column(self, name: str | None, option: str) -> object:
        """Open integers stored beside the scores, or a file of them; reads metadata only."""
        from ..api.stores import open_stored
        from ..files import is_row_file, open_label_file

        if name is None:
            return None
        try:
            if is_row_file(name):
                return open_label_file(name)
            return open_stored(self.store, self.scores_name, name, self.storage_options, self.missing).labels
        except AvgkError as error:
            from ..credentials import shown

            why = str(error).partition(". ")[0]
            raise OptionError(
                f"{option} must name integers, one a sample, in the store or a file; got {shown(name)!r} ({why}). Check the name."
            ) from None

    def groups(self, name: str | None) -> object:
        """Return ``class``, or the groups that a column of ``--by`` holds."""
        return name if name == "class" else self.column(name, "--by")

    def with_frequencies(self, arrays: StoredArrays, existing: dict[str, Any]) -> Call:
        """Return the call with the frequencies of classes as numbers; those of labels are counted, which reads them."""
        from ..api.probabilities import count_labels_by_class
        from ..files import read_numbers

        if not isinstance(self.balanced, str):
            return self
        if self.balanced == "labels":
            return replace(self, balanced=count_labels_by_class(arrays, **existing))
        return replace(self, balanced=read_numbers(self.balanced))

    def scored(self, arrays: StoredArrays, existing: dict[str, Any]) -> object:
        """Return the scores of opened arrays, as an activation and the frequencies of classes make them."""
        from ..api.probabilities import balanced

        frequencies = self.with_frequencies(arrays, existing).balanced
        made = self._probabilities(arrays)
        assert not isinstance(frequencies, str)
        return made if frequencies is None else balanced(made, frequencies)

    def _probabilities(self, arrays: StoredArrays) -> object:
        """Return opened arrays, or the probabilities that a calibrator or an activation makes of their scores."""
        from ..api.probabilities import activated

        if self.calibration_file is not None:
            if self.activation is not None or self.temperature is not None:
                raise OptionError(
                    "--calibration must come without --activation and --temperature; got both. The file has a softmax of its own."
                )
            from ..calibration import load

            return load(self.calibration_file).transform(arrays)
        if self.activation is not None:
            return activated(arrays, self.activation, 1.0 if self.temperature is None else self.temperature)
        if self.temperature is not None:
            raise OptionError(
                f"--temperature must come with --activation; got {self.temperature:g} alone. Add --activation softmax."
            )
        return arrays


def parse_storage_options(pairs: tuple[str, ...], name: str = "--storage-option") -> dict[str, str] | None:
    """Return the storage options as a mapping; None where there are none."""
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{name} must be KEY=VALUE; got one without {'a key' if equals else repr('=')}.")
    return dict(pair.split("=", 1) for pair in pairs) or None
