"""Who submits, cancels and retries: programs of this user, and the gateway for others."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from forebay import _core
from forebay.errors import LimitError
from forebay.executor.client.questions import check_retried
from forebay.executor.wire.codec import encode
from tests.executor.server.dispatching import (
    AppSupervisor,
    Caller,
    RefusedError,
    calling,
    dispatching,
)
from tests.executor.serving import until

USER = f"uid:{os.geteuid()}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a dispatcher keeps and listens."""
    return tmp_path


@pytest.fixture
def served(directory: Path) -> Iterator[tuple[_core.Dispatcher, AppSupervisor]]:
    """A dispatcher with workers."""
    with dispatching(directory) as made:
        yield made


@pytest.fixture
def dispatcher(served: tuple[_core.Dispatcher, AppSupervisor]) -> _core.Dispatcher:
    return served[0]


@pytest.fixture
def caller(served: Any, directory: Path) -> Iterator[Caller]:
    """A client of it."""
    with calling(directory) as made:
        yield made


def ask_for(caller: Caller, by: str | None, method: str, *arguments: Any) -> list[Any]:
    """Call for somebody."""
    named = None if by is None else {"by": by}
    answer = caller.channel.call(method, arguments, named, timeout=20.0)
    if answer[0]:
        raise RefusedError(answer[1])
    return list(answer[1:])


def submit_for(caller: Caller, by: str | None, **options: Any) -> str:
    """Submit for somebody; it waits for a while."""
    arguments = encode({"value": 1})
    (id,) = ask_for(caller, by, "submit", "echo", arguments, options or None, None)
    return str(id)


def kept(directory: Path, id: str) -> tuple[str, dict[str, Any]]:
    """The submitter and the options of a request on disk."""
    reader = _core.StoreReader(str(directory / "state"))
    row, options = reader.get(number_of(directory, id)), reader.options(number_of(directory, id))
    assert row is not None
    return row["submitter"], msgpack.decode(options) if options else {}


def number_of(directory: Path, id: str) -> int:
    """The number of an id."""
    (number,) = _core.StoreReader(str(directory / "state")).beginning_with(id, 1) or ()
    return number


def audited(directory: Path) -> list[dict[str, Any]]:
    """The lines of the audit log."""
    path = directory / "state" / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until_audited(directory: Path, count: int) -> list[dict[str, Any]]:
    """The lines, once there are so many: a thread writes them."""
    deadline = time.monotonic() + 20
    while len(found := audited(directory)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_the_gateway_submits_for_the_holder_of_a_token(
    dispatcher: _core.Dispatcher, caller: Caller, directory: Path
) -> None:
    """The name is the submitter, is kept with the request, and stands in the audit log."""
    dispatcher.set_gateway(os.getpid())
    id = submit_for(caller, "ann", submitter="bob", priority=3)
    assert caller.wait(id) == ("succeeded", 1)
    submitter, options = kept(directory, id)
    assert (submitter, options["by"]) == ("ann", "ann")
    (line,) = until_audited(directory, 1)
    assert line.pop("at_ms") == pytest.approx(time.time() * 1000, abs=60_000)
    assert line == {"act": "submit", "by": "ann", "id": id, "object": "echo"}
    mode = (directory / "state" / "audit.log").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_programs_of_this_user_name_their_submitters(caller: Caller, directory: Path) -> None:
    """They are labels for turns: nobody signs them, and none is audited."""
    id = submit_for(caller, None, submitter="bob")
    assert caller.wait(id) == ("succeeded", 1)
    assert kept(directory, id) == ("bob", {})
    assert audited(directory) == []


@pytest.mark.parametrize("pid", [None, 1])
def test_a_program_that_is_not_the_gateway_acts_for_nobody(
    dispatcher: _core.Dispatcher, caller: Caller, directory: Path, pid: int | None
) -> None:
    """Whatever it calls: what it says of itself does not count."""
    dispatcher.set_gateway(pid)
    id = submit_for(caller, None, delay_s=60)
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("submit", ("echo", encode({"value": 1}), None, None)),
        ("run", ("echo", encode({"value": 1}), None, None)),
        ("cancel", (id,)),
        ("wait", (id,)),
        ("retry", ([id],)),
        ("info", ()),
    )
    for method, arguments in calls:
        with pytest.raises(RefusedError) as refused:
            ask_for(caller, "ann", method, *arguments)
        assert (refused.value.told["code"], refused.value.told["object"]) == ("forbidden", "by")
    assert audited(directory) == []
    assert kept(directory, id)[1].keys() == {"not_before"}


def test_another_gateway_replaces_the_first(dispatcher: _core.Dispatcher, caller: Caller) -> None:
    """Connections of the one that ended count no longer."""
    dispatcher.set_gateway(os.getpid())
    submit_for(caller, "ann")
    dispatcher.set_gateway(None)
    with pytest.raises(RefusedError):
        submit_for(caller, "ann")


@pytest.mark.parametrize("by", [None, "ann"])
def test_who_cancels_is_kept_and_audited(
    dispatcher: _core.Dispatcher, caller: Caller, directory: Path, by: str | None
) -> None:
    """A holder of a token by name, a program by its user."""
    dispatcher.set_gateway(os.getpid() if by else None)
    waiting = submit_for(caller, by, delay_s=60)
    assert ask_for(caller, by, "cancel", waiting) == ["now"]
    assert kept(directory, waiting)[1]["cancelled_by"] == (by or USER)
    assert kept(directory, waiting)[1].get("by") == by
    lines = until_audited(directory, 2 if by else 1)
    assert lines[-1]["act"] == "cancel"
    assert (lines[-1]["by"], lines[-1]["id"]) == (by or USER, waiting)
    assert ask_for(caller, by, "cancel", waiting) == ["ended"]
    assert len(audited(directory)) == len(lines), "what had ended was cancelled by nobody"


