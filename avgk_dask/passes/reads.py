"""What the tasks of a pass read, by their keys: for progress, and to say which rows a task had that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ..scans.band_pass import Pass
from ..sources.source import Source


@dataclass(frozen=True)
class Reads:
    """What the tasks of a pass over a source read. A key ends with the first number of what its task reads."""

    source: Source
    what: Pass
    #: The keys of our own tasks in the graph.
    keys: frozenset[str]

    @classmethod
    def of(cls, source: Source, what: Pass, keys: Iterable[object]) -> Reads:
        """Return what the tasks of a graph read, given its keys."""
        return cls(source, what, frozenset(k for k in keys if isinstance(k, str) and k.startswith("avgk-")))

    @property
    def numbers(self) -> Sequence[int]:
        """The bands that the pass reads, in their order; in a pass over single chunks, their numbers."""
        what = self.what
        if what.columns is not None:
            return range(len(what.columns))
        return range(self.source.n_bands) if what.bands is None else what.bands

    @cached_property
    def groups(self) -> dict[str, Sequence[int]]:
        """The bands of each task that reads some; in a pass over single chunks, their numbers."""
        numbers = self.numbers
        places = {number: place for place, number in enumerate(numbers)}
        firsts = {}
        for key in self.keys:
            name, _, first = key.rpartition("-")
            if name.rpartition("-")[0] == f"avgk-{self.what.name}" and first.isdecimal() and int(first) in places:
                firsts[places[int(first)]] = key
        ends = [*sorted(firsts), len(numbers)]
        return {firsts[first]: numbers[first:last] for first, last in pairwise(ends)}

    @property
    def steps(self) -> set[str]:
        """The keys of all tasks that read or merge."""
        return {key for key in self.keys if key in self.groups or key.startswith("avgk-merge-")}

    @property
    def total(self) -> int:
        """Bytes of the scores that the pass reads, together with the other waves of a scan."""
        if self.what.is_wave:
            return self.source.shape[0] * self._row_bytes
        return self.n_bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of the scores that the pass reads."""
        return sum(map(self._bytes_of, self.numbers))

    @cached_property
    def shares(self) -> dict[str, int]:
        """The bytes of the scores that each task reads."""
        return {key: sum(map(self._bytes_of, numbers)) for key, numbers in self.groups.items()}

    @property
    def _row_bytes(self) -> int:
        return self.source.shape[1] * self.source.score_bytes

    def _bytes_of(self, number: int) -> int:
        source, what = self.source, self.what
        if what.columns is None:
            return (source.rows[number + 1] - source.rows[number]) * self._row_bytes
        n_rows, n_classes = source.chunk_shape((what.bands or ())[number], what.columns[number])
        return n_rows * n_classes * source.score_bytes

    def place_of(self, key: str) -> str:
        """Return which rows and chunks a task reads, in words."""
        if key not in self.groups:
            return "merges what others found" if key.startswith("avgk-merge-") else f"is called {key}"
        source, bands = self.source, self._bands(self.groups[key])
        whole, places = source.whole, source.places
        rows = whole.rows[places[bands[0]]], whole.rows[places[bands[-1]] + 1]
        chunks = source.chunk_names(rows, (0, source.shape[1]))
        which = f"band {bands[0]}" if len(bands) == 1 else f"bands {bands[0]} to {bands[-1]}"
        if len(bands) <= bands[-1] - bands[0]:
            which = f"{len(bands)} of the {which}"
        place = ", ".join(part for part in (which, f"{chunks} of {source.location}" if chunks else "") if part)
        return f"reads rows {rows[0]} to {rows[1] - 1} ({place})"

    def _bands(self, numbers: Sequence[int]) -> list[int]:
        if self.what.columns is None:
            return sorted(numbers)
        return sorted((self.what.bands or ())[number] for number in numbers)
