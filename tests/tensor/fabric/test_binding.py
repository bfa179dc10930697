"""The compiled core's shards, links and ports from Python."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay import _core
from forebay.errors import BrokenError, ClosedError, ConfigError, DeadlineError, StaleError
from forebay.memory import Arena
from forebay.transport import Tls, connect
from tests.tensor.binding import TIMEOUT_S, link_to, look_up, publish, shard_at
from tests.transport.certificates import Authority

ROWS, COLUMNS = 200, 96


@pytest.fixture(params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a shard may listen."""
    return "tcp://" if request.param == "tcp" else f"unix://{tmp_path}/own/a.sock"


def numbers() -> np.ndarray[Any, Any]:
    """Rows that differ."""
    return np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def test_rows_come_as_they_are_published_and_go_where_they_are_pushed(url: str):
    """The binding moves rows into arrays, out of them, and tells versions."""
    table = numbers()
    with shard_at(url) as (shard, where):
        key = publish(shard, "table", table)
        link = link_to(where)
        handle = look_up(link, "table")
        assert (handle.id, handle.generation) == key
        assert (handle.dtype, handle.shape) == ("<f4", (ROWS, COLUMNS))
        assert (handle.rows, handle.row_bytes) == (ROWS, COLUMNS * 4)
        out = np.zeros((16, 5, COLUMNS), np.float32)
        versions = np.zeros(16, np.uint64)
        link.pull_many([(handle, 3 * at, 5, out[at]) for at in range(16)], TIMEOUT_S, versions)
        assert all((out[at] == table[3 * at : 3 * at + 5]).all() for at in range(16))
        rows = np.array([7, 0, 199, 7])
        picked = np.zeros((4, COLUMNS), np.float32)
        places = np.array([3, 2, 1, 0])
        link.pull_many([(handle, rows, None, picked, places)], TIMEOUT_S)
        assert (picked[::-1] == table[rows]).all()
        before = table[[1, 2]].copy()
        link.push_many(
            [(handle, np.array([1, 2]), None, picked[:2], True)], TIMEOUT_S, versions[:1]
        )
        assert (table[[1, 2]] == before + picked[:2]).all()
        assert shard.write(key, 0, 1, picked[:1]) == versions[0] + 1
        link.close()


def test_names_that_are_not_there_come_back_as_the_nearest_ones(url: str):
    """A typing mistake is answered with what was meant."""
    with shard_at(url) as (shard, where):
        publish(shard, "weights", numbers())
        link = link_to(where)
        assert link.look_up(["wieghts"], TIMEOUT_S) == [["weights"]]
        link.close()


def test_a_batch_tells_its_ends_as_they_come(url: str):
    """Completions can be used before the last one is there."""
    table = numbers()
    with shard_at(url) as (shard, where):
        publish(shard, "table", table)
        link = link_to(where)
        handle = look_up(link, "table")
        out = np.zeros((40, COLUMNS), np.float32)
        batch = link.begin([(handle, at, 1, out[at]) for at in range(40)], timeout=TIMEOUT_S)
        seen: list[int] = []
        while len(seen) < 40:
            seen += batch.wait(TIMEOUT_S, each=True)
        assert sorted(seen) == list(range(40))
        assert batch.done
        assert batch.first_failure() is None
        assert batch.version(3) == batch.version(4)
        assert (out == table[:40]).all()
        link.close()


