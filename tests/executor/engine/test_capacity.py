"""A cluster that grows, and one that loses nodes, under a server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.executor.engine.cluster import Cluster
from tests.executor.serving import Caller, Serving, until

APP = (Path(__file__).parent / "failures_app.py").read_text()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One node with three threads."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder)
    made.add("first", threads=3)
    with made:
        yield made


def test_a_node_that_comes_later_gets_workers(tmp_path: Path, cluster: Cluster) -> None:
    """Requests that had no thread begin there; the server was not started again."""
    settings: dict[str, Any] = {"engine": "dask", "scheduler": cluster.address, "node_timeout": 5.0}
    with Serving(tmp_path, APP, **settings) as serving, serving.caller() as caller:
        begun = [tmp_path / f"run-{number}" for number in range(5)]
        ids = [caller.submit("stay", path=str(path)) for path in begun]
        until(lambda: sum(path.exists() for path in begun) >= 2, 40)
        waits = next(id_ for id_, path in zip(ids, begun, strict=True) if not path.exists())
        why = partial(caller.ask, "why", waits)
        second = cluster.add("second", threads=4)
        second.start()
        until(lambda: all(path.exists() for path in begun), 40, why=why)
        assert size_of(caller) == "2 nodes, 7 threads"
        second.kill()
        until(lambda: size_of(caller) == "1 node, 3 threads", 40)
        assert caller.run("add", a=1) == 2
        for id_ in ids:
            caller.ask("cancel", id_)


def size_of(caller: Caller) -> str:
    """What the server says of the size of its cluster."""
    return str(caller.ask("info")["engine"]["cluster"]).partition("(")[2].rstrip(")")
