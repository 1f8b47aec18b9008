"""``write_sets``: sets written out of core, as booleans or as class indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any

import dask.array as da

from ..engine.progress import phase
from ..engine.run import counting
from ..errors import OptionError
from ..exact.budgets import parse_budgets
from ..results.datasets import plain_json
from ..sources.readers import StoredReader
from ..sources.source import Source
from ..store import SET_FORMATS, SetBand, SetGrid, SetsWriter, new_target, shown
from ..store.read.grids import chunks_of, shards_of
from ..store.where.addresses import Options
from ..store.where.locations import MOST_NAMES
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
    Ties,
    check_flag,
    check_word,
)
from .sets import apply_rule, rule_above, set_windows, settle_rule, top_rule
from .thresholds import parse_threshold, score_value

RULES = ("average", "top", "threshold", "conformal")


@dataclass(frozen=True)
class SetChoice:
    """Which sets: those of a budget, those above a threshold, or those of a conformal predictor (with groups)."""

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
        given = [name for name in ("k", "threshold", "predictor") if getattr(self, name) is not None]
        if given != [needed]:
            raise OptionError(
                f"{needed} must be given for the rule {self.rule}, and nothing else; got {' and '.join(given) or 'nothing'}. "
                "Give a budget for the rules average and top."
            )


@dataclass(frozen=True, kw_only=True)
class WrittenSets:
    """What was written: the rule with its threshold (None for top-k, or if there are several), and all labels."""

    rule: str
    k: float | None = None
    threshold: float | int | None = None
    n_above: int | None = None
    n_ties: int | None = None
    n_kept: int | None = None
    ties: str | None = None
    #: Those of a conformal predictor.
    method: str | None = None
    alpha: float | None = None
    source: str
    #: What was done to the scores after they were read, and how many samples do not exist: their sets are empty.
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
    """Write sets to a new Zarr store, band by band: memory for some bands as bits, whatever N and C.

    ``format="booleans"`` gives ``sets (sample, class)``, chunked like the scores; ``"indices"`` gives ``offsets`` and
    ``classes``: the set of sample i is ``classes[offsets[i]:offsets[i + 1]]``, ascending. The root's attributes are the
    fields of the result, and ``class_names`` if the scores have names of classes. Samples of several
    dimensions are in row-major order; those left out by ``where`` or ``ignore_index`` have empty sets. What
    fails leaves nothing behind, and a local store that was to be overwritten as it was.

    Reads the scores once to find the threshold, which a ``checkpoint`` keeps as that of ``threshold`` does, and once
    more.

    Raises
    ------
    BudgetError, ScoresError, DtypeError, OptionError, MemoryLimitError, StoreError

    Examples
    --------
    >>> import tempfile, numpy as np, zarr
    >>> path = tempfile.mkdtemp() + "/sets.zarr"
    >>> written = write_sets(np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]]), path, SetChoice(k=1.5), format="indices")
    >>> store = zarr.open_group(path, mode="r")
    >>> store["offsets"][:].tolist(), store["classes"][:].tolist(), written.threshold
    ([0, 1, 3], [0, 0, 1], 0.3)

    """
    check_word("format", format, SET_FORMATS)
    check_flag("overwrite", overwrite)
    options = ScanOptions(
        ties=choice.ties, nan_policy=choice.nan_policy, where=where, ignore_index=ignore_index, progress=progress,
        checkpoint=checkpoint,
    )  # fmt: skip
    target = new_target(out, out_options, overwrite, apart_from=[*places_of(scores), *places_of(where)])
    source, _ = as_lazy(scores, **options.opening)
    names = class_names_of(scores)
    with target as place, _writing_thread() as thread:
        sets, facts = _choose(source, scores, choice, options)
        grid = _grid(source, sets)
        writer = thread.submit(
            SetsWriter, place, grid, format, overwrite=overwrite, options=out_options
        ).result()  # fmt: skip
        _write_all(sets.rechunk(grid.shards or grid.chunks), writer, thread, progress)
        found = WrittenSets(
            rule=choice.rule, **facts, source=shown(source.location), made_by=source.made_by,
            n_left_out=source.whole.shape[0] - source.shape[0], n_samples=grid.shape[0], n_classes=grid.shape[1],
            format=format, n_labels=writer.n_labels,
        )  # fmt: skip
        attributes = {name: plain_json(value) for name, value in asdict(found).items() if name != "n_labels"}
        attributes |= {"class_names": names} if names and len(names) <= MOST_NAMES else {}
        with phase("writing"):
            thread.submit(writer.finish, **attributes).result()
    return found


def _choose(
    source: Source, scores: ScoresLike, choice: SetChoice, options: ScanOptions
) -> tuple[da.Array, dict[str, Any]]:
    """Return the lazy sets, and the fields of ``WrittenSets`` that describe their rule."""
    nan_policy = options.nan_policy
    if choice.predictor is not None:
        one = choice.predictor
        sets = set_matrix(one, source, scores, choice.groups, nan_policy)
        level = one.threshold if isinstance(one.threshold, (int, float)) else None
        return sets, {"threshold": level, "method": one.method, "alpha": one.alpha}
    if choice.rule == "threshold":
        assert choice.threshold is not None  # SetChoice looked
        value = parse_threshold(choice.threshold)
        plain = int(value) if isinstance(value, Integral) else float(value)  # as JSON can hold it
        return apply_rule(source, rule_above(choice.threshold, source), nan_policy), {"threshold": plain}
    budget: Fraction
    (budget,) = parse_budgets([choice.k], source.n_classes)
    facts: dict[str, Any] = {"k": float(budget)}
    if choice.rule == "top":
        return apply_rule(source, top_rule(budget, source), nan_policy), facts
    # Found once, and not again for every window, as lazy sets would.
    with options.run(source, "sets", ties=options.ties) as run:
        found, rule = settle_rule(run, budget, options.ties)
    counts = {"n_above": found.n_above, "n_ties": found.n_ties, "n_kept": found.n_kept, "ties": options.ties}
    facts |= {"threshold": score_value(found.key, source.dtype), **counts}
    return apply_rule(source, rule, nan_policy), facts


def _grid(source: Source, sets: da.Array) -> SetGrid:
    reader = source.reader
    if isinstance(reader, StoredReader) and reader.array.ndim == 2 and not source.transforms:
        return SetGrid(reader.shape, chunks_of(reader.array), shards_of(reader.array))
    rows, classes = (max(sizes) for sizes in sets.chunks)
    return SetGrid(sets.shape, (rows, classes))


@contextmanager
def _writing_thread() -> Iterator[Executor]:
    """Return the one thread that writes. Where this one is interrupted, the write under way ends before anything else.

    zarr would go on with it, and so put back parts of a store that is being removed.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="avgk-write")
    pool.submit(int).result()  # started now: one that is interrupted while it starts would not be waited for
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _write_all(sets: da.Array, writer: SetsWriter, thread: Executor, progress: bool | None) -> None:
    """Write all bands, each window while the next one is computed."""
    with counting("sets", "row", sets.shape[0], progress) as advance:
        under_way: list[Future[None]] = []
        for window in set_windows(sets):
            _await(under_way)
            under_way = [thread.submit(_write_band, band, writer, advance) for band in window]
        _await(under_way)


def _await(writes: list[Future[None]]) -> None:
    for write in writes:
        write.result()


def _write_band(band: SetBand, writer: SetsWriter, advance: Callable[[int], object]) -> None:
    writer.write(band)
    advance(band.n_rows)
