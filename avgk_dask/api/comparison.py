"""``compare``: several models on the same samples, with paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from ..arrays import Array
from ..errors import LabelsError, OptionError, ScoresError, naming, warn_of
from ..exact.budgets import DEFAULT_BUDGETS, parse_budgets
from ..passes.finding import tell_rows
from ..passes.progress import showing
from ..passes.running import running
from ..passes.telling import phase
from ..results.datasets import build_result
from ..results.registry import COMPARISON
from ..results.score_kinds import kind_sentence
from ..sources.source import Source
from .attributes import Named
from .evaluation import find_outcome, result_of
from .given import BudgetsLike, LabelsLike, ScoresLike
from .input_names import check_same_names, names_of, open_once
from .labelled import class_labels, labelled_source, refuse_soft
from .pairing import RULES, Model, pair_values, sample_bars
from .policies import check_nan_policy
from .sample_groups import Groups
from .shared_text import documented


@documented
def compare(
    models: Mapping[str, ScoresLike],
    labels: LabelsLike = None,
    k: BudgetsLike = DEFAULT_BUDGETS,
    *,
    straddle: bool = True,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    clusters: LabelsLike = None,
    nan_policy: str = "raise",
    progress: bool | None = None,
    missing: str | None = None,
) -> xr.Dataset:
    """Compare models on the same samples: errors, paired differences with standard errors, and exact tests.

    All models must have scores of the same samples in the same order, and of the same classes. Their differences are taken
    sample by sample, which tells far smaller ones apart than two errors with their own standard errors would.

    Parameters
    ----------
    models
        Scores by name, of any kind that ``evaluate`` takes: ``{"small": "small.zarr", "large": large_scores}``.
    labels
        N integers (negative, masked or null: unlabelled); of more dimensions, the samples' shape. By default the labels
        stored beside the scores of each model, which must be the same.
    k
        Budget or sequence of budgets in (0, C]; top-k needs an integer. By default 1 to 10, or to C.
    straddle
        Whether to analyse the ambiguity of each, too, as ``evaluate`` does.
    {where}
    {ignore_index}
    {clusters}
    {nan_policy}
    {progress}
    missing
        What a chunk that a store does not hold means: ``"raise"`` an error that names it (the default),
        ``"fill"`` the array's fill value.

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
        McNemar's exact two-sided p-value of the discordant samples. It takes thresholds as given and samples as independent,
        whatever the clusters.
    ``mcnemar_p_adjusted(rule, model, other, k)``
        The same, adjusted for all pairs, rules and budgets together (Benjamini and Hochberg, 1995).
    ``average_against_top(model, other, k), average_against_top_stderr(model, other, k)``
        Average-k error of the model less top-k error of the other: negative where a small model that adapts beats a large
        one that does not.

    Raises
    ------
    {refused_budgets}
    {refused_scores}
    LabelsError
        Where labels do not fit the scores, are probabilities, there are none, or those of two models differ.
    ScoresError
        Where models have other samples or classes than the first, or in another order, by their shapes, coordinates or names.
    OptionError
        Where there are fewer than two models.
    {refused_memory}
    {refused_store}

    Warns
    -----
    ResultWarning
        Where the scores of a model are no probabilities, or most of each row is absent.

    Notes
    -----
    Cost: one read of each model, and its pilot, as for ``evaluate``. Beyond some two million samples a second read of each
    tells the sets of all samples. Two bytes for each sample, budget and model come together, for sets of more than 255 labels
    three, or five.

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
    check_nan_policy(nan_policy)
    named = _checked_models(models)
    for name, scores in named.items():
        with naming(name):
            named[name] = open_once(scores, missing)
    check_same_names({f"models[{name!r}]": scores for name, scores in named.items()})
    sources = {}
    for name, scores in named.items():
        with naming(name):
            sources[name] = labelled_source(
                scores, labels, "compare", where=where, ignore_index=ignore_index, missing=missing, hard=True
            )
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
        with naming(name), running(source, progress, nan_policy) as run:
            outcome = find_outcome(run, budgets, straddle, keeps_rows=True)
            told = tell_rows(run, outcome.search)
            results.append(result_of(run, outcome, straddle))
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
    """Return an attribute that all models have in common, or of which each has its own; nothing where none has it."""
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
