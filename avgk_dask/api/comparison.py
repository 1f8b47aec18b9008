"""``compare``: several models on the same samples, with the paired differences of their errors.

The standard error of a difference needs the sets of both models for each sample (``Model``): ``pair_values`` adds up
their products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import xarray as xr
from scipy.stats import binom, false_discovery_control

from ..arrays import Array, Bools, Floats, Ints
from ..engine.progress import phase
from ..engine.run import show_progress
from ..errors import LabelsError, OptionError, ScoresError, naming, warn_about
from ..exact.budgets import DEFAULT_BUDGETS, parse_budgets
from ..results.datasets import build_result, kind_sentence
from ..results.registry import COMPARISON
from ..sources.source import Source
from ..statistics.error_bars import (
    HIT,
    LABELLED,
    ONE,
    SIZE,
    TOP_HIT,
    Products,
    error_bars,
    error_influence,
    multiply_columns,
    subtract,
)
from ..statistics.outcome import Outcome
from ..statistics.paired_rows import RowSets, find_row_sets
from .evaluate import find_outcome, outcome_result
from .inputs.labels import Groups, class_labels, labelled_source, refuse_soft
from .inputs.names import check_same_names, names_of, open_once
from .options import BudgetsLike, LabelsLike, Missing, Named, NanPolicy, ScanOptions, ScoresLike, rounded

Rule = Literal["top", "average"]
RULES: tuple[Rule, ...] = ("top", "average")
#: Columns of the second model in a table of two: its own counts follow those of the first, shared columns appear once.
_SECOND = {ONE: ONE, LABELLED: LABELLED, HIT: 5, TOP_HIT: 6, SIZE: 7}


@dataclass(frozen=True)
class Model:
    """The outcome of a model, and the sets of all samples."""

    outcome: Outcome
    rows: RowSets

    def hits(self, rule: Rule, i: int) -> Bools:
        """Return which samples have their label in their set."""
        if rule == "average":
            return np.asarray(self.rows.hits[:, i])
        budget = self.outcome.budgets[i]
        k = int(budget) if budget.denominator == 1 else 0
        return np.asarray((self.rows.ranks > 0) & (self.rows.ranks <= k))

    def shared_columns(self) -> list[Array]:
        """Return the columns that all models share: ones, and whether a sample has a label."""
        labelled = self.rows.ranks > 0
        return [np.ones(labelled.size, bool), labelled]

    def columns(self, i: int) -> list[Array]:
        """Return the model's own columns: hits of its average-k and its top-k sets, and sizes of the former."""
        return [self.hits("average", i), self.hits("top", i), self.rows.sizes[:, i]]


def _multiply(columns: Sequence[Array], clusters: Ints | None) -> Products:
    """Return the sums of products of columns over samples, or over clusters whose samples are added up first."""
    labelled, n_samples = columns[LABELLED].astype(bool), columns[0].size
    n_units = int(labelled.sum()) if clusters is None else np.unique(clusters[labelled]).size
    if clusters is not None:
        n = int(clusters.max()) + 1
        columns = [np.bincount(clusters, column, minlength=n).astype(np.int64) for column in columns]
    return Products(n_samples, multiply_columns(columns), n_units)


def cluster_stderrs(model: Model, clusters: Ints) -> Named:
    """Return the cluster-robust standard errors of one model."""
    budgets = range(len(model.outcome.budgets))
    products = [_multiply([*model.shared_columns(), *model.columns(i)], clusters) for i in budgets]
    bars = [error_bars(model.outcome, i, products[i]) for i in budgets]
    names = "average_k_error", "top_k_error", "adaptive_gain", "relative_gain"
    return {f"{name}_stderr": rounded([getattr(bar, name) for bar in bars]) for name in names}


def pair_values(models: Sequence[Model], clusters: Ints | None) -> Named:
    """Return the variables that compare any two models."""
    n, n_budgets = len(models), len(models[0].outcome.budgets)
    shape = len(RULES), n, n, n_budgets
    difference, stderr = np.full((2, *shape), np.nan)
    crossed, crossed_stderr = np.full((2, *shape[1:]), np.nan)
    discordant = np.zeros(shape, np.int64)
    for a, b, i in product(range(n), range(n), range(n_budgets)):
        first, second = models[a], models[b]
        products = _multiply([*first.shared_columns(), *first.columns(i), *second.columns(i)], clusters)
        for r, rule in enumerate(RULES):
            difference[r, a, b, i], stderr[r, a, b, i] = _difference(first, rule, second, rule, i, products)
            discordant[r, a, b, i] = (first.hits(rule, i) & ~second.hits(rule, i)).sum()
        crossed[a, b, i], crossed_stderr[a, b, i] = _difference(first, "average", second, "top", i, products)
    p = mcnemar(discordant, np.swapaxes(discordant, 1, 2))
    p[np.isnan(difference)] = np.nan
    return {
        "difference": difference,
        "difference_stderr": stderr,
        "mcnemar_p": p,
        "discordant": discordant,
        "mcnemar_p_adjusted": _adjust(p),
        "average_against_top": crossed,
        "average_against_top_stderr": crossed_stderr,
    }


