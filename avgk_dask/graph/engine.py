"""The engine: pilot, scan, merge; again where a bracket failed; then the cut through the ties."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import dask
from dask import threaded
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from ..errors import NAN_CURE, LabelsError, ScoresError, range_cure
from ..selection.bracket import ScanShape
from ..selection.search import Search
from ..selection.selection import Selection
from ..settings import setting
from ..summaries.checked import CheckedTally
from ..summaries.cut import TieSearch
from ..summaries.pilot import PilotSample
from ..summaries.scan import scan_band
from ..summaries.tally import ScanTally
from .memory import check_memory, kept_room, max_band_events, ranked_room
from .source import Source
from .tasks import Merge, TallyBand, sample_chunk, take_ties, tally_run
from .tie_order import spread_ties

#: Tallies a task holds before it merges them.
_HELD_TALLIES = 8

Compute = Callable[[list[Delayed], str], list[Any]]


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Give a function's value of each item, worked out on the threads of this process."""
    held = list(items)
    graph: dict[Any, Any] = {("item", i): (lambda i: function(held[i]), i) for i in range(len(held))}
    return list(threaded.get(graph, list(graph)))


def compute_plainly(tasks: list[Delayed], stage: str) -> list[Any]:
    """Compute with whatever scheduler Dask would use."""
    return list(dask.compute(*tasks))


def scan_shape(source: Source, n_ranks: int, n_ranked: int = 0, with_distance: bool = False) -> ScanShape:
    """Give what all scans of this source have in common."""
    events = max_band_events(source), setting("max-events")
    room = ranked_room(source, n_ranked)
    shape = ScanShape(*source.shape, source.dtype, n_ranks, source.n_chunks, *events, setting("tile-scores"))
    return replace(shape, n_ranked=n_ranked, ranked_room=room, with_distance=with_distance, max_kept=kept_room(source))


def run_search(
    source: Source,
    budgets: Sequence[int],
    *,
    n_ranks: int = 0,
    n_ranked: int = 0,
    with_distance: bool = False,
    nan_policy: str = "raise",
    ties: str = "first",
    compute: Compute = compute_plainly,
) -> Search:
    """Find every budget's selection, exactly. Reads the store once, and the pilot's chunks before.

    ``n_ranks`` is the highest rank a label's place is told apart to, ``n_ranked`` the number of ranks
    whose scores are kept; ``with_distance`` measures how far scores are from soft labels. With ``ties="spread"`` the ties kept are not the first ones but those of a
    fixed pseudo-random order, which takes one more read where ties are cut.
    """
    check_memory(source, budgets, n_ranks, n_ranked)
    shape = scan_shape(source, n_ranks, n_ranked, with_distance)
    pilots = pilot_tasks(source, budgets, shape)
    sample = PilotSample.merge(compute(pilots, "pilot")) if pilots else None
    search = Search.begin(shape, budgets, sample)
    while search.plan is not None:
        task = tally_task(source, "scan", scan_band, search.plan, ScanTally.merge)
        (tally,) = compute([task], "scan" if not search.n_scans else "rescan")
        refuse_bad_data(tally, source, nan_policy)
        search = search.advance(tally, in_threads)
    if ties == "first":
        return finish_cuts(source, search, compute)

    def again(refined: Source, cut: Sequence[int]) -> Search:
        return run_search(refined, cut, nan_policy="lowest", compute=compute)

    return spread_ties(source, search, again)


def pilot_tasks(source: Source, budgets: Sequence[int], shape: ScanShape) -> list[Delayed]:
    """Give the tasks that sample a few chunks; none where the matrix is small or no threshold is sought."""
    if shape.n_scores <= setting("small-scores") or not budgets:
        return []
    fraction = 1.5 * (max(budgets) + 1) / shape.n_scores + 0.01
    token = _token()
    graph: dict[Any, Any] = {}
    for number, place in enumerate(source.pilot_chunks()):
        promise = source.dtype, source.chunk_shape(*place)
        graph[f"avgk-pilot-{token}-{number}"] = (sample_chunk, source.chunk(*place), number, fraction, *promise)
    return as_tasks(list(graph), graph, source)


