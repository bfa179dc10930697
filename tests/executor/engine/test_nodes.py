"""What a node has: its version of the package, and where it keeps what is on its way."""

from __future__ import annotations

import os
import re
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from tests.executor.engine.cluster import Cluster
from tests.executor.serving import ROOT, Caller, Serving, until

APP = (Path(__file__).parent / "failures_app.py").read_text()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def served(directory: Path, cluster: Cluster) -> Serving:
    """A server on a cluster, to be started."""
    settings = {"engine": "dask", "scheduler": cluster.address, "node_timeout": 5.0}
    return Serving(directory, APP, **settings)


def test_a_node_of_another_version_is_named_with_both(tmp_path: Path) -> None:
    """It runs nothing; requests wait, and say why."""
    about = tmp_path / "other" / "forebay-0.0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: forebay\nVersion: 0.0.1\n")
    points = distribution("forebay").read_text("entry_points.txt")
    (about / "entry_points.txt").write_text(points or "")
    path = os.pathsep.join([str(about.parent), str(ROOT / "python"), str(ROOT)])
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, {"PYTHONPATH": path})
    cluster.add("old")
    with cluster, served(tmp_path, cluster) as serving, serving.caller() as caller:
        id_ = caller.submit("add", a=1)

        def reason() -> str:
            return str(caller.ask("why", id_))

        until(lambda: "install the same version" in reason(), 40, why=reason)
        named = re.findall(r"has forebay (\S+) \(protocol", reason())
        assert named == ["0.0.1", version("forebay")], "the node's, and the server's"


def test_items_and_results_lie_in_the_directory_of_the_dask_worker(tmp_path: Path) -> None:
    """Which is on a disk that people choose; sockets have a short path."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    node = cluster.add("one")
    with cluster:
        with served(tmp_path, cluster) as serving, serving.caller() as caller:
            held(caller, tmp_path / "here")
            states = list(folder.glob("dask-scratch-space/worker-*/forebay-*"))
            assert states
            for state in states:
                assert state.stat().st_mode & 0o777 == 0o700
                assert {it.name for it in state.iterdir()} == {"items", "results"}
            directory = node.directory()
            assert directory is not None
            assert not list(Path(directory).glob("**/items"))
        until(lambda: not any(state.exists() for state in states))


def held(caller: Caller, path: Path) -> None:
    """Have a request run until it is ended."""
    id_ = caller.submit("stay", path=str(path))
    until(path.exists, 40, why=lambda: caller.ask("why", id_))
