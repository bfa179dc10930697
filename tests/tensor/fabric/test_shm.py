"""Pulls from shared memory: the same rows as by the connection, and none of a dead owner."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import BrokenError, ClosedError, ConfigError, OutOfRangeError, StaleError
from forebay.memory import Arena
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import ASKED, CONTENTS, picked, same
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import PATIENCE_S, ROOT, ServerProcess, serving, until, url_in

pytestmark = pytest.mark.parametrize("fabric", ["auto"], indirect=True)

URLS = ("unix", "tcp")

WRITES = 3000
"""Of half a megabyte each: enough that two processes are at it together for a long while."""


def served_at(kind: str, folder: Path) -> str:
    """A URL to listen at."""
    return f"unix://{folder}/server.sock" if kind == "unix" else "tcp://127.0.0.1:0"


def read(client: TensorClient) -> int:
    """How many pulls came from shared memory."""
    count: int = client.metrics()["shm_pulls"]
    return count


@pytest.mark.parametrize("face_name", FACES)
@pytest.mark.parametrize("shards", [1, 2])
def test_all_kinds_of_pulls_are_those_of_the_connection(
    tmp_path: Path, face_name: str, shards: int
) -> None:
    """Nobody has to know which way rows came."""
    with (
        serving(tmp_path, CONTENTS, shards),
        face_of(face_name, url_in(tmp_path), shards=shards) as near,
        face_of(face_name, url_in(tmp_path), shards=shards, fabric="stream") as far,
    ):
        pulls = [
            (name, rows)
            for name, content in CONTENTS.items()
            if len(content)
            for rows in ASKED.values()
        ]
        expected = [picked(CONTENTS[name], rows) for name, rows in pulls]
        for face in (near, far):
            found = face.call("pull_many", pulls)
            assert all(map(same, found, expected))
            for (name, rows), wanted in zip(pulls, expected, strict=True):
                assert same(face.call("pull", name, rows), wanted)


@pytest.mark.parametrize("kind", URLS)
def test_rows_do_not_come_over_the_connection(tmp_path: Path, kind: str) -> None:
    """The server takes no part in a pull."""
    with TensorServer({"table": TABLE}, served_at(kind, tmp_path)) as server:
        with TensorClient(server.url) as client:
            client.tensor("table")
            before = client.metrics()
            out = np.zeros_like(TABLE)
            for _ in range(20):
                assert client.pull("table", out=out) is out
            assert same(out, TABLE)
            assert same(client.pull_many([("table", [3, 1])])[0], TABLE[[3, 1]])
            few = client.pull_many([("table", [row], None) for row in (8, 2)])
            assert all(map(same, few, (TABLE[[8]], TABLE[[2]])))
            after = client.metrics()
            assert after["fabric"] == "shm"
            assert after["shm_pulls"] == 23
            assert after["shm_bytes"] == 20 * TABLE.nbytes + TABLE[:4].nbytes
            assert after["received_bytes"] == before["received_bytes"]
        with TensorClient(server.url, fabric="stream") as client:
            assert same(client.pull("table"), TABLE)
            after = client.metrics()
            assert after["shm_pulls"] == 0
            assert after["fabric"].startswith("stream: no shared memory was asked for")


def test_a_server_that_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the memory is not to be had the connection carries everything, and says why."""
    monkeypatch.setenv("FOREBAY_TENSOR_FABRIC", "stream")
    with serving(tmp_path, {"table": TABLE}):
        monkeypatch.setenv("FOREBAY_TENSOR_FABRIC", "auto")
        with TensorClient(url_in(tmp_path), shards=1) as client:
            assert same(client.pull("table"), TABLE)
            assert "the server offers none" in client.metrics()["fabric"]


def test_a_fabric_that_is_none() -> None:
    """A word that means nothing is refused by name."""
    with pytest.raises(ConfigError, match="fabric is 'water'"):
        TensorClient("tcp://127.0.0.1:7001", fabric="water")


