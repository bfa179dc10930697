"""What a client does when its server goes away."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest
from msgspec import msgpack

from forebay._core import Connection
from forebay.errors import BrokenError, DeadlineError
from forebay.executor.client.async_client import AsyncClient
from forebay.executor.client.client import Client
from forebay.executor.client.options import Submit
from tests.executor.client.conftest import Connect, ConnectAsync
from tests.executor.small_server import SmallServer
from tests.loops import Run, run

__all__ = ["run"]


def test_no_server_is_an_error_at_once(tmp_path: Path) -> None:
    """Nobody waits for a server that was never there."""
    with pytest.raises(BrokenError) as caught:
        Client(f"unix://{tmp_path}/none").submit("echo")
    assert caught.value.delivered == "no"


def test_waiting_goes_on_after_a_restart(server: SmallServer, client: Client) -> None:
    """An accepted request is not lost, and neither is who waits for it."""
    request = client.submit("hold")
    assert request.id
    server.kill()
    server.start()
    server.release()
    assert request.result(timeout=20) == {}


def test_a_thread_that_waits_follows_to_the_next_server(
    server: SmallServer, client: Client
) -> None:
    """It does not notice more than the time it takes."""
    request = client.submit("hold")
    assert request.id
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(request.result(timeout=20)))
    thread.start()
    server.kill()
    server.start()
    server.release()
    thread.join(20)
    assert results == [{}]


def test_a_time_that_ends_before_the_server_is_back_is_a_deadline(
    server: SmallServer, client: Client
) -> None:
    """It was told as a server that is gone, and `wait` raised."""
    request, other = client.submit("hold"), client.submit("hold")
    assert request.id
    assert other.id
    server.kill()
    with pytest.raises(DeadlineError, match=r"has not ended within 0.5 s"):
        request.result(timeout=0.5)
    assert client.wait([request, other], timeout=0.5) == ([], [request, other])
    server.start()
    server.release()
    assert [request.result(timeout=20), other.result(timeout=20)] == [{}, {}]


def test_who_waits_need_not_have_asked_for_the_id(server: SmallServer, client: Client) -> None:
    """Whoever waits for long has made sure that the request is accepted."""
    request = client.submit_nowait("hold")
    with pytest.raises(DeadlineError):
        request.result(timeout=0.3)
    server.kill()
    server.start()
    server.release()
    assert request.result(timeout=20) == {}


def test_a_submission_of_unknown_fate_says_so(connect: Connect, server: SmallServer) -> None:
    """It may be on disk or not, so it is not sent again."""
    client = connect(timeout=1.0)
    request = client.submit_nowait("vanish")
    server.wait_gone()
    with pytest.raises(BrokenError) as caught:
        request.result(timeout=20)
    assert caught.value.delivered == "maybe"
    assert "Submit(idempotency=" in caught.value.__notes__[0]
    assert request.status() == "unknown"
    client.close()  # it was looked at, so nothing is raised again
    server.start()


def test_a_submit_of_unknown_fate_raises(connect: Connect, server: SmallServer) -> None:
    """With what to do about it; leaving does not say it again."""
    with connect(timeout=1.0) as client:
        with pytest.raises(BrokenError) as caught:
            client.submit("vanish")
        assert caught.value.delivered == "maybe"
        server.wait_gone()
        server.start()


@pytest.mark.parametrize("asks", [False, True], ids=["for its end", "for its id"])
def test_a_server_that_hands_a_request_on_tells_its_id_alone(
    server: SmallServer, client: Client, asks: bool
) -> None:
    """The next server is asked for its end; without a key it is not submitted twice."""
    request = client.submit_nowait("hold_elsewhere")
    server.wait_gone()
    server.start()
    if asks:
        assert request.accepted(timeout=20) == "000000000001"
    client.ask("release")
    assert request.result(timeout=20) == {}
    assert [one["id"] for one in client.list()] == [request.id]


class Handing:
    """A server that hands over to the next one, on one listening socket."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._next = threading.Thread(target=self._serve)

    def read_no_more(self) -> None:
        """Read a greeting, one call and no more; the next server serves from now on."""
        accepted, _ = self._listener.accept()
        self._raw = accepted.dup()
        self._old = Connection(accepted.detach(), server=True, by_reference=False)
        greeting = self._old.next_call(20.0)
        assert greeting is not None
        assert msgpack.decode(greeting[2])[0] == "hello"
        self._call = self._old.next_call(20.0)
        self._raw.shutdown(socket.SHUT_RD)
        self._next.start()

    def answer_and_leave(self) -> None:
        """Tell the id of what was read, and close."""
        assert self._call is not None
        self._old.reply(self._call[0], 0, msgpack.encode([0, "1"]))
        self._old.drain()
        self._old.close()
        self._raw.close()

    def _serve(self) -> None:
        accepted, _ = self._listener.accept()
        new = Connection(accepted.detach(), server=True, by_reference=False)
        while (asked := new.next_call(None)) is not None:
            method, args, _ = msgpack.decode(asked[2])
            if method == "hello":
                continue  # nobody waits for an answer
            id_ = args[0] if method == "wait" else "2"
            ended = [] if method == "submit" else ["succeeded", msgpack.encode(id_)]
            new.reply(asked[0], 0, msgpack.encode([0, id_, *ended]))
        new.close()

    def close(self) -> None:
        """The client has left."""
        self._next.join(20)
        self._listener.close()


