"""``compare``: several models on the same samples, with the paired differences of their errors.

The standard error of a difference needs the sets of both models for each sample (``Model``): ``pair_values`` adds up
their products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import xarray as xr
from scipy.stats import binom, false_discovery_control

from ..arrays import Array, Bools, Floats, Ints
from ..engine.progress import phase
from ..engine.run import showing
from ..errors import LabelsError, OptionError, ScoresError, naming, warn_of
from ..exact.budgets import DEFAULT_BUDGETS, parse_budgets
from ..results.datasets import build_result, kind_sentence
from ..results.registry import COMPARISON
from ..sources.source import Source
from ..statistics.paired_rows import ToldRows, tell_rows
from .evaluate import find_outcome, outcome_result
from .inputs.labels import Groups, class_labels, labelled_source, refuse_soft
from .inputs.names import check_same_names, names_of, open_once
from .options import BudgetsLike, LabelsLike, Missing, Named, NanPolicy, ScanOptions, ScoresLike
from .outcome import (
    HIT,
    LABELLED,
    ONE,
    SIZE,
    TOP_HIT,
    Coefficients,
    Outcome,
    Products,
    average_influence,
    less,
    products_of,
    relative_influence,
    top_influence,
)

RULES = ("top", "average")
#: Where the counts of the second model stand behind those of the first: it has none of its own for what both share.
_SECOND = {ONE: ONE, LABELLED: LABELLED, HIT: 5, TOP_HIT: 6, SIZE: 7}


@dataclass(frozen=True)
class Model:
    """The outcome of a model, and the sets of all samples."""

    outcome: Outcome
    told: ToldRows

    def influence(self, rule: str, i: int) -> Coefficients | None:
        """Return psi of an error for a budget; None if there is no error."""
        errors = self.outcome.top_errors if rule == "top" else self.outcome.average_errors
        if errors[i] is None:
            return None
        return top_influence(self.outcome, i) if rule == "top" else average_influence(self.outcome, i)

    def right(self, rule: str, i: int) -> Bools:
        """Return which samples have their label in their set."""
        if rule == "average":
            return np.asarray(self.told.hits[:, i])
        budget = self.outcome.budgets[i]
        k = int(budget) if budget.denominator == 1 else 0
        return np.asarray((self.told.ranks > 0) & (self.told.ranks <= k))

    def counts(self, i: int) -> list[Array]:
        """Return the model's own columns: hits of its average-k and its top-k sets, and sizes of the former."""
        return [self.right("average", i), self.right("top", i), self.told.sizes[:, i]]


def summed(columns: Sequence[Array], clusters: Ints | None) -> list[Array]:
    """Return columns added up in each cluster; unchanged without clusters."""
    if clusters is None:
        return list(columns)
    n = int(clusters.max()) + 1
    return [np.bincount(clusters, column, minlength=n).astype(np.int64) for column in columns]


def sample_bars(model: Model, clusters: Ints | None) -> Named:
    """Return the standard errors of one model, of clusters."""
    names = "average_k_error", "top_k_error", "adaptive_gain", "relative_gain"
    found: dict[str, list[float]] = {f"{name}_stderr": [] for name in names}
    for i in range(len(model.outcome.budgets)):
        products = _products([_shared(model), model.counts(i)], clusters)
        average, top = model.influence("average", i), model.influence("top", i)
        both = average is not None and top is not None
        gain = less(top, average) if both else None  # type: ignore[arg-type]
        relative = relative_influence(model.outcome, i, top, average) if both else None  # type: ignore[arg-type]
        for values, psi in zip(found.values(), (average, top, gain, relative), strict=True):
            values.append(np.nan if psi is None else products.stderr(psi))
    return dict(found)


def _shared(model: Model) -> list[Array]:
    """Return the columns that all models share: ones, and whether a sample has a label."""
    labelled = model.told.ranks > 0
    return [np.ones(labelled.size, bool), labelled]


def _products(parts: Sequence[Sequence[Array]], clusters: Ints | None) -> Products:
    columns = [column for part in parts for column in part]
    labelled = columns[LABELLED].astype(bool)
    n_units = int(labelled.sum()) if clusters is None else np.unique(clusters[labelled]).size
    return Products(columns[0].size, products_of(summed(columns, clusters)), n_units)


