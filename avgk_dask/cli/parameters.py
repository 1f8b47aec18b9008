"""What several commands share: budgets, stores, output."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypedDict, TypeVar

import click

from ..errors import AvgkError, BudgetError, OptionError

if TYPE_CHECKING:
    from ..api.options import NanPolicy
    from ..arrays import Array
    from ..store import StoredArrays


#: What click makes a command of, or a command.
Decorated = TypeVar("Decorated", bound=Callable[..., object])
Rest = ParamSpec("Rest")

#: More budgets than this in one range are a typing error.
_MOST_BUDGETS = 100_000


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


def nan_option(command: Decorated) -> Decorated:
    """Add the option ``--nan-policy``."""
    policies = click.Choice(["raise", "lowest"])
    text = "What to do with NaN: refuse it, or rank it last."
    return click.option("--nan-policy", type=policies, default="raise", show_default=True, help=text)(command)


def missing_option(command: Decorated) -> Decorated:
    """Add the option ``--missing``."""
    text = "A chunk that is not there: refuse it, or take it as the fill value."
    choice = click.Choice(["raise", "fill"])
    return click.option("--missing", type=choice, default="raise", show_default=True, help=text)(command)


def ties_option(command: Decorated) -> Decorated:
    """Add the option ``--ties``."""
    text = "Which ties are kept: the first ones, or spread over the samples."
    choice = click.Choice(["first", "spread"])
    return click.option("--ties", type=choice, default="first", show_default=True, help=text)(command)


def json_option(command: Decorated) -> Decorated:
    """Add the option ``--json``."""
    text = "Print one JSON document (avgk schema describes it)."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def quiet_option(command: Decorated) -> Decorated:
    """Add the option ``--quiet``."""
    return click.option("--quiet", is_flag=True, help="No progress bar and no remarks: errors alone on stderr.")(
        command
    )


def checkpoint_options(command: Decorated) -> Decorated:
    """Add the options that say where a run keeps what it finds."""
    text = "How to reach the checkpoint, such as anon=true."
    command = click.option("--checkpoint-option", multiple=True, metavar="KEY=VALUE", help=text)(command)
    text = "Keep what is found in this folder or below this URL: started again, the command reads only what is missing."
    return click.option("--checkpoint", metavar="PLACE", help=text)(command)


def checkpoint_place(checkpoint: str | None, options: tuple[str, ...]) -> object:
    """Return where a run keeps what it finds; None for nowhere."""
    from ..store.where.locations import locate

    if checkpoint is None and options:
        raise OptionError("--checkpoint-option must come with --checkpoint; got it alone. Leave it out.")
    if not options:
        return checkpoint
    return locate(checkpoint, parse_storage_options(options, "--checkpoint-option"), write=True)


def overwrite_option(command: Decorated) -> Decorated:
    """Add the option ``--overwrite``."""
    return click.option("--overwrite", is_flag=True, help="Replace a store that is there.")(command)


def storage_option(command: Decorated) -> Decorated:
    """Add the option ``--storage-option``."""
    text = "How to reach the store, such as endpoint_url=http://host:9000 or anon=true."
    return click.option("--storage-option", multiple=True, metavar="KEY=VALUE", help=text)(command)


def out_options(command: Decorated) -> Decorated:
    """Add the options that say where a new store goes."""
    text = "How to reach the new store, such as anon=true."
    command = click.option("--out-option", multiple=True, metavar="KEY=VALUE", help=text)(command)
    return click.option("--out", required=True, type=click.Path(), help="Path or URL of the new store.")(command)


@dataclass(frozen=True)
class StoreChoice:
    """A store as named on the command line, and its arrays."""

    store: str = field(repr=False)
    scores: str | None
    labels: str | None = field(repr=False)
    options: dict[str, str] | None = field(repr=False)
    activation: str | None = None
    temperature: float | None = None
    calibration: str | None = None
    #: What classes are divided by: ``labels``, a file or an array of the store; or the numbers themselves.
    balanced: str | Array | None = field(default=None, repr=False)

    def open(self, missing: str, with_labels: bool = True) -> StoredArrays:
        """Open the arrays; reads metadata only."""
        from ..engine.progress import phase

        with phase("opening"):
            return self._opened(missing, with_labels)

    def _opened(self, missing: str, with_labels: bool) -> StoredArrays:
        from ..api.stores import open_stored
        from ..store import open_arrays

        if not with_labels and self.labels is None:
            return open_arrays(
                self.store, scores=self.scores, storage_options=self.options, missing=missing, own_labels=False
            )
        return open_stored(self.store, self.scores, self.labels, self.options, missing)

    def scored(self, arrays: StoredArrays) -> object:
        """Return the scores of opened arrays, as an activation and the frequencies of classes make them."""
        from ..api.probabilities import balanced

        made = self._activated(arrays)
        assert not isinstance(self.balanced, str)  # with_frequencies came first
        return made if self.balanced is None else balanced(made, self.balanced)

    def with_frequencies(self, arrays: StoredArrays, existing: Existing) -> StoreChoice:
        """Return the choice with the frequencies of classes as numbers; those of labels are counted, which reads them."""
        from ..api.probabilities import count_labels_by_class
        from ..files import read_numbers

        if not isinstance(self.balanced, str):
            return self
        if self.balanced == "labels":
            return replace(self, balanced=count_labels_by_class(arrays, **existing))
        return replace(self, balanced=read_numbers(self.balanced))

    def _activated(self, arrays: StoredArrays) -> object:
        """Return the scores of opened arrays, or the probabilities that an activation makes of them."""
        from ..api.probabilities import activated

        if self.calibration is not None:
            return self._calibrated(arrays)
        if self.activation is not None:
            return activated(arrays, self.activation, 1.0 if self.temperature is None else self.temperature)
        if self.temperature is not None:
            raise OptionError(
                f"--temperature must come with --activation; got {self.temperature:g} alone. Add --activation softmax."
            )
        return arrays

    def _calibrated(self, arrays: StoredArrays) -> object:
        """Return the probabilities that a calibrator, read from its file, makes of logits."""
        from ..calibration import load

        assert self.calibration is not None
        if self.activation is not None or self.temperature is not None:
            raise OptionError(
                "--calibration must come without --activation and --temperature; got both. The file has a softmax of its own."
            )
        return load(self.calibration).transform(arrays)


def store_options(
    command: Callable[Concatenate[StoreChoice, Rest], None], metavar: str | None = None, *, with_labels: bool = False
) -> Callable[..., None]:
    """Add the store, and the options that name its arrays and how to reach it, as one argument ``chosen``.

    With labels, they may follow as a second argument.
    """

    @functools.wraps(command)
    def with_choice(
        store: str,
        scores_name: str | None,
        labels_name: str | None,
        storage_option: tuple[str, ...],
        *args: Rest.args,
        **rest: Rest.kwargs,
    ) -> None:
        from ..engine.progress import phase

        labels = rest.pop("labels_file", None)
        if labels is not None and labels_name is not None:
            raise OptionError("labels must be said once; got LABELS and --labels. Leave one of them out.")
        named = labels_name if labels is None else str(labels)
        chosen = StoreChoice(store, scores_name, named, parse_storage_options(storage_option))
        with phase("opening"):
            from ..api.inputs import sources as inputs  # noqa: F401  # which every command needs, and which takes a second to load
        command(chosen, *args, **rest)

    names = "Name of the labels inside the store or file, or the path of a file, such as .npy, or of another store."
    made: Callable[..., None] = with_choice
    for option in (
        storage_option,
        click.option("--labels", "labels_name", metavar="NAME", help=names),
        click.option("--scores", "scores_name", metavar="NAME", help="Name of the scores inside the store or file."),
        *(
            [click.argument("labels_file", type=click.Path(), metavar="[LABELS]", required=False)]
            if with_labels
            else ()
        ),
        click.argument("store", type=click.Path(), metavar=metavar),
    ):
        made = option(made)
    return made


#: The same, where labels may follow the store.
labelled_store_options = functools.partial(store_options, with_labels=True)


def activation_options(command: Callable[Concatenate[StoreChoice, Rest], None]) -> Callable[..., None]:
    """Add the options that make other scores of those stored; they become part of the argument ``chosen``."""

    @functools.wraps(command)
    def with_activation(
        chosen: StoreChoice,
        activation: str | None,
        temperature: float | None,
        calibration_file: str | None,
        balanced: str | None,
        *args: Rest.args,
        **rest: Rest.kwargs,
    ) -> None:
        made = replace(
            chosen, activation=activation, temperature=temperature, calibration=calibration_file, balanced=balanced
        )
        command(made, *args, **rest)

    text = "The scores are logits: make probabilities of them while they are read."
    fitted = "The file that avgk calibrate wrote: make probabilities of logits by it."
    shared = "labels, or a file with a number for each class: divide scores by how frequent their class is, so that rare ones count as much."
    made: Callable[..., None] = with_activation
    made = click.option("--balanced", metavar="FILE", help=shared)(made)
    made = click.option("--calibration", "calibration_file", metavar="FILE", help=fitted)(made)
    made = click.option("--temperature", type=float, metavar="T", help="Divide the logits by T first.")(made)
    return click.option("--activation", type=click.Choice(["softmax", "sigmoid"]), help=text)(made)


class Existing(TypedDict):
    """Which samples exist, as the functions take it."""

    where: object
    ignore_index: int | None


class Shared(Existing):
    """What functions that a command calls one after the other have in common."""

    nan_policy: NanPolicy
    progress: bool | None


@dataclass(frozen=True)
class SampleChoice:
    """Which samples exist, as said on the command line."""

    where: str | None = field(repr=False)
    ignore_index: int | None

    def open(self, chosen: StoreChoice) -> Existing:
        """Open what says so; reads metadata only."""
        from ..api.stores import open_stored
        from ..files import is_row_file

        where: object = self.where
        if self.where is not None and not is_row_file(self.where):
            where = open_stored(chosen.store, chosen.scores, self.where, chosen.options, "fill").labels
        return {"where": where, "ignore_index": self.ignore_index}


#: What groups of samples are, on the command line.
CLUSTERS = "Name or path, as for --labels, of an integer a sample: standard errors are those of independent clusters."
BY = "class, or the name or path, as for --labels, of an integer a sample: the groups to break errors down by."


def open_column(chosen: StoreChoice, name: str | None, option: str, missing: str) -> object:
    """Open integers that stand beside the scores, or a file of them; reads metadata only."""
    from ..api.stores import open_stored
    from ..files import is_row_file, open_label_file

    if name is None:
        return None
    try:
        if is_row_file(name):
            return open_label_file(name)
        return open_stored(chosen.store, chosen.scores, name, chosen.options, missing).labels
    except AvgkError as error:
        from ..credentials import shown

        why = str(error).partition(". ")[0]
        raise OptionError(
            f"{option} must name integers, one a sample, in the store or a file; got {shown(name)!r} ({why}). Check the name."
        ) from None


def sample_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which samples exist, as one argument ``samples``."""

    @functools.wraps(command)
    def with_samples(*args: object, where_name: str | None, ignore_index: int | None, **rest: object) -> None:
        command(*args, samples=SampleChoice(where_name, ignore_index), **rest)

    named = "Name or path, as for --labels, of booleans: samples where it is False do not exist (padding)."
    made: Callable[..., None] = with_samples
    made = click.option("--ignore-index", type=int, metavar="N", help="Samples with this label do not exist.")(made)
    return click.option("--where", "where_name", metavar="NAME", help=named)(made)