def test_a_repeated_cancel_is_noted_once(
    served: tuple[_core.Dispatcher, AppSupervisor], caller: Caller, directory: Path
) -> None:
    """A client that cancels in a loop wrote to the disk each time, and rolled the log over."""
    dispatcher, supervisor = served
    dispatcher.set_gateway(os.getpid())
    running = caller.submit("sleep", {"path": str(directory / "runs")})
    until((directory / "runs").exists)
    (slot,) = [one["slot"] for one in dispatcher.workers() if one["running"]]
    worker = supervisor.leases[slot].pid
    os.kill(worker, signal.SIGSTOP)  # it would end between two of them
    try:
        told = [ask_for(caller, by, "cancel", running) for by in ("bob", "eve", "eve")]
    finally:
        os.kill(worker, signal.SIGCONT)
    assert told == [["asked"]] * 3
    assert caller.wait(running)[0] == "cancelled"
    assert kept(directory, running)[1]["cancelled_by"] == "bob"
    lines = until_audited(directory, 2)
    assert [(line["act"], line["by"]) for line in lines] == [("submit", ""), ("cancel", "bob")]


def test_who_retries_is_kept(dispatcher: _core.Dispatcher, caller: Caller, directory: Path) -> None:
    """Beside who cancelled it before; the server's main thread writes the line."""
    dispatcher.set_gateway(os.getpid())
    id = submit_for(caller, "ann", delay_s=60)
    ask_for(caller, "bob", "cancel", id)
    (done,) = dispatcher.retry([number_of(directory, id)], "eve")
    assert "refused" not in done
    options = kept(directory, id)[1]
    assert (options["by"], options["cancelled_by"], options["retried_by"]) == ("ann", "bob", "eve")


def test_the_main_thread_is_told_who_asks(
    dispatcher: _core.Dispatcher, caller: Caller, directory: Path
) -> None:
    """And writes its own lines."""
    dispatcher.set_gateway(os.getpid())
    for by, told in (("ann", "ann"), (None, "gateway")):
        call = caller.channel.submit("reload", (), None if by is None else {"by": by})
        ((ticket, method, _, who),) = dispatcher.calls(10) or []
        assert (method, who) == ("reload", told)
        dispatcher.answer(ticket, msgpack.encode([0, 1]))
        assert call.result(10) == [0, 1]
    dispatcher.audit("reload", "ann", None, "[]")
    (line,) = until_audited(directory, 1)
    assert (line["act"], line["by"], line["id"], line["object"]) == ("reload", "ann", None, "[]")


def test_what_is_kept_outlives_the_server(directory: Path) -> None:
    """A request that waits has its signature also from the next one."""
    with dispatching(directory) as (dispatcher, _), calling(directory) as caller:
        dispatcher.set_gateway(os.getpid())
        id = submit_for(caller, "ann", delay_s=0.3)
    with dispatching(directory), calling(directory) as caller:
        assert caller.wait(id) == ("succeeded", 1)
        assert kept(directory, id)[0] == "ann"
        assert kept(directory, id)[1]["by"] == "ann"


def test_a_quota_is_refused_before_anything_is_written(directory: Path) -> None:
    """The refusal names who, which limit and the number; who has another submitter goes on."""
    with (
        dispatching(directory, queued_per_submitter_max=1) as (dispatcher, _),
        calling(directory) as caller,
    ):
        submit_for(caller, None, submitter="ann", delay_s=60)
        with pytest.raises(RefusedError) as refused:
            submit_for(caller, None, submitter="ann", delay_s=60)
        told = refused.value.told
        assert (told["code"], told["object"]) == ("limit", 'submitter "ann"')
        assert (told["limit"], told["value"]) == ("max_queued_per_submitter", "2")
        submit_for(caller, None, submitter="bob", delay_s=60)
        dispatcher.set_gateway(os.getpid())
        submit_for(caller, "ann", quota=2, delay_s=60)
        with pytest.raises(RefusedError) as refused:
            submit_for(caller, "ann", quota=2, delay_s=60)
        assert (refused.value.told["limit"], refused.value.told["value"]) == ("quota", "3")


def test_a_retry_is_refused_as_a_submission_is(directory: Path) -> None:
    """Else who cancels and retries has as many unfinished requests as it likes."""
    with dispatching(directory) as (dispatcher, _), calling(directory) as caller:
        dispatcher.set_gateway(os.getpid())
        first = submit_for(caller, "ann", quota=1, delay_s=60)
        ask_for(caller, "ann", "cancel", first)
        second = submit_for(caller, "ann", quota=1, delay_s=60)
        number = number_of(directory, first)
        (told,) = dispatcher.retry([number], "ann")
        assert told["refused"].startswith('submitter "ann": quota is 1, this would make 2; wait')
        refusal = told["refusal"]
        assert (refusal["code"], refusal["object"]) == ("limit", 'submitter "ann"')
        assert (refusal["limit"], refusal["value"]) == ("quota", "2")
        with pytest.raises(LimitError, match="quota is 1") as raised:
            check_retried([told, {"id": "03f14m722000", "refused": "there is no such request"}])
        assert raised.value.limit == "quota"
        assert "03f14m722000" in raised.value.__notes__[0]
        ask_for(caller, "ann", "cancel", second)
        assert dispatcher.retry([number], "ann") == [{"id": first, "status": "queued"}]


def test_only_the_gateway_says_a_quota(caller: Caller) -> None:
    """Else every program could raise its own."""
    with pytest.raises(RefusedError) as refused:
        submit_for(caller, None, quota=1_000_000)
    assert (refused.value.told["code"], refused.value.told["object"]) == (
        "forbidden",
        "option quota",
    )