def test_a_loop_drives_links_by_one_descriptor(url: str):
    """An event loop hears of many batches by one wake-up, and needs no thread."""
    table = numbers()

    async def main(where: str, link: _core.TensorLink) -> None:
        loop = asyncio.get_running_loop()
        port = _core.TensorPort()
        ended = {ticket: loop.create_future() for ticket in range(1, 9)}

        def turn() -> None:
            for ticket in port.turn():
                ended[ticket].set_result(None)

        loop.add_reader(port.fileno(), turn)
        asked = link.start_look_up(port, 1, ["table"], TIMEOUT_S)
        await asyncio.wait_for(ended[1], TIMEOUT_S)
        [handle] = asked.meanings()
        out = np.zeros((7, 10, COLUMNS), np.float32)
        batches = [
            link.start(port, 2 + at, [(handle, at, 10, out[at])], timeout=TIMEOUT_S)
            for at in range(7)
        ]
        await asyncio.wait_for(asyncio.gather(*ended.values()), TIMEOUT_S)
        assert all(batch.done and batch.first_failure() is None for batch in batches)
        assert all((out[at] == table[at : at + 10]).all() for at in range(7))
        loop.remove_reader(port.fileno())
        port.close()

    with shard_at(url) as (shard, where):
        publish(shard, "table", table)
        link = link_to(where)
        asyncio.run(main(where, link))
        link.close()


def test_memory_is_let_go_when_nothing_moves_there_any_more(url: str):
    """A block that was a destination can be freed after the pull, a tensor's after the drop."""
    arena = Arena(1 << 24, name="tensors")
    block = arena.allocate(ROWS * COLUMNS * 4)
    table = np.frombuffer(block, np.float32).reshape(ROWS, COLUMNS)
    table[:] = numbers()
    with shard_at(url) as (shard, where):
        publish(shard, "table", table)
        link = link_to(where)
        handle = look_up(link, "table")
        out = arena.allocate(COLUMNS * 4)
        link.pull_many([(handle, 5, 1, out)], TIMEOUT_S)
        assert bytes(out) == numbers()[5].tobytes()
        out.free()
        batch = link.begin([(handle, 5, 1, kept := arena.allocate(COLUMNS * 4))])
        batch.wait(TIMEOUT_S)
        del batch
        kept.free()
        gone = weakref.ref(table)
        del table
        gc.collect()
        assert gone() is not None, "it is served"
        shard.drop("table")
        gc.collect()
        assert gone() is None
        link.close()
    block.free()
    assert arena.close() == 0


def pull_for_ever(link: _core.TensorLink, pulls: list[Any]) -> None:
    """Until something is raised."""
    while True:
        link.pull_many(pulls, TIMEOUT_S)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ((0, 1, np.zeros(COLUMNS + 1, np.float32)), ConfigError),
        ((0, 1, b"read-only" * 40), ConfigError),
        ((0, 1, np.zeros((COLUMNS, 2), np.float32)[:, 0]), ConfigError),
        ((ROWS, 1, np.zeros(COLUMNS, np.float32)), IndexError),
        ((-1, 1, np.zeros(COLUMNS, np.float32)), IndexError),
        ((np.array([0.5]), None, np.zeros(COLUMNS, np.float32)), IndexError),
        ((np.array([-1]), None, np.zeros(COLUMNS, np.float32)), IndexError),
        ((0, 1, 17), TypeError),
        ((0,), TypeError),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    tmp_path: Path, item: tuple[Any, ...], error: type[Exception]
):
    """A wrong argument costs the caller an exception, and nobody else anything."""
    with shard_at(f"unix://{tmp_path}/own/a.sock") as (shard, where):
        publish(shard, "table", numbers())
        link = link_to(where)
        handle = look_up(link, "table")
        before = link.metrics()["sent_bytes"]
        with pytest.raises(error):
            link.pull_many([(handle, *item)], TIMEOUT_S)
        assert link.metrics()["sent_bytes"] == before
        link.close()


def test_a_closed_shard_breaks_its_links_and_names_itself(url: str):
    """Whoever waits hears which server went away; afterwards nothing is taken."""
    with shard_at(url) as (shard, where):
        publish(shard, "table", numbers())
        link = link_to(where)
        handle = look_up(link, "table")
        assert link.probe()
        shard.close()
        assert not link.probe()
        assert link.closed
        with pytest.raises(BrokenError, match=where):
            link.pull_many([(handle, 0, 1, np.zeros(COLUMNS, np.float32))], TIMEOUT_S)
        with pytest.raises(ClosedError):
            shard.drop("table")
        link.close()
        with pytest.raises((ClosedError, BrokenError)):
            link.look_up(["table"])


