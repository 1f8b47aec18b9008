"""Names of samples and classes are data: equal and in the same order, or refused, wherever two inputs carry some."""

from __future__ import annotations

import re
import struct

import dask
import numcodecs
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.testing import CountingStore

N, C, ALPHA = 12, 4, 0.4
RNG = np.random.default_rng(0)
SCORES = RNG.dirichlet(np.full(C, 0.5), N)
ETA = RNG.dirichlet(np.full(C, 0.5), N)
LABELS = np.array([*range(C), *RNG.integers(0, C, N - C)])
WHERE = np.arange(N) != 5
GROUPS = np.arange(N) % 3
FREQUENCIES = np.array([5.0, 1.0, 3.0, 2.0])
IDS = [f"image {i}" for i in RNG.permutation(100)[:N]]
CLASSES = ["cat", "dog", "cow", "ant"]


# Of zarr, about texts that xarray stores.
pytestmark = pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")


@pytest.fixture(autouse=True)
def small_kernels():
    """Take the kernels that small matrices take: nothing here depends on them."""
    with dask.config.set({"avgk.plain-scores": 1 << 18}):
        yield


# Kinds of inputs: (values, names of rows or None, names of columns or None) -> what a user passes.
def as_pandas(values, rows, columns, folder):
    index = None if rows is None else pd.Index(rows)
    return pd.Series(values, index) if values.ndim == 1 else pd.DataFrame(values, index, columns)


def as_xarray(values, rows, columns, folder):
    dims = ("sample", "class")[: values.ndim]
    coords = {"sample": rows, "class": columns if values.ndim == 2 else None}
    return xr.DataArray(values, dims=dims, coords={dim: names for dim, names in coords.items() if names is not None})


def as_polars(values, rows, columns, folder):
    return pl.DataFrame(values, schema=columns)


def as_arrow(values, rows, columns, folder):
    return pa.table({name: values[:, i] for i, name in enumerate(dict.fromkeys(columns))})


def as_store(values, rows, columns, folder):
    """Write what xarray would, as a store of scores and as one of labels."""
    array = as_xarray(values, rows, columns, folder)
    path = folder / f"{len(list(folder.iterdir()))}.zarr"
    xr.Dataset({"scores": array, "labels": array} if values.ndim == 2 else {"labels": array}).to_zarr(
        path, consolidated=False
    )
    return path


def as_scores_dataset(values, rows, columns, folder):
    return avgk.open_scores(scores_store(values, rows, columns, folder))


def scores_store(values, rows, columns, folder):
    array = as_xarray(values, rows, columns, folder)
    path = folder / f"{len(list(folder.iterdir()))}.zarr"
    xr.Dataset({"scores": array}).to_zarr(path, consolidated=False)
    return path


ROW_KINDS = {"pandas": as_pandas, "xarray": as_xarray, "store": as_store}
SCORE_KINDS = {"pandas": as_pandas, "xarray": as_xarray, "store": scores_store, "opened": as_scores_dataset}
CLASS_KINDS = {**SCORE_KINDS, "polars": as_polars, "arrow": as_arrow}


def varied(values, names, how, axis=0):
    """Return values with names: unchanged, in another order, with another name, one fewer, or a duplicate."""
    order = np.arange(len(names))
    names = list(names)
    if how == "permuted":
        order = order[::-1]
        names = names[::-1]
    elif how == "renamed":
        names[1] = "other"
    elif how == "subset":
        order, names = order[:-1], names[:-1]
    elif how == "duplicated":
        names[-1] = names[0]
    return np.take(values, order, axis), names


def fitted(kind, scores):
    return kind.fit(scores, LABELS)


def update(scores, **options):
    evaluator = avgk.Evaluator(C, k=[1, 2])
    evaluator.update(scores, options.pop("labels", LABELS), **options)
    return evaluator.result()


