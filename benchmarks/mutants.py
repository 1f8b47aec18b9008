"""Change the package in one place at a time, and print the changes that no test detects.

    python -m pytest -n 2 --cov --cov-context=test        # records which test runs which line
    python benchmarks/mutants.py --count 40 --seed 0

The mutants are drawn at random, the same number from each area: another comparison, one more or one less, "and" for "or", the
minimum for the maximum, an omitted error. Each is tested in a copy of the clone, by the default tests that run the changed line;
``--slow`` also runs the slow tests for the survivors. A survivor means a missing test or an equivalent change: read it and decide.
"""

from __future__ import annotations

import argparse
import ast
import collections
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import coverage

ROOT = pathlib.Path(__file__).resolve().parents[1]
AREAS = {
    "engine": ["kernels", "bands", "engine", "sources"],
    "statistics": ["statistics", "exact", "results", "api/curves.py", "api/regrets.py"],
    "sets": ["statistics/rules.py", "api/sets.py", "api/conformal/predictors.py", "api/thresholds.py", "api/risks.py"],
    "inputs": ["axis_names.py", "masks.py", "api/inputs", "store/read"],
}
SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
NAMES |= {"left": "right", "right": "left", "floor": "ceil", "ceil": "floor"}


def find_changes(path: pathlib.Path) -> list[tuple[int, int, int, str]]:
    """Return (first byte, byte after the last, line, replacement) for each possible change of a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    changes = []

    def span(node):
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def add(first, last, line, text):
        changes.append((first, last, line, text))

    def between(left, right, old, new):
        first, last = span(left)[1], span(right)[0]
        gap = source[first:last].decode()
        if gap.count(old) == 1:
            add(first, last, right.lineno, gap.replace(old, new))

    def visit(node):
        if isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                between(left, right, _sign(operator), SWAPS[type(operator)])
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not isinstance(node.left, ast.Constant):
            between(node.left, node.right, _sign(node.op), SWAPS[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            between(*node.values[:2], _sign(node.op), SWAPS[type(node.op)])
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value < 1000:
            add(*span(node), node.lineno, str(node.value + 1))
        elif isinstance(node, ast.Constant) and node.value in ("left", "right"):
            add(*span(node), node.lineno, repr(NAMES[node.value]))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            add(span(node)[0], span(node)[0] + 4, node.lineno, "")
        elif (
            isinstance(node, ast.Name | ast.Attribute)
            and (name := getattr(node, "id", getattr(node, "attr", ""))) in NAMES
        ):
            last = span(node)[1]
            add(last - len(name), last, node.end_lineno, NAMES[name])
        elif isinstance(node, ast.Raise) and node.exc is not None:
            add(*span(node), node.lineno, "pass")
        skipped = {"annotation", "returns", "decorator_list", "type_params"}
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            return
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and field not in skipped:
                    visit(child)

    visit(ast.parse(source))
    return changes


def _sign(operator: ast.AST) -> str:
    signs = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is"}
    signs |= {ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
    return signs.get(type(operator)) or {ast.FloorDiv: "//", ast.And: "and", ast.Or: "or"}[type(operator)]


def draw(count: int, seed: int) -> list[tuple[str, str, tuple[int, int, int, str]]]:
    """Draw (area, file, site) of mutants, the same number from each area."""
    random_numbers = random.Random(seed)
    drawn = []
    for area, places in AREAS.items():
        files = [
            path
            for place in places
            for path in sorted((ROOT / "avgk_dask" / place).rglob("*.py") or []) or [ROOT / "avgk_dask" / place]
            if path.is_file()
        ]
        choices = [(area, str(path.relative_to(ROOT)), site) for path in files for site in find_changes(path)]
        drawn += random_numbers.sample(choices, count // len(AREAS))
    return drawn


def breadths(data: coverage.CoverageData) -> collections.Counter[str]:
    """Return the number of lines that each test runs."""
    lines: collections.Counter[str] = collections.Counter()
    for file in data.measured_files():
        for contexts in data.contexts_by_lineno(file).values():
            lines.update({context.partition("|")[0] for context in contexts})
    return lines


def tests_of(data: coverage.CoverageData, lines: collections.Counter[str], file: str, line: int) -> list[str]:
    """Return the tests that run a line, or, if it runs at import or is compiled, the tests that run its file.

    Tests of the module come first, then those that run few lines: most of them look closely at what they run.
    """
    by_line = data.contexts_by_lineno(str(ROOT / file))
    tests = {context.partition("|")[0] for context in by_line.get(line, [])} - {""}
    if not tests:
        tests = {context.partition("|")[0] for contexts in by_line.values() for context in contexts} - {""}
    if "/kernels/" in file:
        tests |= {test for test in lines if "/kernels/" in test}
    name = pathlib.Path(file).stem
    return sorted(tests, key=lambda test: (f"test_{name}" not in test, lines[test], test))


def is_noticed(clone: pathlib.Path, tests: list[str], options: list[str]) -> bool:
    """Whether a test of a clone fails or exceeds its time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(clone), "NUMBA_CACHE_DIR": str(clone / "numba")}
    try:
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 2, 5):
        raise SystemExit(f"pytest: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode in (1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--most", type=int, default=1000, help="tests to try of those that run the line, the narrowest first"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant to try")
    parser.add_argument("--slow", action="store_true", help="try the survivors with the slow tests as well")
    arguments = parser.parse_args()
    data = coverage.CoverageData(str(ROOT / ".coverage"))
    data.read()
    if not any(data.measured_contexts()):
        raise SystemExit("no contexts in .coverage: first run python -m pytest -n 2 --cov --cov-context=test")
    lines = breadths(data)
    with tempfile.TemporaryDirectory() as folder:
        clone = pathlib.Path(folder) / "clone"
        shutil.copytree(
            ROOT, clone, ignore=shutil.ignore_patterns(".venv*", ".git", "data", "_build", ".*_cache", ".coverage*")
        )
        for number, (area, file, (first, last, line, text)) in enumerate(draw(arguments.count, arguments.seed)):
            if number < arguments.first:
                continue
            source = (ROOT / file).read_bytes()
            (clone / file).write_bytes(source[:first] + text.encode() + source[last:])
            tests = tests_of(data, lines, file, line)[: arguments.most]
            few = tests[:20]
            verdict = "survives"
            if not tests:
                verdict = "survives: no test runs it"
            elif is_noticed(clone, few, []) or (len(tests) > len(few) and is_noticed(clone, tests[20:], ["-n", "2"])):
                verdict = "noticed"
            if verdict != "noticed" and arguments.slow and is_noticed(clone, ["tests"], ["-n", "2", "-m", "slow"]):
                verdict = "noticed by slow tests"
            (clone / file).write_bytes(source)
            before = source[:first].rpartition(b"\n")[2] + source[first:last] + source[last:].partition(b"\n")[0]
            after = source[:first].rpartition(b"\n")[2] + text.encode() + source[last:].partition(b"\n")[0]
            print(f"{number:3d} {area:10s} {verdict}  {file}:{line}", flush=True)
            print(f"      - {before.decode().strip()}\n      + {after.decode().strip()}", flush=True)


if __name__ == "__main__":
    main()
