"""Configuration of the site: ``python -m sphinx -W --keep-going docs docs/_build/html``."""

from __future__ import annotations

import pathlib
import shutil
import sys

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_extensions"))

from example_pages import write_pages  # noqa: E402

import avgk_dask  # noqa: E402

project = "avgk_dask"
REPOSITORY = "https://github.com/avgk-dask/avgk_dask"
author = "the authors of avgk_dask"
version = release = avgk_dask.__version__

extensions = ["sphinx.ext.autosummary", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "running"]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

# Some file systems ignore case, and `threshold` and `Threshold` differ in case only.
autosummary_filename_map = {"avgk_dask.Threshold": "avgk_dask.Threshold_object"}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say in words what each parameter may be
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Notebooks are shown with their committed output; tests/test_notebooks.py runs them. Showing them fetches nothing.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "avgk_dask"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_extensions" / "scorer.js")
html_show_sourcelink = html_show_copyright = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}


def forget_names() -> None:
    """Remove the reference pages of an earlier build: some names may no longer exist."""
    shutil.rmtree(DOCS / "reference" / "generated", ignore_errors=True)


def copy_notebooks() -> None:
    """Copy the notebooks from examples/, with their relative links changed to links into the repository."""
    for path in sorted((DOCS.parent / "examples").glob("*.ipynb")):
        text = path.read_text().replace("](deploy/", f"]({REPOSITORY}/blob/main/examples/deploy/")
        copied = DOCS / "notebooks" / path.name
        if not copied.exists() or copied.read_text() != text:
            copied.write_text(text)


forget_names()
copy_notebooks()
write_pages(DOCS.parent / "examples", DOCS / "examples", REPOSITORY)