#: Every argument that has a value per sample: its values, and a call that takes named scores and the argument.
PER_SAMPLE = {
    "evaluate labels": (LABELS, lambda s, v: avgk.evaluate(s, v, 1, straddle=False)),
    "evaluate where": (WHERE, lambda s, v: avgk.evaluate(s, LABELS, 1, where=v, straddle=False)),
    "evaluate clusters": (GROUPS, lambda s, v: avgk.evaluate(s, LABELS, 1, clusters=v, straddle=False)),
    "evaluate softmax labels": (LABELS, lambda s, v: avgk.evaluate(avgk.softmax(s), v, 1, straddle=False)),
    "evaluate balanced labels": (LABELS, lambda s, v: avgk.evaluate(avgk.balanced(s, [1, 1, 1, 1]), v, 1, straddle=False)),
    "evaluate ensemble labels": (LABELS, lambda s, v: avgk.evaluate(avgk.ensemble([SCORES, s]), v, 1, straddle=False)),
    "evaluate ensemble where": (WHERE, lambda s, v: avgk.evaluate(avgk.ensemble([SCORES, s]), LABELS, 1, where=v, straddle=False)),
    "error_curve labels": (LABELS, lambda s, v: avgk.error_curve(s, v)),
    "error_curve where": (WHERE, lambda s, v: avgk.error_curve(s, LABELS, where=v)),
    "smallest_k labels": (LABELS, lambda s, v: avgk.smallest_k(s, v, max_error=0.3)),
    "smallest_k where": (WHERE, lambda s, v: avgk.smallest_k(s, LABELS, max_error=0.3, where=v)),
    "risk labels": (LABELS, lambda s, v: avgk.risk(s, v, 0.2, cost=0.1)),
    "best_threshold labels": (LABELS, lambda s, v: avgk.best_threshold(s, v, cost=0.1)),
    "breakdown labels": (LABELS, lambda s, v: avgk.breakdown(s, v, 1)),
    "breakdown by": (GROUPS, lambda s, v: avgk.breakdown(s, LABELS, 1, v)),
    "breakdown where": (WHERE, lambda s, v: avgk.breakdown(s, LABELS, 1, where=v)),
    "compare labels": (LABELS, lambda s, v: avgk.compare({"a": s, "b": ETA}, v, 1, straddle=False)),
    "compare clusters": (GROUPS, lambda s, v: avgk.compare({"a": s, "b": ETA}, LABELS, 1, clusters=v, straddle=False)),
    "compare clusters, second": (GROUPS, lambda s, v: avgk.compare({"a": ETA, "b": s}, LABELS, 1, clusters=v, straddle=False)),
    "compare where": (WHERE, lambda s, v: avgk.compare({"a": s, "b": ETA}, LABELS, 1, where=v, straddle=False)),
    "transfer labels": (LABELS, lambda s, v: avgk.transfer(ETA, s, v, 1)),
    "transfer where": (WHERE, lambda s, v: avgk.transfer(ETA, s, LABELS, 1, where=v)),
    "transfer calibration_where": (WHERE, lambda s, v: avgk.transfer(s, ETA, LABELS, 1, calibration_where=v)),
    "threshold where": (WHERE, lambda s, v: avgk.threshold(s, 1, where=v)),
    "threshold_at where": (WHERE, lambda s, v: avgk.threshold_at(s, 1, where=v)),
    "average_set_size_at where": (WHERE, lambda s, v: avgk.average_set_size_at(s, 0.2, where=v)),
    "average_k_sets where": (WHERE, lambda s, v: np.asarray(avgk.average_k_sets(s, 1, where=v))),
    "top_k_sets where": (WHERE, lambda s, v: np.asarray(avgk.top_k_sets(s, 1, where=v))),
    "predict_sets where": (WHERE, lambda s, v: np.asarray(avgk.predict_sets(s, threshold=0.2, where=v))),
    "set_pairs where": (WHERE, lambda s, v: avgk.set_pairs(s, 2, where=v)["count"]),
    "straddle_strength where": (WHERE, lambda s, v: avgk.straddle_strength(s, 1, where=v)),
    "ranked_supports where": (WHERE, lambda s, v: avgk.ranked_supports(s, [1], where=v)),
    "supports_overlap where": (WHERE, lambda s, v: avgk.supports_overlap(s, 1, where=v)),
    "adaptive_gain where": (WHERE, lambda s, v: avgk.adaptive_gain(s, 1, where=v)),
    "losses.nll labels": (LABELS, lambda s, v: avgk.losses.nll(s, v)),
    "losses.brier labels": (LABELS, lambda s, v: avgk.losses.brier(s, v)),
    "losses.one_versus_all labels": (LABELS, lambda s, v: avgk.losses.one_versus_all(s, v)),
    "losses.expected_calibration_error labels": (LABELS, lambda s, v: avgk.losses.expected_calibration_error(s, v)),
    "losses.nll where": (WHERE, lambda s, v: avgk.losses.nll(s, LABELS, where=v)),
    "temperature fit labels": (LABELS, lambda s, v: avgk.calibration.TemperatureScaling().fit(s, v).temperature),
    "vector fit labels": (LABELS, lambda s, v: avgk.calibration.VectorScaling(max_iterations=3).fit(s, v).bias),
    "temperature_curve labels": (LABELS, lambda s, v: avgk.calibration.temperature_curve(s, v, temperatures=[1.0], k=1)),
    "conformal labels": (LABELS, lambda s, v: avgk.conformal.calibrate(s, v, ALPHA).threshold),
    "conformal by": (GROUPS, lambda s, v: avgk.conformal.calibrate(s, LABELS, ALPHA, by=v).threshold),
    "predictor sets groups": (GROUPS, lambda s, v: np.asarray(avgk.conformal.calibrate(SCORES, LABELS, ALPHA, by=GROUPS).sets(s, groups=v))),
    "predictor evaluate labels": (LABELS, lambda s, v: avgk.conformal.calibrate(SCORES, LABELS, ALPHA).evaluate(s, v).coverage),
    "predictor evaluate groups": (
        GROUPS,
        lambda s, v: avgk.conformal.calibrate(SCORES, LABELS, ALPHA, by=GROUPS).evaluate(s, LABELS, groups=v).coverage,
    ),
}  # fmt: skip
#: ... and of batches, which are in memory.
PER_SAMPLE_OF_BATCH = {
    "Evaluator labels": (LABELS, lambda s, v: update(s, labels=v)),
    "Evaluator where": (WHERE, lambda s, v: update(s, where=v)),
    "Evaluator clusters": (GROUPS, lambda s, v: update(s, clusters=v)),
}


