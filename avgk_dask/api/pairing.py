"""Two models on the same samples: differences of their errors, with what both make of each sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.stats import binom, false_discovery_control

from ..arrays import Array, Bools, Floats, Ints
from ..states.told_sets import ToldRows
from .attributes import Named
from .error_bars import (
    HIT,
    LABELLED,
    ONE,
    SIZE,
    TOP_HIT,
    Coefficients,
    Products,
    average_influence,
    less,
    products_of,
    relative_influence,
    top_influence,
)
from .outcome import Outcome

RULES = ("top", "average")
#: Where the counts of the second model stand behind those of the first: it has none of its own for what both share.
_SECOND = {ONE: ONE, LABELLED: LABELLED, HIT: 5, TOP_HIT: 6, SIZE: 7}


@dataclass(frozen=True)
class Model:
    """What a model makes of all samples."""

    outcome: Outcome
    told: ToldRows

    def influence(self, rule: str, i: int) -> Coefficients | None:
        """Return psi of an error for a budget; None where there is no error."""
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
        """Return what of each sample is the model's own: whether its sets hold the label, and the size of the average-k one."""
        return [self.right("average", i), self.right("top", i), self.told.sizes[:, i]]


def summed(columns: Sequence[Array], clusters: Ints | None) -> list[Array]:
    """Return columns added up in each cluster; as they are without clusters."""
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
    """Return what samples have whatever the model: that they are there, and whether they have a label."""
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
    chosen = [place for place in _places(p.shape) if not np.isnan(p[place])]
    if chosen:
        adjusted = false_discovery_control([p[place] for place in chosen], method="bh")
        for (rule, a, b, i), value in zip(chosen, adjusted, strict=True):
            found[rule, a, b, i] = found[rule, b, a, i] = value
    return found


def _places(shape: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Return the places of each pair of different models, once for each rule and budget."""
    for rule, a, b, i in product(*map(range, shape)):
        if a < b:
            yield rule, a, b, i