def test_a_handle_of_a_replaced_tensor_is_stale(url: str):
    """Rows of another tensor never come in place of those that were meant."""
    with shard_at(url) as (shard, where):
        publish(shard, "table", numbers())
        link = link_to(where)
        handle = look_up(link, "table")
        publish(shard, "table", numbers())
        with pytest.raises(StaleError):
            link.pull_many([(handle, 0, 1, np.zeros(COLUMNS, np.float32))], TIMEOUT_S)
        link.close()


def test_a_signal_handler_that_raises_ends_the_wait(tmp_path: Path):
    """Ctrl-C ends a pull that lasts; the link goes on."""

    class Rung(Exception):
        pass

    def ring(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # once, however long what catches it takes
        raise Rung

    with shard_at(f"unix://{tmp_path}/own/a.sock") as (shard, where):
        publish(shard, "table", numbers())
        link = link_to(where)
        batch = link.begin([])  # nothing to wait for
        assert batch.wait(TIMEOUT_S) == []
        assert batch.done
        del batch
        before = signal.signal(signal.SIGALRM, ring)
        try:
            handle = look_up(link, "table")
            big = np.zeros((400, ROWS, COLUMNS), np.float32)
            pulls = [(handle, 0, ROWS, part) for part in big]
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Rung):
                pull_for_ever(link, pulls)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        link.pull_many(pulls[:1], TIMEOUT_S)
        assert (big[0] == numbers()).all()
        link.close()


def test_time_that_runs_out_is_said(tmp_path: Path):
    """A timeout ends the call, not the link."""
    with shard_at(f"unix://{tmp_path}/own/a.sock") as (shard, where):
        table = np.zeros((64, 1 << 18), np.float32)
        publish(shard, "table", table)
        link = link_to(where)
        handle = look_up(link, "table")
        out = np.zeros_like(table)
        with pytest.raises(DeadlineError, match="within 0 s") as late:
            link.pull_many([(handle, 0, 64, out)], 0.0)
        assert late.value.timeout == 0
        batch = link.begin([(handle, 0, 64, out)])
        with pytest.raises(DeadlineError, match=r"within 0\.001 s") as late:
            batch.wait(0.001)
        assert late.value.timeout == 0.001
        batch.wait(TIMEOUT_S)
        link.pull_many([(handle, 0, 64, out)], TIMEOUT_S)
        link.close()


def test_memory_that_may_still_be_written_is_in_quarantine(tmp_path: Path):
    """A block into which a late answer may come is not handed out before the close."""
    arena = Arena(1 << 26, name="tensors")
    with shard_at(f"unix://{tmp_path}/own/a.sock") as (shard, where):
        publish(shard, "table", np.zeros((64, 1 << 16), np.float32))
        link = link_to(where)
        handle = look_up(link, "table")
        out = np.frombuffer(arena.allocate(64 << 18), np.float32)
        batch = link.begin([(handle, 0, 64, out)])
        batch.cancel()
        assert isinstance(batch.failure(0), ClosedError)
        del batch, out
        gc.collect()
        assert arena.stats()["quarantined_bytes"] == 64 << 18
        link.close()
        assert arena.stats()["quarantined_bytes"] == 0
    assert arena.close() == 0


def test_memory_of_a_late_answer_comes_back_with_the_next_call(tmp_path: Path):
    """Whichever thread makes it, and whatever the main thread does meanwhile."""
    arena = Arena(1 << 26, name="tensors")

    def work(link: _core.TensorLink) -> None:
        handle = look_up(link, "table")
        with pytest.raises(DeadlineError):
            link.pull_many([(handle, 0, 64, arena.allocate(64 << 18))], 0.0)
        assert arena.stats()["quarantined_bytes"] == 64 << 18
        row = np.zeros(1 << 16, np.float32)
        until = time.monotonic() + TIMEOUT_S
        while arena.stats()["quarantined_bytes"]:
            assert time.monotonic() < until, "it is kept"
            link.pull_many([(handle, 0, 1, row)], TIMEOUT_S)

    with shard_at(f"unix://{tmp_path}/own/a.sock") as (shard, where):
        publish(shard, "table", np.zeros((64, 1 << 16), np.float32))
        link = link_to(where)
        with ThreadPoolExecutor() as threads:
            threads.submit(work, link).result()
        link.close()
    assert arena.close() == 0


