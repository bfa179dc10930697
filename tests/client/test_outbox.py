"""Submissions that nobody waits for: each gets an outcome, whatever happens to its call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from forebay_client import Client, Submit, errors
from forebay_client.async_outbox import AsyncOutbox
from forebay_client.outbox import Outbox
from forebay_client.submission import Submission, submission
from tests.client.scripted_server import ScriptedServer, accepted, as_json
from tests.loops import Run, run

__all__ = ["run"]

ONE = Submission("echo", b"", {}, "key", None, Any)


def test_what_is_no_answer_of_a_gateway_is_an_error(server: ScriptedServer, client: Client) -> None:
    """Of one submission, as of a proxy's page in JSON; the next ones go on."""
    server.answers = [as_json({}), accepted("a")]
    with pytest.raises(errors.ProtocolError, match="its id is not in it"):
        client.submit_nowait("echo").accepted(5)
    assert client.submit_nowait("echo").accepted(5) == "a"


@pytest.mark.parametrize(
    "told",
    [{}, {"requests": "x"}, {"requests": [{"id": "a"}]}, {"requests": [{}, {"error": "full"}]}],
    ids=["nothing", "no list", "too few", "no outcomes"],
)
def test_what_is_no_answer_to_a_batch_is_an_error(
    server: ScriptedServer, client: Client, told: dict[str, Any]
) -> None:
    """Of each of its submissions; the next ones go on."""
    gate = threading.Event()

    def first(_: Any) -> bytes:
        gate.wait(5)
        return accepted("a")

    server.answers = [first, as_json(told), accepted("b")]
    requests = [client.submit_nowait("echo")]
    server.wait_for(1)
    requests += [client.submit_nowait("echo") for _ in range(2)]
    gate.set()
    assert requests[0].accepted(5) == "a"
    for request in requests[1:]:
        with pytest.raises(errors.ProtocolError, match="what became of 2 submissions"):
            request.accepted(5)
    assert client.submit_nowait("echo").accepted(5) == "b"


def test_a_submission_with_the_key_of_another_is_sent_again(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once that one is on disk it gets its id."""
    monkeypatch.setattr("forebay_client.calls.AGAIN_S", 0.01)
    under_way = {"code": "idempotency_in_progress", "status": 409, "message": "not on disk yet"}
    server.answers = [
        as_json({"requests": [{"id": "a"}, {"error": under_way}]}),
        as_json({"requests": [{"id": "a"}]}),
    ]
    both = [submission("echo", {}, Submit(idempotency="one"))] * 2
    assert client.perform(client.calls.submit_all(both)) == ["a", "a"]


def test_a_fault_is_told_and_the_thread_goes_on() -> None:
    """Else everything that was submitted later would wait for ever."""
    outcomes: list[Any] = [[OSError("odd")], ["a"]]

    def send(_: Sequence[Submission]) -> Sequence[str | errors.Error]:
        found: list[Any] = outcomes.pop(0)
        if isinstance(found[0], OSError):
            raise found[0]
        return found

    outbox = Outbox(send)
    try:
        with pytest.raises(errors.InternalError, match=r"OSError\('odd'\)"):
            outbox.id_of(outbox.add(ONE), 5)
        assert outbox.id_of(outbox.add(ONE), 5) == "a"
    finally:
        outbox.close()


def test_a_fault_is_told_and_the_task_goes_on(run: Run) -> None:
    """As of the thread."""
    faults = [OSError("odd")]

    async def send(_: Sequence[Submission]) -> Sequence[str | errors.Error]:
        if faults:
            raise faults.pop()
        return ["a"]

    async def main() -> None:
        outbox = AsyncOutbox(send)
        with pytest.raises(errors.InternalError, match=r"OSError\('odd'\)"):
            await outbox.id_of(await outbox.add(ONE), 5)
        assert await outbox.id_of(await outbox.add(ONE), 5) == "a"
        await outbox.aclose()

    run(main())


def test_leaving_tells_those_whose_submission_is_on_its_way(run: Run) -> None:
    """And those whose submission waits."""

    async def main() -> None:
        sending = asyncio.Event()

        async def send(_: Sequence[Submission]) -> Sequence[str | errors.Error]:
            sending.set()
            await asyncio.Event().wait()
            return []

        outbox = AsyncOutbox(send)
        first = await outbox.add(ONE)
        await sending.wait()
        second = await outbox.add(ONE)
        waits = [asyncio.ensure_future(outbox.id_of(one, None)) for one in (first, second)]
        await asyncio.sleep(0)
        await outbox.aclose()
        told = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(one) for one in told] == [errors.ClosedError] * 2
        assert "whether it has accepted" in str(told[0])
        assert "before this was submitted" in str(told[1])

    run(main())


def test_a_forked_child_is_told_to_make_its_own_client(
    server: ScriptedServer, client: Client
) -> None:
    """Its parent's thread, which would submit for it, is not there, and the lock may be taken."""
    gate = threading.Event()

    def late(_: Any) -> bytes:
        gate.wait(5)
        return accepted("a")

    server.answers = [late]
    request = client.submit_nowait("echo")
    told = in_child(lambda: client.submit_nowait("echo"), lambda: request.accepted(5), client.close)
    gate.set()
    first, second, third = told
    assert first == second
    assert first.startswith(f"process {os.getpid()} made this client")
    assert third == ""
    assert request.accepted(5) == "a"


def in_child(*calls: Callable[[], object]) -> list[str]:
    """What each call raises in a forked child, which has two seconds; empty: nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(2)
        with os.fdopen(writing, "w") as told:
            for call in calls:
                told.write(f"{raised_by(call)}\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        lines = told.read().splitlines()
    assert os.waitpid(pid, 0)[1] == 0
    return lines


def raised_by(call: Callable[[], object]) -> str:
    try:
        call()
    except errors.ClosedError as error:
        return str(error)
    return ""
