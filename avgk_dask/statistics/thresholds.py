"""Find thresholds: of budgets with either order of ties, of groups, and with other sets counted in the same read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ..bands.passes import Pass
from ..engine.memory import NO_STRATA, Strata, fits, fitting_shape
from ..engine.pilot import PilotPlan, PilotSample, sample_chunk
from ..engine.plan import ScanShape, grown_plan
from ..engine.run import Run, drive
from ..engine.search import ThresholdSearch
from ..engine.ties import ExtremesSearch
from ..exact.budgets import count_labels, largest_integer
from ..settings import setting
from ..sources.planning import choose_pilot_chunks, chunk_shape
from ..sources.source import Source, reorder_ties
from .above import AbovePlan, SetCountingSearch
from .group_scan import MOST_GROUPS
from .group_search import GENEROUS, GroupSearch
from .truncated import refuse_spread


def find_thresholds(
    run: Run,
    budgets: Sequence[int],
    *,
    n_ranks: int = 0,
    n_ranked: int = 0,
    with_distance: bool = False,
    ties: str = "first",
    strata: Strata = NO_STRATA,
    windows: Sequence[int] = (),
    keeps_rows: bool = False,
) -> ThresholdSearch:
    """Find every budget's selection, exactly. Reads the pilot's chunks, and then the store once.

    - ``n_ranks``: ranks of labels are distinguished up to this one.
    - ``n_ranked``: retain the scores of this many ranks.
    - ``with_distance``: measure the distance of scores from soft labels.
    - ``ties``: ``"first"`` keeps ties in row-major order; another word of ``TIES`` needs one more read if ties are cut.
    - ``strata``: rows that are counted together.
    - ``windows``: a smaller budget for each budget, of which only the label weight is computed.
    - ``keeps_rows``: keep the retained rows for ``find_row_sets``.
    """
    shape = fitting_shape(run.source, budgets, n_ranks, n_ranked, with_distance, strata)
    options = {"cuts_ties": ties == "first", "windows": windows, "keeps_rows": keeps_rows}
    refuse_spread(run.source, ties)
    search = drive(_begin(run, budgets, shape, **options), run)
    return search if ties == "first" else _reorder_ties(run, search, strata, ties)


def find_and_count_sets(run: Run, budgets: Sequence[int], above: AbovePlan) -> SetCountingSearch:
    """Find every budget's selection, and count the sets above other keys, in one read."""
    shape = fitting_shape(run.source, budgets)
    return drive(SetCountingSearch(_begin(run, budgets, shape), above), run)


def find_group_thresholds(
    run: Run, budgets: Sequence[Fraction], strata: Strata, n_groups: int, first: int
) -> Iterator[GroupSearch]:
    """Find the selections of each group from ``first`` on: all at once if they fit, else ``MOST_GROUPS`` at a time."""
    source = run.source
    counts = [count_labels(budget, source.shape[0]) for budget in budgets]
    shape = fitting_shape(source, counts, largest_integer(budgets), strata=strata)
    listed = min(2 * GENEROUS * max(counts), shape.n_scores)
    step = n_groups if listed <= shape.max_held else MOST_GROUPS
    for start in range(first, n_groups, step):
        groups, pilot = range(start, min(start + step, n_groups)), pilot_pass(source, [listed])
        yield drive(GroupSearch.begin(shape, budgets, source.rows, n_groups, groups, pilot), run)


def _begin(run: Run, budgets: Sequence[int], shape: ScanShape, **options: Any) -> ThresholdSearch:
    """Begin a search; follow the waves of an earlier run if the checkpoint has them."""
    script = () if run.checkpoint is None else run.checkpoint.begin_search()
    if script and not fits(run.source, grown_plan(script[0].plan, shape).shape, budgets):  # that run had larger workers
        script = ()
    return ThresholdSearch.begin(shape, budgets, pilot_pass(run.source, budgets), script=script, **options)


def pilot_pass(source: Source, budgets: Sequence[int]) -> Pass | None:
    """Return the pass over a few chunks, or None if the matrix is small or no threshold is sought."""
    n_scores = source.shape[0] * source.shape[1]
    if n_scores <= setting("small-scores") or not budgets:
        return None
    chunks = choose_pilot_chunks(source)
    if not chunks:
        return None
    shapes = tuple(chunk_shape(source, *chunk) for chunk in chunks)
    plan = PilotPlan(1.5 * (max(budgets) + 1) / n_scores + 0.01, source.dtype, shapes)
    bands, columns = zip(*chunks, strict=True)
    return Pass("pilot", sample_chunk, plan, PilotSample, bands, columns)


def _reorder_ties(run: Run, search: ThresholdSearch, strata: Strata, ties: str) -> ThresholdSearch:
    """Return the search with cut ties kept in an order of ``TIE_DRAWS``, after one more search for those budgets.

    Refined keys do not determine ranks: strata by rank become those with and without a label.
    """
    cut = {i: s for i, s in search.selections.items() if s.is_cut}
    if not cut:
        return search
    refined = run.over(reorder_ties(run.source, (s.key for s in cut.values()), ties), "lowest")
    again = find_thresholds(refined, [s.budget for s in cut.values()], strata=strata)
    selections = dict(search.selections)
    for number, (i, selection) in enumerate(cut.items()):
        other = again.selections[number]
        selections[i] = replace(selection, cells=other.cells, strata=other.strata, weight=other.weight, cut=None)
    return replace(search, selections=selections)


def settle_extremes(run: Run, search: ThresholdSearch) -> ThresholdSearch:
    """Find the least and most label weight of kept ties if they are unknown, in two more reads for all budgets."""
    source = run.source
    extremes = ExtremesSearch.begin(source.dtype, source.shape[1], setting("ranked-bins"), search.selections)
    return replace(search, selections=drive(extremes, run).settle(search.selections))
