"""Results are made into other forms one at a time, and what is not sent is bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import msgpack

from forebay.gateway.http.exchange import GoneError
from forebay.gateway.media import JSON, MSGPACK
from forebay.gateway.problems import Problem
from forebay.gateway.results import Result
from forebay.gateway.routes import conversions
from forebay.gateway.routes.conversions import Conversions

SMALL = msgpack.encode("x" * 1000)


async def unless_gone(work: Coroutine[Any, Any, Any]) -> Any:
    return await work


EXCHANGE: Any = SimpleNamespace(unless_gone=unless_gone)


def test_what_was_made_counts_until_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that is a view of the result costs nothing, and is there for who is told to wait."""
    monkeypatch.setattr(conversions, "KEPT_BYTES_MAX", 1500)

    async def run() -> None:
        some = Conversions()
        async with some.made(EXCHANGE, SMALL, JSON), some.made(EXCHANGE, SMALL, JSON):
            with pytest.raises(Problem) as caught:
                async with some.made(EXCHANGE, SMALL, JSON):
                    pass
            assert (caught.value.status, caught.value.code) == (503, "limit")
            for _ in range(9):
                async with some.made(EXCHANGE, SMALL, MSGPACK) as result:
                    assert result.media_type == MSGPACK
        async with some.made(EXCHANGE, SMALL, JSON) as result:
            assert result.media_type == JSON

    asyncio.run(run())


def test_large_ones_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes a hundred times its bytes of objects; and so many wait, not more."""
    monkeypatch.setattr(conversions, "LARGE_BYTES", 10)
    monkeypatch.setattr(conversions, "WAITING_MAX", 3)
    at_work, most = 0, 0
    go = threading.Event()

    def slow(payload: Any, *_: Any) -> Result:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        go.wait(10)
        at_work -= 1
        return Result(JSON, [payload], ranged=False)

    monkeypatch.setattr(conversions, "result_out", slow)

    async def one(some: Conversions) -> int:
        async with some.made(EXCHANGE, SMALL, JSON) as result:
            return result.length

    async def run() -> None:
        some = Conversions()
        tasks = []
        for _ in range(4):
            tasks.append(asyncio.ensure_future(one(some)))
            await asyncio.sleep(0.02)
        with pytest.raises(Problem, match="wait"):
            await one(some)
        go.set()
        assert await asyncio.gather(*tasks) == [len(SMALL)] * 4

    asyncio.run(run())
    assert most == 1


def test_who_leaves_while_others_have_their_turn_costs_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else whoever asks and leaves keeps the others waiting."""
    monkeypatch.setattr(conversions, "LARGE_BYTES", 10)

    async def leave(work: Coroutine[Any, Any, Any]) -> Any:
        work.close()
        raise GoneError

    async def run() -> None:
        some = Conversions()
        with pytest.raises(GoneError):
            async with some.made(SimpleNamespace(unless_gone=leave), SMALL, JSON):  # type: ignore[arg-type]
                pass
        async with some.made(EXCHANGE, SMALL, JSON) as result:
            assert result.media_type == JSON

    asyncio.run(run())
