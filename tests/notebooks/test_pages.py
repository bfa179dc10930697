"""The example notebook and the cells of the guide run, and print what they say."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.kernel import ROOT, Kernel, kernel
from tests.notebooks.scenario import in_kernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
EXAMPLE = ROOT / "examples" / "notebook.ipynb"
GUIDE = ROOT / "docs" / "guides" / "notebooks.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_runs(tmp_path: Path) -> None:
    """Every cell, in order, in a new kernel; and its file holds no outputs."""
    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(notebook)
    sources = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in sources)

    async def run() -> None:
        async with kernel(tmp_path) as started:
            shown = {cell.id: await started.expect(cell.source) for cell in sources}
        assert len(shown["use-service"].plain[0].split(",")) == 3
        assert "1 live, 1 idle" in shown["show-pool"].html[0]
        assert shown["run-functions"].text == "pi is about 3.1\n"
        assert "page 19" in shown["watch-request"].text
        assert shown["watch-request"].plain[-1] == "'20 pages'"
        assert "<td>harvest</td>" in shown["list-requests"].html[0]

    asyncio.run(run())


def test_the_cells_of_the_guide_run(tmp_path: Path) -> None:
    """A reader who copies them gets what the page says."""
    blocks = BLOCK.findall(GUIDE.read_text())
    assert len(blocks) > 8

    async def cells(started: Kernel) -> None:
        for (kind, source), (after, text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if kind == "ipython":
                ran = await started.expect(source)
                if after == "text":
                    assert ran.text == text

    in_kernel(tmp_path, cells)


def test_forebay_imports_no_ipython() -> None:
    """Outside of a notebook its import would cost half a second."""
    program = """
import sys, forebay
from forebay._notebook import is_notebook
with forebay.ServicePool(max_size=1) as pool:
    print(is_notebook(), "<table>" in pool._repr_html_(), "IPython" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("False True False\n", "")