def same(one, other):
    if isinstance(one, (xr.Dataset, xr.DataArray)):
        names = ("name", "class_name", "sample", "class")
        one, other = (each.drop_vars(names, errors="ignore") for each in (one, other))
        return one.equals(other) if isinstance(one, xr.Dataset) else np.array_equal(one.values, other.values)
    return bool(np.all(np.asarray(one) == np.asarray(other))) if isinstance(one, np.ndarray) else one == other


def check_variants(call, scores, values, make, names, variants, axis=0):
    """Hold the same names to the result without names, and all others to a refusal that says how to align them."""
    expected = call(SCORES, values)
    assert same(call(scores, make(*varied(values, names, "same", axis))), expected)
    for how in variants:
        given = make(*varied(values, names, how, axis))
        with pytest.raises(avgk.AvgkError, match="at position 0 there is" if how == "permuted" else "."):
            call(scores, given)


VARIANTS = ("permuted", "renamed", "subset", "duplicated")


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ROW_KINDS)
@pytest.mark.parametrize("argument", PER_SAMPLE)
def test_names_of_samples__of_every_argument_must_be_those_of_the_scores(argument, kind, tmp_path):
    values, call = PER_SAMPLE[argument]
    # Each kind of argument meets each kind of scores, over all arguments.
    which = (list(PER_SAMPLE).index(argument) + list(ROW_KINDS).index(kind)) % len(SCORE_KINDS)
    scores = list(SCORE_KINDS.values())[which](SCORES, IDS, None, tmp_path)
    make = lambda v, names: ROW_KINDS[kind](v, names, None, tmp_path)  # noqa: E731
    check_variants(call, scores, values, make, IDS, VARIANTS)


@pytest.mark.parametrize("kind", ["pandas", "xarray"])
@pytest.mark.parametrize("argument", PER_SAMPLE_OF_BATCH)
def test_names_of_samples__of_batches_must_be_those_of_the_scores(argument, kind, tmp_path):
    values, call = PER_SAMPLE_OF_BATCH[argument]
    make = lambda v, names: ROW_KINDS[kind](v, names, None, tmp_path)  # noqa: E731
    check_variants(call, ROW_KINDS[kind](SCORES, IDS, None, tmp_path), values, make, IDS, VARIANTS)


def written(batches, folder, **options):
    path = folder / f"{len(list(folder.iterdir()))}.zarr"
    with avgk.ScoreWriter(path, C, **options) as writer:
        for scores, labels in batches:
            writer.append(scores, labels)
    return avgk.evaluate(path, k=1, straddle=False)


def saved(thing, load, folder):
    thing.save(folder / "saved.json")
    return load(folder / "saved.json")


def loaded_evaluator(scores, folder):
    evaluator = avgk.Evaluator(C, 1)
    evaluator.update(scores, LABELS)
    evaluator.save(folder / "evaluator")
    return avgk.Evaluator.load(folder / "evaluator")


def updated(evaluator, scores):
    evaluator.update(scores, LABELS)
    return evaluator.result()


def merged(ours, theirs):
    evaluators = avgk.Evaluator(C, 1), avgk.Evaluator(C, 1)
    for evaluator, scores in zip(evaluators, (ours, theirs), strict=True):
        evaluator.update(scores, LABELS)
    return evaluators[0].merge(evaluators[1]).result()


