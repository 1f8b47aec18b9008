"""The options that commands share, each declared once, and the ``Call`` that holds their values.

``@call_options(...)`` above a command adds options and passes the values of all shared ones as one argument ``call``;
``@options(...)`` only adds options, so that a command can place its own ones between them in its help.
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
from ..results.registry import TIES
from .clusters import CLUSTER_OPTIONS, ClusterChoice, cluster
from .printing import remark, shows_progress, text_layout

if TYPE_CHECKING:
    from ..api.options import NanPolicy
    from ..arrays import Array
    from ..results.datasets import Result
    from ..results.registry import Ties
    from ..store.read.opening import StoredArrays


#: A function, or the command that click makes of it.
Decorated = TypeVar("Decorated", bound=Callable[..., object])

#: A range of more budgets is a typing error.
_MOST_BUDGETS = 100_000
CLUSTERS = (
    "Clusters of samples, for cluster-robust standard errors: one integer per sample (name or path, as for --labels)."
)
NO_LABELS = "errors need labels: name them with --labels NAME, or pass a file with --labels labels.npy"
GROUPS = "class, or groups as one integer per sample (name or path, as for --labels)."


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
        from ..exact.budgets import parse_budget  # late: help and completion do not need NumPy

        try:
            return [parse_budget(part)]
        except BudgetError:
            self.fail(
                f"a budget must be a number such as 5 or 2.5, or several: 1,3,5 or 1:10; got {part!r}.", param, ctx
            )


def budget_option(text: str, *, required: bool = False) -> Callable[[Decorated], Decorated]:
    """Return the option ``-k``."""
    return click.option("-k", "k", type=Budgets(), required=required, help=text)


def results_option(text: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--out`` for a folder of results."""
    return click.option("--out", type=click.Path(path_type=pathlib.Path), help=text)


def choice_option(*names: str, words: Sequence[str], text: str) -> Callable[[Decorated], Decorated]:
    """Return an option that takes one of several words, by default the first."""
    return click.option(*names, type=click.Choice(words), default=words[0], show_default=True, help=text)


def _pairs(name: str, text: str) -> Any:
    """Return an option for storage options."""
    return click.option(name, multiple=True, metavar="KEY=VALUE", help=text)


_AT_LEAST_1, _PATH = click.IntRange(min=1), click.Path()
_STORAGE = _pairs(
    "--storage-option", "Storage option of the store, such as anon=true or endpoint_url=http://host:9000; repeatable."
)
#: Shared options by topic, in the order of the help text.
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "store": (click.argument("store", type=_PATH),),
    "calibration": (click.argument("store", type=_PATH, metavar="CALIBRATION"),),
    "labels": (click.argument("labels_file", type=_PATH, metavar="[LABELS]", required=False),),
    "arrays": (
        click.option("--scores", "scores_name", metavar="NAME", help="Name of the scores inside the store or file."),
        click.option(
            "--labels", "labels_name", metavar="NAME",
            help="Name of the labels inside the store or file, or the path of a file (.npy, ...) or store with labels.",
        ),
        _STORAGE,
    ),
    "storage": (_STORAGE,),
    "activation": (
        click.option(
            "--activation", type=click.Choice(["softmax", "sigmoid"]),
            help="Convert logits to probabilities while reading.",
        ),
        click.option("--temperature", type=float, metavar="T", help="Divide logits by T before --activation."),
        click.option(
            "--calibration", "calibration_file", metavar="FILE",
            help="Convert logits to probabilities with the file written by avgk calibrate.",
        ),
        click.option(
            "--balanced", metavar="FILE",
            help="Divide scores by class frequencies, so that rare classes count as much as others. Pass the word labels to count "
            "them, or a file with one number per class.",
        ),
    ),
    "samples": (
        click.option(
            "--where", "where_name", metavar="NAME",
            help="One boolean per sample (name or path, as for --labels): False excludes the sample, such as padding.",
        ),
        click.option("--ignore-index", type=int, metavar="N", help="Exclude samples with this label."),
    ),
    "ties": (
        choice_option("--ties", words=tuple(TIES), text=f"Ties to keep: {', or '.join(TIES.values())}."),
    ),
    "nan": (choice_option("--nan-policy", words=("raise", "lowest"), text="NaN among the scores: raise an error, or rank it last."),),
    "missing": (
        choice_option("--missing", words=("raise", "fill"), text="A missing chunk: raise an error, or use the fill value."),
    ),
    "json": (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document (avgk schema describes it)."),
    ),
    "quiet": (click.option("--quiet", is_flag=True, help="Print only errors on stderr: no progress, no remarks."),),
    "checkpoint": (
        click.option(
            "--checkpoint", metavar="PATH",
            help="Save progress in this folder or URL. The same command, run again, continues from there.",
        ),
        _pairs("--checkpoint-option", "Storage option of the checkpoint, such as anon=true."),
    ),
    "cluster": CLUSTER_OPTIONS,
    "overwrite": (click.option("--overwrite", is_flag=True, help="Replace an existing store."),),
    "out": (
        click.option("--out", required=True, type=_PATH, help="Path or URL of the new store."),
        _pairs("--out-option", "Storage option of the new store, such as anon=true."),
    ),
    "layout": (
        click.option("--dtype", metavar="DTYPE", help="Type of the stored scores, such as float16. Rounding is reported."),
        click.option("--chunk-rows", type=_AT_LEAST_1, help="Rows per chunk.  [default: about 10 MB]"),
        click.option(
            "--codec", type=click.Choice(["blosc", "zstd", "gzip", "none"]),
            help="Compression of the chunks; each also has a checksum.  [default: blosc]",
        ),
        click.option("--shard-chunks", type=_AT_LEAST_1, help="Chunks per shard.  [default: 4 on object stores]"),
        click.option("--top-m", type=_AT_LEAST_1, help="Keep only the M largest scores of each row."),
    ),
}  # fmt: skip


