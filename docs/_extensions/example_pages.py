"""Make a page of each example: its introduction, its pictures, its measurements and its code.

Nothing is run here. The pictures and numbers are those of ``examples/results``. ``examples/README.md``, which describes that run,
becomes the first page.
"""

from __future__ import annotations

import ast
import pathlib
import re
import runpy
import shutil
from collections.abc import Callable


def write_pages(examples: pathlib.Path, pages: pathlib.Path, repository: str) -> None:
    """Replace the pages of all examples."""
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir()
    scripts = sorted(examples.glob("[0-9][0-9]_*.py"))
    make_table = runpy.run_path(str(examples / "make_table.py"))["make_table"]
    for script in scripts:
        (pages / f"{script.stem}.md").write_text(page_of(script, make_table))
    (pages / "index.md").write_text(first_page((examples / "README.md").read_text(), scripts, repository))


def page_of(script: pathlib.Path, make_table: Callable[[pathlib.Path, str], str]) -> str:
    """Return the page of one example."""
    first, *paragraphs = (ast.get_docstring(ast.parse(script.read_text())) or "").split("\n\n")
    title = f"{script.stem[:2]}. {first.partition(':')[0]}"
    results = script.parent / "results"
    pictures = [
        f"![{title}](../../examples/results/{path.name})" for path in sorted(results.glob(f"{script.stem}*.png"))
    ]
    commands = f"```text\n{paragraphs.pop()}\n```"
    measured = make_table(results, script.stem)
    code = f"```{{literalinclude}} ../../examples/{script.name}\n:language: py\n```"
    parts = [f"# {title}", f"**{first}**", *paragraphs, *pictures, "## Measurements", measured]
    return "\n\n".join([*parts, "## Run it", commands, "## The code", code]) + "\n"


def first_page(text: str, scripts: list[pathlib.Path], repository: str) -> str:
    """Return ``examples/README.md`` with links to the pages of this site."""
    text = re.sub(r"\]\(([\w/]+\.\w+)\)", lambda match: f"]({address(match[1], repository)})", text)
    names = "\n".join(script.stem for script in scripts)
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def address(name: str, repository: str) -> str:
    """Return the address of a file of ``examples``: a page of this site, or a file of the repository."""
    if re.match(r"\d\d_\w+\.py", name):
        return name.replace(".py", ".md")
    return f"../notebooks/{name}" if name.endswith(".ipynb") else f"{repository}/blob/main/examples/{name}"