#: Every argument with a value per class and sample: values, and a call that takes named scores and the argument.
MATRICES = {
    "soft labels": (ETA, lambda s, v, f: avgk.evaluate(s, v, 1, straddle=False)),
    "compare models": (ETA, lambda s, v, f: avgk.compare({"a": s, "b": v}, LABELS, 1, straddle=False)),
    "ensemble members": (ETA, lambda s, v, f: np.asarray(avgk.ensemble([s, v]))),
    "transfer calibration_scores": (ETA, lambda s, v, f: avgk.transfer(v, s, LABELS, 1)),
    "plug_in_regret eta": (ETA, lambda s, v, f: avgk.plug_in_regret(s, v, 1)),
    "predictor": (ETA, lambda s, v, f: np.asarray(avgk.conformal.calibrate(s, LABELS, ALPHA).sets(v))),
    "predictor evaluate": (ETA, lambda s, v, f: avgk.conformal.calibrate(s, LABELS, ALPHA, "aps").evaluate(v, LABELS).coverage),
    "predictor by class": (ETA, lambda s, v, f: np.asarray(avgk.conformal.calibrate(s, LABELS, ALPHA, by="class").sets(v))),
    "temperature": (ETA, lambda s, v, f: np.asarray(fitted(avgk.calibration.TemperatureScaling(), s).transform(v))),
    "vector scaling": (ETA, lambda s, v, f: np.asarray(avgk.calibrated(v, fitted(avgk.calibration.VectorScaling(max_iterations=3), s)))),
    "saved predictor": (ETA, lambda s, v, f: np.asarray(saved(avgk.conformal.calibrate(s, LABELS, ALPHA), avgk.conformal.load, f).sets(v))),
    "saved calibrator": (
        ETA,
        lambda s, v, f: np.asarray(
            saved(fitted(avgk.calibration.MatrixScaling(max_iterations=3), s), avgk.calibration.load, f).transform(v)
        ),
    ),
}  # fmt: skip
BATCHES = {
    "Evaluator batches": (ETA, lambda s, v, f: updated(updated_evaluator(s), v)),
    "saved Evaluator": (ETA, lambda s, v, f: updated(loaded_evaluator(s, f), v)),
    "Evaluator merge": (ETA, lambda s, v, f: merged(s, v)),
    "ScoreWriter batches": (ETA, lambda s, v, f: written([(s, LABELS), (v, LABELS)], f)),
}


def updated_evaluator(scores):
    evaluator = avgk.Evaluator(C, 1)
    evaluator.update(scores, LABELS)
    return evaluator


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", CLASS_KINDS)
@pytest.mark.parametrize("argument", [*MATRICES, *BATCHES])
def test_names_of_classes__of_every_argument_must_be_those_of_the_scores(argument, kind, tmp_path):
    if argument in BATCHES and kind in ("store", "opened"):
        pytest.skip("batches are in memory")
    if kind == "arrow" and argument in BATCHES:
        kind = "polars"
    values, call = {**MATRICES, **BATCHES}[argument]
    kinds = ["pandas", "xarray", "polars"] if argument in BATCHES else list(CLASS_KINDS)
    scores = CLASS_KINDS[kinds[len(argument) % len(kinds)]](SCORES, None, CLASSES, tmp_path)
    made = as_store if kind in ("store", "opened") and argument == "soft labels" else CLASS_KINDS[kind]
    # polars has no column twice, and Arrow's columns are made of a dict
    variants = [how for how in VARIANTS if how != "duplicated" or kind not in ("polars", "arrow")]

    def run(s, v):
        return call(s, v, tmp_path)

    check_variants(run, scores, values, lambda v, names: made(v, None, names, tmp_path), CLASSES, variants, 1)


#: Arguments with a value per class.
PER_CLASS = {
    "balanced frequencies": lambda s, v: np.asarray(avgk.balanced(s, v)),
}


@pytest.mark.parametrize("kind", ["pandas", "xarray"])
@pytest.mark.parametrize("argument", PER_CLASS)
def test_names_of_classes__of_a_value_per_class_must_be_those_of_the_scores(argument, kind, tmp_path):
    def make(values, names):
        return pd.Series(values, names) if kind == "pandas" else xr.DataArray(values, {"class": names}, "class")

    for scores in (as_pandas, as_xarray, as_polars, scores_store):
        named = scores(SCORES, None, CLASSES, tmp_path)
        check_variants(PER_CLASS[argument], named, FREQUENCIES, make, CLASSES, VARIANTS)


def test_frequencies__in_the_order_of_their_counts_are_refused():
    counts = pd.Series([2, 2, 2, 0, 1, 1, 3]).value_counts()
    with pytest.raises(avgk.OptionError, match=r"Sort them with frequencies.sort_index\(\)"):
        avgk.balanced(SCORES, counts)
    for scores in (SCORES, as_pandas(SCORES, IDS, CLASSES, None)):
        assert np.array_equal(avgk.balanced(scores, counts.sort_index()), avgk.balanced(SCORES, [1, 2, 3, 1]))


@pytest.mark.parametrize("names", ["abcd", b"abcd", set(CLASSES), frozenset(CLASSES), dict.fromkeys(CLASSES), 4])
def test_lists_of_names__must_have_an_order(names, tmp_path):
    for call in (
        lambda: avgk.breakdown(SCORES, LABELS, 1, names=names),
        lambda: avgk.set_pairs(SCORES, 2, names=names),
        lambda: avgk.ScoreWriter(tmp_path / "s.zarr", C, attributes={"class_names": names}),
    ):
        with pytest.raises(avgk.OptionError, match="must be a list of 4 names, in order; got"):
            call()
    assert not list(tmp_path.iterdir())