class LayoutChoice(TypedDict):
    """How scores are stored, as the options say it."""

    dtype: str | None
    chunk_rows: int | None
    codec: str | None
    shard_chunks: int | None
    top_m: int | None


def layout_options(command: Decorated) -> Decorated:
    """Add the options that say how scores are stored."""
    for option in (
        click.option("--top-m", type=click.IntRange(min=1), help="Keep only the M largest scores of each row."),
        click.option("--shard-chunks", type=click.IntRange(min=1), help="Chunks to a shard (4 on object stores)."),
        click.option(
            "--codec",
            type=click.Choice(["blosc", "zstd", "gzip", "none"]),
            help="How chunks are compressed (blosc); each has a checksum.",
        ),
        click.option("--chunk-rows", type=click.IntRange(min=1), help="Rows of a chunk (about 10 MB of them)."),
        click.option("--dtype", metavar="DTYPE", help="Type of the stored scores, such as float16; rounding is said."),
    ):
        command = option(command)
    return command


def parse_storage_options(pairs: tuple[str, ...], name: str = "--storage-option") -> dict[str, str] | None:
    """Return the storage options as a mapping; None where there are none."""
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{name} must be KEY=VALUE; got one without {'a key' if equals else repr('=')}.")
    return dict(pair.split("=", 1) for pair in pairs) or None