def _difference(a: Model, rule: Rule, b: Model, other_rule: Rule, i: int, products: Products) -> tuple[float, float]:
    """Return the difference of two errors, and its standard error; NaN if an error does not exist."""
    first, second = error_influence(a.outcome, rule, i), error_influence(b.outcome, other_rule, i)
    error, other = a.outcome.errors(rule)[i], b.outcome.errors(other_rule)[i]
    if first is None or second is None or error is None or other is None:
        return np.nan, np.nan
    moved = {_SECOND[column]: value for column, value in second.items()}
    return float(error - other), products.stderr(subtract(first, moved))


def mcnemar(right: Ints, wrong: Ints) -> Floats:
    """Return McNemar's exact two-sided p-values, given how many samples only one or only the other gets right."""
    least, n = np.minimum(right, wrong), right + wrong
    return np.asarray(np.minimum(1.0, 2 * binom.cdf(least, n, 0.5)))


def _adjust(p: Floats) -> Floats:
    """Return p-values adjusted for multiple testing, each pair of models taken once."""
    adjusted = np.where(np.isnan(p), np.nan, 1.0)
    places = [(r, a, b, i) for r, a, b, i in product(*map(range, p.shape)) if a < b and not np.isnan(p[r, a, b, i])]
    if places:
        values = false_discovery_control([p[place] for place in places], method="bh")
        for (r, a, b, i), value in zip(places, values, strict=True):
            adjusted[r, a, b, i] = adjusted[r, b, a, i] = value
    return adjusted


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
    taken sample by sample: far smaller ones are detected than by comparing two errors with their own standard errors.

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
        Whether to also compute the straddle strengths of each, as ``evaluate`` does.
    where
        One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
    ignore_index
        Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
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
        Error of the model less error of the other: negative if the model is better.
    ``difference_stderr(rule, model, other, k)``
        Its standard error, which accounts for the uncertainty of the thresholds and for the pairing.
    ``discordant(rule, model, other, k)``
        Number of labelled samples that the model gets right and the other wrong.
    ``mcnemar_p(rule, model, other, k)``
        McNemar's exact two-sided p-value of the discordant samples. It treats thresholds as fixed and samples as
        independent, even with ``clusters``.
    ``mcnemar_p_adjusted(rule, model, other, k)``
        The same, adjusted for all pairs, rules and budgets together (Benjamini and Hochberg, 1995).
    ``average_against_top(model, other, k), average_against_top_stderr(model, other, k)``
        Average-k error of the model less top-k error of the other, and its standard error: negative if, say, average-k
        sets of a small model beat top-k sets of a large one.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    ScoresError, DtypeError
        If the scores are not a matrix of real numbers, or contain NaN.
    LabelsError
        If labels do not fit the scores, are probabilities or missing, or those of two models differ.
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
    Cost: one read of each model, and its pilot, as for ``evaluate``; beyond some two million samples, a second read of
    each, which finds the sets of all samples. Memory grows by two bytes per sample, budget and model (up to five for
    sets of more than 255 labels).

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> rng = np.random.default_rng(0)
    >>> good = rng.dirichlet(np.full(10, 0.2), 500)
    >>> labels = np.array([rng.choice(10, p=p) for p in good])
    >>> noisy = (good + rng.dirichlet(np.full(10, 0.2), 500)) / 2
    >>> comparison = avgk.compare({"good": good, "noisy": noisy}, labels, k=[1, 2])
    >>> better = comparison.sel(rule="average", model="good", other="noisy", k=2)
    >>> bool(better.difference < -2 * better.difference_stderr), better.mcnemar_p.item() < 0.001
    (True, True)
    """
    options = ScanOptions(
        straddle=straddle, where=where, ignore_index=ignore_index, clusters=clusters, nan_policy=nan_policy,
        progress=progress, missing=missing,
    )  # fmt: skip
    named = _check_models(models)
    for name, scores in named.items():
        with naming(name):
            named[name] = open_once(scores, missing)
    check_same_names({f"models[{name!r}]": scores for name, scores in named.items()})
    sources = {}
    for name, scores in named.items():
        with naming(name):
            sources[name] = labelled_source(scores, labels, "compare", hard=True, **options.opening)
    _check_shapes(sources)
    if labels is None:
        _check_labels({name: _stored_labels(sources[name], scores, missing) for name, scores in named.items()})
    first = next(iter(sources.values()))
    codes = None
    if clusters is not None:
        model = next((scores for scores in named.values() if any(names_of(scores, "scores")[:-1])), None)
        codes = Groups.from_input(clusters, model, first, "clusters", missing, labels=labels, where=where).numbered()[1]
        codes = codes if first.mask is None else codes[first.mask.samples()]
    budgets = parse_budgets(k, first.n_classes)
    results, outcomes = [], []
    for name, source in sources.items():
        with naming(name), options.run(source) as run:
            outcome = find_outcome(run, budgets, options, keeps_rows=True)
            rows = find_row_sets(run, outcome.search)
            results.append(outcome_result(outcome, straddle, run.reads))
            outcomes.append(Model(outcome.drop_rows(), rows))
    with show_progress(progress), phase("settling"):
        result = _join(list(named), results, outcomes, codes)
    for name, single in zip(named, results, strict=True):
        sentence = kind_sentence(single)
        warn_about(sentence and f"{name}: {sentence}")
    return result


def _check_models(models: object) -> dict[str, ScoresLike]:
    if not isinstance(models, Mapping) or len(models) < 2:
        got = f"{len(models)} of them" if isinstance(models, Mapping) else type(models).__name__
        raise OptionError(
            f"models must be a mapping of at least two names to scores; got {got}. "
            'Pass a dict such as {"small": scores, "large": others}.'
        )
    named = {str(name): scores for name, scores in models.items()}
    if len(named) < len(models):
        raise OptionError(f"models must have different names; got {', '.join(map(repr, models))}. Rename them.")
    return named


def _check_shapes(sources: Mapping[str, Source]) -> None:
    """Refuse models of different samples or classes, and labels that are probabilities."""
    shapes = {name: (*source.sample_shape, source.n_classes) for name, source in sources.items()}
    if len(set(shapes.values())) > 1:
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ScoresError(
            f"models must have scores of the same samples and classes; got {got}. Evaluate all of them on the same data."
        )
    for source in sources.values():
        refuse_soft(source, "compare")


def _stored_labels(source: Source, scores: ScoresLike, missing: str | None) -> Ints:
    """Return the class numbers of the samples that are not left out; -1 if unlabelled."""
    labels = class_labels(source, scores, None, missing)
    labels = labels if source.mask is None else labels[source.mask.samples()]
    return np.maximum(labels.astype(np.int64), -1)


def _check_labels(labels: Mapping[str, Ints]) -> None:
    """Refuse models whose labels differ: they are of other samples, or in another order."""
    (name, first), *others = labels.items()
    for other, second in others:
        if not np.array_equal(first, second):
            sample = int(np.flatnonzero(first != second)[0])
            raise LabelsError(
                f"labels must be the same for all models; those of {name} and {other} differ, first at sample {sample} "
                f"({first[sample]} and {second[sample]}). Compare scores of the same samples in the same order, or pass labels."
            )


def _join(
    names: Sequence[str], results: Sequence[xr.Dataset], models: Sequence[Model], clusters: Ints | None
) -> xr.Dataset:
    """Return the results along ``model``, with the variables that compare them."""
    n_sizes = max(result.sizes["size"] for result in results)
    padded = [result.reindex(size=np.arange(n_sizes), fill_value=0) for result in results]
    values: Named = {str(name): np.stack([result[name].values for result in padded]) for name in results[0].data_vars}
    if clusters is not None:
        stderrs = [cluster_stderrs(model, clusters) for model in models]
        values |= {name: [errors[name] for errors in stderrs] for name in stderrs[0]}
    values |= pair_values(models, clusters)
    coords: Named = {str(name): padded[0][name].values for name in padded[0].coords}
    coords |= {"model": list(names), "other": list(names), "rule": list(RULES)}
    own = ("store", "reads", "made_by", "score_kind")
    attrs = {name: value for name, value in results[0].attrs.items() if name not in own}
    attrs["store"] = [str(result.attrs["store"]) for result in results]
    for name in ("made_by", "score_kind"):
        attrs |= _join_attribute(name, names, results)
    if clusters is not None:
        attrs["n_clusters"] = int(np.unique(clusters).size)
    attrs["reads"] = max(result.attrs["reads"] for result in results)
    return build_result(values, coords, attrs, COMPARISON)


def _join_attribute(name: str, names: Sequence[str], results: Sequence[xr.Dataset]) -> Named:
    """Return an attribute that all models have in common, or the attribute of each; nothing if no model has it."""
    texts = {model: str(result.attrs.get(name, "")) for model, result in zip(names, results, strict=True)}
    if name == "score_kind":  # that of truncated scores is unknown
        texts = {model: text for model, text in texts.items() if text}
    if len(set(texts.values())) > 1:
        return {name: "; ".join(f"{model}: {text or 'none'}" for model, text in texts.items())}
    text = next(iter(texts.values()), "")
    return {name: text} if text else {}