def test_names_of_groups__given_by_number_must_be_in_their_order():
    places = pd.Series(["Rome", "Paris", "Oslo"], [2, 0, 1])
    with pytest.raises(avgk.OptionError, match="names must have the group names of the groups, in the same order"):
        avgk.breakdown(SCORES, LABELS, 1, GROUPS, names=places)
    result = avgk.breakdown(SCORES, LABELS, 1, GROUPS, names=places.sort_index())
    assert result["name"].values.tolist() == ["Paris", "Oslo", "Rome"]


def test_shuffled_labels__are_refused_and_the_line_in_the_error_aligns_them():
    scores = pd.DataFrame(SCORES, IDS, CLASSES)
    labels = pd.Series(LABELS, IDS).sample(frac=1, random_state=0)
    with pytest.raises(avgk.LabelsError, match="labels must have the sample names of scores") as refused:
        avgk.evaluate(scores, labels, 1)
    line = re.search(r"Align them with (.*?\])\.", str(refused.value))[1]
    assert line == "labels.loc[scores.index]"
    aligned = eval(line, {"labels": labels, "scores": scores})
    assert avgk.evaluate(scores, aligned, 1).equals(avgk.evaluate(SCORES, LABELS, 1))


@pytest.mark.parametrize("scores_kind", ["pandas", "xarray", "store"])
@pytest.mark.parametrize("labels_kind", ["pandas", "xarray"])
def test_lines_in_errors__align_any_two_kinds(scores_kind, labels_kind, tmp_path):
    scores = SCORE_KINDS[scores_kind](SCORES, IDS, None, tmp_path)
    labels = ROW_KINDS[labels_kind](*varied(LABELS, IDS, "permuted"), None, tmp_path)
    with pytest.raises(avgk.LabelsError) as refused:
        avgk.evaluate(scores, labels, 1)
    line = re.search(r"Align them with (.*)\. To match by position", str(refused.value))[1]
    aligned = eval(line, {"labels": labels, "scores": scores, "xarray": xr, "avgk": avgk})
    assert avgk.evaluate(scores, aligned, 1).equals(avgk.evaluate(SCORES, LABELS, 1))


def test_default_indexes__are_not_names():
    frame, series = pd.DataFrame(SCORES), pd.Series(LABELS, IDS)
    expected = avgk.evaluate(SCORES, LABELS, 1)
    for scores, labels in (
        (frame, series),
        (frame, pd.Series(LABELS)),
        (frame, pd.Series(LABELS, np.arange(N) + 1000)),
        (frame.set_axis(IDS), pd.Series(LABELS)),
        (SCORES, series.sample(frac=1, random_state=0).loc[IDS]),
    ):
        assert avgk.evaluate(scores, labels, 1).equals(expected)


def test_row_numbers__in_another_order_next_to_a_default_index_are_refused():
    labels = pd.Series(LABELS)
    for shuffled in (labels.sample(frac=1, random_state=0), labels.iloc[::-1]):
        with pytest.raises(
            avgk.LabelsError, match=r"in the order of the sample numbers 0 to 11; .* labels.sort_index\(\)"
        ):
            avgk.evaluate(pd.DataFrame(SCORES), shuffled, 1)
    with pytest.raises(avgk.LabelsError, match="scores must be in the order of the sample numbers"):
        avgk.evaluate(pd.DataFrame(SCORES).iloc[::-1], labels, 1)


@pytest.mark.parametrize("names", [[1, 0, 2, 3], ["0", "1", "3", "2"], [1, 2, 3, 4], [10, 20, 30, 40]])
def test_columns_called_by_class_numbers__must_be_in_their_order(names, tmp_path):
    frame = pd.DataFrame(SCORES, columns=names)
    with avgk.ScoreWriter(tmp_path / "s.zarr", C, attributes={"class_names": [*map(str, names)]}) as writer:
        writer.append(SCORES)
    for scores in (frame, as_xarray(SCORES, None, names, None), tmp_path / "s.zarr"):
        with pytest.raises(avgk.ScoresError, match="must name their classes 0 to 3, in order"):
            avgk.evaluate(scores, LABELS, 1)
        assert avgk.threshold(scores, 1) == avgk.threshold(SCORES, 1)  # no labels: the order does not matter
    texts = [str(names[label]) for label in LABELS]
    assert avgk.evaluate(frame.set_axis([*map(str, names)], axis=1), texts, 1).equals(avgk.evaluate(SCORES, LABELS, 1))
    with pytest.raises(avgk.ScoresError, match=r"pass scores.to_numpy\(\) if labels are column numbers"):
        update(frame)


