"""Requests that submit others and wait for them, on a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import CancelledError, DeadlineError, RemoteError
from forebay.executor import Client, Submit
from tests.executor.serving import Serving, until

APP = """
import asyncio, os, pathlib, time
import forebay

app = forebay.App("trees")

@app.request()
def double(value: int) -> int:
    return 2 * value

@app.request()
def fails() -> None:
    raise ValueError("no")

@app.request()
def total(ctx: forebay.Context, values: list[int]) -> int:
    return sum(ctx.map(double, values))

@app.request()
def depth(ctx: forebay.Context, left: int) -> int:
    return 1 if left == 0 else 1 + ctx.submit(depth, left - 1).result()

@app.request(concurrency=1)
def fibonacci(ctx: forebay.Context, n: int) -> int:
    if n < 2:
        return n
    return sum(ctx.gather(*[ctx.submit(fibonacci, n - 1), ctx.submit(fibonacci, n - 2)]))

@app.request()
async def gathered(ctx: forebay.Context, values: list[int]) -> list[int]:
    children = [await ctx.submit(double, value) for value in values]
    return await ctx.gather(*children)

@app.request()
async def mapped(ctx: forebay.Context, values: list[int]) -> list[int]:
    return [result async for result in ctx.map(double, values)]

@app.request()
async def deep(ctx: forebay.Context, left: int) -> int:
    if left == 0:
        return 1
    return 1 + await (await ctx.submit(deep, left - 1)).result()

@app.request()
def catches(ctx: forebay.Context) -> str:
    try:
        ctx.submit(fails).result()
    except forebay.RemoteError as error:
        return type(error).__name__ + ": " + str(error)

@app.request(concurrency=1, concurrency_key="value")
def locks(ctx: forebay.Context, value: str) -> str:
    try:
        ctx.submit(locks, value)
    except forebay.ConfigError as error:
        return str(error)
    return ""

@app.request()
def holds(folder: str) -> None:
    path = pathlib.Path(folder)
    (path / f"{os.getpid()}.ran").touch()
    while not (path / "go").exists():
        time.sleep(0.02)

@app.request(retries=2, backoff=0.01)
def collects(ctx: forebay.Context, folder: str, count: int) -> int:
    path = pathlib.Path(folder)
    (path / f"{ctx.attempt}.attempt").write_text(str(os.getpid()))
    children = [ctx.submit(once, folder, number) for number in range(count)]
    return sum(child.exception() is None for child in children)

@app.request()
def once(folder: str, number: int) -> None:
    path = pathlib.Path(folder)
    with open(path / "runs", "a") as file:
        file.write(f"{number}\\n")
    while number % 2 and not (path / "go").exists():
        time.sleep(0.02)

@app.request()
def waits_for(ctx: forebay.Context, folder: str) -> None:
    ctx.submit(holds, folder).result()

@app.request()
def counts(until: int):
    yield from range(until)

@app.request()
def reads(ctx: forebay.Context, until: int) -> list[int]:
    return list(ctx.submit(counts, until).items())

@app.request()
def watches(ctx: forebay.Context, until: int) -> list[str]:
    child = ctx.submit(counts, until)
    told = [event["event"] for event in child.events()]
    return [told[-1], "".join(child.logs())]

@app.request()
def threaded(ctx: forebay.Context, count: int) -> int:
    import threading
    results = []
    def one(number):
        results.append(ctx.submit(double, number).result())
    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)

@app.request()
def forks(ctx: forebay.Context) -> str:
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            ctx.submit(double, 1)
        except BaseException as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    return os.read(reading, 4096).decode()

@app.request()
async def async_forks(ctx: forebay.Context) -> str:
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            ctx.submit(double, 1).send(None)  # without the loop, which is the parent's
        except BaseException as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    return os.read(reading, 4096).decode()

@app.request()
async def one_fails(ctx: forebay.Context) -> str:
    children = [await ctx.submit(fails), await ctx.submit(double, 1)]
    try:
        await ctx.gather(*children)
    except forebay.RemoteError:
        return "raised"
    return "nothing"

@app.request(timeout=0.5, retries=0)
def too_long(ctx: forebay.Context, folder: str) -> None:
    ctx.submit(holds, folder).result()

