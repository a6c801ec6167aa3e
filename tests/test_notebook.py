"""The notebook of the documentation runs from the first cell to the last."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebooks" / "quickstart.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery, which is not ours to mend
def test_the_quickstart_runs() -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient, of the dev extra")
    client = pytest.importorskip("nbclient", reason="needs nbclient, of the dev extra")
    pytest.importorskip("ipykernel", reason="needs ipykernel, of the dev extra")
    pytest.importorskip("altair", reason="needs the report extra")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    answers = [
        cell.outputs[-1].data["text/plain"] for cell in notebook.cells if cell.cell_type == "code" and cell.outputs
    ]
    assert "(12, torch.Size([1, 28, 28]), 7)" in answers
    assert "[]" in answers, "verification finds nothing"
    assert any("certified_accuracy" in answer for answer in answers)
    assert all(not cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells), "kept without outputs"
