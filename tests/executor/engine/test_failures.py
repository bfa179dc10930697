"""What fails around a server with an engine, and what its clients see of that."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.engine.cluster import Cluster, Node, opened, strike
from tests.executor.serving import RefusedError, Serving, descendants, until, wait_gone

APP = (Path(__file__).parent / "failures_app.py").read_text()
END_S = 5.0
"""For workers on nodes to end whose server was killed: "within seconds"."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.leaks(reason="the module's node keeps its template; the last test looks for more"),
]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node, for tests that kill nothing of it."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.add("standing", threads=4)
    with cluster:
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one node, for a test that kills it."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder)
    made.add("alone", threads=4)
    with made:
        yield made


def served(directory: Path, cluster: Cluster, **settings: Any) -> Serving:
    """A server on a cluster, to be started."""
    given = {"long_workers": 1, "max_workers": 3, "node_timeout": 5.0, **settings}
    return Serving(directory, APP, engine="dask", scheduler=cluster.address, **given)


def stays(caller: Any, path: Path, **options: Any) -> tuple[str, int]:
    """The id of a request that runs until it is ended, and the process of its worker."""
    id_ = caller.submit("stay", options or None, path=str(path))
    until(path.exists, 40, why=lambda: caller.ask("why", id_))
    return id_, int(path.read_text())


def refused(caller: Any, id_: str) -> dict[str, Any]:
    """What is told of a request that does not succeed."""
    with pytest.raises(RefusedError) as caught:
        caller.wait(id_)
    return caught.value.told


def agent_of(serving: Serving) -> int | None:
    """The agent of a server."""
    return next((pid for pid in descendants(serving.pid) if "_agent" in command(pid)), None)


def command(pid: int) -> str:
    """What a process was started with."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def ports(serving: Serving, state: str) -> dict[int, int]:
    """The TCP ports of processes below a server but its agent, and whose they are.

    Args:
        serving: the server.
        state: of the sockets, as proc(5) has it in net/tcp: "0A" listens, "01" is connected.
    """
    sockets = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == state:
            sockets[words[9]] = int(words[1].partition(":")[2], 16)
    found = {}
    for pid in set(descendants(serving.pid)) - {agent_of(serving)}:
        for _, link in opened(pid):
            inode = link.removeprefix("socket:[").removesuffix("]")
            if inode in sockets:
                found[sockets[inode]] = pid
    return found


def test_an_agent_that_was_killed_is_started_again(standing: Cluster, tmp_path: Path) -> None:
    """What runs goes on, and workers are placed again."""
    with served(tmp_path, standing) as serving, serving.caller() as caller:
        id_, worker = stays(caller, tmp_path / "first")
        agent = agent_of(serving)
        assert agent is not None
        os.kill(agent, signal.SIGKILL)
        assert "started again" in serving.hear("warning")["text"]
        until(lambda: agent_of(serving) not in (None, agent))
        os.kill(worker, signal.SIGKILL)
        assert refused(caller, id_)["cause"] == "signal"
        assert caller.run("where")[0] == "standing", "on a worker that the new agent has placed"


def test_without_a_scheduler_a_server_does_not_start(tmp_path: Path) -> None:
    """It says which address nobody answers at, and what to do."""
    cluster = Cluster(tmp_path)
    serving = served(tmp_path, cluster)
    serving.start(ready=False)
    try:
        told = serving.hear("error", 40)
        assert told["type"] == "ConfigError"
        assert cluster.address in told["message"]
        assert "dask scheduler" in told["message"]
        assert serving.ended() == 70
    finally:
        serving.close()


def test_requests_wait_for_a_scheduler_that_was_lost(cluster: Cluster, tmp_path: Path) -> None:
    """A warning names it; once it is back they run."""
    (node,) = cluster.nodes
    with served(tmp_path, cluster, long_workers=0, short_workers=0) as serving:
        with serving.caller() as caller:
            assert caller.run("where")[0] == "alone"
        cluster.scheduler.kill()
        node.kill()
        with serving.caller() as caller:
            id_ = caller.submit("add", a=2)
            warned = serving.hear("warning", 40)["text"]
            assert cluster.address in warned
            assert "requests wait" in warned
            assert caller.ask("status", id_)["status"] == "queued"
            cluster.scheduler.start()
            node.start()
            assert caller.wait(id_) == 3


def test_a_node_with_other_code_is_named_with_both_hashes(tmp_path: Path) -> None:
    """Neither runs what the other one has; requests wait, and say why."""
    cluster = Cluster(tmp_path)
    cluster.scheduler.start()
    node = cluster.add("late")
    try:
        with served(tmp_path, cluster) as serving, serving.caller() as caller:
            code = caller.ask("info")["code"]
            serving.file.write_text(f"{APP}\n# Changed.\n")
            node.start()
            id_ = caller.submit("add", a=1)

            def reason() -> str:
                return str(caller.ask("why", id_))

            until(lambda: "bring" in reason(), 40, why=reason)
            named = re.findall(r"the code (\w+) and the server has (\w+)", reason())
            assert named, reason()
            there, here = named[0]
            assert here == code != there
            serving.file.write_text(APP)
            assert caller.wait(id_) == 2, "once it was brought up to date"
    finally:
        cluster.end()


def test_a_lost_node_is_told_as_the_cause(cluster: Cluster, tmp_path: Path) -> None:
    """At once; `show` and `why` have it too, and what may run again does."""
    (node,) = cluster.nodes
    with served(tmp_path, cluster) as serving, serving.caller() as caller:
        id_, worker = stays(caller, tmp_path / "once")
        again = caller.submit("stay", {"retries": 3}, path=str(tmp_path / "again"), seconds=0.5)
        directory = node.directory()
        assert directory is not None
        node.kill()
        killed = time.monotonic()
        told = refused(caller, id_)
        assert time.monotonic() - killed < 2.0
        assert told["cause"] == "node_lost"
        assert "node_lost" in str(caller.ask("show", id_))
        assert caller.ask("why", id_)["reason"].startswith("failed: the node of its worker")
        wait_gone(worker)
        node.start()
        assert caller.wait(again) == str(tmp_path / "again")
        until(lambda: not os.path.exists(directory))
        assert node.directory() not in (None, directory)


def test_ctrl_c_ends_a_server_whose_scheduler_says_nothing(tmp_path: Path) -> None:
    """At once: the agent would wait for it, and the server for the agent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"forebay://127.0.0.1:{silent.getsockname()[1]}"
        serving = Serving(tmp_path, APP, engine="dask", scheduler=address)
        try:
            serving.start(ready=False)
            silent.settimeout(30)
            silent.accept()[0].close()  # the agent tries again: it has begun
            began = time.monotonic()
            os.kill(serving.pid, signal.SIGINT)
            assert serving.ended() == signal.SIGINT
            assert time.monotonic() - began < 5
        finally:
            serving.close()


