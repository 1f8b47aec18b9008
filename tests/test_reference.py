"""Public docstrings are complete and correct. tests/test_site.py checks their pages."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import pathlib
import re
import sys

import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask import calibration, conformal, losses, testing

MODULES = {
    "avgk_dask": avgk,
    "avgk_dask.calibration": calibration,
    "avgk_dask.conformal": conformal,
    "avgk_dask.losses": losses,
    "avgk_dask.testing": testing,
}
PUBLIC = {f"{module}.{name}": getattr(home, name) for module, home in MODULES.items() for name in home.__all__}
ERRORS = {name: item for name, item in PUBLIC.items() if inspect.isclass(item) and issubclass(item, Exception)}
FUNCTIONS = {name: item for name, item in PUBLIC.items() if inspect.isfunction(item)}
CLASSES = {name: item for name, item in PUBLIC.items() if inspect.isclass(item) and name not in ERRORS}

SCORES = np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25], [0.5, 0.25, 0.25]])


def split(doc: str) -> dict[str, str]:
    """Return the sections of a docstring by heading; the text before the first heading has the key ""."""
    first, *rest = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", doc, flags=re.M)
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def entries(section: str) -> list[str]:
    """Return the names that a section describes."""
    lines = re.findall(r"^(\S.*)\n +\S", section, re.M)
    return [name.strip("` ") for line in lines for name in line.split(",")]


def parameters(item) -> list[str]:
    names = [name for name in inspect.signature(item).parameters if name != "self"]
    return [name for name in names if not name.startswith("_")]


def complaints(item, doc: str | None = None) -> list[str]:
    """Return the faults of the docstring of a public function or class."""
    sections = split(inspect.getdoc(item) or "" if doc is None else doc)
    missing = [] if sections[""].strip() else ["it has no summary"]
    documented = entries(sections.get("Parameters", ""))
    fields = [field.name for field in dataclasses.fields(item)] if dataclasses.is_dataclass(item) else None
    if fields and "Parameters" not in sections:  # a result, which users do not construct
        documented = entries(sections.get("Attributes", ""))
    if documented != parameters(item):
        missing.append(f"it describes {documented} instead of {parameters(item)}")
    if ">>>" not in sections.get("Examples", ""):
        missing.append("it has no example")
    if inspect.isfunction(item):
        if inspect.signature(item).return_annotation not in (None, "None") and not entries(sections.get("Returns", "")):
            missing.append("it does not describe the returned value")
        is_oracle = item.__name__.startswith("oracle_")  # the docstring of the module has their cost
        if not is_oracle and not re.search(r"^Cost: \S", sections.get("Notes", ""), re.M):
            missing.append("its notes do not state the cost")
        if not is_oracle and not entries(sections.get("Raises", "")):
            missing.append("it does not describe its errors")
    return missing


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_docstrings__are_complete(name):
    assert complaints(PUBLIC[name]) == []


@pytest.mark.parametrize("section", ["Parameters", "Returns", "Raises", "Notes", "Examples", ""])
def test_complaints__report_a_missing_section(section):
    sections = split(inspect.getdoc(avgk.evaluate))
    sections.pop(section)
    doc = "".join(f"{name}\n---\n{text}" if name else text for name, text in sections.items())
    assert complaints(avgk.evaluate, doc if section else f"\n{doc}")


def test_complaints__report_a_missing_parameter_or_cost():
    doc = inspect.getdoc(avgk.evaluate)
    assert complaints(avgk.evaluate, doc) == []
    assert complaints(avgk.evaluate, re.sub(r"^ties\n( +\S.*\n)+", "", doc, flags=re.M))
    assert complaints(avgk.evaluate, doc.replace("Cost: ", ""))


@pytest.mark.parametrize("name", CLASSES)
def test_methods__are_documented_with_their_parameters(name):
    for method, item in vars(CLASSES[name]).items():
        if method.startswith("_") or not inspect.isfunction(item) or inspect.iscoroutinefunction(item):
            continue
        sections = split(inspect.getdoc(item) or "")
        assert sections[""].strip(), f"{name}.{method}"
        assert entries(sections.get("Parameters", "")) == parameters(item), f"{name}.{method}"


def descriptions(name: str):
    """Yield (function or method, description of a parameter) for each that has the parameter."""
    methods = {
        f"{owner}.{method}": item
        for owner, kind in CLASSES.items()
        for method, item in vars(kind).items()
        if inspect.isfunction(item)
    }
    for function, item in {**FUNCTIONS, **methods}.items():
        section = split(inspect.getdoc(item) or "").get("Parameters", "")
        match = re.search(rf"^{name}\n((?: +\S.*(?:\n|$))+)", section, re.M)
        if match and not function.startswith("avgk_dask.testing"):
            yield function, " ".join(match[1].split())


#: The descriptions of each shared parameter begin with one of these texts.
SHARED = {
    "scores": ["N x C matrix, classes last, all other axes samples:"],
    "labels": [
        "N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or the",
        "N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds them.",
    ],
    "where": ["One boolean per sample; samples with False (padding) are excluded."],
    "ignore_index": ["Label of samples to exclude: short for"],
    "clusters": ["One integer per sample, such as its document or patient:"],
    "nan_policy": ['``"raise"`` refuses NaN; ``"lowest"`` ranks', 'Only ``"raise"`` is supported: NaN is refused.'],
    "progress": ["Whether to show a progress bar on stderr. None logs one line per minute"],
    "checkpoint": ["Path or URL of a folder for intermediate results:"],
    "missing": ["What a chunk missing from a store means:"],
}
#: Here a parameter of the same name is something else: a name in a store, or one batch of a loop.
OTHERS = "avgk_dask.(info|ingest|open_scores|ScoreWriter.append|Evaluator.update|LazyScores.as_source)"


@pytest.mark.parametrize("name", SHARED)
def test_shared_parameters__read_alike(name):
    described = [(function, text) for function, text in descriptions(name) if not re.fullmatch(OTHERS, function)]
    assert len(described) > 1
    # A function may append sentences of its own, such as what else its labels must be.
    texts = {
        next((text for text in SHARED[name] if description.startswith(text)), (function, description))
        for function, description in described
    }
    assert texts <= set(SHARED[name])
    for text in SHARED[name]:
        variants = {description for _, description in described if description.startswith(text)}
        shortest = min(variants, key=len)
        assert all(variant.startswith(shortest) for variant in variants)


def test_attributes__of_a_writer_are_documented(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=3) as writer:
        writer.append(SCORES)
    public = [name for name in vars(writer) if not name.startswith("_")]
    assert entries(split(inspect.getdoc(avgk.ScoreWriter))["Attributes"]) == public


@pytest.mark.parametrize("name", ERRORS)
def test_exceptions__are_documented_with_cause_and_cure(name):
    sections = split(inspect.getdoc(ERRORS[name]))
    assert "__doc__" in vars(ERRORS[name])
    assert re.search(r"^Cause: \S", sections[""], re.M)
    assert re.search(r"^Cure: \S", sections[""], re.M)
    assert name.rpartition(".")[2] in sections["Examples"]
    assert ">>>" in sections["Examples"]
    for base in ERRORS[name].__mro__[1:]:
        if (
            base.__name__ in vars(builtins)
            and base.__module__ == "builtins"
            and base not in (Exception, object, BaseException)
        ):
            assert base.__name__ in sections[""]


def refusals():
    """Yield the messages of all exceptions raised in the package, with {} for values. Those of commands are excluded."""
    package = pathlib.Path(avgk.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
                continue
            text = node.exc.args[0]
            if path.parent.name != "cli" and ast.unparse(node.exc.func) in {e.__name__ for e in ERRORS.values()}:
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                whole = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
                yield f"{path.relative_to(package)}:{node.lineno}", whole


def test_messages__state_the_problem_and_then_the_way_out():
    texts = dict(refusals())
    assert len(texts) > 100
    for line, text in texts.items():
        if text == "{}" or not text.endswith((".", "?", "}")):  # composed elsewhere, or part of another text
            continue
        assert re.search(r"[^.][.:] ([A-Z]|\{\}$)", text), f"{line} has no way out: {text}"
        assert text[0] == "{" or text[0].islower() or text.startswith("Parquet"), f"{line}: {text}"


LABELS = np.array([0, 2, 1])
RESULTS = {
    "evaluate": lambda: avgk.evaluate(SCORES, SCORES, k=[1, 2]),
    "threshold": lambda: avgk.threshold(SCORES, [1, 2]),
    "straddle_strength": lambda: avgk.straddle_strength(SCORES, [1, 2]),
    "ranked_supports": lambda: avgk.ranked_supports(SCORES, [1, 2]),
    "error_curve": lambda: avgk.error_curve(SCORES, LABELS),
    "risk": lambda: avgk.risk(SCORES, LABELS, [0.2, 0.3]),
    "adaptive_gain": lambda: avgk.adaptive_gain(SCORES, [1, 2]),
    "regret": lambda: avgk.regret(SCORES > 0.3, SCORES),
    "plug_in_regret": lambda: avgk.plug_in_regret(SCORES, SCORES, [1, 2]),
    "transfer": lambda: avgk.transfer(SCORES, SCORES, LABELS, [1, 2]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_returns__name_every_variable_and_dimension_of_a_result(name):
    result = RESULTS[name]()
    words = set(re.findall(r"\w+", split(inspect.getdoc(getattr(avgk, name)))["Returns"]))
    assert isinstance(result, xr.Dataset)
    assert {*result.data_vars, *result.dims} - words == set()


def test_evaluate__of_a_predictor_names_every_variable_and_dimension_of_its_result():
    predictor = conformal.calibrate(SCORES, LABELS, by=np.zeros(3, int))
    result = predictor.evaluate(SCORES, LABELS, groups=np.zeros(3, int))
    words = set(re.findall(r"\w+", inspect.getdoc(conformal.ConformalPredictor.evaluate)))
    named = {name.replace("group_", "class_") for name in result.data_vars}
    assert {*named, *result.dims} - words - {"group"} == set()


def test_returns__of_info_name_every_key(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=3) as writer:
        writer.append(SCORES)
    documented = entries(split(inspect.getdoc(avgk.info))["Returns"])
    assert {"dict", *avgk.info(tmp_path / "a.zarr")} == set(documented)


def test_returns__name_every_field_of_objects():
    for function, kind in (
        (avgk.verify, "Verification"),
        (avgk.ingest, "Ingestion"),
        (avgk.best_threshold, "BestThreshold"),
    ):
        returns = split(inspect.getdoc(function))["Returns"]
        result = getattr(sys.modules[function.__module__], kind)
        fields = [field.name for field in dataclasses.fields(result)]
        assert entries(returns) == [kind]
        assert set(fields) <= set(re.findall(r"\w+", returns))
        assert entries(split(inspect.getdoc(result))["Attributes"]) == fields