def pair_values(models: Sequence[Model], clusters: Ints | None) -> Named:
    """Return the variables that compare any two models."""
    n, n_budgets = len(models), len(models[0].outcome.budgets)
    shape = len(RULES), n, n, n_budgets
    found: dict[str, Floats] = {
        name: np.full(shape, np.nan) for name in ("difference", "difference_stderr", "mcnemar_p")
    }
    discordant = np.zeros(shape, np.int64)
    against = {name: np.full(shape[1:], np.nan) for name in ("average_against_top", "average_against_top_stderr")}
    for a, b, i in product(range(n), range(n), range(n_budgets)):
        products = _products([_shared(models[a]), models[a].counts(i), models[b].counts(i)], clusters)
        for r, rule in enumerate(RULES):
            difference = _difference(models[a], rule, models[b], rule, i, products)
            found["difference"][r, a, b, i], found["difference_stderr"][r, a, b, i] = difference
            discordant[r, a, b, i] = (models[a].right(rule, i) & ~models[b].right(rule, i)).sum()
        crossed = _difference(models[a], "average", models[b], "top", i, products)
        against["average_against_top"][a, b, i], against["average_against_top_stderr"][a, b, i] = crossed
    found["mcnemar_p"] = mcnemar(discordant, np.swapaxes(discordant, 1, 2))
    found["mcnemar_p"][np.isnan(found["difference"])] = np.nan
    return {**found, "discordant": discordant, "mcnemar_p_adjusted": _adjusted(found["mcnemar_p"]), **against}


def _difference(a: Model, rule: str, b: Model, other_rule: str, i: int, products: Products) -> tuple[float, float]:
    """Return the difference of two errors, and its standard error."""
    first, second = a.influence(rule, i), b.influence(other_rule, i)
    if first is None or second is None:
        return np.nan, np.nan
    errors = [
        (model.outcome.top_errors if name == "top" else model.outcome.average_errors)[i]
        for model, name in ((a, rule), (b, other_rule))
    ]
    assert errors[0] is not None
    assert errors[1] is not None
    moved = {_SECOND[name]: value for name, value in second.items()}
    return float(errors[0] - errors[1]), products.stderr(less(first, moved))


def mcnemar(right: Ints, wrong: Ints) -> Floats:
    """Return McNemar's exact two-sided p-values, given how many samples only one or only the other gets right."""
    least, n = np.minimum(right, wrong), right + wrong
    return np.asarray(np.minimum(1.0, 2 * binom.cdf(least, n, 0.5)))


def _adjusted(p: Floats) -> Floats:
    """Return p-values adjusted for how many there are, each pair of models taken once."""
    found = np.where(np.isnan(p), np.nan, 1.0)
    places = [(rule, a, b, i) for rule, a, b, i in product(*map(range, p.shape)) if a < b]
    chosen = [place for place in places if not np.isnan(p[place])]
    if chosen:
        adjusted = false_discovery_control([p[place] for place in chosen], method="bh")
        for (rule, a, b, i), value in zip(chosen, adjusted, strict=True):
            found[rule, a, b, i] = found[rule, b, a, i] = value
    return found