def test_names_of_a_writer__are_stored_and_hold_for_all_batches_and_writers(tmp_path):
    frame = pd.DataFrame(SCORES, columns=CLASSES)
    with avgk.ScoreWriter(tmp_path / "s.zarr", C) as writer:
        writer.append(frame, LABELS)
        with pytest.raises(avgk.ScoresError, match="class names of the writer"):
            writer.append(frame[CLASSES[::-1]], LABELS)
        writer.append(SCORES, LABELS)
    assert writer.n_samples == 2 * N
    assert avgk.open_scores(tmp_path / "s.zarr")["class"].values.tolist() == CLASSES
    with avgk.ScoreWriter(tmp_path / "s.zarr", append=True) as writer:
        with pytest.raises(avgk.ScoresError, match="class names of the writer"):
            writer.append(frame[CLASSES[::-1]], LABELS)
        with pytest.raises(avgk.LabelsError, match="labels must have the sample names"):
            writer.append(frame.set_axis(IDS), pd.Series(LABELS, IDS).iloc[::-1])
        writer.append(frame, LABELS)
    assert avgk.verify(tmp_path / "s.zarr").ok


def test_names_of_an_interrupted_writer__hold_for_the_one_that_resumes(tmp_path):
    frame = pd.DataFrame(SCORES, columns=CLASSES)
    writer = avgk.ScoreWriter(tmp_path / "s.zarr", C, chunk_rows=4)
    writer.append(frame)
    del writer
    writer = avgk.ScoreWriter(tmp_path / "s.zarr", C, chunk_rows=4, resume=True)
    with pytest.raises(avgk.ScoresError, match="class names of the writer"):
        writer.append(frame[CLASSES[::-1]])
    writer.append(frame)
    writer.close()
    assert zarr.open_group(tmp_path / "s.zarr", mode="r").attrs["class_names"] == CLASSES


def test_parts__of_other_class_names_are_not_joined(tmp_path):
    for part, order in enumerate((CLASSES, None, CLASSES[::-1])):
        with avgk.ScoreWriter(tmp_path / "s.zarr", C, part=part) as writer:
            writer.append(SCORES if order is None else pd.DataFrame(SCORES, columns=order))
    with pytest.raises(avgk.StoreError, match="part 2 must have the class names of part 0"):
        avgk.join_parts(tmp_path / "s.zarr")
    with avgk.ScoreWriter(tmp_path / "s.zarr", C, part=2, overwrite=True) as writer:
        writer.append(pd.DataFrame(SCORES, columns=CLASSES))
    avgk.join_parts(tmp_path / "s.zarr")
    assert avgk.open_scores(tmp_path / "s.zarr")["class"].values.tolist() == CLASSES


def test_ingest__matches_labels_by_name_and_keeps_the_names_of_a_store(tmp_path):
    scores = scores_store(SCORES, IDS, CLASSES, tmp_path)
    with pytest.raises(avgk.LabelsError, match="labels must have the sample names of scores"):
        avgk.ingest(scores, pd.Series(LABELS, IDS).iloc[::-1], out=tmp_path / "o.zarr")
    assert not (tmp_path / "o.zarr").exists()
    avgk.ingest(scores, pd.Series(np.array(CLASSES)[LABELS], IDS), out=tmp_path / "o.zarr")
    opened = avgk.open_scores(tmp_path / "o.zarr")
    assert opened["class"].values.tolist() == CLASSES
    assert opened["labels"].values.tolist() == LABELS.tolist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("text", [np.str_, object])
def test_labels_that_are_class_names__are_matched_to_the_classes(tmp_path, zarr_format, text):
    array = as_xarray(SCORES, IDS, CLASSES, None)
    labels = xr.DataArray(np.array(CLASSES)[LABELS].astype(text), {"sample": IDS}, "sample")
    xr.Dataset({"scores": array, "labels": labels}).to_zarr(
        tmp_path / "s.zarr", zarr_format=zarr_format, consolidated=False
    )
    expected = avgk.evaluate(SCORES, LABELS, 1)
    assert avgk.evaluate(tmp_path / "s.zarr", k=1).equals(expected)
    assert avgk.evaluate(avgk.open_scores(tmp_path / "s.zarr"), k=1).equals(expected)
    assert avgk.ingest(tmp_path / "s.zarr", out=tmp_path / "o.zarr").ok
    assert avgk.evaluate(tmp_path / "o.zarr", k=1).equals(expected)
    named = pd.Series(np.array(CLASSES)[LABELS], IDS)
    for given in (
        named,
        named.astype("category"),
        named.tolist(),
        pl.Series(named.tolist()),
        pa.array(named.tolist()),
        labels,
    ):
        assert avgk.evaluate(array, given, 1).equals(expected)
    assert avgk.evaluate(array, [None, *named[1:]], 1).attrs["n_labelled"] == N - 1


