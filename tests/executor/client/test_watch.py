"""Watching a request from a program: its output, lines of progress, its end, an interrupt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading

import pytest

from forebay.errors import DeadlineError, RemoteError
from forebay.executor import AsyncClient, Client
from forebay.executor.client import async_watch, display
from tests.executor.client_fixtures import client_of_serving, serving
from tests.executor.serving import Serving, until

__all__ = ["client_of_serving", "serving"]

APP = """
import time
import forebay

app = forebay.App("watched")

@app.request()
def work(ctx: forebay.Context, steps: int = 4, pause_s: float = 0.15, fail: bool = False,
         text: str = "") -> int:
    for step in ctx.progress(range(steps), unit="steps", message=text):
        print("step", step, end=text + "\\n", flush=True)
        time.sleep(pause_s)
    if fail:
        raise ValueError("no luck")
    return steps

@app.request()
def rest(pause_s: float) -> None:
    time.sleep(pause_s)
"""

STEPS = "".join(f"step {number}\n" for number in range(4))


def test_output_and_progress_are_shown_until_the_end(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Output on stdout, progress on stderr, the result as from `result`."""
    request = client.submit("work")
    assert request.watch() == 4
    shown = capsys.readouterr()
    assert shown.out == STEPS
    lines = shown.err.splitlines()
    assert lines[-1].startswith(f"work {request.id}: 100% (4 of 4 steps)")
    assert request.watch() == 4, "it has ended, and there is nothing to show"
    assert capsys.readouterr() == ("", "")


def test_it_is_awaited_alike(serving: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    """On a loop."""

    async def watch() -> int:
        async with AsyncClient(f"unix://{serving.socket}", timeout=20.0) as client:
            request = await client.submit("work")
            with pytest.raises(DeadlineError):
                await request.watch(timeout=0.05)
            return int(await request.watch())

    assert asyncio.run(watch()) == 4
    assert "100% (4 of 4 steps)" in capsys.readouterr().err


@pytest.fixture(name="bar")
def _bar(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a bar of a notebook has shown, as text."""
    shown: list[str] = []

    class Output:
        def __init__(self, markup: str, text: str) -> None:
            self.replace(markup, text)

        def replace(self, markup: str, text: str) -> None:
            assert "<progress" in markup
            shown.append(text)

    monkeypatch.setattr(display, "Output", Output)
    monkeypatch.setattr(display, "is_notebook", lambda: True)
    monkeypatch.setattr(async_watch, "is_notebook", lambda: True)
    return shown


def test_a_bar_shows_that_a_request_without_progress_runs(client: Client, bar: list[str]) -> None:
    """It has begun when the bar appears, and nothing more is told before its end."""
    assert client.run("work", steps=1, pause_s=0.0) == 1  # a worker is there now
    request = client.submit("rest", 1.0)
    assert request.watch() is None
    called = f"rest {request.id}"
    assert bar[-2:] == [f"{called}: running", f"{called}: succeeded"]


def test_a_bar_that_is_awaited_shows_the_same(serving: Serving, bar: list[str]) -> None:
    """On a loop."""

    async def watch() -> str:
        async with AsyncClient(f"unix://{serving.socket}", timeout=20.0) as client:
            assert await client.run("work", steps=1, pause_s=0.0) == 1
            request = await client.submit("rest", 1.0)
            assert await request.watch() is None
            return f"rest {request.id}"

    called = asyncio.run(watch())
    assert bar[-2:] == [f"{called}: running", f"{called}: succeeded"]


def test_its_errors_are_those_of_the_result(client: Client) -> None:
    """A failure raises, a deadline leaves it running."""
    with pytest.raises(RemoteError, match="no luck"):
        client.submit("work", steps=1, fail=True).watch()
    request = client.submit("work", steps=8)
    with pytest.raises(DeadlineError, match="goes on"):
        request.watch(timeout=0.2)
    assert request.watch() == 8


def test_a_terminal_is_not_sent_what_it_would_obey(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message of a request may come from anyone, and so may its output."""
    request = client.submit("work", steps=1, text="\x1b]0;title\x07")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    request.watch()
    shown = capsys.readouterr()
    assert "\\x1b]0;title\\x07" in shown.out
    assert "\\x1b]0;title\\x07" in shown.err
    assert "\x1b" not in shown.out + shown.err


@pytest.mark.parametrize("wait", ["watch", "result"])
def test_an_interrupt_says_that_the_request_goes_on(wait: str, client: Client) -> None:
    """As the command line does: what to type to wait again, and to cancel."""
    request = client.submit("work", steps=100)
    until(lambda: request.status() == "running")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt) as interrupted:
        getattr(request, wait)()
    timer.join()
    (note,) = interrupted.value.__notes__
    assert f"request {request.id} goes on" in note
    assert f"client.get('{request.id}').watch()" in note
    assert request.status() == "running"
    request.cancel()
