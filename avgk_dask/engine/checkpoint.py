"""Checkpoints: the states of a run so far, at a path or URL, so that another run reads only the missing parts.

There are four kinds of files:

- ``request.json``: the function, its options, the store and the version. Another request is refused.
- ``bands``: the first rows of bands, and the stamps of their scores and labels. A store that has grown keeps its bands.
- ``searches/S/W``: the plan and the bands of wave W of search S, for another run to read them in the same way.
- ``states/PASS/NAME``: the state of some bands, or of all. The name is a hash of the bands and their stamps.

The hash of a file covers its name and the request, so that a file in the place of another counts as damaged and is not used.
Names follow from the data and the pass. So a run always does the same, whether an earlier run was interrupted, the store
has grown, or the budgets differ: it uses the states that exist and reads the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, pairwise
from typing import Any

import numpy as np
from dask.delayed import Delayed

from ..arrays import Ints
from ..bands.passes import Pass
from ..errors import OptionError
from ..records import Record, State
from ..sources.planning import group_bands
from ..sources.source import Source
from ..sources.transforms import ReorderTies, Slots, Softmax, Transform
from ..store.read.listing import band_stamps, hash_rows, join_stamps
from ..store.write.hashed_folder import HashedFolder
from .plan import ScanPlan, Script, Wave
from .tasks import Keeper, as_delayed, hash_labels, load_record, task, token_of

#: Raised whenever the meaning of files changes.
FORMAT = 4
_HINT = "Use another place for the checkpoint, or remove it."
_REQUEST, _BANDS, _HASH = "request.json", "bands", "hash"
#: Maximum number of tasks that hash class numbers. A few suffice, since class numbers take little memory.
_MOST_TASKS = 32


@dataclass(frozen=True)
class CheckpointKey:
    """The place of a checkpoint, and its request."""

    place: object
    function: str
    #: The options that change what the function reads or returns, except budgets.
    request: Mapping[str, object]
    #: A folder inside it, for functions that read several matrices.
    folder: str = ""


@dataclass(frozen=True)
class Bands(Record):
    """The bounds of bands, and the stamps of their scores and labels."""

    rows: Ints
    scores: Ints
    labels: Ints

    @classmethod
    def from_source(cls, source: Source, labels: Sequence[int]) -> Bands:
        """Return the bands of a source, given the hashes of their labels."""
        stamps = np.array([source.row_stamps(), labels], np.uint64).view(np.int64)
        return cls(np.asarray(source.unfiltered.rows, np.int64), *stamps)

    def name(self, numbers: Sequence[int]) -> str:
        """Return a name of some bands, a hash of their numbers, scores and labels."""
        chosen = np.asarray(numbers, np.int64)
        return join_stamps(np.concatenate([chosen, self.scores[chosen], self.labels[chosen]]).tolist())

    def n_same(self, other: Bands) -> tuple[int, int]:
        """Return the number of bands with the same scores as in ``other``, and with the same scores and labels."""
        n = min(self.scores.size, other.scores.size)
        same = self.scores[:n] == other.scores[:n]
        return int(same.sum()), int((same & (self.labels[:n] == other.labels[:n])).sum())


@dataclass(frozen=True)
class KeptPass:
    """The states of one pass in a checkpoint."""

    keeper: Keeper
    folder: str
    bands: Bands
    pass_: Pass

    def name(self, numbers: Sequence[int]) -> str:
        """Return the name of the state of some bands, or of some chunks of the pass."""
        if self.pass_.columns is None:
            return f"{self.folder}/{self.bands.name(numbers)}"
        assert self.pass_.bands is not None
        bands = self.bands.name([self.pass_.bands[number] for number in numbers])
        return f"{self.folder}/{join_stamps([bands, *numbers, *(self.pass_.columns[number] for number in numbers)])}"

    @property
    def _all(self) -> str:
        bands = range(self.bands.scores.size) if self.pass_.bands is None else self.pass_.bands
        return f"{self.folder}/all-{join_stamps([self.bands.name(bands), *(self.pass_.columns or ())])}"

    def load(self) -> State | None:
        """Return the state of all bands of the pass, or None."""
        return self.keeper.load(self._all)

    def save(self, state: State) -> None:
        """Save the state of all bands."""
        self.keeper.save(self._all, state)


@dataclass
class Checkpoint:
    """The files of one request, from this run and earlier ones."""

    hashed_folder: HashedFolder
    bands: Bands
    source: Source
    #: The number of the current search, and the number of its waves so far.
    _search: int = field(default=-1)
    _wave: int = field(default=0)

    def begin_search(self) -> Script:
        """Begin the next search of the run; return the waves of the same search in an earlier run."""
        self._search, self._wave = self._search + 1, 0
        waves: list[Wave] = []
        while (wave := load_record(Wave, self.hashed_folder, self._wave_name(len(waves)))) is not None:
            waves.append(wave)
        return tuple(waves)

    def note(self, pass_: Pass) -> None:
        """Save the plan of a wave, before it is read."""
        plan = getattr(pass_.plan, "plan", pass_.plan)  # a scan that also counts other sets wraps its plan
        if not isinstance(plan, ScanPlan) or pass_.name != "scan":
            return
        bands = range(self.bands.scores.size) if pass_.bands is None else pass_.bands
        parts, name = Wave.from_plan(plan, bands).to_parts(), self._wave_name(self._wave)
        if bytes(self.hashed_folder.read(name) or b"") != b"".join(parts):
            self.hashed_folder.remove(
                [self._wave_name(self._wave + 1), name]
            )  # without the next wave, later ones are not loaded
            self.hashed_folder.write(name, parts)
        self._wave += 1

    def _wave_name(self, number: int) -> str:
        return f"searches/{self._search}/{number}"

    def of_pass(self, source: Source, pass_: Pass) -> KeptPass | None:
        """Return the states of a pass, or None if its scores or labels differ from the checkpoint."""
        if source.reader.stored_array is not self.source.reader.stored_array or source.rows != self.source.rows:
            return None
        if source.labels is not None and source.labels is not self.source.labels:
            return None
        bands = self.bands if source.labels is not None else replace(self.bands, labels=self.bands.labels * 0)
        made = source.preparations
        prepared: list[object] = [(_without_location(p.transform), p.dtype, p.n_stored, p.columns) for p in made]
        if source.mask is not None and any(isinstance(p.transform, ReorderTies) for p in made):
            # Excluded samples before a band change the numbers of its rows, which order ties.
            prepared.append(tuple(source.rows))
        token = token_of(
            FORMAT, pass_.name, pass_.work, pass_.plan, pass_.state.__name__, pass_.state.VERSION, prepared
        )
        return KeptPass(Keeper(self.hashed_folder, pass_.state), f"states/{token}", bands, pass_)


def open_checkpoint(
    key: CheckpointKey, source: Source, compute: Callable[[list[Delayed], str], list[Any]]
) -> tuple[Checkpoint, Source]:
    """Open or begin a checkpoint; return it, and the source divided into the bands that the checkpoint uses.

    Raise OptionError if it is of another request, store or version.
    """
    if source.reader.stored_array is None:
        source.row_stamps()  # raises
    whole = HashedFolder.at(key.place)
    hashed_folder = whole.within(key.folder)
    store = source.location.rstrip("/")
    if store and f"{hashed_folder.location.rstrip('/')}/".startswith(f"{store}/"):
        raise OptionError(
            f"checkpoint must not be inside the store; got {hashed_folder.location}. Name a folder of its own for it."
        )
    if key.folder and whole.read_plain(_REQUEST) is not None:
        raise OptionError(f"the checkpoint {whole.location} belongs to another request. {_HINT}")
    request = _request(key, source)
    _check_request(hashed_folder, request)
    hashed_folder = replace(hashed_folder, owner=token_of(request))
    saved = load_record(Bands, hashed_folder, _BANDS)
    if saved is not None:
        source = _with_bands(source, saved, hashed_folder)
    bands = Bands.from_source(source, _label_hashes(source, compute))
    if saved is not None:
        _check_bands(hashed_folder, saved, bands, source)
    hashed_folder.write_plain(
        _REQUEST, [json.dumps({**request, _HASH: token_of(request)}, indent=1, sort_keys=True).encode()]
    )
    hashed_folder.write(_BANDS, bands.to_parts())
    return Checkpoint(hashed_folder, bands, source), source


def _without_location(transform: Transform) -> Transform:
    """Return a transform without the location of its store, which only errors use."""
    return replace(transform, location="") if isinstance(transform, (Softmax, Slots)) else transform


def _request(key: CheckpointKey, source: Source) -> dict[str, object]:
    """Return the request of a checkpoint as words and values."""
    labels = "none" if source.labels is None else "probabilities" if source.has_soft_labels else "class numbers"
    facts = {"classes": source.n_classes, "dtype": source.dtype.name, "labels": labels}
    if source.provenance:
        facts["made by"] = source.provenance
    if source.mask is not None:
        facts["where"] = "given"
    if source.reader.stored_array is not None:
        facts["missing"] = source.reader.stored_array.store_path.store.checks.missing
    try:
        own_version = version("avgk_dask")
    except PackageNotFoundError:
        own_version = "unknown"
    options = {name: str(value) for name, value in key.request.items()}
    return {"format": FORMAT, "avgk_dask": own_version, "function": key.function, **options, **facts}


def _check_request(hashed_folder: HashedFolder, request: Mapping[str, object]) -> None:
    """Refuse a checkpoint of another request; ignore a checkpoint whose request is damaged."""
    data = hashed_folder.read_plain(_REQUEST)
    if data is None:
        return
    try:
        before = dict(json.loads(data))
    except (ValueError, TypeError):
        return
    if before.pop(_HASH, None) != token_of(before) and before.get("format") == FORMAT:
        return
    names = [name for name in {**before, **request} if before.get(name) != request.get(name)]
    if names:
        differ = "; ".join(f"{name} was {before.get(name)!r} and is {request.get(name)!r}" for name in sorted(names))
        raise OptionError(f"the checkpoint {hashed_folder.location} belongs to another request: {differ}. {_HINT}")


def _label_hashes(source: Source, compute: Callable[[list[Delayed], str], list[Any]]) -> list[int]:
    """Return a hash of the labels of each band: of their values, or of the chunks of stored probabilities."""
    whole = source.unfiltered
    labels: Any = whole.labels
    if labels is None:
        hashes = [0] * whole.n_bands
    elif isinstance(labels, np.ndarray):
        hashes = [hash_rows(labels[first:last]) for first, last in pairwise(whole.rows)]
    elif labels.ndim == 2 and hasattr(labels, "store_path"):
        hashes = [int(stamp) for stamp in band_stamps(labels, whole.rows)]
    else:
        groups = group_bands(whole, _MOST_TASKS if labels.ndim == 1 else None)
        name = f"avgk-stamps-{token_of(whole.token, groups)}"
        keys = {f"{name}-{numbers[0]}": numbers for numbers in groups}
        tasks = {key: task(key, hash_labels, whole.labels_of(numbers), numbers) for key, numbers in keys.items()}
        hashes = list(chain.from_iterable(compute(as_delayed(list(tasks), tasks, whole.collections(), name), "labels")))
    return [hashes[place] for place in source.stored_bands]


def _with_bands(source: Source, saved: Bands, hashed_folder: HashedFolder) -> Source:
    """Return a source with the bands of an earlier run; its store may have grown since."""
    before, n = saved.rows.tolist(), source.unfiltered.shape[0]
    if n < before[-1]:
        raise OptionError(
            f"the checkpoint {hashed_folder.location} belongs to another store: it covers {before[-1]:,} rows, and "
            f"this store has {n:,}. {_HINT}"
        )
    if n > before[-1]:  # new rows may have changed the chunk of the last band
        before = [*before[:-1], *(row for row in source.unfiltered.rows if row > before[-2])]
    return source.with_rows(before)


def _check_bands(hashed_folder: HashedFolder, saved: Bands, bands: Bands, source: Source) -> None:
    """Refuse a checkpoint if the scores of all bands, or the labels of all bands, have changed."""
    n_scores, n_labels = saved.n_same(bands)
    grown = bands.rows[-1] > saved.rows[-1]
    if not n_scores and saved.scores.size > grown:
        raise OptionError(
            f"the checkpoint {hashed_folder.location} belongs to another "
            f"store{' or other samples' * (source.mask is not None)}. {_HINT}"
        )
    if not n_labels and n_scores and not grown:  # all labels may be in one chunk, which new rows change
        raise OptionError(f"the checkpoint {hashed_folder.location} was made with other labels or clusters. {_HINT}")
