"""What tasks do on the workers. Kept apart from what builds graphs, so that a worker need not import Dask's arrays.

Those bring xarray and pandas along, some 100 MB of a worker's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from ..store.bands import BandReader, read_array
from ..summaries.blocks import promised_block
from ..summaries.cut import TieCut, TieSearch, cut_band
from ..summaries.pilot import PilotSample

Array = NDArray[Any]
TallyBand = Callable[[Any, Any, int, Any], Any]
Merge = Callable[[list[Any]], Any]


class StoredLabels:
    """A run of stored labels, read inside the task that needs them."""

    # Not a dataclass: Dask would look for tasks inside one, field by field.
    def __init__(self, array: Any, first: int, last: int) -> None:
        self.array, self.first, self.last = array, first, last

    def read(self) -> Array:
        """Give the labels of the run."""
        return read_array(self.array, (slice(self.first, self.last),))


class StoredChunk:
    """One chunk of a stored array, read inside the task that needs it."""

    def __init__(self, reader: BandReader, band: int, first: int, last: int) -> None:
        self.reader, self.band, self.first, self.last = reader, band, first, last

    def read(self) -> Array:
        """Give the scores of the chunk."""
        return self.reader.read(self.band, self.first, self.last)


def slabs_of(bands: Any, first: int, last: int) -> Any:
    """Give the slabs of each band of a run, one after the other, inside a task."""
    return bands.run(first, last) if isinstance(bands, BandReader) else iter(bands)


def read_now(value: Any) -> Any:
    """Give an argument of a task that may still have to be read."""
    return value.read() if isinstance(value, (StoredLabels, StoredChunk)) else value


def sample_chunk(block: Any, number: int, fraction: float, dtype: Any, shape: tuple[int, int]) -> PilotSample:
    """Take the pilot's sample of a chunk of this dtype and shape."""
    return PilotSample.from_chunk(promised_block(read_now(block), dtype, shape), number, fraction)


def tally_run(
    bands: Any, labels: list[Any], first: int, tally_band: TallyBand, plan: Any, merge: Merge, held: int
) -> Any:
    """Tally a run of bands, one after the other, and give the tally of all."""
    tallies: list[Any] = []
    slabs = slabs_of(bands, first, first + len(labels))
    for i, (band, mine) in enumerate(zip(slabs, labels, strict=True)):
        tallies.append(tally_band(band, read_now(mine), first + i, plan))
        if len(tallies) == held:
            tallies = [merge(tallies)]
    return merge(tallies)


def take_ties(bands: Any, labels: Any, band: int, ties: TieSearch) -> list[TieCut]:
    """Find where the kept ties end in a band."""
    slabs = bands.slabs(band) if isinstance(bands, BandReader) else bands[0]
    return cut_band(slabs, read_now(labels), ties)
