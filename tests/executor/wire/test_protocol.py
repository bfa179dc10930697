"""Which protocol client and server speak, and what becomes of one that the server does not know."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import msgpack

from forebay import _core
from forebay.errors import ConfigError
from forebay.executor import AsyncClient, Client
from forebay.executor.wire import frames
from forebay.executor.wire.protocol import PROTOCOL
from tests.executor.client_fixtures import serving
from tests.executor.serving import Caller, RefusedError, Serving

__all__ = ["serving"]

APP = """
import forebay

app = forebay.App("protocol")


@app.request()
def echo(first: int = 1) -> int:
    return first
"""


@pytest.fixture
def caller(serving: Serving) -> Iterator[Caller]:
    with serving.caller() as caller:
        yield caller


def test_both_sides_have_the_same_number(caller: Caller) -> None:
    """The client's is Python's, the server's is Rust's."""
    assert caller.ask("hello", PROTOCOL) == PROTOCOL
    assert caller.ask("info")["protocol"] == PROTOCOL


@pytest.mark.parametrize("protocol", [None, 1, PROTOCOL])
def test_a_client_of_an_older_protocol_is_served(caller: Caller, protocol: int | None) -> None:
    """One that says nothing speaks protocol 1."""
    if protocol is not None:
        assert caller.ask("hello", protocol, {"more": "later"}) == PROTOCOL
    assert caller.run("echo", first=7) == 7


def test_a_client_of_a_newer_protocol_is_told_both_numbers(caller: Caller) -> None:
    """What it would send might mean something else here."""
    for method, args in (("hello", (9,)), ("info", ()), ("wait", ("000000000001",))):
        with pytest.raises(RefusedError, match=f"protocol 9 .* up to {PROTOCOL}") as caught:
            caller.ask(method, *args)
        told = caught.value.told
        assert (told["code"], told["value"], told["limit"]) == ("protocol", "9", str(PROTOCOL))
        assert "start it again" in told["next"]
    with pytest.raises(RefusedError):
        caller.submit("echo")
    with caller._channel.stream("events", ("000000000001",)) as items:
        kind, told = next(iter(items))
    assert (kind, told["code"]) == (1, "protocol")


@pytest.mark.parametrize("words", [(), (0,), ("two",), (-1,)])
def test_a_hello_that_says_no_protocol_is_refused(caller: Caller, words: tuple[object]) -> None:
    """It is a mistake, and no newer version."""
    with pytest.raises(RefusedError) as caught:
        caller.ask("hello", *words)
    assert caught.value.told["code"] == "invalid"
    assert caller.run("echo", first=7) == 7


def test_our_clients_say_theirs(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of tomorrow is refused by a server of today at its first submission."""
    monkeypatch.setattr(frames, "PROTOCOL", 9)
    with (
        Client(f"unix://{serving.socket}", timeout=20.0) as client,
        pytest.raises(ConfigError, match="protocol 9"),
    ):
        client.submit("echo")


def test_clients_of_a_loop_too(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both connect by the same way."""
    monkeypatch.setattr(frames, "PROTOCOL", 9)

    async def play() -> None:
        async with AsyncClient(f"unix://{serving.socket}", timeout=20.0) as client:
            with pytest.raises(ConfigError, match="protocol 9"):
                await client.submit("echo")

    asyncio.run(play())


def test_the_first_submission_does_not_wait_for_the_answer(tmp_path: Path) -> None:
    """Saying the protocol costs no round trip: what follows is sent beside it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    with Client(f"unix://{tmp_path / 's'}", timeout=20.0) as client:
        request = client.submit_nowait("echo")
        accepted, _ = listener.accept()
        server = _core.Connection(accepted.detach(), server=True, by_reference=False)
        heads = []
        for _ in range(2):
            call = server.next_call(20.0)
            assert call is not None
            heads.append((msgpack.decode(call[2])[0], call[5]))
        assert heads == [("hello", True), ("run", False)]  # the first is one way
        server.reply(call[0], 0, msgpack.encode([0, "000000000001", "succeeded", b"\x07"]))
        server.drain()
        assert request.result(timeout=20) == 7
        server.close()
    listener.close()