def options(names: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds shared options, named by topic, to a command."""

    def add(command: Decorated) -> Decorated:
        for option in reversed([option for name in names.split() for option in _OPTIONS[name]]):
            command = option(command)
        return command

    return add


def call_options(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds shared options to a command, and passes the values of all of them as ``call``."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_call(**values: Any) -> None:
            command(Call.from_options(values), **values)

        return options(names)(with_call)

    return add


@dataclass(frozen=True, repr=False)
class Call:
    """The values of the shared options: the store and its samples, the cluster, and how to print."""

    store: str = ""
    scores_name: str | None = None
    #: Name of the labels inside the store, or path of a file.
    labels: str | None = None
    storage_options: dict[str, str] | None = None
    activation: str | None = None
    temperature: float | None = None
    calibration_file: str | None = None
    #: ``labels``, a file, an array of the store, or the frequencies themselves.
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
    def from_options(cls, values: dict[str, Any]) -> Call:
        """Move the values of the shared options of a command into a call."""
        labels, named = values.pop("labels_file", None), values.pop("labels_name", None)
        if labels is not None and named is not None:
            raise OptionError("LABELS and --labels are mutually exclusive. Leave one of them out.")
        own: dict[str, Any] = {
            "labels": named if labels is None else str(labels),
            "storage_options": parse_storage_options(values.pop("storage_option", ())),
            "cluster": {name: values.pop(name) for name in ClusterChoice.__annotations__ if name in values},
        }
        shared = {one.name: values.pop(one.name) for one in fields(cls) if one.name in values}
        from ..engine.progress import phase

        with phase("opening"):
            from ..api.inputs import sources as inputs  # noqa: F401  # takes a second to load
        return cls(**shared, **own)

    @property
    def progress(self) -> bool | None:
        """The option ``progress`` of the public functions."""
        return shows_progress(self.quiet)

    @property
    def run_options(self) -> dict[str, Any]:
        """The options that most public functions take."""
        return {"nan_policy": self.nan_policy, "progress": self.progress}

    @property
    def checkpoint_place(self) -> object:
        """The option ``checkpoint`` of the public functions."""
        from ..store.where.locations import locate

        if self.checkpoint is None and self.checkpoint_option:
            raise OptionError("--checkpoint-option needs --checkpoint. Add --checkpoint PATH, or leave it out.")
        if not self.checkpoint_option:
            return self.checkpoint
        return locate(self.checkpoint, parse_storage_options(self.checkpoint_option, "--checkpoint-option"), write=True)

    def computing(self) -> AbstractContextManager[None]:
        """Return a context that computes on the chosen cluster."""
        return cluster(self.cluster, self.quiet)

    def remark(self, text: str) -> None:
        """Print a remark on stderr, unless quiet."""
        remark(text, self.quiet)

    def show(self, result: Result, print_text: Callable[..., str], *args: object) -> None:
        """Print a result as JSON, or as text."""
        from ..results.datasets import to_json

        click.echo(to_json(result) if self.as_json else print_text(result, *args, **text_layout()))

    def open(self, *, with_labels: bool = True) -> StoredArrays:
        """Open the arrays; reads metadata only."""
        from ..engine.progress import phase

        with phase("opening"):
            from ..api.stores import open_stored
            from ..store.read.opening import open_arrays

            if not with_labels and self.labels is None:
                return open_arrays(
                    self.store,
                    scores=self.scores_name,
                    storage_options=self.storage_options,
                    missing=self.missing,
                    own_labels=False,
                )
            return open_stored(self.store, self.scores_name, self.labels, self.storage_options, self.missing)

    def sample_mask(self) -> dict[str, Any]:
        """Return the options ``where`` and ``ignore_index`` of the public functions; reads metadata only."""
        from ..api.stores import open_stored
        from ..files import is_row_file

        where: object = self.where_name
        if self.where_name is not None and not is_row_file(self.where_name):
            where = open_stored(self.store, self.scores_name, self.where_name, self.storage_options, "fill").labels
        return {"where": where, "ignore_index": self.ignore_index}

    def column(self, name: str | None, option: str) -> object:
        """Open integers stored in the store or in a file; reads metadata only."""
        from ..api.stores import open_stored
        from ..files import is_row_file, open_label_file

        if name is None:
            return None
        try:
            if is_row_file(name):
                return open_label_file(name)
            return open_stored(self.store, self.scores_name, name, self.storage_options, self.missing).labels
        except AvgkError as error:
            from ..credentials import redact

            reason = str(error).partition(". ")[0]
            raise OptionError(
                f"{option} must name one integer per sample, in the store or a file; got {redact(name)!r} ({reason}). Check the name."
            ) from None

    def groups(self, name: str | None) -> object:
        """Return ``class``, or the groups in the column of ``--by``."""
        return name if name == "class" else self.column(name, "--by")

    def with_frequencies(self, arrays: StoredArrays, mask: dict[str, Any]) -> Call:
        """Return the call with the frequencies of the classes as numbers; for ``labels`` it reads and counts them."""
        from ..api.probabilities import count_labels_by_class
        from ..files import read_numbers

        if not isinstance(self.balanced, str):
            return self
        if self.balanced == "labels":
            return replace(self, balanced=count_labels_by_class(arrays, **mask))
        return replace(self, balanced=read_numbers(self.balanced))

    def scores(self, arrays: StoredArrays, mask: dict[str, Any]) -> object:
        """Apply the activation and the frequencies of the classes to the scores of opened arrays."""
        from ..api.probabilities import balanced

        frequencies = self.with_frequencies(arrays, mask).balanced
        scores = self._probabilities(arrays)
        assert not isinstance(frequencies, str)
        return scores if frequencies is None else balanced(scores, frequencies)

    def _probabilities(self, arrays: StoredArrays) -> object:
        """Apply the calibrator or the activation to the scores of opened arrays."""
        from ..api.probabilities import apply_activation

        if self.calibration_file is not None:
            if self.activation is not None or self.temperature is not None:
                raise OptionError(
                    "--calibration cannot be combined with --activation or --temperature, because its file includes a softmax. "
                    "Leave one of them out."
                )
            from ..calibration import load

            return load(self.calibration_file).transform(arrays)
        if self.activation is not None:
            return apply_activation(arrays, self.activation, 1.0 if self.temperature is None else self.temperature)
        if self.temperature is not None:
            raise OptionError(
                f"--temperature needs --activation; got {self.temperature:g} alone. Add --activation softmax."
            )
        return arrays


def parse_storage_options(pairs: tuple[str, ...], name: str = "--storage-option") -> dict[str, str] | None:
    """Return the storage options as a mapping, or None without any."""
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{name} must be KEY=VALUE; got one without {'a key' if equals else repr('=')}.")
    return dict(pair.split("=", 1) for pair in pairs) or None
