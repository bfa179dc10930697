"""What went wrong in a server of this kind before, and does not here.

Those defects that other tests show too stand with their names in docs/concepts/executor/hazards.md.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

import forebay
from forebay.rpc import Channel
from tests.executor.serving import Caller, Serving, descendants, until

APP = (Path(__file__).parent / "defects_app.py").read_text()

Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers of the application, and ends them."""
    made: list[Serving] = []

    def start(source: str = APP, **settings: Any) -> Serving:
        serving = Serving(tmp_path, source, **settings)
        made.append(serving)
        return serving.start()

    yield start
    for serving in made:
        serving.close()


def status_field(path: str, field: str) -> int:
    """A number of /proc/<pid>/status or of a file like it."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"{path} has no {field}")


def state_of(serving: Serving) -> Path:
    """The directory of its store."""
    (state,) = Path(serving.environment["FOREBAY_STATE_DIR"]).iterdir()
    return state


def oom_score(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_kernel_takes_a_worker_before_the_server(serve: Serve) -> None:
    """The server was the victim: a worker that goes costs one request."""
    serving = serve()
    with serving.caller() as caller:
        caller.run("add", a=1)
        workers = {one["pid"] for one in caller.ask("workers")["workers"] if one["pid"]}
        assert workers
        until(lambda: all(oom_score(pid) >= 500 for pid in workers))  # one may begin at this moment
    assert oom_score(serving.pid) == oom_score("self")


def test_a_server_without_guaranteed_workers_serves(serve: Serve) -> None:
    """Burst workers alone do, and none stays once they were idle."""
    serving = serve(short_workers=0, long_workers=0, worker_idle_timeout=0.2)
    with serving.caller() as caller:
        assert caller.run("add", a=1) == 3
        until(lambda: not caller.ask("workers")["workers"])
        assert caller.run("add", a=2) == 4


def test_an_idle_server_hardly_wakes(serve: Serve) -> None:
    """Nobody polls: its dispatcher and its queue looked for work ten times a second each."""
    serving = serve()
    with serving.caller() as caller:
        caller.run("add", a=1)

    def switches() -> int:
        return sum(
            status_field(f"/proc/{pid}/task/{task}/status", "voluntary_ctxt_switches")
            for pid in (serving.pid, *descendants(serving.pid))
            for task in os.listdir(f"/proc/{pid}/task")
        )

    until(lambda: _wakes_a_second(switches) < 15)


def _wakes_a_second(switches: Callable[[], int]) -> float:
    began, before = time.monotonic(), switches()
    time.sleep(1.0)  # not a wait: this is the time that is measured
    return (switches() - before) / (time.monotonic() - began)


def test_running_requests_cost_the_server_no_thread_and_no_file(
    serve: Serve, tmp_path: Path
) -> None:
    """Each had a thread that watched it and a lock file."""
    serving = serve()
    with serving.caller() as caller:
        caller.run("add", a=1)
        state = state_of(serving)
        threads = status_field(f"/proc/{serving.pid}/status", "Threads")
        files = sum(1 for _ in state.rglob("*"))
        end = tmp_path / "end"
        ids = [caller.submit("nap", path=str(end)) for _ in range(300)]
        until(
            lambda: len(caller.ask("list", {"status": ["running"]}, 300, None)["requests"]) == 300
        )
        assert status_field(f"/proc/{serving.pid}/status", "Threads") <= threads
        assert sum(1 for _ in state.rglob("*")) <= files + 2
        end.touch()
        for id_ in ids:
            caller.wait(id_)


def test_the_store_holds_data_and_no_code(serve: Serve) -> None:
    """Rows were pickles, which run when they are read, with process numbers to signal."""
    serving = serve()
    with serving.caller() as caller:
        caller.run("add", a=40)
    with sqlite3.connect(f"file:{state_of(serving) / 'requests.db'}?mode=ro", uri=True) as store:
        rows = store.execute(
            "SELECT name, arguments.blob, result FROM requests JOIN arguments USING (id)"
        ).fetchall()
        columns = {row[1] for row in store.execute("PRAGMA table_info(requests)")}
    store.close()
    ((name, arguments, result),) = rows
    assert (name, msgpack.decode(arguments), msgpack.decode(result)) == ("add", {"a": 40}, 42)
    assert not columns & {"pid", "process", "entrypoint"}


def test_the_server_does_not_import_the_application(serve: Serve, tmp_path: Path) -> None:
    """It is small, stays up whatever an import does, and is never old code."""
    serving = serve()
    with serving.caller() as caller:
        caller.run("add", a=1)
    importers = {int(line) for line in (tmp_path / "imports").read_text().split()}
    assert len(importers) == 1, "the template alone"
    assert serving.pid not in importers


def test_a_worker_shares_what_the_application_has_made(serve: Serve) -> None:
    """A garbage collection wrote to every object, so that each worker had a copy of all of them."""
    heap = """
