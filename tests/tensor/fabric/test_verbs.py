"""Tensors over RDMA verbs, between two processes; in the guest of `make test-verbs`."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

from forebay import _core
from forebay.errors import BrokenError, StaleError
from forebay.memory import Arena
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.shards import PATIENCE_S, ServerProcess, until

DEVICES = _core.rdma_devices()

pytestmark = [
    pytest.mark.parametrize("fabric", ["verbs"], indirect=True),
    pytest.mark.skipif(isinstance(DEVICES, str), reason=f"{DEVICES}; make test-verbs has one"),
]

LIVENESS_S = 0.5


@pytest.fixture(scope="module", autouse=True)
def opened() -> None:
    """Use the device, which a process keeps with some memory, so that no test is blamed for it."""
    with (
        Arena("1MiB") as arena,
        TensorServer({"table": Tensor((10, 10))}, "verbs://127.0.0.1:0", arena="1MiB") as server,
        TensorClient(server.url.replace("tcp", "verbs"), arena=arena) as client,
    ):
        client.pull("table")


@pytest.fixture(scope="module")
def remotes() -> Iterator[list[ServerProcess]]:
    """One process for all tests: to start another takes a second there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREBAY_TENSOR_FABRIC", "verbs")
        processes = [ServerProcess("tcp://127.0.0.1:0")]
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture
def remote(remotes: list[ServerProcess]) -> ServerProcess:
    """The process, or another one after it was killed."""
    if not remotes:
        remotes.append(ServerProcess("tcp://127.0.0.1:0"))
    return remotes[0]


@pytest.fixture
def arena() -> Iterator[Arena]:
    """Have all of a client's memory be given back."""
    with Arena("64MiB") as arena:
        yield arena
        gc.collect()  # what was raised refers to frames, and those to arrays
        assert arena.stats()["blocks"] == 0, arena.stats()


def by_verbs(client: TensorClient) -> int:
    """How many pulls went over verbs."""
    told = client.metrics()
    assert told["fabric"] == "verbs", told
    count: int = told["verbs_pulls"]
    return count


def test_every_pull_of_a_slice_goes_over_verbs(remote: ServerProcess, arena: Arena) -> None:
    """What a user asks for by `fabric="verbs"` is what he gets."""
    with TensorClient(remote.url, arena=arena) as client:
        large = client.pull("large")
        assert large.shape == (64, 16_384)
        assert bool((large == 1).all())
        assert by_verbs(client) == 1
        out = arena.empty((3, 4), "f4")
        assert client.pull("small", slice(2, 5), out) is out
        rows = client.pull_many([("small", slice(at, at + 1)) for at in range(10)] * 4)
        assert all(bool((row == 1).all()) for row in rows)
        assert by_verbs(client) == 42
        plan = client.plan([("large", slice(0, 2)), "small"])
        for _ in range(3):
            assert [bool((each == 1).all()) for each in plan.pull()] == [True, True]
        assert by_verbs(client) == 48
        found = dict(client.pull_each(["small", ("large", slice(8, 9))]))
        assert client.submit("pull", "small").result(PATIENCE_S).shape == (10, 4)
        assert sorted(found) == [0, 1]
        assert by_verbs(client) == 51
        del large, out, rows, plan, found


def test_a_loop_pulls_over_verbs(remote: ServerProcess, arena: Arena) -> None:
    """An event loop sleeps on the device's descriptor as on a socket."""

    async def main() -> None:
        async with TensorClient(remote.url, arena=arena) as client:
            found = await asyncio.gather(*[client.pull("small") for _ in range(20)])
            assert all(bool((each == 1).all()) for each in found)
            told = client.metrics()
            assert (told["fabric"], told["verbs_pulls"]) == ("verbs", 20)

    asyncio.run(main())


def test_the_rest_goes_over_the_connection(remote: ServerProcess, arena: Arena) -> None:
    """Row numbers, other memory and versions are no slices into the arena."""
    with TensorClient(remote.url, arena=arena) as client:
        versions = np.zeros(2, "u8")
        client.pull("small", [3, 1])
        client.pull("small", None, np.empty((10, 4), "f4"))
        client.pull_many(["small", "large"], versions=versions)
        assert by_verbs(client) == 0


