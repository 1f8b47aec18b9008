"""The docstrings: all that a user must know, and nothing that is not so. tests/test_site.py looks at their pages."""

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
    """Give the sections of a docstring by heading; what comes first under the empty one."""
    first, *rest = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", doc, flags=re.M)
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def entries(section: str) -> list[str]:
    """Give the names that a section describes, each with something said of it."""
    found = re.findall(r"^(\S.*)\n +\S", section, re.M)
    return [name.strip("` ") for line in found for name in line.split(",")]


def parameters(item) -> list[str]:
    names = [name for name in inspect.signature(item).parameters if name != "self"]
    return [name for name in names if not name.startswith("_")]


def complaints(item, doc: str | None = None) -> list[str]:
    """Give what the docstring of a public function or class lacks."""
    sections = split(inspect.getdoc(item) or "" if doc is None else doc)
    found = [] if sections[""].strip() else ["it does not say what it gives"]
    documented = entries(sections.get("Parameters", ""))
    fields = [field.name for field in dataclasses.fields(item)] if dataclasses.is_dataclass(item) else None
    if fields and "Parameters" not in sections:  # a result: nobody makes one
        documented = entries(sections.get("Attributes", ""))
    if documented != parameters(item):
        found.append(f"it describes {documented} instead of {parameters(item)}")
    if ">>>" not in sections.get("Examples", ""):
        found.append("it has no example")
    if inspect.isfunction(item):
        if not re.search(r"^Cost: \S", sections.get("Notes", ""), re.M):
            found.append("its notes do not tell the cost")
        if inspect.signature(item).return_annotation not in (None, "None") and not entries(sections.get("Returns", "")):
            found.append("it does not say what comes back")
        if not item.__name__.startswith("oracle_") and not entries(sections.get("Raises", "")):
            found.append("it does not say what it refuses")
    return found


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_docstrings__are_complete(name):
    assert complaints(PUBLIC[name]) == []


@pytest.mark.parametrize("section", ["Parameters", "Returns", "Raises", "Notes", "Examples", ""])
def test_docstrings__that_lack_a_section_are_noticed(section):
    sections = split(inspect.getdoc(avgk.evaluate))
    sections.pop(section)
    doc = "".join(f"{name}\n---\n{text}" if name else text for name, text in sections.items())
    assert complaints(avgk.evaluate, doc if section else f"\n{doc}")


def test_docstrings__that_leave_out_a_parameter_or_the_cost_are_noticed():
    doc = inspect.getdoc(avgk.evaluate)
    assert complaints(avgk.evaluate, doc) == []
    assert complaints(avgk.evaluate, re.sub(r"^ties\n( +\S.*\n)+", "", doc, flags=re.M))
    assert complaints(avgk.evaluate, doc.replace("Cost: ", ""))


@pytest.mark.parametrize("name", CLASSES)
def test_methods__are_documented_with_their_parameters(name):
    for method, item in vars(CLASSES[name]).items():
        if method.startswith("_") or not inspect.isfunction(item) or inspect.iscoroutinefunction(item):
            continue
        if method == "with_read_only":  # as zarr defines it
            continue
        sections = split(inspect.getdoc(item) or "")
        assert sections[""].strip(), f"{name}.{method}"
        assert entries(sections.get("Parameters", "")) == parameters(item), f"{name}.{method}"


def descriptions(name: str):
    """Give (function or method, what it says of a parameter) for each of the package's own that has it."""
    methods = {
        f"{owner}.{method}": item
        for owner, kind in CLASSES.items()
        for method, item in vars(kind).items()
        if inspect.isfunction(item)
    }
    for function, item in {**FUNCTIONS, **methods}.items():
        section = split(inspect.getdoc(item) or "").get("Parameters", "")
        found = re.search(rf"^{name}\n((?: +\S.*(?:\n|$))+)", section, re.M)
        if found and not function.startswith("avgk_dask.testing"):
            yield function, " ".join(found[1].split())