import gc

heap = [{"number": number} for number in range(200_000)]


@app.request(lane="short")
def collect() -> int:
    gc.collect()
    return os.getpid()
"""
    with serve(APP + heap).caller() as caller:
        rollup = f"/proc/{caller.run('collect')}/smaps_rollup"
        assert status_field(rollup, "Rss") > 50_000, "in kB: the heap is there"
        assert status_field(rollup, "Private_Dirty") < 8_000


def test_a_cancel_that_races_with_the_start_is_kept(serve: Serve, tmp_path: Path) -> None:
    """What was cancelled before it began ran all the same, and was then said to have succeeded."""
    serving = serve()
    with serving.caller() as caller, serving.caller() as other:
        caller.run("add", a=1)
        for number in range(100):
            path = tmp_path / str(number)
            told = other.ask("cancel", id_ := caller.submit("mark", path=str(path)))
            ended = _status(caller, id_)
            ran = path.read_text() if path.exists() else ""
            allowed = {
                "now": [("cancelled", "")],
                "asked": [("cancelled", ""), ("cancelled", "ran\n"), ("succeeded", "ran\n")],
                "ended": [("succeeded", "ran\n")],
            }
            assert (ended, ran) in allowed[told]


def _status(caller: Caller, id_: str) -> str:
    return str(caller.ask("wait", id_)[1])


def test_the_environment_of_a_client_stays_with_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's variables replaced the server's own, such as its time-outs."""
    serving = serve()
    monkeypatch.setenv("FOREBAY_TEST_VARIABLE", "of the client")
    with forebay.Client(f"unix://{serving.socket}", start=False) as client:
        assert client.run("variable", name="FOREBAY_TEST_VARIABLE") is None
        assert client.run("variable", name="PATH")


def test_log_tails_hold_nobody_up(serve: Serve, tmp_path: Path) -> None:
    """Each tail held a worker, and enough of them held up every other call."""
    serving = serve()
    end = tmp_path / "end"
    with serving.caller() as caller, serving.caller() as tails:
        id_ = caller.submit("talk", path=str(end))
        streams = [_tail(tails, id_) for _ in range(100)]
        for stream in streams:
            assert next(stream)[0] == 0, "each begins with the first byte"
        assert caller.run("add", a=1) == 3
        assert len(caller.ask("workers")["workers"]) <= 2
        end.touch()
        caller.wait(id_)
        for stream in streams:
            for _ in stream:
                pass


def _tail(caller: Caller, id_: str) -> Iterator[tuple[int, bytes]]:
    channel: Channel = caller._channel
    return channel.stream("logs", (id_, 0, True))


def test_a_blocked_event_loop_holds_up_its_own_lane_alone(serve: Serve, tmp_path: Path) -> None:
    """One blocking call in the server's loop made every connection wait for seconds."""
    serving = serve()
    end = tmp_path / "end"
    with serving.caller() as caller:
        caller.run("add", a=1)
        id_ = caller.submit("block", path=str(end))
        until(lambda: caller.ask("status", id_)["status"] == "running")
        for number in range(20):
            assert caller.run("add", a=number) == number + 2
        assert caller.ask("status", id_)["status"] == "running"
        end.touch()
        caller.wait(id_)