def test_auto_takes_verbs_where_memory_is_not_offered(remote: ServerProcess, arena: Arena) -> None:
    """That server offers no memory; without an arena there is nothing that a device could fill."""
    with TensorClient(remote.url, arena=arena, fabric="auto") as client:
        client.pull("small")
        assert by_verbs(client) == 1
    with TensorClient(remote.url, fabric="auto") as client:
        client.pull("small")
        assert client.metrics()["fabric"].endswith("no verbs: the client has no arena")


def test_a_forked_child_does_no_harm_and_has_a_device_of_its_own(
    remote: ServerProcess, arena: Arena
) -> None:
    """It inherits the descriptor of its parent's device, by which it could destroy everything."""
    with TensorClient(remote.url, arena=arena) as client:
        out = arena.empty((10, 4), "f4")
        client.pull("small", None, out)
        child = os.fork()
        if child == 0:
            os._exit(_used_in_a_child(client, remote.url))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        out[:] = 0
        client.pull("small", None, out)
        assert bool((out == 1).all())
        assert by_verbs(client) == 2
        del out


def _used_in_a_child(client: TensorClient, url: str) -> int:
    """0 where the parent's client is refused, and one of the child's own goes over verbs."""
    try:
        client.pull("small")
    except StaleError:
        client.close()
        gc.collect()
        with Arena("1MiB") as arena, TensorClient(url, arena=arena) as own:
            own.pull("small")
            return 0 if by_verbs(own) == 1 else 2
    return 1


def test_what_was_pushed_is_pulled(arena: Arena) -> None:
    """A pull over verbs has what a push over the connection wrote before it."""
    with (
        TensorServer({"table": Tensor((100, 64))}, "verbs://127.0.0.1:0") as server,
        TensorClient(server.url, arena=arena) as client,
    ):
        out = arena.empty((100, 64), "f4")
        for value in range(1, 30):
            client.push("table", slice(10, 20), float(value))
            client.pull("table", None, out)
            assert bool((out[10:20] == value).all())
        assert by_verbs(client) == 29
        until(lambda: server.metrics()["verbs_pulls"] == 29)  # counted once it is answered
        ref = client.tensor("table")
        server.drop("table")
        with pytest.raises(StaleError):
            client.pull(ref, None, out)
        del out


def test_an_arena_that_is_full_of_what_slots_keep_has_room(remote: ServerProcess) -> None:
    """Slots keep the last blocks they pulled into, which must not cost the caller his memory."""
    with Arena("20MiB") as arena, TensorClient(remote.url, arena=arena) as client:
        for _ in range(8):
            assert bool((client.pull("large") == 1).all())
        assert by_verbs(client) == 8


def test_several_shards(arena: Arena) -> None:
    """Each shard writes its own rows into the one result."""
    table = np.arange(3000, dtype="f4").reshape(300, 10)
    with (
        TensorServer({"table": table}, "verbs://127.0.0.1:0", shard=0, shards=2) as first,
        TensorServer({"table": table}, "verbs://127.0.0.1:0", shard=1, shards=2) as second,
        TensorClient([first.url, second.url], arena=arena) as client,
    ):
        assert np.array_equal(client.pull("table", slice(50, 250)), table[50:250])
        assert by_verbs(client) == 2


def test_a_server_that_is_killed_or_stops_is_told_of(
    remote: ServerProcess, remotes: list[ServerProcess], arena: Arena
) -> None:
    """What is pending ends by the deadline, names the server, and gives its memory back."""
    with TensorClient(remote.url, arena=arena, liveness=LIVENESS_S) as client:
        out = arena.empty((64, 16_384), "f4")
        client.pull("large", None, out)
        remote.stop()
        begun = time.monotonic()
        with pytest.raises(BrokenError, match=remote.url):
            client.pull("large", None, out)
        assert time.monotonic() - begun < 20 * LIVENESS_S
        remote.go_on()
        client.pull("large", None, out)  # over a connection that is made anew
        assert by_verbs(client) == 1
        remote.stop()
        future = client.submit("pull", "large", None, out)
        until(lambda: client.metrics()["outstanding"] > 0)
        remotes.remove(remote)
        remote.kill()
        assert isinstance(future.exception(PATIENCE_S), BrokenError)
        del out, future
