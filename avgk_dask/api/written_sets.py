"""``write_sets``: sets written out of core, as booleans or as class indices."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import chain
from numbers import Integral
from typing import Any

import dask.array as da

from ..engine.progress import phase
from ..engine.run import count_progress
from ..errors import OptionError
from ..exact.budgets import parse_budgets
from ..results.datasets import plain_json
from ..results.registry import Ties
from ..sources.readers import StoredReader
from ..sources.source import Source
from ..store.read.grids import chunks_of, shards_of
from ..store.where.addresses import Options, redact
from ..store.where.locations import MOST_NAMES
from ..store.write.stored_sets import SET_FORMATS, SetBand, SetGrid, SetsWriter
from ..store.write.targets import open_target
from .conformal.predictors import ConformalPredictor, set_matrix
from .inputs.lazy_scores import places_of
from .inputs.names import class_names_of
from .inputs.sources import as_lazy
from .options import (
    BudgetLike,
    LabelsLike,
    NanPolicy,
    PlaceLike,
    ScanOptions,
    ScoresLike,
    StoreLike,
    ThresholdsLike,
    check_flag,
    check_word,
)
from .sets import apply_rule, rule_above, set_windows, settle_rule, top_rule
from .thresholds import parse_threshold, score_value

RULES = ("average", "top", "threshold", "conformal")


@dataclass(frozen=True)
class SetChoice:
    """The sets to write: the sets of a budget, of a threshold, or of a conformal predictor (with groups)."""

    rule: str = "average"
    k: BudgetLike | None = None
    threshold: ThresholdsLike | None = None
    ties: Ties = "first"
    nan_policy: NanPolicy = "raise"
    predictor: ConformalPredictor | None = None
    groups: LabelsLike = None

    def __post_init__(self) -> None:
        check_word("rule", self.rule, RULES)
        needed = {"threshold": "threshold", "conformal": "predictor"}.get(self.rule, "k")
        present = [name for name in ("k", "threshold", "predictor") if getattr(self, name) is not None]
        if present != [needed]:
            raise OptionError(
                f"the rule {self.rule!r} needs {needed}, and no other of k, threshold and predictor; got "
                f"{' and '.join(present) or 'none'}. The rules average and top need a budget."
            )


@dataclass(frozen=True, kw_only=True)
class WrittenSets:
    """The sets written: their rule, its threshold (None for top-k, or if there are several), and their size."""

    rule: str
    k: float | None = None
    threshold: float | int | None = None
    n_above: int | None = None
    n_ties: int | None = None
    n_kept: int | None = None
    ties: str | None = None
    #: The method and level of a conformal predictor.
    method: str | None = None
    alpha: float | None = None
    source: str
    #: The transforms of the scores, and the number of samples left out, whose sets are empty.
    made_by: str
    n_left_out: int
    n_samples: int
    n_classes: int
    format: str
    n_labels: int


def write_sets(
    scores: ScoresLike,
    out: StoreLike,
    choice: SetChoice,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    format: str = "booleans",
    overwrite: bool = False,
    out_options: Options | None = None,
    progress: bool | None = None,
    checkpoint: PlaceLike = None,
) -> WrittenSets:
    """Write sets to a new Zarr store, band by band, in memory for the bits of some bands.

    ``format="booleans"`` writes ``sets (sample, class)``, chunked like the scores; ``"indices"`` writes ``offsets`` and
    ``classes``: the set of sample i is ``classes[offsets[i]:offsets[i + 1]]``, ascending. The root's attributes are the
    fields of the result, and ``class_names`` if the scores have names of classes. Samples of several
    dimensions are in row-major order; those left out by ``where`` or ``ignore_index`` have empty sets. If writing
    fails, nothing is left, and a local store that was to be overwritten is unchanged.

    Reads the scores once to find the threshold, for which a ``checkpoint`` works as in ``threshold``, and once more.
    """
    check_word("format", format, SET_FORMATS)
    check_flag("overwrite", overwrite)
    options = ScanOptions(
        ties=choice.ties, nan_policy=choice.nan_policy, where=where, ignore_index=ignore_index, progress=progress,
        checkpoint=checkpoint,
    )  # fmt: skip
    target = open_target(out, out_options, overwrite, apart_from=[*places_of(scores), *places_of(where)])
    source, _ = as_lazy(scores, **options.opening)
    names = class_names_of(scores)
    with target as place, _writing_thread() as thread:
        sets, rule = _select(source, scores, choice, options)
        grid = _grid(source, sets)
        writer = thread.submit(
            SetsWriter, place, grid, format, overwrite=overwrite, options=out_options
        ).result()  # fmt: skip
        _write_all(sets.rechunk(grid.shards or grid.chunks), writer, thread, progress)
        written = WrittenSets(
            rule=choice.rule, **rule, source=redact(source.location), made_by=source.provenance,
            n_left_out=source.unfiltered.shape[0] - source.shape[0], n_samples=grid.shape[0], n_classes=grid.shape[1],
            format=format, n_labels=writer.n_labels,
        )  # fmt: skip
        attributes = {name: plain_json(value) for name, value in asdict(written).items() if name != "n_labels"}
        attributes |= {"class_names": names} if names and len(names) <= MOST_NAMES else {}
        with phase("writing"):
            thread.submit(writer.finish, **attributes).result()
    return written


def _select(
    source: Source, scores: ScoresLike, choice: SetChoice, options: ScanOptions
) -> tuple[da.Array, dict[str, Any]]:
    """Return the lazy sets, and the fields of ``WrittenSets`` that describe their rule."""
    nan_policy = options.nan_policy
    if choice.predictor is not None:
        predictor = choice.predictor
        sets = set_matrix(predictor, source, scores, choice.groups, nan_policy)
        level = predictor.threshold if isinstance(predictor.threshold, (int, float)) else None
        return sets, {"threshold": level, "method": predictor.method, "alpha": predictor.alpha}
    if choice.rule == "threshold":
        assert choice.threshold is not None  # checked by SetChoice
        value = parse_threshold(choice.threshold)
        number = int(value) if isinstance(value, Integral) else float(value)  # for JSON
        return apply_rule(source, rule_above(choice.threshold, source), nan_policy), {"threshold": number}
    budget: Fraction
    (budget,) = parse_budgets([choice.k], source.n_classes)
    if choice.rule == "top":
        return apply_rule(source, top_rule(budget, source), nan_policy), {"k": float(budget)}
    # Lazy sets would search the threshold again for each window.
    with options.run(source, "sets", ties=options.ties) as run:
        selection, rule = settle_rule(run, budget, options.ties)
    return apply_rule(source, rule, nan_policy), {
        "k": float(budget),
        "threshold": score_value(selection.key, source.dtype),
        "n_above": selection.n_above,
        "n_ties": selection.n_ties,
        "n_kept": selection.n_kept,
        "ties": options.ties,
    }


def _grid(source: Source, sets: da.Array) -> SetGrid:
    reader = source.reader
    if isinstance(reader, StoredReader) and reader.array.ndim == 2 and not source.transforms:
        return SetGrid(reader.shape, chunks_of(reader.array), shards_of(reader.array))
    rows, classes = (max(sizes) for sizes in sets.chunks)
    return SetGrid(sets.shape, (rows, classes))


@contextmanager
def _writing_thread() -> Iterator[Executor]:
    """Open the thread that writes. After an interrupt, it completes the current write before anything else happens.

    Otherwise zarr would continue that write, and recreate parts of a store that is being removed.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="avgk-write")
    # Start the thread now: shutdown does not wait for a thread that is interrupted while it starts.
    pool.submit(int).result()
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _write_all(sets: da.Array, writer: SetsWriter, thread: Executor, progress: bool | None) -> None:
    """Write all bands, each window while the next one is computed."""

    def write(band: SetBand) -> None:
        writer.write(band)
        advance(band.n_rows)

    with count_progress("sets", "row", sets.shape[0], progress) as advance:
        writes: list[Future[None]] = []
        for window in chain(set_windows(sets), [[]]):
            for future in writes:
                future.result()
            writes = [thread.submit(write, band) for band in window]