def compare(
    models: Mapping[str, ScoresLike],
    labels: LabelsLike = None,
    k: BudgetsLike = DEFAULT_BUDGETS,
    *,
    straddle: bool = True,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    clusters: LabelsLike = None,
    nan_policy: NanPolicy = "raise",
    progress: bool | None = None,
    missing: Missing | None = None,
) -> xr.Dataset:
    """Compare models on the same samples: errors, paired differences with standard errors, and exact tests.

    All models must have scores of the same samples in the same order, and of the same classes. Their differences are
    taken sample by sample, which detects far smaller ones than two errors with their own standard errors would.

    Parameters
    ----------
    models
        Scores by name, of any kind that ``evaluate`` takes: ``{"small": "small.zarr", "large": large_scores}``.
    labels
        N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds
        them. By default the labels stored with the scores. Those of all models must be the same.
    k
        Budget or sequence of budgets in (0, C]; duplicates count once. Top-k needs integers. By default 1 to 10, or C.
    straddle
        Whether to also analyse the ambiguity of each, as ``evaluate`` does.
    where
        One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
    ignore_index
        Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
    clusters
        One integer per sample, such as its document or patient: samples of a cluster may be alike, and standard errors
        are those of independent clusters. Nothing else changes. By default each sample is independent.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
    missing
        What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
        array's fill value.

    Returns
    -------
    Dataset
        The variables of ``evaluate`` along ``model``, and these; ``rule`` is ``"top"`` or ``"average"``, ``other`` the
        model that it is compared with.
    ``difference(rule, model, other, k)``
        Error of the model less error of the other: negative where the model is better.
    ``difference_stderr(rule, model, other, k)``
        Its standard error: the thresholds' own uncertainty and the pairing are taken into account.
    ``discordant(rule, model, other, k)``
        Number of labelled samples that the model gets right and the other wrong.
    ``mcnemar_p(rule, model, other, k)``
        McNemar's exact two-sided p-value of the discordant samples. It takes thresholds as given and samples as
        independent, whatever the clusters.
    ``mcnemar_p_adjusted(rule, model, other, k)``
        The same, adjusted for all pairs, rules and budgets together (Benjamini and Hochberg, 1995).
    ``average_against_top(model, other, k), average_against_top_stderr(model, other, k)``
        Average-k error of the model less top-k error of the other: negative where a small model that adapts beats a
        large one that does not.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If labels do not fit the scores, are probabilities, there are none, or those of two models differ.
    ScoresError
        If models have other samples or classes than the first, or in another order, by their shapes, coordinates or
        names.
    OptionError
        If there are fewer than two models.
    MemoryLimitError, StoreError
        If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

    Warns
    -----
    ResultWarning
        If the scores of a model are not probabilities, or most of each row is absent.

    Notes
    -----
    Cost: one read of each model, and its pilot, as for ``evaluate``. Beyond some two million samples a second read of
    each finds the sets of all samples. Two bytes for each sample, budget and model come together, for sets of more than
    255 labels three, or five.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> rng = np.random.default_rng(0)
    >>> good = rng.dirichlet(np.full(10, 0.2), 500)
    >>> labels = np.array([rng.choice(10, p=p) for p in good])
    >>> noisy = (good + rng.dirichlet(np.full(10, 0.2), 500)) / 2
    >>> found = avgk.compare({"good": good, "noisy": noisy}, labels, k=[1, 2])
    >>> better = found.sel(rule="average", model="good", other="noisy", k=2)
    >>> bool(better.difference < -2 * better.difference_stderr), better.mcnemar_p.item() < 0.001
    (True, True)

    """
    options = ScanOptions(
        straddle=straddle, where=where, ignore_index=ignore_index, clusters=clusters, nan_policy=nan_policy,
        progress=progress, missing=missing,
    )  # fmt: skip
    named = _checked_models(models)
    for name, scores in named.items():
        with naming(name):
            named[name] = open_once(scores, missing)
    check_same_names({f"models[{name!r}]": scores for name, scores in named.items()})
    sources = {}
    for name, scores in named.items():
        with naming(name):
            sources[name] = labelled_source(scores, labels, "compare", hard=True, **options.opening)
    _check_alike(sources)
    if labels is None:
        _check_labels({name: _existing_labels(sources[name], scores, missing) for name, scores in named.items()})
    first = next(iter(sources.values()))
    codes = None
    if clusters is not None:
        model = next((scores for scores in named.values() if any(names_of(scores, "scores")[:-1])), None)
        codes = Groups.of(clusters, model, first, "clusters", missing, labels=labels, where=where).numbered()[1]
    budgets = parse_budgets(k, first.n_classes)
    results, found = [], []
    for name, source in sources.items():
        with naming(name), options.run(source) as run:
            outcome = find_outcome(run, budgets, options, keeps_rows=True)
            told = tell_rows(run, outcome.search)
            results.append(outcome_result(outcome, straddle, run.reads))
            found.append(Model(outcome.slim(), told))
    if codes is not None and first.mask is not None:
        codes = codes[first.mask.samples()]
    with showing(progress), phase("settling"):
        result = _joined(list(named), results, found, codes)
    for name, one in zip(named, results, strict=True):
        said = kind_sentence(one)
        warn_of(said and f"{name}: {said}")
    return result