#: How each shared parameter begins to be described, wherever it means the same: by one of a few texts.
SHARED = {
    "scores": ["N x C matrix, classes last, all other axes samples:"],
    "labels": [
        "N integers (negative, masked or null: unlabelled), N class names, or an N x C matrix of true probabilities; or the",
        "N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that holds them.",
    ],
    "where": ["One boolean per sample: those where it is False (padding) are left out altogether."],
    "ignore_index": ["Label of samples to leave out: short for"],
    "clusters": ["One integer per sample, such as its document or patient:"],
    "nan_policy": ['``"raise"`` refuses NaN; ``"lowest"`` ranks', 'Only ``"raise"`` is supported: NaN is refused.'],
    "progress": ["Whether to show a progress bar on stderr. None logs one line per minute"],
    "checkpoint": ["Path or URL of a folder for intermediate results:"],
    "missing": ["What a chunk missing from a store means:"],
}
#: Where a parameter of the same name is something else: a name in a store, or one batch of a loop.
OTHERS = "avgk_dask.(info|ingest|open_scores|ScoreWriter.append|Evaluator.update|LazyScores.as_source)"


@pytest.mark.parametrize("name", SHARED)
def test_shared_parameters__read_alike(name):
    found = [(function, text) for function, text in descriptions(name) if not re.fullmatch(OTHERS, function)]
    assert len(found) > 1
    # Up to the first sentence of a function's own, such as what its labels must be besides.
    texts = {
        next((text for text in SHARED[name] if said.startswith(text)), (function, said)) for function, said in found
    }
    assert texts <= set(SHARED[name])
    whole = {said for _, said in found}
    for text in SHARED[name]:
        shortest = min((said for said in whole if said.startswith(text)), key=len)
        assert all(said.startswith(shortest) for said in whole if said.startswith(text))


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
    """Give the texts of all exceptions raised in the package, {} for what is filled in; the commands have their own."""
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


def test_refusals__say_what_is_wrong_and_then_what_to_do():
    texts = dict(refusals())
    assert len(texts) > 100
    for place, text in texts.items():
        if text == "{}" or not text.endswith((".", "?", "}")):  # put together elsewhere, or a part of another text
            continue
        assert re.search(r"[^.][.:] ([A-Z]|\{\}$)", text), f"{place} does not say what to do: {text}"
        assert text[0] == "{" or text[0].islower() or text.startswith("Parquet"), f"{place}: {text}"


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
    told = set(re.findall(r"\w+", split(inspect.getdoc(getattr(avgk, name)))["Returns"]))
    assert isinstance(result, xr.Dataset)
    assert {*result.data_vars, *result.dims} - told == set()


def test_evaluate__of_a_predictor_names_every_variable_and_dimension_of_its_result():
    found = conformal.calibrate(SCORES, LABELS, by=np.zeros(3, int))
    result = found.evaluate(SCORES, LABELS, groups=np.zeros(3, int))
    told = set(re.findall(r"\w+", inspect.getdoc(conformal.ConformalPredictor.evaluate)))
    named = {name.replace("group_", "class_") for name in result.data_vars}
    assert {*named, *result.dims} - told - {"group"} == set()


def test_returns__of_info_name_every_key(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=3) as writer:
        writer.append(SCORES)
    told = entries(split(inspect.getdoc(avgk.info))["Returns"])
    assert {"dict", *avgk.info(tmp_path / "a.zarr")} == set(told)


def test_returns__name_every_field_of_objects():
    for function, kind in (
        (avgk.verify, "Verification"),
        (avgk.ingest, "Ingestion"),
        (avgk.best_threshold, "BestThreshold"),
    ):
        returns = split(inspect.getdoc(function))["Returns"]
        found = getattr(sys.modules[function.__module__], kind)
        told = set(re.findall(r"\w+", returns))
        assert entries(returns) == [kind]
        assert {field.name for field in dataclasses.fields(found)} <= told
        assert entries(split(inspect.getdoc(found))["Attributes"]) == [f.name for f in dataclasses.fields(found)]