def test_labels_that_are_texts__without_such_a_class_are_refused(tmp_path):
    frame = pd.DataFrame(SCORES, columns=CLASSES)
    with pytest.raises(
        avgk.LabelsError, match=r"must be class names of the scores; got 'cta' at sample 1. Did you mean 'cat'\?"
    ):
        avgk.evaluate(frame, ["cat", "cta", *["dog"] * (N - 2)], 1)
    with pytest.raises(avgk.LabelsError, match="several classes are called 'cat'"):
        avgk.evaluate(frame.set_axis(["cat", "cat", "dog", "cow"], axis=1), ["cat"] * N, 1)
    xr.Dataset({"scores": (("sample", "class"), SCORES), "labels": ("sample", np.array(["cat"] * N, object))}).to_zarr(
        tmp_path / "s.zarr", consolidated=False
    )
    for call in (lambda p: avgk.evaluate(p, k=1), avgk.open_scores, lambda p: avgk.ingest(p, out=tmp_path / "o.zarr")):
        with pytest.raises(
            avgk.DtypeError, match=r"labels must be integers .*; got dtype .* Turn class names into the numbers"
        ):
            call(tmp_path / "s.zarr")


def test_masks__of_numbers_that_users_give_are_not_ignored():
    masked = np.ma.masked_array([0.2, 0.4], [True, False])
    ones = np.ma.masked_array(FREQUENCIES, FREQUENCIES == 1)
    for call in (
        lambda: avgk.risk(SCORES, LABELS, masked, cost=0.1),
        lambda: avgk.average_set_size_at(SCORES, masked),
        lambda: avgk.threshold_at(SCORES, masked),
        lambda: avgk.predict_sets(SCORES, threshold=masked[1:]),
        lambda: avgk.evaluate(SCORES, LABELS, masked),
        lambda: avgk.balanced(SCORES, ones),
        lambda: avgk.ensemble([SCORES, ETA], masked),
        lambda: avgk.conformal.calibrate(SCORES, LABELS, ALPHA).evaluate(SCORES, LABELS, levels=masked),
    ):
        with pytest.raises(avgk.OptionError, match=r"must not be masked|got MaskedArray"):
            call()


def test_weights_of_an_ensemble__must_be_in_the_order_of_the_members():
    for weights in ({0.3, 0.7}, {0: 0.3, 1: 0.7}):
        with pytest.raises(avgk.OptionError, match="one entry for each of the 2 members"):
            avgk.ensemble([SCORES, ETA], weights)
    with pytest.raises(avgk.OptionError, match="weights must be in the order of the member numbers"):
        avgk.ensemble([SCORES, ETA], pd.Series([0.3, 0.7], [1, 0]))


def test_names_of_samples__must_agree_between_any_two_inputs():
    labels, where, groups = (pd.Series(values, IDS) for values in (LABELS, WHERE, GROUPS))
    for call in (
        lambda: avgk.evaluate(SCORES, labels, 1, where=where[::-1]),
        lambda: avgk.evaluate(SCORES, labels, 1, clusters=groups[::-1]),
        lambda: avgk.evaluate(SCORES, LABELS, 1, where=where, clusters=groups[::-1]),
        lambda: avgk.breakdown(SCORES, labels, 1, groups[::-1]),
        lambda: avgk.compare({"a": SCORES, "b": ETA}, labels, 1, clusters=groups[::-1]),
        lambda: avgk.conformal.calibrate(SCORES, labels, ALPHA, by=groups[::-1]),
        lambda: update(SCORES, labels=labels, clusters=groups[::-1]),
        lambda: update(SCORES, labels=labels, where=where[::-1]),
    ):
        with pytest.raises(avgk.LabelsError, match=r"must have the sample names of (labels|where), in the same order"):
            call()


@pytest.mark.parametrize(
    ("zarr_format", "compressor"),
    [
        (3, None),
        (3, zarr.codecs.ZstdCodec()),
        (3, zarr.codecs.GzipCodec()),
        (3, zarr.codecs.BloscCodec()),
        (3, [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]),
        (2, None),
        (2, numcodecs.Zstd()),
        (2, numcodecs.Zlib()),
    ],
)
def test_texts__are_read_in_any_codec_and_no_claim_of_a_chunk_is_believed(tmp_path, zarr_format, compressor):
    names = ["b", "é猫", "a much longer name " * 20, "d"]
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("scores", data=SCORES, chunks=(5, C))
    group.attrs["class_names"] = names
    labels = group.create_array("labels", shape=N, chunks=5, dtype=str, compressors=compressor)
    labels[:] = np.array(names, object)[LABELS]
    assert avgk.evaluate(tmp_path / "s.zarr", k=1).equals(avgk.evaluate(SCORES, LABELS, 1))
    chunk = tmp_path / "s.zarr" / "labels" / ("c/0" if zarr_format == 3 else "0")
    claim = struct.pack("<II", 2**31 - 1, 2**31 - 1) + b"abcd"
    chunk.write_bytes(claim if compressor is None else numcodecs.Zstd().encode(claim))
    with pytest.raises(avgk.ReadError, match=r"labels/(c/)?0 of .* (cannot be decoded|is damaged)"):
        avgk.evaluate(tmp_path / "s.zarr", k=1)


