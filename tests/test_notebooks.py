"""The committed notebooks run from top to bottom, and progress shows with and without widgets."""

from __future__ import annotations

import pathlib

import pytest

pytestmark = pytest.mark.slow

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def run(notebook, folder):
    """Run a notebook in a folder; a cell that fails raises."""
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def text_of(notebook, name):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def test_notebooks__are_two():
    assert [path.name for path in NOTEBOOKS] == ["cluster.ipynb", "tour.ipynb"]


#: The notebook with the cluster writes 2.4 GB and takes a minute.
RUNS = [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem == "cluster")) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", RUNS)
@pytest.mark.filterwarnings("default")  # those of the Jupyter client
def test_notebooks__run_and_give_the_committed_output(path, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("distributed")
    committed = nbformat.read(path, as_version=4)
    done = run(nbformat.read(path, as_version=4), tmp_path)
    assert "Warning" not in text_of(done, "stderr")
    tables = [[line for line in text_of(n, "stdout").splitlines() if " % " in line] for n in (committed, done)]
    assert tables[0] == tables[1] != []
    assert sum(cell.cell_type == "code" for cell in done.cells) <= 10
    assert list(tmp_path.iterdir()) == []  # no files remain


@pytest.mark.parametrize("widgets", [True, False])
@pytest.mark.filterwarnings("default")
def test_progress__shows_in_a_notebook(widgets, tmp_path):
    pytest.importorskip("ipywidgets")
    without = "" if widgets else "import sys; sys.modules['ipywidgets'] = None\n"
    code = f"{without}import avgk_dask as avgk, numpy as np\nresult = avgk.evaluate(np.eye(5), k=1, progress=True)"
    done = run(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), tmp_path)
    shown = [output.data for output in done.cells[0].outputs if output.output_type == "display_data"]
    has_widget = any("application/vnd.jupyter.widget-view+json" in data for data in shown)
    assert has_widget == widgets
    assert ("avgk scan" in text_of(done, "stderr")) == (not widgets)
    assert "Warning" not in text_of(done, "stderr")
