"""Caps: how much of what a scan finds may come together in one process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..scans.plan import ROW_BYTES, ScanShape
from ..settings import setting
from ..sources.source import Source
from ..states.key_histogram import LEAST_BINS
from ..states.ranked_scores import narrow_dtype

#: Events that no band may exceed, and those that waves need to get anywhere.
_MOST_BAND_EVENTS, _LEAST_EVENTS = 1 << 20, 1 << 20
#: Samples that are looked at whole.
_LOOKED = 1 << 10
#: How far caps may be lowered to fit small workers.
_LOWEST = 1 / 16


class Strata(NamedTuple):
    """What rows are counted together by (see ``ScanShape``), and the bytes that takes, beyond a few."""

    kind: str
    n_bytes: int = 0


NO_STRATA = Strata("")


@dataclass(frozen=True)
class Caps:
    """Bytes of held rows, events, and bytes and bins of ranked scores, over all bands together."""

    held_bytes: int
    max_events: int
    ranked_bytes: int
    ranked_bins: int

    @classmethod
    def configured(cls) -> Caps:
        """Return the caps that the settings say."""
        return cls(setting("kept-bytes"), setting("max-events"), setting("ranked-bytes"), setting("ranked-bins"))

    def lowered(self) -> tuple[list[Caps], list[Caps]]:
        """Return these and lower ones; and the lowest, which hold no ranked scores, so that straddle strengths are not exact."""
        shares = [2.0**-n for n in range(1, 1 + round(-math.log2(_LOWEST)))]
        exact = [self, *map(self._lower, shares)]
        lowest = exact[-1]
        return exact, [replace(lowest, ranked_bytes=0, ranked_bins=self.ranked_bins // n) for n in (1, 4)]

    def _lower(self, share: float) -> Caps:
        events = min(self.max_events, max(int(self.max_events * share), _LEAST_EVENTS))
        return Caps(int(self.held_bytes * share), events, self.ranked_bytes, self.ranked_bins)

    def rank_bins(self, source: Source, n_ranked: int) -> int:
        """Return the number of bins of each rank's histogram; 0 where all ranked scores fit and are held."""
        if source.shape[0] * n_ranked * narrow_dtype(source.dtype).itemsize <= self.ranked_bytes:
            return 0
        return max(LEAST_BINS, self.ranked_bins // n_ranked)

    def scan_shape(
        self,
        source: Source,
        n_ranks: int = 0,
        n_ranked: int = 0,
        with_distance: bool = False,
        strata: Strata = NO_STRATA,
    ) -> ScanShape:
        """Return what all scans of a source have in common."""
        soft = source.has_soft_labels
        item = narrow_dtype(source.dtype).itemsize
        return ScanShape(
            n_samples=source.shape[0],
            n_classes=source.shape[1],
            dtype=source.dtype,
            n_ranks=n_ranks,
            n_chunks=source.n_chunks,
            max_events=max(setting("least-events"), min(self.max_events // 6, _MOST_BAND_EVENTS)),
            all_events=self.max_events,
            tile_scores=setting("tile-scores"),
            n_ranked=n_ranked,
            ranked_bins=self.rank_bins(source, n_ranked) if n_ranked else 0,
            with_distance=with_distance,
            max_held=0 if soft else max(self.held_bytes - ROW_BYTES * source.shape[0], 0) // item,
            max_apart=self.held_bytes // (item + ROW_BYTES),
            n_bands=source.n_bands,
            n_together=-(-source.n_bands // setting("tie-groups")),
            band_rows=int(np.diff(source.rows).max()),
            key_bytes=item,
            event_bytes=item + 12 + (8 if soft else 1) + (4 if strata.kind else 1),
            strata=strata.kind,
            strata_bytes=strata.n_bytes,
            looked=_looked(source.rows),
        )


def _looked(rows: Sequence[int]) -> bytes:
    """Return band and row, as bytes, of samples that are spread over the store: the same samples for any bands."""
    bounds = np.asarray(rows, np.int64)
    samples = np.unique(np.linspace(0, bounds[-1] - 1, _LOOKED).astype(np.int64))
    bands = np.searchsorted(bounds, samples, side="right") - 1
    return np.stack([bands, samples - bounds[bands]]).tobytes()