def test_what_the_old_server_has_read_is_known_and_the_rest_goes_to_the_new_one(
    tmp_path: Path,
) -> None:
    """Neither has a key: the one is not sent twice, the other is sent once."""
    server = Handing(tmp_path / "s")
    with Client(server.url, timeout=20.0) as client:
        first = client.submit_nowait("echo")
        server.read_no_more()
        second = client.submit_nowait("echo")
        server.answer_and_leave()
        assert [first.result(20), second.result(20)] == ["1", "2"]
    server.close()


def test_the_same_on_an_event_loop(run: Run, tmp_path: Path) -> None:
    """What waits on the old connection is not ended by the one that goes to the new server."""
    server = Handing(tmp_path / "s")

    async def main() -> None:
        async with AsyncClient(server.url, timeout=20.0) as client:
            first = asyncio.create_task(client.submit("echo"))
            await asyncio.to_thread(server.read_no_more)
            second = await client.submit("echo")
            server.answer_and_leave()
            assert [await (await first).result(20), await second.result(20)] == ["1", "2"]

    run(main())
    server.close()


def test_one_with_an_idempotency_key_is_sent_again(server: SmallServer, client: Client) -> None:
    """The server knows it by the key, so it is one request."""
    request = client.submit_nowait("accept_and_vanish", options=Submit(idempotency="once"))
    server.wait_gone()
    server.start(STAYS="1")
    assert request.result(timeout=20) == {}
    assert [one["id"] for one in client.list()] == [request.id]


def test_a_submission_to_a_server_that_is_gone_goes_to_the_next(
    server: SmallServer, client: Client
) -> None:
    """Nothing was sent, so nothing can be there twice."""
    assert client.run("echo", index=1) == {"index": 1}
    server.kill()
    server.start()
    assert client.run("echo", index=2) == {"index": 2}


def test_a_log_goes_on_where_it_broke(server: SmallServer, connect: Connect) -> None:
    """Nothing of it is missing, nothing there twice."""
    server.kill()
    server.start(BREAKS_LOGS="1")
    with connect() as client:
        request = client.submit("echo")
        assert request.id
        pieces = request.logs()
        assert next(pieces) == "gr"
        server.wait_gone()
        server.start()
        assert "".join(pieces) == "ün\nand blue\n"


def test_the_events_of_a_request_go_on_behind_the_last_one(
    server: SmallServer, connect: Connect
) -> None:
    """Nothing comes twice, and the end comes."""
    server.kill()
    server.start(BREAKS_EVENTS="1")
    with connect() as client:
        events = client.submit("echo").events()
        numbers = [next(events)["seq"], next(events)["seq"]]
        server.wait_gone()
        server.start()
        assert numbers + [one["seq"] for one in events] == [1, 2, 3]


def test_the_events_of_a_request_go_on_in_a_loop_too(
    run: Run, server: SmallServer, connect_async: ConnectAsync
) -> None:
    """By the same numbers."""
    server.kill()
    server.start(BREAKS_EVENTS="1")

    async def main() -> None:
        async with connect_async() as client:
            events = (await client.submit("echo")).events()
            numbers = [(await anext(events))["seq"], (await anext(events))["seq"]]
            await asyncio.to_thread(server.wait_gone)
            await asyncio.to_thread(server.start)
            assert numbers + [one["seq"] async for one in events] == [1, 2, 3]

    run(main())


def test_a_reader_of_events_has_begun_when_it_is_there(
    server: SmallServer, connect: Connect
) -> None:
    """A server that ended before it said from where on it tells would lose what comes next."""
    server.kill()
    server.start(BREAKS_FEED="1")

    def restart() -> None:
        server.wait_gone()
        server.start()

    with connect() as reader, connect() as client:
        assert reader.info()
        restarting = threading.Thread(target=restart)
        restarting.start()
        events = reader.follow(events="ended")
        request = client.submit("echo")
        assert request.result(timeout=20) == {}
        assert next(events)["id"] == request.id
        events.close()
        restarting.join()


def test_many_that_are_in_flight_survive_a_restart(server: SmallServer, client: Client) -> None:
    """Those whose ids are known are waited for again; what had come before is still there."""
    held = [client.submit_nowait("hold") for _ in range(20)]
    ended = [client.submit_nowait("echo", index=at) for at in range(20)]
    assert [one.id for one in held + ended]  # and so every answer has come
    server.kill()
    server.start()
    server.release()
    assert [one.result(timeout=20) for one in held] == [{}] * 20
    assert [one.result(timeout=20)["index"] for one in ended] == list(range(20))


def test_submissions_of_unknown_fate_are_told_one_by_one(
    connect: Connect, server: SmallServer
) -> None:
    """Each handle says so; leaving says it for those that nobody has looked at."""
    client = connect()
    requests = [client.submit_nowait("hold") for _ in range(5)]
    client.info()  # they have been read when this is answered
    server.kill()
    server.start()
    for one in requests[:2]:
        with pytest.raises(BrokenError) as caught:
            one.result(timeout=20)
        assert caught.value.delivered == "maybe"
    with pytest.raises(BrokenError) as left:
        client.close()
    assert "2 other submissions failed too" in left.value.__notes__
    with connect() as other:
        assert len(other.list()) == 5  # none was sent twice


def test_leaving_a_server_that_hangs_says_what_is_not_known(
    connect: Connect, server: SmallServer
) -> None:
    """And does not wait for ever."""
    client = connect(timeout=2.0)
    client.info()
    with server.stopped():
        for _ in range(3):
            client.submit_nowait("echo")
        with pytest.raises(DeadlineError, match="whether it has accepted 3 requests"):
            client.close()
