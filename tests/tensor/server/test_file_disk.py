"""Tensors of files where disks fail, or rings are forbidden."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import BrokenError
from forebay.tensor import FileTensor, TensorClient, TensorServer
from tests.blockio.alone import alone
from tests.blockio.seccomp import IO_URING_SETUP, forbid, needs_filters
from tests.tensor.contents import same
from tests.tensor.server.record_files import pages, write
from tests.tensor.shards import PATIENCE_S

PREAD64 = 17


def _without_rings(folder: str) -> None:
    forbid(IO_URING_SETUP, errno.EPERM)
    table = pages(500)
    path = write(Path(folder) / "pages", table)
    with TensorServer({"pages": FileTensor(path)}) as server, TensorClient(server.url) as client:
        asked = np.random.default_rng(3).integers(0, 500, 2000)
        assert same(client.pull("pages", asked), table[asked])
        assert same(client.pull("pages"), table)


@needs_filters
def test_where_rings_are_forbidden_threads_read(tmp_path: Path) -> None:
    """A container forbids io_uring; tables of files are served there too."""
    alone(_without_rings, tmp_path)


def _with_a_failing_disk(folder: str) -> None:
    forbid(IO_URING_SETUP, errno.EPERM)  # threads read then, by a call that can be made to fail
    path = write(Path(folder) / "pages", pages(10))
    servers: list[TensorServer] = []

    def start() -> None:
        forbid(PREAD64, errno.EIO)  # for the server's threads, which this one starts, alone
        servers.append(TensorServer({"held": np.arange(3)}))

    starter = threading.Thread(target=start)
    starter.start()
    starter.join(PATIENCE_S)
    with servers[0] as server, TensorClient(server.url) as client:
        server.publish("pages", FileTensor(path))
        for _ in range(3):
            with pytest.raises(BrokenError) as caught:
                client.pull("pages", 7)
            assert f"row 7 of {path} cannot be read" in str(caught.value)
            assert "errno 5" in str(caught.value)
            assert client.pull("held").tolist() == [0, 1, 2]


@needs_filters
def test_a_failing_disk_fails_the_pull_and_nothing_else(tmp_path: Path) -> None:
    """The error names file, row and errno; the connection and other tensors go on."""
    alone(_with_a_failing_disk, tmp_path)
