"""Blocks that differ from their metadata are refused, in any position."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.bands.rows import checked_slabs

F8 = np.dtype("f8")


@pytest.mark.parametrize("labels", [None, np.zeros(4, np.int64)])
@pytest.mark.parametrize(
    "shapes", [[(4, 2), (3, 1)], [(4, 2), (5, 1)], [(4, 1), (4, 1), (3, 1)], [(4, 2), (4, 2)], [(4, 2)]]
)
def test_checked_slabs__refuses_other_rows_and_classes(shapes, labels):
    with pytest.raises(avgk.ScoresError, match="scores must"):
        list(checked_slabs([np.zeros(shape) for shape in shapes], F8, 3, labels))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3)])
def test_checked_slabs__refuses_other_rows_than_labels(shape):
    with pytest.raises(avgk.AvgkError, match=r"got a block of shape \(., 3\)"):
        list(checked_slabs([np.zeros(shape)], F8, 3, np.zeros(4, np.int64)))


def test_checked_slabs__gives_what_fits():
    slabs = [np.zeros((4, 2)), np.ones((4, 1))]
    assert [s is t for s, t in zip(slabs, checked_slabs(slabs, F8, 3, np.zeros(4, np.int64)), strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize("n_rows", [3, 5])
def test_evaluate__refuses_a_block_with_other_rows_than_its_neighbour(n_rows):
    """The first block of each band is as promised, so that no count of rows shows the lie."""

    def block(block_info=None):
        place = block_info[None]["chunk-location"]
        return np.random.default_rng(place[0]).random((n_rows if place == (1, 1) else 4, 3))

    scores = da.map_blocks(block, chunks=((4, 4), (3, 3)), dtype="f8", meta=np.zeros((0, 0)))
    for run in (avgk.evaluate, avgk.threshold, avgk.ranked_supports):
        with pytest.raises(avgk.ScoresError, match=r"scores must .*as in their metadata"):
            run(scores, **({"ranks": 1} if run is avgk.ranked_supports else {"k": 2}))


@pytest.mark.parametrize("soft", [False, True])
def test_bad_data__is_named_by_its_first_place_over_all_bands(soft):
    scores, labels = np.random.default_rng(0).random((12, 3)), np.zeros(12, np.int64)
    labels[[5, 10]] = 7
    labels = np.where(np.arange(3) == labels[:, None], 1.0, 2.0 * (labels[:, None] > 2)) if soft else labels
    lazy = da.from_array(scores, chunks=(2, 3))
    with dask.config.set({"scheduler": "synchronous", "avgk.task-bytes": 1, "avgk.fan-in": 2}):
        for run in (lambda s: avgk.evaluate(s, labels, k=1), lambda s: avgk.error_curve(s, labels),
                    lambda s: avgk.risk(s, labels, 0.5)):  # fmt: skip
            with pytest.raises(avgk.LabelsError, match=r"got 2 (that do|rows that are) not, the first at sample 5"):
                run(lazy)
            scores[[4, 9], 1] = np.nan
            with pytest.raises(avgk.ScoresError, match="got 2, the first at sample 4, class 1"):
                run(da.from_array(scores.copy(), chunks=(2, 2)))