@app.request(retries=1, backoff=0.01)
def changes(ctx: forebay.Context) -> str:
    if ctx.attempt == 1:
        ctx.submit(double, 1).result()
        raise ValueError("again")
    try:
        ctx.submit(double, 2)
    except forebay.ConfigError as error:
        return str(error)
    return ""
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server with one worker of each lane."""
    serving = Serving(tmp_path, APP, long_workers=1, short_workers=1, max_workers=2)
    with serving:
        yield serving


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    """Its client."""
    with Client(f"unix://{serving.socket}") as client:
        yield client


def test_a_request_adds_up_what_its_children_return(client: Client) -> None:
    """In the order of the arguments, from threads and from tasks."""
    assert client.run("total", list(range(300)), options=Submit()) == sum(range(300)) * 2
    assert client.run("gathered", [3, 1, 2]) == [6, 2, 4]
    assert client.run("mapped", [3, 1, 2]) == [6, 2, 4]


def test_depth_is_no_deadlock_with_two_workers(client: Client) -> None:
    """Each waits for the one below it; a name that runs once at a time does too."""
    assert client.run("depth", 20) == 21
    assert client.run("deep", 20) == 21
    assert client.run("fibonacci", 6) == 8


def test_waiting_for_an_item_of_a_child_holds_no_place_either(client: Client) -> None:
    """The one worker of the lane yields what the other one reads."""
    assert client.run("reads", 5) == [0, 1, 2, 3, 4]


def test_waiting_for_an_event_of_a_child_holds_no_place_either(client: Client) -> None:
    """Nor does reading its output."""
    assert client.run("watches", 2) == ["status", ""]


def test_threads_of_a_request_submit_and_wait(client: Client) -> None:
    """Each of them has its own child."""
    assert client.run("threaded", 8) == 2 * sum(range(8))


def test_a_process_that_a_request_has_forked_submits_nothing(client: Client) -> None:
    """It would give its calls the numbers of the request's own."""
    assert "cannot submit its children" in client.run("forks")
    assert "cannot submit its children" in client.run("async_forks")


def test_the_first_failure_is_raised_and_nothing_waits_on(client: Client) -> None:
    """The run does not count as waiting once it goes on."""
    assert client.run("one_fails") == "raised"


def test_a_parent_whose_time_is_up_takes_its_child_with_it(client: Client, tmp_path: Path) -> None:
    """Waiting counts as running for its time-out."""
    parent = client.submit("too_long", str(tmp_path))
    assert isinstance(parent.exception(20), DeadlineError)
    [child] = client.list(parent=parent.id)
    with pytest.raises(CancelledError):
        client.get(child["id"]).result(20)


def test_forebay_drain_waits_for_what_waits(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """And begins the children of what runs, since nothing would end without them."""
    parent = client.submit("collects", str(tmp_path), 4)
    assert until(lambda: len(client.list(parent=parent.id)) == 4)
    (tmp_path / "go").touch()
    command = [sys.executable, "-m", "forebay.cli", "drain", "--url", f"unix://{serving.socket}"]
    drained = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=serving.environment
    )
    assert drained.returncode == 0, drained.stderr
    assert "nothing runs" in drained.stderr + drained.stdout
    assert parent.status() == "succeeded"


def test_a_tree_is_drawn(serving: Serving, client: Client) -> None:
    """By `forebay show --tree`, with the deepest ones."""
    root = client.submit("depth", 2)
    assert root.result(20) == 3
    command = [sys.executable, "-m", "forebay.cli", "show", root.id, "--tree"]
    command += ["--url", f"unix://{serving.socket}"]
    shown = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=serving.environment
    )
    assert shown.returncode == 0, shown.stderr
    [first, second] = [line for line in shown.stdout.splitlines() if "└─" in line]
    assert "depth" in first
    assert second.startswith("   └─ ")


def test_the_limit_of_the_depth_is_named(client: Client) -> None:
    """The 65th above each other is refused, and what waits for it fails with that."""
    with pytest.raises(RemoteError, match="depth_max is 64, this would make 65"):
        client.run("deep", 70)


def test_what_a_child_raises_is_raised_by_its_result(client: Client) -> None:
    """As in any client."""
    assert "ValueError" in client.run("catches")


