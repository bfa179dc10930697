from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

import forebay
from examples.stdio_backend.__main__ import TOOLS
from forebay.contrib.json_rpc import JsonRpc, JsonRpcClient, JsonRpcError
from tests.pool.processes import alive, eventually

TALK = (sys.executable, "-I", "-S", str(Path(__file__).parent / "talk.py"))

heard: list[tuple[str, Any]] = []


def hear(method: str, params: Any) -> None:
    """A callback for notifications."""
    heard.append((method, params))


@pytest.fixture(autouse=True)
def silence() -> None:
    """Nothing was heard yet."""
    heard.clear()


@pytest.fixture
def talk() -> forebay.Command:
    """The program that talks."""
    connector = JsonRpc(initialize={"name": "tests"}, on_notification=hear)
    return forebay.Command(TALK, stdio=True, connect=connector)


def test_a_stdio_program_is_pooled_unchanged(pool: forebay.ServicePool) -> None:
    """The example: a tool server as it is, warm from the second call on."""
    pids = set()
    for name, place in (("dataclass", "dataclasses.py"), ("wraps", "functools.py")):
        with pool.acquire(TOOLS) as backend:
            found = backend.client.call(
                "tools/call", name="find_definition", arguments={"name": name}
            )
            assert found["content"][0]["text"].startswith(place)
            pids.add(backend.lease.pid)
    assert len(pids) == 1
    with pool.acquire(TOOLS) as backend, pytest.raises(JsonRpcError, match="missing"):
        backend.client.call("tools/call", name="find_definition")
    assert pool.stats()["starts"] == 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_stdio_program_serves_many_tasks_at_once(
    pool: forebay.ServicePool, run: Callable[..., None]
) -> None:
    """Answers find whoever asked, in whatever order they come."""

    async def main() -> None:
        async with pool.acquire(TOOLS) as backend:
            names = ["dataclass", "wraps"] * 20
            answers = await asyncio.gather(
                *(
                    backend.client.call(
                        "tools/call", name="find_definition", arguments={"name": name}
                    )
                    for name in names
                )
            )
        places = [answer["content"][0]["text"].partition(".")[0] for answer in answers]
        assert places == ["dataclasses", "functools"] * 20

    run(main(), debug=True)


def test_parameters_and_results_are_json(pool: forebay.ServicePool, talk: forebay.Command) -> None:
    """By position or by name; large ones too, in both directions at once."""
    with pool.acquire(talk) as backend:
        assert backend.client.call("echo", 1, "two") == [1, "two"]
        assert backend.client.call("echo", three=[4]) == {"three": [4]}
        large = "x" * 5_000_000
        assert backend.client.call("echo", large) == [large]
        with pytest.raises(forebay.ConfigError):
            backend.client.call("echo", object())
        assert backend.client.call("echo") is None


