"""A server whose workers run on a Dask cluster of this machine: as on one machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import CancelledError, DiedError, RemoteError
from tests.executor.serving import Serving, descendants, until, wait_gone

pytestmark = pytest.mark.leaks(
    reason="the module's server starts workers when it needs them; its fixture sees them end"
)

APP = (Path(__file__).parent / "engine_app.py").read_text()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all of these tests; the cluster that it started ends with it."""
    pytest.importorskip("distributed")
    serving = Serving(tmp_path_factory.mktemp("engine"), APP, engine="dask", node_timeout=5.0)
    with serving:
        pids = [serving.pid, *descendants(serving.pid)]
        yield serving
        pids += descendants(serving.pid)
        serving.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
        serving.ended()
        for pid in set(pids):
            wait_gone(pid)


@pytest.fixture
def client(serving: Serving) -> Iterator[forebay.Client]:
    """A client of it."""
    with forebay.Client(f"unix://{serving.socket}") as client:
        yield client


def run(client: forebay.Client, name: str, **arguments: Any) -> Any:
    """The result of a request."""
    return client.submit(name, **arguments).result(timeout=30)


@pytest.mark.parametrize("name", ["add", "add_async"])
def test_results_and_output_come_back(client: forebay.Client, name: str) -> None:
    """Of many requests, each its own output."""
    requests = [client.submit(name, a=number, b=1) for number in range(40)]
    assert [one.result(timeout=30) for one in requests] == [number + 1 for number in range(40)]
    logs = ["".join(one.logs()) for one in requests]
    assert logs == [f"adding {number} 1\n" for number in range(40)]


def test_workers_are_processes_of_the_cluster(client: forebay.Client, serving: Serving) -> None:
    """Not of the server's keeper."""
    pid = run(client, "where")
    parents = [pid]
    while parents[-1] not in (serving.pid, 1):
        stat = Path(f"/proc/{parents[-1]}/stat").read_text()
        parents.append(int(stat.rpartition(")")[2].split()[1]))
    commands = [Path(f"/proc/{one}/cmdline").read_bytes() for one in parents]
    assert any(b"multiprocessing" in command for command in commands), "a Dask worker's"


def test_progress_comes_back(client: forebay.Client) -> None:
    """While it runs."""
    request = client.submit("sleep", seconds=0.5)
    done = [progress.done for progress in request.progress()]
    assert request.result(timeout=10) == "slept"
    assert done == sorted(done)
    assert done[-1] == 10


def test_a_running_request_is_cancelled(client: forebay.Client) -> None:
    """By an exception in it, soon."""
    request = client.submit("sleep", seconds=60.0)
    until(lambda: request.status() == "running")
    time.sleep(0.2)
    began = time.monotonic()
    request.cancel()
    with pytest.raises(CancelledError):
        request.result(timeout=10)
    assert time.monotonic() - began < 3.0


def test_a_time_out_ends_a_run(client: forebay.Client) -> None:
    """As on one machine."""
    request = client.submit("sleep", options=forebay.Submit(timeout=0.5), seconds=60.0)
    with pytest.raises(forebay.DeadlineError):
        request.result(timeout=10)


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGKILL, "signal"), (0, "exit")])
def test_deaths_have_the_cause_of_the_node(client: forebay.Client, number: int, cause: str) -> None:
    """With signal or exit code."""
    with pytest.raises(DiedError) as died:
        run(client, "die", number=int(number))
    assert died.value.cause == cause
    assert died.value.signal == (number or None)
    assert died.value.exit_code == (None if number else 7)
    assert run(client, "add", a=1, b=2) == 3, "another worker is there"


def test_items_come_back_in_order(client: forebay.Client, serving: Serving) -> None:
    """From the server's disk; the node keeps none."""
    request = client.submit("count", limit=5000)
    assert [item["number"] for item in request.items()] == list(range(5000))


@pytest.mark.parametrize("size", [0, 100_000, 5_000_000])
def test_results_of_every_size_come_back(client: forebay.Client, size: int) -> None:
    """The largest as a file."""
    assert run(client, "text", size=size) == "x" * size


def test_large_arguments_arrive(client: forebay.Client) -> None:
    """Whole."""
    assert run(client, "length", data=bytes(9_000_000)) == 9_000_000


def test_children_run_on_the_cluster(client: forebay.Client) -> None:
    """Submitted from a node."""
    assert run(client, "total", numbers=list(range(30))) == 2 * sum(range(30))


def test_depth_is_no_deadlock(client: forebay.Client) -> None:
    """More requests above each other than the cluster has threads."""
    levels = 8 * (os.cpu_count() or 1) + 8
    assert run(client, "depth", left=levels) == levels + 1


def test_services_are_leased_on_the_node(client: forebay.Client) -> None:
    """Each lease begins anew."""
    assert run(client, "leased") == [1, 2]
    assert run(client, "leased") == [1, 2]


def test_errors_have_their_traceback(client: forebay.Client) -> None:
    """Without lines of the worker."""
    with pytest.raises(RemoteError) as raised:
        run(client, "fail", text="on a node")
    assert isinstance(raised.value, LookupError)
    assert "raise LookupError(text)" in raised.value.traceback_text
    assert "forebay" not in raised.value.traceback_text
