"""What a client and a server say to each other in the recorded conversations.

A scene is what a program does with a client. It says the same to the server each time, and what it
returns follows from what the server answers alone: so it can be played against a recorded server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from msgspec import msgpack

from forebay.errors import Error
from forebay.executor import AsyncClient, Client, Submit
from forebay.rpc import Channel

APP = '''
import os
import time

import forebay

app = forebay.App("compat")


@app.request()
def echo(first: int = 1, second: int = 0) -> dict[str, int]:
    """Return the arguments."""
    return {"first": first, "second": second}


@app.request(lane="short")
def tell(ctx: forebay.Context) -> None:
    """Write and report."""
    print("gr\\u00fcn\\nand blue", flush=True)
    for _ in ctx.progress(range(2), message="m", unit="row"):
        time.sleep(0.15)


@app.request()
def hold() -> None:
    """Until it is cancelled."""
    print("held", flush=True)
    time.sleep(1000)


@app.request(name="raise")
def raise_() -> None:
    raise ValueError("odd")


@app.request()
def die() -> None:
    os.kill(os.getpid(), 9)


@app.request(timeout=0.2)
def late() -> None:
    time.sleep(60)


@app.request()
def length(data: bytes) -> int:
    return len(data)


@app.request()
def repeat(count: int) -> bytes:
    return b"\\x07" * count


@app.request(cron="0 3 * * *")
def report() -> None:
    """Nobody waits for it."""
'''
FILE_BYTES_MIN = 200_000
"""From here on a result is a file."""

LARGE_BYTES = 100_000
"""Beside a head, and not in a file."""

UNKNOWN = "000000000999"


def submissions(client: Client) -> list[Any]:
    """Submissions with their options, and their ends."""
    first = client.submit("echo", first=2, second=3)
    seen: list[Any] = [first.id, first.result()]
    options = Submit(
        lane="short",
        priority=3,
        timeout=9,
        retries=1,
        backoff=0.5,
        max_backoff=2,
        idempotent=True,
        key="k",
        key_at_once=2,
        idempotency="once",
        memory="10MB",
        cpu=0.5,
        submitter="me",
    )
    again = client.submit("echo", options=options, first=4)
    seen += [again.id, again.result()]
    repeated = client.submit("echo", options=options, first=4)
    seen += [repeated.id, repeated.result()]
    later = client.submit("echo", options=Submit(after=[first], delay=0.01))
    seen += [later.id, later.result()]
    seen.append(client.get(first.id).result())
    return seen


def failures(client: Client) -> list[Any]:
    """Requests that fail, and submissions that are refused."""
    failed = [client.submit(name) for name in ("raise", "die", "late")]
    seen = [_error(one.result) for one in failed]
    seen.append(_error(lambda: client.submit("nothing")))
    seen.append(_error(lambda: client.submit("echo", first="many")))
    seen.append(_error(lambda: client.submit("echo", options=Submit(after=[UNKNOWN]))))
    seen.append(_error(lambda: client.get(UNKNOWN).result()))
    seen.append(_error(lambda: client.get(UNKNOWN).cancel()))
    return seen


def streams(client: Client) -> list[Any]:
    """Output and events, while it runs and afterwards."""
    told = client.submit("tell")
    seen: list[Any] = ["".join(told.logs())]
    seen.append([event["event"] for event in told.events()])
    seen.append("".join(told.logs(follow=False, offset=5)))
    again = client.submit("tell")
    events = list(again.events())
    seen.append([event.get("done") for event in events if event["event"] == "progress"])
    seen.append(events[-1])
    seen.append(_error(lambda: list(client.get(UNKNOWN).logs())))
    seen.append(_error(lambda: list(client.get(UNKNOWN).events())))
    return seen


def cancels(client: Client) -> list[Any]:
    """What runs, what waits and what has ended is cancelled, retried and removed."""
    held = client.submit("hold")
    output = held.logs()
    seen: list[Any] = [next(output)]
    output.close()
    seen += [held.cancel(), _error(held.result), held.cancel()]
    waiting = client.submit("echo", options=Submit(delay=1000))
    seen += [waiting.cancel(), _error(waiting.result)]
    waiting.retry()
    seen.append(waiting.result())
    seen.append(_error(lambda: client.retry(UNKNOWN)))
    seen.append(client.prune(ids=[held.id], dry_run=True)["pruned"])
    seen.append(client.prune(ids=[held.id])["pruned"])
    seen.append(_error(held.show))
    return seen


def large(client: Client) -> list[Any]:
    """Blobs beside the head, and a result in a file."""
    seen: list[Any] = [client.submit("length", data=b"\x05" * LARGE_BYTES).result()]
    for count in (LARGE_BYTES, FILE_BYTES_MIN + 1):
        made = client.submit("repeat", count=count).result()
        seen.append([len(made), bytes(made[:2]).hex()])
    return seen


def questions(client: Client) -> list[Any]:
    """Every rare call."""
    done = client.submit("echo", first=5)
    done.result()
    failed = client.submit("raise")
    failed.exception()
    seen: list[Any] = [client.get("@last").id, done.show()["arguments"], done.why()["status"]]
    seen.append([row["id"] for row in client.list(limit=1)])
    older = client.list(status="succeeded", name="echo", limit=5, before=failed.id)
    seen.append([row["id"] for row in older])
    seen.append(client.ask("status", done.id)["status"])
    seen.append(bytes(client.ask("arguments", done.id)["arguments"]).hex())
    seen.append(client.info()["app"])
    seen.append([one["name"] for one in client.ask("manifest")["requests"]])
    seen += [sorted(client.ask(one)) for one in ("workers", "services", "schedules", "top")]
    told = [client.ask("set_schedule", "report", paused) for paused in (True, False)]
    seen += [one["schedules"][0]["paused"] for one in told]
    seen.append(_error(lambda: client.ask("set_schedule", "nobody", True)))
    seen.append(_error(lambda: client.ask("list", {"colour": "red"})))
    seen.append(client.ask("reload")["reloading"])
    return seen


def on_loop(client: AsyncClient) -> list[Any]:
    """The client of an event loop."""

    async def play() -> list[Any]:
        async with client:
            first = await client.submit("echo", first=6)
            seen: list[Any] = [first.id, await first.result()]
            second = await client.submit_nowait("tell")
            seen.append(await second.accepted())
            seen.append("".join([text async for text in second.logs()]))
            seen.append([event["event"] async for event in second.events()][-1])
            seen.append(await second.cancel())
            count = FILE_BYTES_MIN + 1
            made = await (await client.submit("repeat", count=count)).result()
            seen.append([len(made), bytes(made[:2]).hex()])
            return seen

    return asyncio.run(play())


def plain(channel: Channel) -> list[Any]:
    """Forms of calls that other clients than ours may write, for the server alone."""
    packed = msgpack.encode({"first": 7})
    asked: list[tuple[str, tuple[Any, ...]]] = [
        ("submit", ("echo", packed)),
        ("submit", ("echo", packed, None)),
        ("submit", ("echo", packed, {"priority": 2}, 5)),
        ("run", ("echo", packed)),
        ("run", ("echo", packed, {"timeout_s": 5}, 6)),
        ("accepted", (77,)),
        ("taken", (UNKNOWN,)),
        ("wait", (UNKNOWN, True)),
        ("list", ()),
        ("list", ({}, 2, None)),
        ("resolve", ("@last",)),
        ("nonsense", ()),
        ("submit", ("echo",)),
    ]
    told = [channel.call(method, args, timeout=30.0) for method, args in asked]
    last = told[3][1]
    told += [
        channel.call("wait", (last,), timeout=30.0),
        channel.call("wait", (last, True), timeout=30.0),
    ]
    for method, args in (("logs", (last,)), ("logs", (last, 0)), ("events", (last,))):
        with channel.stream(method, args) as items:
            list(items)
    return []


def stop(client: Client) -> list[Any]:
    """The last call of a server."""
    client.stop(5)
    return []


OF_THE_CLIENT: dict[str, Callable[[Client], list[Any]]] = {
    one.__name__: one for one in (submissions, failures, streams, cancels, large, questions, stop)
}
OF_THE_LOOP = {"on_loop": on_loop}
OF_A_STRANGER = {"plain": plain}


def _error(attempt: Callable[[], Any]) -> list[str]:
    """The class and the code of what it raises; what a person reads may be worded anew."""
    try:
        attempt()
    except Error as error:
        known = [one.__name__ for one in inspect.getmro(type(error)) if one is not object]
        return [known[0], str(getattr(error, "code", ""))]
    return []
