"""The site builds, its code runs, its links work, it covers every name and command, and its search finds the how-tos."""

from __future__ import annotations

import fcntl
import html
import inspect
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit

import click
import pytest

import avgk_dask as avgk
from avgk_dask.cli import main

pytestmark = pytest.mark.slow

pytest.importorskip("sphinx")
pytest.importorskip("myst_nb")
pytest.importorskip("furo")

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: Without the pages of the examples, which are generated during the build.
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent != DOCS / "examples"]
REPOSITORY = "https://github.com/avgk-dask/avgk_dask"
MODULES = ("", "calibration.", "conformal.", "losses.", "plot.", "report.", "testing.")
NAMES = [home + name for home in MODULES for name in (getattr(avgk, home[:-1]) if home else avgk).__all__]
#: Searches, and the how-to that must be among the first three results.
SEARCHES = {
    "confidence interval": "how_sure",
    "error bars": "how_sure",
    "reliability diagram": "logits",
    "calibration": "logits",
    "hdf5": "evaluate_scores",
    "top-k accuracy": "evaluate_scores",
    "export sets": "sets",
}
#: Prints the results of the site's own search as JSON, best first; run as ``node -e SEARCH site query ...``.
SEARCH = """
const fs = require("fs"), vm = require("vm"), [site, ...queries] = process.argv.slice(1);
Object.assign(globalThis, {
  document: {getElementById: () => null, documentElement: {dataset: {content_root: ""}}},
  window: globalThis, addEventListener() {}, SPHINX_HIGHLIGHT_ENABLED: false, _ready() {}, _: text => text,
});
for (const file of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"])
  vm.runInThisContext(fs.readFileSync(`${site}/${file}`, "utf8"));
vm.runInThisContext("search = query => Search._performSearch(...Search._parseQuery(query)).reverse()");
console.log(JSON.stringify(queries.map(query => search(query).map(([page]) => page))));
"""
#: Attributes that make a browser fetch something, by tag (links do not).
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}


def build(docs: pathlib.Path, out: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Build a site with the command of the README."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(docs), str(out)]
    return subprocess.run(command, capture_output=True, text=True)


def build_copy(folder: pathlib.Path) -> None:
    """Build the site from a copy of its sources, to leave the clone unchanged."""
    shutil.copytree(
        DOCS, folder / "docs", ignore=shutil.ignore_patterns("_build", "generated", "*.ipynb", "__pycache__")
    )
    for name in ("avgk_dask", "examples"):
        (folder / name).symlink_to(ROOT / name)
    done = build(folder / "docs", folder / "html")
    (folder / "problems.txt").write_text("" if done.returncode == 0 else done.stdout + done.stderr)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the built site; parallel test processes build it once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "problems.txt").exists():
            build_copy(folder)
    assert (folder / "problems.txt").read_text() == ""
    return folder / "html"