def test_class_numbers__in_another_order_are_refused_without_labels_too():
    frame = pd.DataFrame(SCORES)
    order = [3, 2, 1, 0]
    for call in (
        lambda: avgk.conformal.calibrate(frame, LABELS, ALPHA, by="class").sets(frame[order]),
        lambda: avgk.calibration.VectorScaling(max_iterations=2).fit(SCORES, LABELS).transform(frame[order]),
        lambda: avgk.balanced(frame[order], FREQUENCIES),
        lambda: avgk.balanced(SCORES, pd.Series(FREQUENCIES, [3.0, 2.0, 1.0, 0.0])),
        lambda: avgk.evaluate(SCORES, pd.DataFrame(ETA)[order], 1),
        lambda: avgk.evaluate(frame[order], ETA, 1),
    ):
        with pytest.raises(avgk.AvgkError, match=r"class numbers|other numbers than 0 to 3"):
            call()


@pytest.mark.parametrize("odd", [0, 2.5, True, b"cat", ("cat",)])
def test_labels_that_are_names__hold_nothing_else(odd):
    frame = pd.DataFrame(SCORES, columns=CLASSES)
    with pytest.raises(avgk.LabelsError, match=r"all class names or all class numbers; got .* at sample 1 among names"):
        avgk.evaluate(frame, ["cat", odd, *["dog"] * (N - 2)], 1)
    assert avgk.evaluate(frame, ["cat", float("nan"), *["dog"] * (N - 2)], 1).attrs["n_labelled"] == N - 1


def test_names_to_show__may_not_be_the_classes_in_another_order():
    frame = pd.DataFrame(SCORES, columns=CLASSES)
    for call in (
        lambda: avgk.breakdown(frame, LABELS, 1, names=CLASSES[::-1]),
        lambda: avgk.set_pairs(frame, 2, names=CLASSES[::-1]),
    ):
        with pytest.raises(avgk.OptionError, match="names must have the class names of scores"):
            call()
    assert avgk.breakdown(frame, LABELS, 1, names=list("abcd"))["name"].values.tolist() == list("abcd")


def test_times__are_the_same_names_in_any_unit():
    times = pd.date_range("2020-01-01", periods=N)
    scores = xr.DataArray(SCORES, {"sample": times.astype("datetime64[ns]")}, ("sample", "class"))
    labels = pd.Series(LABELS, times.as_unit("s"))
    assert avgk.evaluate(scores, labels, 1).equals(avgk.evaluate(SCORES, LABELS, 1))
    assert avgk.evaluate(scores, labels.set_axis(times.astype(object)), 1).attrs["n_labelled"] == N
    with pytest.raises(avgk.LabelsError, match="Align them with"):
        avgk.evaluate(scores, labels[::-1], 1)


def test_frames_of_dask__are_named_by_their_columns():
    frames = pytest.importorskip("dask.dataframe")
    frame = frames.from_pandas(pd.DataFrame(SCORES, IDS, CLASSES).sort_index(), npartitions=2)
    labels = pd.Series(LABELS, IDS).sort_index()
    expected = avgk.breakdown(frame.compute(), labels, 1)
    assert avgk.breakdown(frame, labels, 1).equals(expected)
    with pytest.raises(avgk.LabelsError, match="labels must have the sample names"):
        avgk.breakdown(frame, labels[::-1], 1)
    with pytest.raises(avgk.ScoresError, match="must have the class names"):
        avgk.compare({"a": frame, "b": frame[CLASSES[::-1]]}, labels, 1)


def test_names__cost_stores_of_ours_no_request():
    store = zarr.storage.MemoryStore()
    with avgk.ScoreWriter(store, C) as writer:
        writer.append(SCORES, LABELS)
    for call in (
        lambda s: avgk.evaluate(s, k=1),
        lambda s: avgk.conformal.calibrate(s, alpha=ALPHA),
        lambda s: avgk.evaluate(avgk.open_scores(s), pd.Series(LABELS, IDS), k=1),
        lambda s: avgk.evaluate(avgk.ensemble([s, SCORES]), k=1),
    ):
        counted = CountingStore(store)
        call(counted)
        assert not [key for key in counted.reads if key.split("/")[0] in ("sample", "class")]


def test_dimensions__of_any_name_leave_a_store_readable(tmp_path):
    for name in ("..", "a" * 300, "a\x00b", "a/b", "scores"):
        path = tmp_path / f"{abs(hash(name))}.zarr"
        zarr.open_group(path, mode="w").create_array(
            "scores", data=SCORES, chunks=(5, C), dimension_names=(name, "class")
        )
        assert avgk.evaluate(path, pd.Series(LABELS, IDS), 1).equals(avgk.evaluate(SCORES, LABELS, 1))