def test_an_error_of_the_program_is_a_remote_error(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """With its number and data; the program serves on."""
    with pool.acquire(talk) as backend:
        with pytest.raises(forebay.RemoteError, match="no") as caught:
            backend.client.call("fail")
        assert isinstance(caught.value, JsonRpcError)
        assert (caught.value.code, caught.value.data) == (-32001, {"why": 7})
        pid = backend.lease.pid
    with pool.acquire(talk) as backend:
        assert backend.lease.pid == pid


def test_notifications_go_both_ways(pool: forebay.ServicePool, talk: forebay.Command) -> None:
    """Those of the program reach the callback; the handshake was sent once per program."""
    for text in ("a", "b"):
        with pool.acquire(talk) as backend:
            backend.client.notify("note", text)
            backend.client.call("echo")
    assert heard == [
        ("seen", "notifications/initialized"),
        ("heard", ["a"]),
        ("heard", ["b"]),
    ]


def test_a_request_of_the_program_is_refused_rather_than_left_open(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """A server that asks its client for something gets an answer."""
    with pool.acquire(talk) as backend:
        backend.client.call("ask back")
        backend.client.call("echo")
    assert ("refused", -32601) in heard


def test_threads_may_call_at_once(pool: forebay.ServicePool, talk: forebay.Command) -> None:
    """Whoever waits reads for all."""
    with pool.acquire(talk) as backend, ThreadPoolExecutor(8) as threads:
        client = backend.client
        answers = list(threads.map(lambda number: client.call("echo", number), range(400)))
    assert answers == [[number] for number in range(400)]


def test_answers_out_of_order_find_their_callers(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """The first caller may be answered last."""

    async def main() -> None:
        async with pool.acquire(talk) as backend:
            calls = [backend.client.call("hold") for _ in range(3)]
            *held, last = await asyncio.gather(*calls, backend.client.call("let go"))
            assert [*held, last] == sorted({*held, last})

    asyncio.run(main(), debug=True)


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_call_that_timed_out_ends_the_program(
    pool: forebay.ServicePool, talk: forebay.Command, face: str
) -> None:
    """Its late answer reaches nobody."""

    async def awaiting() -> int:
        async with pool.acquire(talk) as backend:
            with pytest.raises(forebay.DeadlineError, match="'hang'"):
                await backend.lease.options(timeout=0.1).client.call("hang")
            return backend.lease.pid

    if face == "asyncio":
        victim = asyncio.run(awaiting())
    else:
        with pool.acquire(talk) as backend:
            with pytest.raises(forebay.DeadlineError, match="'hang'"):
                backend.lease.options(timeout=0.1).client.call("hang")
            victim = backend.lease.pid
    assert eventually(lambda: not alive(victim))
    with pool.acquire(talk) as backend:
        assert backend.lease.pid != victim


def test_a_cancelled_call_ends_the_program(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """The caller is free at once."""

    async def main() -> int:
        async with pool.acquire(talk) as backend:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(backend.client.call("hang"), 0.05)
            return backend.lease.pid

    victim = asyncio.run(main(), debug=True)
    with pool.acquire(talk) as backend:
        assert backend.lease.pid != victim


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_death_is_told_with_its_words(
    pool: forebay.ServicePool, talk: forebay.Command, face: str
) -> None:
    """Every call that was under way learns why; what it wrote to stderr is the reason."""

    async def awaiting() -> None:
        async with pool.acquire(talk) as backend:
            calls = [backend.client.call("hang"), backend.client.call("die")]
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, forebay.DiedError)
                assert (outcome.exit_code, outcome.stderr_tail) == (9, "out of paper")

    if face == "asyncio":
        asyncio.run(awaiting())
    else:
        raising = pytest.raises(forebay.DiedError, match="out of paper")
        with pool.acquire(talk) as backend, raising:
            backend.client.call("die")
    assert pool.stats()["live"] == 0


def test_text_on_stdout_is_told_as_what_it_is(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """A stray print is found at once, and shown; the program is ended."""
    with pool.acquire(talk) as backend:
        with pytest.raises(forebay.ProtocolError, match="let me think"):
            backend.client.call("chat")
        victim = backend.lease.pid
    assert eventually(lambda: not alive(victim))


def test_a_program_that_ends_its_output_is_no_use_any_more(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """Though it lives on."""
    with pool.acquire(talk) as backend:
        with pytest.raises(forebay.BrokenError):
            backend.lease.options(timeout=5).client.call("close")
        victim = backend.lease.pid
    assert eventually(lambda: not alive(victim))


def test_a_client_ends_with_its_lease(pool: forebay.ServicePool, talk: forebay.Command) -> None:
    """A former holder can never speak to the program of another."""
    with pool.acquire(talk) as backend:
        client = backend.client
        assert isinstance(client, JsonRpcClient)
    with pytest.raises(forebay.StaleError):
        client.call("echo")
    with pytest.raises(forebay.StaleError):
        client.notify("echo")


def test_one_program_serves_threads_and_loops_in_turn(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """An idle program belongs to no loop, also after its loop was closed."""
    pids = set()

    async def awaiting() -> None:
        async with pool.acquire(talk) as backend:
            assert await backend.client.call("echo", 1) == [1]
            await backend.client.notify("note")
            pids.add(backend.lease.pid)

    for _ in range(3):
        asyncio.run(awaiting(), debug=True)
        thread = threading.Thread(target=asyncio.run, args=(awaiting(),))
        thread.start()
        thread.join()
        with pool.acquire(talk) as backend:
            assert backend.client.call("echo", 2) == [2]
            pids.add(backend.lease.pid)
    assert len(pids) == 1


def test_a_handshake_that_is_refused_reaches_the_caller(pool: forebay.ServicePool) -> None:
    """The program cannot be used, so nobody gets it."""
    refusing = (
        "import json,sys\n"
        "for line in sys.stdin:\n"
        "    number = json.loads(line)['id']\n"
        "    error = {'code': -32602, 'message': 'unsupported version'}\n"
        "    print(json.dumps({'id': number, 'error': error}), flush=True)"
    )
    command = forebay.Command(
        [sys.executable, "-I", "-c", refusing], stdio=True, connect=JsonRpc(initialize={})
    )
    with pytest.raises(JsonRpcError, match="unsupported version"), pool.acquire(command):
        pass
    assert eventually(lambda: pool.stats()["live"] == 0)


def test_equal_connectors_share_their_programs(
    pool: forebay.ServicePool, talk: forebay.Command
) -> None:
    """What is described alike is alike, wherever it was described."""
    connector = JsonRpc(initialize={"name": "tests"}, on_notification=hear)
    again = forebay.Command(TALK, stdio=True, connect=connector)
    with pool.acquire(talk) as backend:
        pid = backend.lease.pid
    with pool.acquire(again) as backend:
        assert backend.lease.pid == pid
    other = forebay.Command(TALK, stdio=True, connect=JsonRpc())
    with pool.acquire(other) as backend:
        assert backend.lease.pid != pid


def test_no_answer_is_ever_wrong_while_programs_are_killed(talk: forebay.Command) -> None:
    """Whoever loses a program learns it; nobody gets what was meant for somebody else."""
    rng = random.Random(7)
    held: set[int] = set()
    causes: list[int | None] = []
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.005):
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(rng.choice([*held]), signal.SIGKILL)

    def use(thread: int) -> int:
        right = 0
        for number in range(40):
            try:
                with pool.acquire(talk, timeout=20) as backend:
                    held.add(backend.lease.pid)
                    try:
                        for call in range(5):
                            token = f"{thread}.{number}.{call}"
                            assert backend.client.call("echo", token) == [token]
                            right += 1
                    finally:
                        held.discard(backend.lease.pid)
            except forebay.DiedError as error:
                causes.append(error.signal)
        return right

    with forebay.ServicePool(max_size=4) as pool, ThreadPoolExecutor(8) as threads:
        killer = threading.Thread(target=kill)
        killer.start()
        right = sum(threads.map(use, range(6)))
        done.set()
        killer.join()
    assert right > 100
    assert set(causes) == {signal.SIGKILL}