def _checked_models(models: object) -> dict[str, ScoresLike]:
    if not isinstance(models, Mapping) or len(models) < 2:
        got = f"{len(models)} of them" if isinstance(models, Mapping) else type(models).__name__
        raise OptionError(
            f"models must be at least two, scores by name; got {got}. Pass a dict such as "
            '{"small": scores, "large": others}.'
        )
    named = {str(name): scores for name, scores in models.items()}
    if len(named) < len(models):
        raise OptionError(f"models must have different names; got {', '.join(map(repr, models))}. Rename them.")
    return named


def _check_alike(sources: Mapping[str, Source]) -> None:
    """Refuse models of different samples or classes, and labels that are probabilities."""
    shapes = {name: (*source.lead, source.n_classes) for name, source in sources.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ScoresError(
            f"models must have scores of the same samples and classes; got {told}. Evaluate all of them on the same data."
        )
    for source in sources.values():
        refuse_soft(source, "compare")


def _existing_labels(source: Source, scores: ScoresLike, missing: str | None) -> Array:
    """Return the class numbers of the samples that exist."""
    labels = class_labels(source, scores, None, missing)
    return labels if source.mask is None else labels[source.mask.samples()]


def _check_labels(labels: Mapping[str, Array]) -> None:
    """Refuse models whose labels differ: they are of other samples, or in another order."""
    (name, first), *others = ((name, np.maximum(found.astype(np.int64), -1)) for name, found in labels.items())
    for other, found in others:
        if not np.array_equal(first, found):
            sample = int(np.flatnonzero(first != found)[0])
            raise LabelsError(
                f"labels must be the same for all models; those of {name} and {other} differ, first at sample {sample} "
                f"({first[sample]} and {found[sample]}). Compare scores of the same samples in the same order, or pass labels."
            )


def _joined(
    names: Sequence[str], results: Sequence[xr.Dataset], models: Sequence[Model], clusters: Array | None
) -> xr.Dataset:
    """Return the results along ``model``, with what compares them."""
    values, coords = _along_models(results)
    if clusters is not None:
        bars = [sample_bars(model, clusters) for model in models]
        values |= {name: [one[name] for one in bars] for name in bars[0]}
    values |= pair_values(models, clusters)
    coords |= {"model": list(names), "other": list(names), "rule": list(RULES)}
    told = ("store", "reads", "made_by", "score_kind")
    attrs = {name: value for name, value in results[0].attrs.items() if name not in told}
    attrs["store"] = [str(one.attrs["store"]) for one in results]
    for name in ("made_by", "score_kind"):
        attrs |= _said(name, names, results)
    if clusters is not None:
        attrs["n_clusters"] = int(np.unique(clusters).size)
    attrs["reads"] = max(one.attrs["reads"] for one in results)
    return build_result(values, coords, attrs, COMPARISON)


def _said(name: str, names: Sequence[str], results: Sequence[xr.Dataset]) -> Named:
    """Return an attribute that all models have in common, or the one of each; nothing if none has it."""
    said = [str(one.attrs.get(name, "")) for one in results]
    told = [(model, value) for model, value in zip(names, said, strict=True) if value or name != "score_kind"]
    if len({value for _, value in told}) <= 1:  # the kind of truncated scores is not known
        return {name: told[0][1]} if told and told[0][1] else {}
    return {name: "; ".join(f"{model}: {value or 'none'}" for model, value in told)}


def _along_models(results: Sequence[xr.Dataset]) -> tuple[Named, Named]:
    """Return the variables of all results, as deep as there are models, and their coordinates."""
    n_sizes = max(one.sizes["size"] for one in results)
    padded = [one.reindex(size=np.arange(n_sizes), fill_value=0) for one in results]
    values = {str(name): np.stack([one[name].values for one in padded]) for name in results[0].data_vars}
    return dict(values), {str(name): padded[0][name].values for name in padded[0].coords}
