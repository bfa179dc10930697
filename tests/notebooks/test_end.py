"""What is left when a kernel is restarted, shut down or killed: nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.notebooks.kernel import Kernel
from tests.notebooks.scenario import directories_in, in_kernel, owned_by, wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

OWNS = """
import os, time
import forebay

class Kept(forebay.Service):
    def __init__(self):
        self.path = os.environ["TMPDIR"]
    def directory(self):
        return self.path

def pid(_):
    return os.getpid()

forks = []
os.register_at_fork(before=lambda: forks.append(1))
pool = forebay.ServicePool(max_size=2)
lease = pool.acquire(Kept, by_value=True)
service = lease.__enter__()
executor = forebay.Executor(2, by_value=True)
list(executor.map(pid, range(8)))
print(os.environ["TMPDIR"])
"""


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_restart_ends_everything_and_the_next_kernel_begins_anew(
    busy: bool, tmp_path: Path
) -> None:
    """Services, templates, workers, keepers, their directories; also while a cell runs."""

    async def cells(kernel: Kernel) -> None:
        base = (await kernel.expect(OWNS)).text.split()[-1]
        owned = owned_by(kernel.pid)
        assert len(owned) >= 6  # two keepers, two templates, a service, a worker
        if busy:
            assert kernel.kc is not None
            kernel.kc.execute("lease.__exit__(None, None, None); time.sleep(60)")
        await kernel.restart()
        assert wait_gone(owned) == set()
        # Jupyter interrupts the cell, and kills a kernel that is busy for five seconds more: it
        # leaves the directory of the executor's sockets, which one that ends in order removes.
        assert len(directories_in(base)) <= (1 if busy else 0)
        await kernel.expect(OWNS)
        assert len(directories_in(base)) == 3  # two keepers' and the new executor's

    in_kernel(tmp_path, cells)


def test_a_shutdown_ends_everything(tmp_path: Path) -> None:
    """The window is closed, and nothing runs on."""
    owned: set[int] = set()

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(OWNS)
        assert (await kernel.expect("print(forks)")).text == "[]\n", "the kernel was forked"
        owned.update(owned_by(kernel.pid))

    in_kernel(tmp_path, cells)
    assert len(owned) >= 6
    assert wait_gone(owned) == set()


def test_a_kill_ends_everything(tmp_path: Path) -> None:
    """The kernel ran out of memory; what it had is gone with it, the sockets by the next keeper."""

    async def cells(kernel: Kernel) -> None:
        base = (await kernel.expect(OWNS)).text.split()[-1]
        owned = owned_by(kernel.pid)
        os.kill(kernel.pid, signal.SIGKILL)
        assert wait_gone(owned) == set()
        assert len(directories_in(base)) <= 1  # that of the executor's sockets
        await kernel.restart()
        await kernel.expect(OWNS)
        assert len(directories_in(base)) == 3  # two keepers' and the new executor's

    in_kernel(tmp_path, cells)