class Page(HTMLParser):
    """The links of a page, the files it makes a browser fetch, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if FETCHED.get(tag) in values and values.get("rel") not in ("canonical", "search", "index", "next", "prev"):
            self.fetched.append(values[FETCHED[tag]])


def read_pages(folder: pathlib.Path) -> dict[pathlib.Path, Page]:
    return {path.resolve(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}


def find_broken_links(pages: dict[pathlib.Path, Page]) -> list[str]:
    """Return the internal links and sources of a site without a target."""
    broken = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            if urlsplit(link).scheme:
                continue
            name, anchor = urldefrag(link)
            target = (path.parent / unquote(urlsplit(name).path)).resolve() if name else path
            if not target.is_file() or (target in pages and unquote(anchor) not in pages[target].anchors):
                broken.append(f"{path.name}: {link}")
    return broken


def text_of(path: pathlib.Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text()))


def page_of(site: pathlib.Path, name: str) -> pathlib.Path:
    """Return the page of a public name; file names differ by more than case."""
    short = "Threshold_object" if name == "Threshold" else name
    return site / "reference" / "generated" / f"avgk_dask.{short}.html"


def test_site__has_no_broken_links(site):
    pages = read_pages(site)
    assert len(pages) > 120
    assert find_broken_links(pages) == []


def test_links__without_a_target_are_detected(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html"></a><a href="#there"></a><a href="#here"></a><img src="c.png">'
    )
    assert find_broken_links(read_pages(tmp_path)) == ["a.html: b.html", "a.html: #there", "a.html: c.png"]


def find_foreign_links(folder: pathlib.Path) -> list[str]:
    """Return the files that the pages and style sheets of a site would fetch from elsewhere."""
    pages = read_pages(folder)
    foreign = [link for page in pages.values() for link in page.fetched if urlsplit(link).netloc or ":" in link[:6]]
    sheets = [path.read_text() for path in folder.rglob("*.css")]
    sheets += [sheet for path in pages for sheet in re.findall(r"<style[^>]*>(.*?)</style>", path.read_text(), re.S)]
    foreign += re.findall(r"""@import[^;]*|url\(\s*["']?(?:https?:)?//[^)]*""", "\n".join(sheets))
    return [link for link in foreign if not link.startswith("data:")]


def test_site__fetches_nothing_from_elsewhere(site):
    assert len(list(site.rglob("*.css"))) >= 3
    assert find_foreign_links(site) == []


def test_pages__that_fetch_from_elsewhere_are_detected(tmp_path):
    (tmp_path / "a.html").write_text(
        '<script src="https://a.org/a.js"></script><link rel="stylesheet" href="//b.org/b.css"><img src="data:image/png;base64,AA">'
        '<style>@import "c.css"; p {background: url(https://d.org/d.png)}</style><a href="https://e.org">e</a>'
    )
    assert find_foreign_links(tmp_path) == [
        "https://a.org/a.js",
        "//b.org/b.css",
        '@import "c.css"',
        "url(https://d.org/d.png",
    ]


def test_site__links_to_existing_files_of_the_repository(site):
    links = {
        link for page in read_pages(site).values() for link in page.links if link.startswith(f"{REPOSITORY}/blob/main/")
    }
    assert len(links) >= 2
    assert [link for link in links if not (ROOT / link.removeprefix(f"{REPOSITORY}/blob/main/")).is_file()] == []


@pytest.mark.parametrize("name", NAMES)
def test_reference__has_a_page_with_the_whole_docstring_for_every_public_name(site, name):
    path, item = page_of(site, name), avgk
    assert path.exists(), f"add {name} to docs/reference/index.rst"
    for part in name.split("."):
        item = getattr(item, part)
    text, doc = text_of(path), inspect.getdoc(item)
    assert f"avgk_dask.{name}" in Page(path.read_text()).anchors
    headings = re.findall(r"^([A-Z]\w+)\n-{3,}$", doc, re.M)
    assert [heading for heading in headings if heading != "Attributes" and heading not in text] == []
    assert not re.search(r"^-{3,}$", text, re.M)
    assert "``" not in text
    flat = "".join(text.split())
    described = [entry.strip("`") for line in re.findall(r"^(\S.*)\n {4}\S", doc, re.M) for entry in line.split(", ")]
    examples = [line.split("  # doctest:")[0] for line in re.findall(r"^>>> (.*)$", doc, re.M)]
    assert [line for line in described + examples if "".join(line.split()) not in flat] == []


def test_reference__has_every_command(site):
    text = text_of(site / "reference" / "commands.html")
    for name in main.list_commands(click.Context(main)):
        assert f"Usage: avgk {name} " in text, f"add {name} to docs/reference/commands.md"


def test_pages__run_every_block_that_is_not_marked_as_text():
    blocks = [language for page in PAGES for language in re.findall(r"^```(\S+)\n", page.read_text(), re.M)]
    assert blocks.count("python") > 40
    assert blocks.count("console") > 30
    assert set(blocks) <= {"python", "console", "text", "{toctree}", "{literalinclude}"}


def test_pages__name_existing_commands_and_options():
    lines = [line for page in PAGES for line in re.findall(r"^(?:\$ )?avgk (.*)$", page.read_text(), re.M)]
    inline = [line for page in PAGES for line in re.findall(r"`avgk ([a-z][^`]*)`", page.read_text())]
    assert len(lines) > 50
    for line in lines + inline:
        name, *rest = shlex.split(line, comments=True)
        command = main.get_command(click.Context(main), name)
        assert command is not None or name.startswith("-"), line
        known = (
            {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
            if command
            else set()
        )
        options = {word for word in rest if re.match(r"--?[a-z]", word)}
        assert options - known - {"--help", "--debug"} == set(), line


@pytest.mark.parametrize(
    "path", sorted(set((DOCS / "howto").glob("*.md")) - {DOCS / "howto" / "index.md"}), ids=lambda p: p.stem
)
def test_questions__have_a_snippet_a_command_and_a_meaning(path):
    text = path.read_text()
    assert re.search(r"^```python", text, re.M)
    assert re.search(r"^\$? ?avgk \w+", text, re.M) or "There is no command" in " ".join(text.split())
    assert "**Meaning.**" in text or path.stem == "report"  # which explains each part in a table


def test_sidebar__has_each_how_to_once_below_a_caption():
    text = (DOCS / "index.md").read_text()
    groups = re.findall(r"^```{toctree}\n:hidden:\n:caption: [^\n]+\n\n(.*?)```", text, re.M | re.S)
    listed = [name for group in groups for name in group.split() if name.startswith("howto/")]
    assert sorted(listed) == sorted(f"howto/{path.stem}" for path in (DOCS / "howto").glob("*.md"))


def test_search__finds_the_how_to_among_the_first_three_results(site):
    node = shutil.which("node") or pytest.skip("node is not installed")
    done = subprocess.run([node, "-e", SEARCH, str(site), *SEARCHES], capture_output=True, text=True, check=True)
    results = dict(zip(SEARCHES, json.loads(done.stdout), strict=True))
    assert {query: pages[:3] for query, pages in results.items() if f"howto/{SEARCHES[query]}" not in pages[:3]} == {}


def test_gallery__draws_every_picture(site):
    page = (site / "gallery.html").read_text()
    drawn = re.findall(r'<img alt="([^"]+)" class="drawn[^"]*" src="([^"]+)"', page)
    assert all(f"plot.{name}(" in (DOCS / "gallery.md").read_text() for name in avgk.plot.__all__)
    assert len(drawn) == len(set(drawn)) > len(avgk.plot.__all__)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("[0-9][0-9]_*.py")), ids=lambda p: p.stem)
