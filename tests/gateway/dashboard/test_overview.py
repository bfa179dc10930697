"""The overview: one question of all readers, and each reader's own role in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec import json

from forebay.errors import BrokenError
from forebay.gateway.asgi import fresh
from forebay.gateway.asgi.fresh import Fresh
from forebay.gateway.dashboard import overview as module
from forebay.gateway.dashboard.overview import Overview
from forebay.gateway.token import Role, Token
from tests.gateway.dashboard.test_history import figures, worker
from tests.gateway.http.connection_serving import until

READER = Token("ann", Role.READ, b"", 0.0)
ADMIN = Token("bob", Role.ADMIN, b"", 0.0)


class Server:
    """Answers as a server does, or not at all."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.away = False

    async def ask(self, method: str) -> Any:
        self.asked[method] += 1
        await asyncio.sleep(0)
        if self.away:
            raise BrokenError("the server is gone")
        return {
            "info": {"app": "small", "version": None, "draining": False, "fault": None,
                     "started_at": "then", "state_dir": "/secret",
                     "figures": figures(3, held="it does not load")},
            "metrics": {"gauges": [["forebay_requests_waiting", {"reason": "key"}, 2],
                                   ["forebay_store_kept", {}, 1]]},
            "workers": {"workers": [worker(5)]},
            "services": {"services": []},
        }[method]  # fmt: skip


def overview_of(server: Any) -> tuple[Overview, Fresh[dict[str, Any]]]:
    """Of a server, and what the gateway keeps of it beside."""
    info = Fresh[dict[str, Any]](lambda: server.ask("info"))
    return Overview(server, info), info


def run(test: Callable[[Overview, Server], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        server = Server()
        await test(overview_of(server)[0], server)

    asyncio.run(main())


def test_all_readers_share_one_question() -> None:
    """Twenty pages cost the server what one does."""

    async def test(overview: Overview, server: Server) -> None:
        bodies = await asyncio.gather(*(overview.body(None, READER) for _ in range(20)))
        assert len(set(bodies)) == 1
        assert set(server.asked.values()) == {1}
        told = json.decode(bodies[0])
        assert told["schema"] == 1
        assert told["info"] == {
            "app": "small", "version": None, "draining": False, "fault": None,
            "started_at": "then", "held": "it does not load",
        }  # fmt: skip
        assert told["waits"] == {"key": 2}
        assert told["workers"] == [worker(5)]
        assert told["history"]["resident_bytes"] == []

    run(test)


def test_what_the_gateway_knows_already_is_not_asked_again() -> None:
    """Probes of its health and pages share one question about the server."""

    async def main() -> None:
        server = Server()
        overview, info = overview_of(server)
        await info.get()
        keeping = asyncio.ensure_future(overview.keep())
        await overview.body(None, READER)
        await until(lambda: server.asked["workers"] == 2)
        keeping.cancel()
        assert server.asked["info"] == 1

    asyncio.run(main())


def test_each_reader_has_its_own_role_in_it() -> None:
    """By which the page knows what it may offer; it is no part of what is shared."""

    async def test(overview: Overview, server: Server) -> None:
        first, second = [json.decode(await overview.body(None, it)) for it in (READER, ADMIN)]
        assert first.pop("me") == {"name": "ann", "role": "read"}
        assert second.pop("me") == {"name": "bob", "role": "admin"}
        assert first == second

    run(test)


def test_an_answer_is_as_old_as_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a server that is away is an error, not yesterday's figures."""
    monkeypatch.setattr(fresh, "AGE_S", 0.05)

    async def test(overview: Overview, server: Server) -> None:
        await overview.body(None, READER)
        server.away = True
        await overview.body(None, READER)
        await asyncio.sleep(0.06)
        with pytest.raises(BrokenError):
            await overview.body(None, READER)

    run(test)


def test_samples_are_kept_and_the_server_may_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did meanwhile is a gap, and the samples go on when it is back."""
    monkeypatch.setattr(module, "EVERY_S", 0.05)
    monkeypatch.setattr(fresh, "AGE_S", 0.0)

    async def test(overview: Overview, server: Server) -> None:
        def told() -> list[Any]:
            return list(json.decode(overview._told(None))["resident_bytes"])

        keeping = asyncio.ensure_future(overview.keep())
        await until(lambda: 7 in told())
        server.away = True
        asked = server.asked["info"]
        await until(lambda: server.asked["info"] >= asked + 3)
        assert server.asked["workers"] <= server.asked["info"] - 2  # not while it is away
        server.away = False
        await until(lambda: None in told() and told()[-1] == 7)
        keeping.cancel()
        assert told()[0] == 7
        since = json.decode(await overview.body(2**53, ADMIN))["history"]
        assert (since["resident_bytes"], since["first"]) == ([], since["next"])

    run(test)
