"""Whose a request is: the request that submitted it, and the trace that it belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.executor import Client, Submit
from tests.executor.client_fixtures import client_of_serving, serving
from tests.executor.serving import Serving

__all__ = ["client_of_serving", "serving"]

SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
APP = '''
import threading

import forebay
from forebay.executor import AsyncClient, Client, Submit

app = forebay.App("lineage")


@app.request()
def who(ctx: forebay.Context) -> dict[str, str | None]:
    return {"id": ctx.id, "parent": ctx.parent, "traceparent": ctx.traceparent}


@app.request()
def spawn(url: str, ctx: forebay.Context, parent: str | None = None) -> list[str | None]:
    """Submit from this thread and from another one."""
    options = None if parent is None else Submit(parent=parent)
    with Client(url) as client:
        found = [client.run("who", options=options)["parent"]]
        other = threading.Thread(
            target=lambda: found.append(client.run("who", options=options)["parent"])
        )
        other.start()
        other.join()
    return [ctx.id, *found]


@app.request()
async def spawn_async(url: str, ctx: forebay.Context) -> list[str | None]:
    """The same from a task."""
    async with AsyncClient(url) as client:
        found = await client.run("who")
    return [ctx.id, found["parent"]]
'''


def test_what_was_given_reaches_the_function_and_whoever_looks(client: Client) -> None:
    """A trace goes on in the worker, and a person finds whom a request is from."""
    first = client.submit("who")
    assert first.result() == {"id": first.id, "parent": None, "traceparent": None}
    told = first.show()
    assert (told["parent"], told["traceparent"]) == (None, None)
    second = client.submit("who", options=Submit(parent=first, traceparent=SPAN))
    assert second.result() == {"id": second.id, "parent": first.id, "traceparent": SPAN}
    told = second.show()
    assert (told["parent"], told["traceparent"]) == (first.id, SPAN)


def test_they_are_kept_over_a_restart(serving: Serving, client: Client) -> None:
    """What waited belongs to the same trace when the next server runs it."""
    options = Submit(parent="000000000009", traceparent=SPAN, delay=1.5)
    waiting = client.submit("who", options=options)
    serving.kill()
    serving.start()
    assert waiting.result(timeout=60) | {"id": ""} == {
        "id": "",
        "parent": "000000000009",
        "traceparent": SPAN,
    }


def test_a_request_is_the_parent_of_what_it_submits(serving: Serving, client: Client) -> None:
    """A tree of requests needs no argument that is handed on."""
    url = f"unix://{serving.socket}"
    id_, *parents = client.run("spawn", url=url)
    assert parents == [id_, id_]
    id_, parent = client.run("spawn_async", url=url)
    assert parent == id_
    _, *parents = client.run("spawn", url=url, parent="000000000009")
    assert parents == ["000000000009"] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"traceparent": ""},
        {"traceparent": SPAN.upper()},
        {"traceparent": "ff" + SPAN[2:]},
        {"traceparent": SPAN[:-1]},
    ],
)
def test_what_is_no_traceparent_is_refused_before_it_is_sent(wrong: dict[str, Any]) -> None:
    """A trace that nobody can join is a mistake at the place where it was made."""
    with pytest.raises(ConfigError, match="traceparent"):
        Submit(**wrong)


def test_what_only_the_server_sees_is_refused_there(client: Client) -> None:
    """Zeros are no span, and a word is no id."""
    zeros = f"00-{'0' * 32}-00f067aa0ba902b7-01"
    for options in (Submit(traceparent=zeros), Submit(parent="nobody")):
        with pytest.raises(ConfigError, match="option"):
            client.submit("who", options=options)