def test_examples__have_a_page_with_picture_numbers_and_code(site, script):
    path = site / "examples" / f"{script.stem}.html"
    page, text = path.read_text(), text_of(path)
    assert re.search(rf'<img alt="[^"]+" src="[^"]*{script.stem}[^"]*\.png"', page)
    assert "Measurements" in text
    assert "def main(argv=None)" in text
    claims = json.loads((ROOT / "examples" / "results" / f"{script.stem}.json").read_text())["claims"]
    flat = "".join(text.split())
    assert [claim["claim"] for claim in claims if "".join(claim["claim"].split()) not in flat] == []


def test_notebooks__are_shown_with_their_output(site):
    assert "fewer errors than " in text_of(site / "notebooks" / "tour.html")
    assert (site / "notebooks" / "tour.html").read_text().count("<img") >= 4


def test_snippets__that_fail_fail_the_build(tmp_path):
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_extensions')!r})\nextensions = ['myst_nb', 'running']\n"
    )
    (tmp_path / "index.md").write_text(
        "# Title\n\n```python\nprint(1 / 0)\n```\n\n```console\n$ avgk info nowhere.zarr\n$ avgk info no.zarr  # exit status 2\n```\n"
    )
    done = build(tmp_path, tmp_path / "html")
    assert done.returncode != 0
    assert done.stderr.count("a snippet failed") == 2
    assert "ZeroDivisionError" in done.stderr
    assert "'$ avgk info nowhere.zarr' ended with 2" in done.stderr