def test_a_scheduler_without_an_engine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers would run here, and nobody notice."""
    monkeypatch.delenv("FOREBAY_EXECUTOR_ENGINE", raising=False)  # of pytest --engine dask
    command = [sys.executable, "-m", "forebay.cli", "serve", "app.py", "--scheduler", "tcp://a:1"]
    told = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert told.returncode == 2
    assert "scheduler is 'tcp://a:1' and engine is not set" in told.stderr


def test_what_waits_for_a_stopped_node_never_begins_there(cluster: Cluster, tmp_path: Path) -> None:
    """It is lost after `node_timeout`; when it goes on, it ends its worker, and no more."""
    (node,) = cluster.nodes
    path = tmp_path / "never"
    with (
        served(tmp_path, cluster, node_timeout=2.0, short_workers=0, max_workers=1) as serving,
        serving.caller() as caller,
    ):
        worker = caller.run("where")[1]
        assert node.worker is not None
        os.kill(node.worker, signal.SIGSTOP)
        stopped = time.monotonic()
        told = refused(caller, caller.submit("stay", path=str(path)))
        assert told["cause"] == "node_lost"
        assert time.monotonic() - stopped < 2.0 + 2.0
        os.kill(node.worker, signal.SIGCONT)
        wait_gone(worker)
        assert not path.exists()
        assert caller.run("where")[0] == "alone", "it is a node like any other again"


def test_a_worker_that_has_no_place_yet_gets_one_of_the_next_scheduler(tmp_path: Path) -> None:
    """Its order is given again; it has not failed with the scheduler."""
    cluster = Cluster(tmp_path)
    cluster.scheduler.start()
    node = cluster.add("late")
    try:
        with served(tmp_path, cluster) as serving, serving.caller() as caller:
            until(lambda: ports(serving, "0A") and cluster.tasks(), 40)
            id_ = caller.submit("add", a=1)
            cluster.scheduler.kill()
            cluster.scheduler.start()
            until(cluster.tasks, 40)
            assert "runs no worker" not in str(caller.ask("why", id_))
            node.start()
            assert caller.wait(id_) == 2
    finally:
        cluster.end()


def test_workers_of_a_killed_server_end(standing: Cluster, tmp_path: Path) -> None:
    """Within seconds: they would hold memory and places for nobody."""
    serving = served(tmp_path, standing)
    with serving, serving.caller() as caller:
        _, worker = stays(caller, tmp_path / "here")
        os.kill(serving.pid, signal.SIGKILL)
        wait_gone(worker, END_S)
        serving.ended()
    until(lambda: not standing.tasks(), why=standing.tasks)


def test_requests_are_cancelled_where_they_are(standing: Cluster, tmp_path: Path) -> None:
    """One that runs on a node is interrupted, one that waits never runs."""
    with (
        served(tmp_path, standing, short_workers=0, max_workers=1) as serving,
        serving.caller() as caller,
    ):
        running, worker = stays(caller, tmp_path / "running")
        queued = caller.submit("stay", path=str(tmp_path / "queued"))
        assert caller.ask("cancel", queued) == "now"
        assert caller.ask("cancel", running) == "asked"
        assert refused(caller, queued)["status"] == "cancelled"
        assert refused(caller, running)["status"] == "cancelled"
        assert caller.run("where") == ["standing", worker], "the worker has lived through it"
        assert not (tmp_path / "queued").exists()


def test_a_stand_in_lets_in_its_own_node_alone(tmp_path: Path) -> None:
    """Who does not know its secret is sent away, and the node comes in nevertheless."""
    cluster = Cluster(tmp_path)
    cluster.scheduler.start()
    node = cluster.add("late")
    try:
        with served(tmp_path, cluster) as serving, serving.caller() as caller:
            id_ = caller.submit("add", a=1)
            port = until(lambda: next(iter(ports(serving, "0A")), None), 40)
            with socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.sendall(secrets.token_bytes(32))
                challenge = b""
                while len(challenge) < 64:
                    challenge += stranger.recv(64)
                stranger.sendall(secrets.token_bytes(32))
                assert stranger.recv(1) == b"", "it is let in"
            with socket.create_connection(("127.0.0.1", port), 5) as scanner:
                scanner.sendall(b"GET / HTTP/1.1\r\n\r\n")
            node.start()
            assert caller.wait(id_) == 2
    finally:
        cluster.end()


def test_a_killed_stand_in_is_a_killed_worker(standing: Cluster, tmp_path: Path) -> None:
    """Its run has died by a signal, its worker ends, and the next one has another."""
    with served(tmp_path, standing, short_workers=0) as serving, serving.caller() as caller:
        id_, worker = stays(caller, tmp_path / "here")
        (stand_in,) = ports(serving, "01").values()
        os.kill(stand_in, signal.SIGKILL)
        told = refused(caller, id_)
        assert (told["cause"], told["signal"]) == ("signal", signal.SIGKILL)
        wait_gone(worker, END_S)
        assert caller.run("where")[1] != worker


def test_nothing_of_a_server_that_left_stays_on_a_node(standing: Cluster, tmp_path: Path) -> None:
    """But the template of the application, which the next server finds warm."""
    (node,) = standing.nodes
    seen: list[tuple[int, list[str], int]] = []
    for number in range(3):
        with served(tmp_path, standing) as serving, serving.caller() as caller:
            _, worker = stays(caller, tmp_path / f"here-{number}")
            strike(worker, signal.SIGKILL)
            assert caller.run("add", a=1) == 2
        until(lambda: not standing.tasks(), why=standing.tasks)
        seen.append(held(node))
    until(lambda: held(node) == seen[0], 10, why=lambda: (seen, held(node)))


def held(node: Node) -> tuple[int, list[str], int]:
    """Processes below a node, what lies in its directory, and descriptors of its worker."""
    worker, directory = node.worker, node.directory()
    assert worker is not None
    assert directory is not None
    return len(descendants(worker)), sorted(os.listdir(directory)), len(opened(worker))
