"""What a server learns of the memory of runs: of its own machine alone."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.executor.engine.cluster import Cluster
from tests.executor.serving import Serving, until

APP = """
import pathlib
import time
import forebay

app = forebay.App("memory")


@app.request(lane="long")
def grow(size: int) -> int:
    block = b"x" * size
    time.sleep(0.6)
    return len(block)


@app.request(lane="long")
def meet(folder: str, number: int, of: int) -> int:
    path = pathlib.Path(folder)
    (path / str(number)).touch()
    while len(list(path.iterdir())) < of:
        time.sleep(0.01)
    return of
"""
GROWTH = 200_000_000
APART = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Before a command: its processes have numbers of their own, as on another machine."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def cluster_of(folder: Path, *, is_apart: bool) -> Cluster:
    """One node, on this machine or as on another one."""
    if is_apart and subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no further process namespace is allowed here")
    folder.mkdir()
    made = Cluster(folder)
    node = made.add("one", threads=4)
    if is_apart:
        node.command = [*APART, *node.command]
        node.end = node.kill  # SIGTERM ends unshare alone, and this test nothing in order
    return made


@pytest.fixture(params=[False, True], ids=["here", "apart"])
def is_apart(request: pytest.FixtureRequest) -> bool:
    """Whether the process numbers of the node are its own."""
    return bool(request.param)


@pytest.fixture
def serving(tmp_path: Path, is_apart: bool) -> Iterator[Serving]:
    """A server on such a cluster."""
    with (
        cluster_of(tmp_path / "cluster", is_apart=is_apart) as cluster,
        served(tmp_path, cluster) as serving,
    ):
        yield serving


def served(directory: Path, cluster: Cluster, **settings: Any) -> Serving:
    """A server on a cluster, to be started."""
    given = {"engine": "dask", "scheduler": cluster.address, "node_timeout": 5.0}
    return Serving(directory, APP, **given, **settings)


def own_address() -> str:
    """The address of this machine by which others reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no address: {error}")
        return str(probe.getsockname()[0])


def test_the_memory_of_a_stand_in_is_no_requests(serving: Serving, is_apart: bool) -> None:
    """What was learnt from it would promise almost nothing to the next, here too."""
    with serving.caller() as caller:
        id_ = caller.submit("grow", size=GROWTH)
        assert caller.wait(id_) == GROWTH
        peak = until(partial(caller.ask, "show", id_), 10)["peak_bytes"]
        if is_apart:
            assert peak is None
        else:
            assert peak > GROWTH
        workers = caller.ask("workers")["workers"]
        assert any(worker["pid"] for worker in workers), "people see a process all the same"


def test_requests_of_unknown_need_run_side_by_side_elsewhere(tmp_path: Path) -> None:
    """Nothing would be learnt from one that ran alone first."""
    met = tmp_path / "met"
    met.mkdir()
    with (
        cluster_of(tmp_path / "cluster", is_apart=True) as cluster,
        served(tmp_path, cluster, engine_host=own_address(), max_memory=1_000_000_000) as serving,
        serving.caller() as caller,
    ):
        ids = [caller.submit("meet", folder=str(met), number=it, of=3) for it in range(3)]
        assert [caller.wait(id_) for id_ in ids] == [3, 3, 3]