def as_tasks(keys: list[str], graph: dict[Any, Any], source: Source) -> list[Delayed]:
    """Give keys of a graph over the source's own tasks as something Dask computes."""
    name = f"avgk-{_token()}"
    layers = HighLevelGraph.from_collections(name, graph, dependencies=source.collections())
    return [Delayed(key, layers, layer=name) for key in keys]


def tally_task(
    source: Source, name: str, tally_band: TallyBand, plan: Any, merge: Merge, max_tasks: int | None = None
) -> Delayed:
    """Give the one task that the tallies of all bands merge into.

    ``tally_band(slabs, labels, band, plan)`` reads one band. With a limit on the tasks the tallies are
    large: a task then adds each to the last.
    """
    held = 2 if max_tasks else _HELD_TALLIES
    token = _token()
    shared = f"avgk-plan-{token}"
    keys: list[str] = []
    graph: dict[Any, Any] = {shared: plan}
    for first, last in source.groups(max_tasks):
        keys.append(f"avgk-{name}-{token}-{first}")
        labels = [source.labels_of(band) for band in range(first, last)]
        graph[keys[-1]] = (tally_run, source.bands(first, last), labels, first, tally_band, shared, merge, held)
    (task,) = as_tasks([merge_tree(keys, graph, token, merge)], graph, source)
    return task


def merge_tree(keys: list[str], graph: dict[Any, Any], token: str, merge: Merge) -> str:
    """Add a tree of merges, of the configured fan-in, to a graph; give the key of its root."""
    fan_in, level = setting("fan-in"), 0
    while len(keys) > 1:
        parts = [keys[i : i + fan_in] for i in range(0, len(keys), fan_in)]
        keys = [f"avgk-merge-{token}-{level}-{i}" for i in range(len(parts))]
        graph.update((key, (merge, part)) for key, part in zip(keys, parts, strict=True))
        level += 1
    return keys[0]


def refuse_bad_data(tally: CheckedTally, source: Source, nan_policy: str) -> None:
    """Raise for NaN and bad labels met in a scan, naming the first place."""
    if tally.n_nan and nan_policy == "raise":
        band, row, class_ = tally.first_nan
        raise ScoresError(
            f"scores must not hold NaN; got {tally.n_nan} of them, the first at sample "
            f"{source.rows[band] + row}, class {class_}. {NAN_CURE}"
        )
    if tally.n_bad_labels:
        band, row, _ = tally.first_bad_label
        n_classes = source.shape[1]
        rule = f"lie in 0..{n_classes - 1} (or be negative: unlabelled)"
        cure = range_cure(tally.least_label, tally.most_label, n_classes)
        if source.labels.ndim == 2:
            rule, cure = "be probabilities in [0, 1]", "Give probabilities; logits need a softmax first."
        raise LabelsError(
            f"labels must {rule}; got {tally.n_bad_labels:,} that {'does' if tally.n_bad_labels == 1 else 'do'} not, the first at sample {source.rows[band] + row}. {cure}"
        )


def finish_cuts(source: Source, search: Search, compute: Compute) -> Search:
    """Read the bands in which a cut through counted ties falls, each once, and take in their kept ties."""
    by_band: dict[int, list[int]] = {}
    for i, selection in search.found.items():
        if selection.cut is not None and selection.cut.pending:
            by_band.setdefault(selection.cut.band, []).append(i)
    if not by_band:
        return search
    found = dict(search.found)
    tasks = [cut_task(source, band, [found[i] for i in mine]) for band, mine in by_band.items()]
    for mine, cuts in zip(by_band.values(), compute(tasks, "cut"), strict=True):
        for i, cut in zip(mine, cuts, strict=True):
            found[i] = found[i].with_ties(cut)
    return replace(search, found=found)


def cut_task(source: Source, band: int, selections: Sequence[Selection]) -> Delayed:
    """Give the task that reads a band and finds where each selection's kept ties end in it."""
    name, tile = f"avgk-cut-{_token()}", setting("tile-scores")
    ties = TieSearch([(s.key, s.cut.n_ties) for s in selections if s.cut], source.dtype, source.shape[1], tile)
    graph = {name: (take_ties, source.bands(band, band + 1), source.labels_of(band), band, ties)}
    (task,) = as_tasks([name], graph, source)
    return task


def _token() -> str:
    return uuid.uuid4().hex[:12]
