"""Run what the pages show: every Python snippet and every command of a page, while it is built.

A block of ``python`` is run with the names of the earlier blocks of its page; its output and figures are added after it. In a block of
``console``, each line that begins with ``$ avgk`` is run, and its output is added after the line. Each page has an empty folder of its
own. A failure is a warning of the build. If a command should fail, its line ends with ``# exit status 1``.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import shlex
import tempfile
import traceback
import warnings
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import pandas as pd
from click.testing import CliRunner
from docutils import nodes
from matplotlib import pyplot as plt
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

import avgk_dask
from avgk_dask.cli import main
from avgk_dask.errors import ResultWarning

LOGGER = logging.getLogger(__name__)


@dataclass
class Session:
    """The state shared by the blocks of one page: a folder and the names they have defined."""

    folder: str
    scope: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def run_python(self, code: str) -> str:
        """Run the code and return its output."""
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResultWarning)
            exec(compile(code, "snippet", "exec"), self.scope)
        return printed.getvalue()

    def run_command(self, line: str) -> str:
        """Run a line ``$ avgk ...`` and return its output; raise if its exit status is not the expected one."""
        expected = int(status[1]) if (status := re.search(r"# exit status (\d+)", line)) else 0
        with contextlib.chdir(self.folder):
            arguments = shlex.split(line.removeprefix("$ avgk"), comments=True)
            done = CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments, prog_name="avgk")
        if done.exit_code != expected:
            raise RuntimeError(f"{line!r} ended with {done.exit_code}: {done.output}")
        return done.output

    def run_console(self, text: str) -> str:
        """Return the text with the output of each of its commands."""
        shown = []
        for line in text.splitlines():
            shown.append(line)
            if line.startswith("$ avgk"):
                shown.extend(self.run_command(line).rstrip().splitlines())
        return "\n".join(shown)


def shown_output(text: str) -> nodes.literal_block:
    """Return a block that shows printed output."""
    block = nodes.literal_block(text, text, classes=["printed"])
    block["language"] = "text"
    return block


class RunSnippets(SphinxTransform):
    """Runs the blocks of a Markdown page from top to bottom, and adds their output after them."""

    default_priority = 100

    def apply(self, **kwargs: Any) -> None:
        """Run the blocks of this page."""
        if pathlib.Path(self.env.doc2path(self.env.docname)).suffix != ".md":
            return
        blocks = [b for b in self.document.findall(nodes.literal_block) if b.get("language") in ("python", "console")]
        with tempfile.TemporaryDirectory() as folder, mpl.rc_context():
            session = Session(folder)
            for block in blocks:
                try:
                    self.run(block, session)
                except Exception:
                    LOGGER.warning("a snippet failed:\n%s", traceback.format_exc(), location=block, type="running")
            plt.close("all")

    def run(self, block: nodes.literal_block, session: Session) -> None:
        """Run one block, and add its output and figures."""
        if block["language"] == "console":
            text = session.run_console(block.astext())
            block.rawsource, block.children = text, []
            block += nodes.Text(text)
            return
        printed = session.run_python(block.astext())
        results: list[nodes.Node] = [shown_output(printed.rstrip())] if printed.strip() else []
        results += [self.picture(number, block) for number in plt.get_fignums()]
        place = block.parent.index(block) + 1
        block.parent.insert(place, results)

    def picture(self, number: int, block: nodes.literal_block) -> nodes.image:
        """Save a figure, and return it as an image; its text is the title of the section."""
        folder = pathlib.Path(self.app.doctreedir) / "pictures"
        folder.mkdir(parents=True, exist_ok=True)
        path = (
            folder
            / f"{self.env.docname.replace('/', '-')}-{len(list(self.document.findall(nodes.image)))}-{number}.svg"
        )
        figure = plt.figure(number)
        figure.savefig(path, bbox_inches="tight")
        plt.close(figure)
        section = next(node for node in iter_parents(block) if isinstance(node, nodes.section))
        here = pathlib.Path(self.env.doc2path(self.env.docname)).parent
        title = section.next_node(nodes.title)
        return nodes.image(uri=os.path.relpath(path, here), alt=title.astext() if title else "", classes=["drawn"])


class LinkNames(SphinxTransform):
    """Links calls in code font, such as ``evaluate(scores)``, to their pages of the reference."""

    default_priority = 110

    def apply(self, **kwargs: Any) -> None:
        """Link the names of this page."""
        if pathlib.Path(self.env.doc2path(self.env.docname)).suffix != ".md":
            return
        for literal in list(self.document.findall(nodes.literal)):
            called = re.match(r"(?:avgk\.)?(\w[\w.]*)\(", literal.astext() + "(" * literal.astext()[0].isupper())
            inside_link = isinstance(literal.parent, (nodes.reference, addnodes.pending_xref))
            if called and not inside_link and is_public(called[1]):
                link = addnodes.pending_xref(
                    "",
                    refdomain="py",
                    reftype="obj",
                    reftarget=f"avgk_dask.{called[1]}",
                    refexplicit=True,
                    refwarn=True,
                )
                literal.parent.replace(literal, link)
                link += literal


def is_public(name: str) -> bool:
    """Return whether the package, or a submodule of it, exports a name such as ``plot.errors``."""
    home, _, short = name.rpartition(".")
    module = getattr(avgk_dask, home, None) if home else avgk_dask
    return short in getattr(module, "__all__", ())


def iter_parents(node: nodes.Node) -> Any:
    """Iterate over the nodes around a node, innermost first."""
    while node.parent is not None:
        node = node.parent
        yield node


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transforms. Pages cannot be read in parallel, because each changes the folder of the process."""
    mpl.use("agg")
    pd.set_option("display.width", 100, "display.max_columns", None)
    app.add_transform(RunSnippets)
    app.add_transform(LinkNames)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