SERVER = """
import sys
import numpy as np
from tests.tensor.binding import publish, shard_at
with shard_at(sys.argv[1]) as (shard, where):
    publish(shard, "table", np.zeros((64, 64), np.float32))
    print(where, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_server_that_stops_or_dies_breaks_its_links(tmp_path: Path, how: signal.Signals):
    """Whoever pulls hears of it within the liveness deadline, or at once, by the server's name."""
    program = [sys.executable, "-c", SERVER, f"unix://{tmp_path}/own/a.sock"]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        where = server.stdout.readline().strip()
        link = link_to(where, liveness=0.5)
        handle = look_up(link, "table")
        out = np.zeros((64, 64), np.float32)
        link.pull_many([(handle, 0, 64, out)], TIMEOUT_S)
        server.send_signal(how)
        with pytest.raises(BrokenError, match=where):
            pull_for_ever(link, [(handle, 0, 64, out)])
        assert link.closed
        server.kill()
        link.close()


def test_a_forked_child_uses_neither_link_nor_shard(tmp_path: Path):
    """A child that goes on with its parent's connection is told so, and harms nothing."""
    with shard_at(f"unix://{tmp_path}/own/a.sock") as (shard, where):
        publish(shard, "table", numbers())
        link = link_to(where)
        handle = look_up(link, "table")
        out = np.zeros(COLUMNS, np.float32)
        child = os.fork()
        if child == 0:
            refused = 0
            for act in (lambda: link.pull_many([(handle, 0, 1, out)]), lambda: shard.drop("table")):
                try:
                    act()
                except StaleError:
                    refused += 1
            link.close()
            shard.close()
            os._exit(0 if refused == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        link.pull_many([(handle, 1, 1, out)], TIMEOUT_S)
        assert (out == numbers()[1]).all()
        link.close()


def test_tls_and_token_are_the_transports(tmp_path: Path):
    """Rows travel sealed, to whoever shows the token alone."""
    authority = Authority(tmp_path)
    signed = authority.sign("server")
    serving = Tls.server(cert=signed.cert, key=signed.key)
    asking = Tls.client(ca=authority.ca)
    table = numbers()
    with shard_at("tls://", tls=serving, token=b"secret") as (shard, where):
        publish(shard, "table", table)
        link = link_to(where, tls=asking, token=b"secret")
        handle = look_up(link, "table")
        out = np.zeros((100, ROWS, COLUMNS), np.float32)
        link.pull_many([(handle, 0, ROWS, part) for part in out], TIMEOUT_S)
        assert (out == table).all()
        link.push_many([(handle, 0, ROWS, out[0], True)], TIMEOUT_S)
        assert (table == 2 * numbers()).all()
        link.close()
        with pytest.raises(BrokenError):
            link_to(where, tls=asking, token=b"guess")


def test_the_greeting_leaves_the_connection_closed_for_others(url: str):
    """A stream has one user: the connection that it was taken from is over."""
    with shard_at(url) as (_, where), connect(where) as connection:
        connection.send(_core.tensor_hello(16))
        welcome = connection.recv()[0]
        with pytest.raises(BrokenError):
            _core.TensorLink(connection._core, b"not a welcome")
        link = _core.TensorLink(connection._core, welcome)
        assert (link.slots, link.note) == (16, b"")
        assert link.incarnation
        with pytest.raises(ClosedError):
            connection.send(b"more")
        with pytest.raises(ClosedError):
            _core.TensorLink(connection._core, welcome)
        link.close()
