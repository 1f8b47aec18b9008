"""Sets by bands: lazy sets computed a window of bands at a time, and sent as bits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import dask
import dask.array as da

from ..passes.progress import computing
from ..settings import setting
from ..store import SetBand, pack_block


def set_windows(sets: da.Array) -> Iterator[list[SetBand]]:
    """Return the bands of lazy sets in the order of their rows, as many at once as a window's bytes hold in bits.

    A window has whole bands, at least one, so that no chunk is read for two of them.
    """
    rows, columns = ([0, *accumulate(sizes)] for sizes in sets.chunks)
    pack = dask.delayed(pack_block, pure=False)
    first = 0
    while first < len(rows) - 1:
        last = _window_end(rows, first, columns[-1])
        blocks: Any = sets.blocks[first:last].to_delayed()
        with computing(progress=False) as compute:  # whoever writes the bands tells of them
            bits = compute([pack(block) for block in blocks.ravel()], "sets")
        n = len(columns) - 1
        yield [
            SetBand(rows[i], rows[i + 1] - rows[i], tuple(columns), tuple(bits[(i - first) * n : (i - first + 1) * n]))
            for i in range(first, last)
        ]
        first = last


def _window_end(rows: list[int], first: int, n_classes: int) -> int:
    """Return the band at which a window ends: the bits of its rows fit the setting."""
    most = rows[first] + 8 * setting("window-bytes") // n_classes
    last = first + 1
    while last < len(rows) - 1 and rows[last + 1] <= most:
        last += 1
    return last