def test_what_is_written_is_read_with_its_version(tmp_path: Path) -> None:
    """Pushes go by the connection, and are in the next pull."""
    with (
        serving(tmp_path, {"table": TABLE}) as [server],
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        versions = np.zeros(2, "u8")
        client.push("table", 3, 7)
        server.write("table", [4, 4], np.ones((2, 10), "f4"), "add")
        rows = client.pull_many([("table", 3), ("table", [4])], versions=versions)
        assert same(rows[0], np.full(10, 7, "f4"))
        assert same(rows[1], TABLE[4:5] + 2)
        assert list(versions) == [2, 2]
        assert read(client) == 2


def test_wrong_pulls_are_refused_in_the_same_words(tmp_path: Path) -> None:
    """What cannot be read from memory is told as ever."""
    with (
        serving(tmp_path, {"table": TABLE}),
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        assert same(client.pull("table", 0), TABLE[0])
        with pytest.raises(OutOfRangeError, match="row 100 is outside of tensor 'table'"):
            client.pull("table", 100)
        with pytest.raises(ConfigError, match="out has dtype"):
            client.pull("table", 0, np.zeros(10, "f8"))
        for tensor in ("table", client.tensor("table")):
            for wrong in (TABLE[1:], TABLE.astype("f8"), np.zeros((10, 100), "f4").T):
                with pytest.raises(ConfigError, match="tensor 'table': out"):
                    client.pull(tensor, None, wrong)
            (fixed := TABLE.copy()).flags.writeable = False
            with pytest.raises(ConfigError, match="out is not writable"):
                client.pull(tensor, None, fixed)
        with pytest.raises(ConfigError, match="did you mean 'table'"):
            client.pull("tabel")
        plan = client.plan([("table", rows := np.array([1, 2]))])
        assert same(plan.pull()[0], TABLE[[1, 2]])
        rows[0] = 100
        with pytest.raises(OutOfRangeError):
            plan.pull()


def test_a_dropped_tensor_is_refused(tmp_path: Path) -> None:
    """Its memory may be anything by now, so it is never read again."""
    with (
        serving(tmp_path, {"table": TABLE}) as [server],
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        ref = client.tensor("table")
        plan = client.plan([(ref, [0, 5])])
        for _ in range(3):
            assert same(plan.pull()[0], TABLE[[0, 5]])
        server.drop("table")
        with pytest.raises(StaleError):
            client.pull(ref)
        for refused in (StaleError, ConfigError):  # once it has been looked up again
            with pytest.raises(refused):
                plan.pull()
        server.publish("table", TABLE + 1)
        assert same(client.pull(ref), TABLE + 1)
        assert same(plan.pull()[0], (TABLE + 1)[[0, 5]])
        server.publish("table", TABLE + 2)
        with pytest.raises(StaleError):
            plan.pull()
        for _ in range(3):
            assert same(plan.pull()[0], (TABLE + 2)[[0, 5]])
        assert client.metrics()["shm_stale"] > 0


def test_plans_read_their_row_numbers_anew(tmp_path: Path) -> None:
    """What is prepared is where they are, not which they are; with several shards too."""
    rows = np.array([1, 2, 60])
    with serving(tmp_path, {"table": TABLE}, 2), TensorClient(url_in(tmp_path), shards=2) as client:
        varied = client.plan([("table", rows)])
        fixed = client.plan(["table", ("table", slice(40, 60))])
        for first in range(20):
            rows[0] = first
            assert same(varied.pull()[0], TABLE[rows])
            assert all(map(same, fixed.pull(), [TABLE, TABLE[40:60]]))
        before = read(client)
        fixed.pull()
        assert read(client) == before + 4
        client.close()
        with pytest.raises(ClosedError):
            fixed.pull()


def test_pulls_beside_writes_are_of_one_version(tmp_path: Path) -> None:
    """A reader in another process sees a write wholly or not at all, however fast the owner is."""
    made = Tensor((64, 1024), "i8", initial=0)
    with serving(tmp_path, {"table": made}) as [server]:
        url = f"unix://{tmp_path}/0.sock"
        with puller(url, "auto", WRITES) as process:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            for version in range(1, WRITES + 1):
                server.write("table", None, version)
            told = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    assert (told["mixed"], told["back"]) == (0, 0)
    assert told["shm"] > 0
    # Some versions between the first and the last: the two were at work at once.
    assert told["versions"] > 2


@contextmanager
def puller(url: str, fabric: str, end: int) -> Iterator[subprocess.Popen[str]]:
    """A process that is about to pull until it sees a number, and tells what it saw."""
    arguments = ["tests.tensor.fabric.puller_program", url, fabric, str(end)]
    with subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_threads_share_what_is_mapped(tmp_path: Path) -> None:
    """The first use maps a chunk, whichever thread it is."""
    with (
        serving(tmp_path, {f"table {number}": TABLE + number for number in range(20)}),
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        wrong: list[int] = []

        def pull(begin: int) -> None:
            wrong.extend(
                number
                for number in range(begin, begin + 60)
                if not same(client.pull(f"table {number % 20}"), TABLE + number % 20)
            )

        threads = [threading.Thread(target=pull, args=(begin,)) for begin in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert read(client) == 240


def test_a_kill_is_told(process: ServerProcess) -> None:
    """What a dead owner left behind is still mapped, and is not given out for its tensors."""
    with TensorClient(process.url, connect_timeout=0.5) as client:
        ref = client.tensor("small")
        plan = client.plan([ref, "large"])
        assert same(client.pull(ref), np.ones((10, 4), "f4"))
        assert same(plan.pull()[0], np.ones((10, 4), "f4"))
        assert read(client) > 0
        process.kill()

        def told(pull: Any) -> bool:
            try:
                pull()
            except BrokenError as error:
                return process.url.partition("://")[2] in str(error)
            return False

        until(lambda: told(lambda: client.pull(ref)))
        until(lambda: told(plan.pull))
        assert told(lambda: client.pull_many([ref]))


def test_a_server_that_comes_back_is_found(tmp_path: Path) -> None:
    """Another run's memory is mapped anew."""
    url = f"unix://{tmp_path}/server.sock"
    process = ServerProcess(url, 1.0)
    with TensorClient(url) as client:
        plan = client.plan(["small"])
        for fill in (2.0, 3.0):
            before = plan.pull()[0][0, 0]
            process.kill()
            process = ServerProcess(url, fill)
            assert same(plan.pull()[0], np.full((10, 4), fill, "f4"))
            assert same(client.pull("small"), np.full((10, 4), fill, "f4"))
            assert before == fill - 1
    process.kill()


def test_a_server_that_closes_is_found_out_at_once(tmp_path: Path) -> None:
    """Its memory goes back to its arena, so that nobody may read it from then on."""
    arena = Arena("64MiB")
    url = f"unix://{tmp_path}/server.sock"
    with TensorClient(url, connect_timeout=0.5) as client:
        for fill in range(5):
            with TensorServer({"table": TABLE + fill}, url, arena=arena):
                assert same(client.pull("table", 3), TABLE[3] + fill)
                assert same(client.pull("table", 5), TABLE[5] + fill)
            with pytest.raises(BrokenError):
                client.pull("table", 3)


def test_a_stopped_server_is_read(process: ServerProcess) -> None:
    """Its processor has no part in it."""
    with TensorClient(process.url) as client:
        small, large = client.tensor("small"), client.tensor("large")
        process.stop()
        assert same(client.pull(small), np.ones((10, 4), "f4"))
        assert same(client.pull(large, [63, 0]), np.ones((2, 16_384), "f4"))
        process.go_on()
        client.push(small, 0, 5)
        assert client.pull(small)[0, 0] == 5


def _held() -> tuple[int, int]:
    """Descriptors of this process, and maps of memfds."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("/memfd:forebay")


def test_nothing_is_left_of_closed_clients(process: ServerProcess) -> None:
    """Neither descriptors nor maps, however often somebody comes and goes."""
    before = None
    for _ in range(4):
        with TensorClient(process.url) as client:
            plan = client.plan(["small", "large"])
            plan.pull()
            assert client.pull("large", 5).shape == (16_384,)
            assert read(client) == 3
            assert _held()[1] >= 2
        del plan
        held = _held()
        assert before in (None, held)
        before = held


def test_nothing_is_left_of_dropped_tensors() -> None:
    """An owner keeps no descriptor of a chunk that nothing of it lies in."""
    with TensorServer({"table": TABLE}) as server:
        before = _held()
        for number in range(50):
            server.publish("other", TABLE + number)
        server.drop("other")
        assert _held()[0] <= before[0] + 1