def test_a_key_that_is_held_above_is_refused_with_both_named(client: Client) -> None:
    """The child would wait for what waits for it."""
    told = client.run("locks", "gpu")
    assert "a child of request" in told
    assert "(locks) holds" in told


def test_a_cancel_takes_the_children_with_it(client: Client, tmp_path: Path) -> None:
    """The child that runs is interrupted, and says why."""
    parent = client.submit("waits_for", str(tmp_path))
    assert until(lambda: list(tmp_path.glob("*.ran")))
    [child] = client.list(parent=parent.id)
    assert until(lambda: "1 of 1 have not ended" in parent.why()["reason"])
    assert child["status"] == "running"
    parent.cancel()
    with pytest.raises(CancelledError):
        parent.result(20)
    ended = client.get(child["id"])
    with pytest.raises(CancelledError):
        ended.result(20)
    assert ended.show()["options"]["cancelled_by"] == f"its parent {parent.id}"


def test_a_parent_that_runs_again_submits_nothing_twice(client: Client, tmp_path: Path) -> None:
    """Its worker is killed while half of its children run: each child runs once."""
    parent = client.submit("collects", str(tmp_path), 6)
    attempt = tmp_path / "1.attempt"
    assert until(lambda: len(client.list(parent=parent.id)) == 6)
    os.kill(int(attempt.read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()  # the place of the only worker is a child's
    assert until((tmp_path / "2.attempt").exists)
    assert parent.result(20) == 6
    runs = (tmp_path / "runs").read_text().split()
    assert sorted(runs) == sorted(map(str, range(6)))


def test_so_does_one_whose_server_was_killed(serving: Serving, tmp_path: Path) -> None:
    """The next server knows the children of what it runs again, ended ones too."""
    with Client(f"unix://{serving.socket}") as client:
        parent = client.submit("collects", str(tmp_path), 6)
        assert until(lambda: len(client.list(parent=parent.id)) == 6)
        assert until(lambda: client.list(parent=parent.id, status="succeeded"))
        serving.kill()
        (tmp_path / "go").touch()
        serving.start()
        # The one that had begun when the server was killed may not run twice.
        assert parent.result(30) == 5
        assert len(client.list(parent=parent.id)) == 6
        runs = (tmp_path / "runs").read_text().split()
        assert len(runs) == len(set(runs))


def test_a_parent_waits_on_under_the_server_that_takes_the_place(
    serving: Serving, tmp_path: Path
) -> None:
    """It goes over while it waits, with its child; its place is another's there too."""
    with Client(f"unix://{serving.socket}") as client:
        parent = client.submit("waits_for", str(tmp_path))
        assert until(lambda: list(tmp_path.glob("*.ran")))
        successor = serving.replace()
        try:
            assert until(lambda: "1 of 1 have not ended" in parent.why()["reason"])
            assert client.run("double", 21) == 42
            (tmp_path / "go").touch()
            assert parent.result(20) is None
            assert serving.ended() == 0
            assert client.run("depth", 5) == 6
        finally:
            successor.close()


def test_another_child_in_the_same_place_is_refused(client: Client) -> None:
    """A result of other arguments would be wrong."""
    told = client.run("changes")
    assert "call 0 of request" in told
    assert "double with other arguments" in told


def test_outside_of_a_server_children_are_calls() -> None:
    """An application's functions can be tested without one."""
    names: dict[str, object] = {}
    exec(compile(APP, __file__, "exec"), names)
    total, gathered, mapped = (names[name] for name in ("total", "gathered", "mapped"))
    import asyncio

    assert total([1, 2, 3]) == 12  # type: ignore[operator]
    assert asyncio.run(gathered([1, 2])) == [2, 4]  # type: ignore[operator]
    assert asyncio.run(mapped([1, 2])) == [2, 4]  # type: ignore[operator]


def test_while_a_parent_waits_its_worker_is_shown_as_waiting(
    client: Client, tmp_path: Path
) -> None:
    """And its place is another's."""

    def waiting() -> int:
        workers = client.ask("workers")["workers"]
        return [worker["state"] for worker in workers].count("waiting")

    parent = client.submit("waits_for", str(tmp_path))
    assert until(lambda: list(tmp_path.glob("*.ran")))
    assert waiting() == 1
    (tmp_path / "go").touch()
    parent.result(20)
    assert waiting() == 0
