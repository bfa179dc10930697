"""A real Jupyter kernel for tests, whose cells nbclient runs."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nbformat
import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]

CELL_S = 40
"""The longest time of one cell; a template that imports takes a second or two of a busy machine."""


REPLY_S = 2
"""For the reply to a cell that has ended; ipykernel sends none where a second interrupt comes while
it handles the first."""


class Cell:
    """A cell that has run: what it wrote and showed.

    Attributes:
        messages: everything that the kernel published for it, as type and content.
    """

    def __init__(self, outputs: list[Any], messages: list[tuple[str, Any]]) -> None:
        self._outputs = outputs
        self.messages = messages

    @property
    def text(self) -> str:
        """What it wrote to stdout."""
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        """What it wrote to stderr."""
        return self._stream("stderr")

    @property
    def error(self) -> str:
        """The name of the exception that ended it, and its message."""
        return "".join(f"{one.ename}: {one.evalue}" for one in self._of("error"))

    @property
    def traceback(self) -> str:
        """What the notebook shows of that exception."""
        return "\n".join(line for one in self._of("error") for line in one.traceback)

    @property
    def html(self) -> list[str]:
        """What it shows as HTML, as it is at the end."""
        shown = self._of("display_data", "execute_result")
        return ["".join(one.data["text/html"]) for one in shown if "text/html" in one.data]

    @property
    def plain(self) -> list[str]:
        """The same as text."""
        shown = self._of("display_data", "execute_result")
        return ["".join(one.data["text/plain"]) for one in shown if "text/plain" in one.data]

    def _of(self, *kinds: str) -> list[Any]:
        return [one for one in self._outputs if one.output_type in kinds]

    def _stream(self, name: str) -> str:
        return "".join(one.text for one in self._of("stream") if one.name == name)


class Kernel(NotebookClient):
    """A kernel with the cells that it has run, newest last."""

    messages: list[tuple[str, Any]]
    _idle: asyncio.Event
    """Whether the kernel has said that the newest cell has ended."""

    async def run(self, source: str) -> Cell:
        """Run a cell to its end, whether it raises or not."""
        cell = nbformat.v4.new_code_cell(source)
        self.nb.cells.append(cell)
        self.messages = messages = []
        self._idle = idle = asyncio.Event()
        execution = asyncio.create_task(self.async_execute_cell(cell, len(self.nb.cells) - 1))
        is_idle = asyncio.create_task(idle.wait())
        await asyncio.wait((execution, is_idle), return_when=asyncio.FIRST_COMPLETED)
        is_idle.cancel()
        await asyncio.wait((execution,), timeout=REPLY_S)
        if execution.done():
            await execution
        else:
            execution.cancel()
            await asyncio.wait((execution,))
        return Cell(cell.outputs, messages)

    async def expect(self, source: str) -> Cell:
        """Run a cell that does not raise."""
        cell = await self.run(source)
        assert not cell.error, cell.traceback
        return cell

    @asynccontextmanager
    async def running(self, source: str, until: str) -> AsyncIterator[asyncio.Task[Cell]]:
        """Begin a cell; in the block it has written the text `until`."""
        self.messages = []  # those of the cell before may have the same text
        task = asyncio.create_task(self.run(source))
        try:
            async with asyncio.timeout(CELL_S):
                while not any(until in str(content.get("text")) for _, content in self._written()):
                    assert not task.done(), task.result().traceback
                    await asyncio.sleep(0.01)
            yield task
        finally:
            if not task.done():
                await asyncio.wait([task], timeout=CELL_S)

    async def interrupt(self) -> None:
        """What the button of a notebook does."""
        assert self.km is not None
        await self.km.interrupt_kernel()

    async def restart(self) -> None:
        """What the menu of a notebook does."""
        assert self.km is not None
        assert self.kc is not None
        await self.km.restart_kernel(now=False)
        await self.kc.wait_for_ready(timeout=CELL_S)

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return int(self.km.provisioner.pid)

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        """Note a message of the kernel, and do what nbclient does with it."""
        self.messages.append((msg["msg_type"], msg["content"]))
        if msg["content"].get("execution_state") == "idle":
            self._idle.set()
        return super().process_message(msg, cell, cell_index)

    def _written(self) -> list[tuple[str, Any]]:
        return [one for one in self.messages if one[0] == "stream"]


@asynccontextmanager
async def kernel(directory: Path) -> AsyncIterator[Kernel]:
    """A kernel in a directory, with sockets of its own; it has ended when this returns."""
    with tempfile.TemporaryDirectory(prefix="nb", dir="/tmp") as short, context() as sockets:
        manager = AsyncKernelManager(
            context=sockets,
            transport="ipc",
            ip=f"{short}/k",
            connection_file=f"{short}/kernel.json",
        )
        started = Kernel(
            nbformat.v4.new_notebook(),
            km=manager,
            timeout=CELL_S,
            allow_errors=True,
            resources={"metadata": {"path": str(directory)}},
        )
        started.messages = []
        ready = started.async_setup_kernel(cleanup_kc=True, env=environment(directory, short))
        async with ready:
            yield started


@contextmanager
def context() -> Iterator[Any]:
    """A ZeroMQ context that ends with its block, threads and all."""
    made = zmq.asyncio.Context()
    try:
        yield made
    finally:
        made.destroy(linger=0)


def environment(directory: Path, short: str) -> dict[str, str]:
    """That of a kernel: as a notebook's server would start it, with directories of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return kept | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "python"), str(ROOT))),
        "IPYTHONDIR": str(directory / "ipython"),
        "XDG_RUNTIME_DIR": short,
        "XDG_STATE_HOME": str(directory / "state"),
        "TMPDIR": short,
    }
