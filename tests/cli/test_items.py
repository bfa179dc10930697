"""Items of generators in a shell: printed as they come, by `run` and by `items`."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_real_server import Shell, shell

__all__ = ["shell"]

APPLICATION = """
import os
import time
from collections.abc import AsyncIterator, Generator, Iterator

import forebay

app = forebay.App("scene")


@app.request()
def count(to: int) -> Generator[int, None, str]:
    for number in range(to):
        print("at", number)
        yield number
    return "counted"


@app.request()
def texts() -> Iterator[str | None]:
    yield "a line"
    yield None


@app.request()
def fails() -> Iterator[int]:
    yield 1
    raise ValueError("no more")


@app.request(retries=1, backoff=0)
def again(ctx: forebay.Context) -> Iterator[int]:
    yield ctx.attempt
    if ctx.attempt == 1:
        time.sleep(0.3)  # so that the first one is seen
        os.kill(os.getpid(), 9)


@app.request()
async def later(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number
"""


@pytest.fixture(autouse=True)
def application(shell: Shell) -> None:
    """Put the generators where the commands look."""
    shell.application.write_text(APPLICATION)


def test_run_prints_items_and_then_the_result(shell: Shell) -> None:
    """They are what a pipe gets, and the log is not."""
    done = shell("run", "scene.py:count", "--to", "3")
    assert (done.code, done.out) == (0, "0\n1\n2\ncounted\n")
    assert "at 1" in done.err
    assert shell("run", "texts").out == "a line\nnull\n"
    many = shell("run", "later", "--to", "20000")
    assert many.out.splitlines() == [str(number) for number in range(20_000)]


def test_run_prints_objects_for_programs(shell: Shell) -> None:
    """With what is needed to go on."""
    done = shell("run", "--json", "scene.py:count", "--to", "2")
    first, second, end = map(json.loads, done.out.splitlines())
    assert (first["epoch"], first["number"], first["item"]) == (1, 1, 0)
    assert (second["number"], second["id"]) == (2, end["id"])
    assert (end["status"], end["result"], end["items"]["count"]) == ("succeeded", "counted", 2)


def test_items_that_come_before_a_failure_are_printed(shell: Shell) -> None:
    """And the failure is told once."""
    done = shell("run", "scene.py:fails")
    assert (done.code, done.out) == (1, "1\n")
    assert done.err.count("ValueError: no more") == 2  # the traceback, and the last line
    followed = shell("items", "-f", "@last")
    assert (followed.code, followed.out) == (1, "1\n")
    plain = shell("items", "@last")
    assert (plain.code, plain.out, plain.err) == (0, "1\n", "")


def test_a_new_epoch_is_told_on_stderr(shell: Shell) -> None:
    """What was printed before cannot be taken back."""
    done = shell("run", "scene.py:again")
    assert (done.code, done.out) == (0, "1\n2\n")
    assert "up to item 1 was of epoch 1, and epoch 2 begins" in done.err
    stale = shell("items", "@last", "--after", "1", "--epoch", "1")
    assert (stale.code, stale.out) == (0, "2\n")
    assert "epoch 2 begins" in stale.err


def test_items_go_on_behind_a_number(shell: Shell) -> None:
    """Tomorrow, too."""
    shell("run", "scene.py:count", "--to", "4")
    assert shell("items", "@last", "--after", "2").out == "2\n3\n"
    told = [json.loads(line) for line in shell("items", "--json", "@last").out.splitlines()]
    assert [one["number"] for one in told] == [1, 2, 3, 4]
    assert '"count": 4' in shell("show", "@last").out
    listed = shell("ps").out.splitlines()
    assert listed[0].split() == ["id", "name", "status", "age", "ran", "peak", "items", "why"]
    assert listed[1].split()[-1] == "4"


def test_a_generator_is_replayed(shell: Shell) -> None:
    """Here, in the foreground: its items as a list."""
    shell("run", "scene.py:later", "--to", "3")
    done = shell("replay", "@last")
    assert (done.code, done.out) == (0, "[0, 1, 2]\n"), done.err
