from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import threading
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay
from forebay import _core
from forebay.pool.watch.follow import Follow
from tests.pool.processes import parent
from tests.pool.scripts import ECHO, python
from tests.pool.services import Echo, Once


def test_output_is_read_without_blocking_the_loop(pool: forebay.ServicePool) -> None:
    """A task that looks at a log does not stop the others."""

    async def main() -> str:
        async with pool.acquire(Echo) as echo:
            await echo.say("hello")
            keeper = parent(echo.lease.pid)
            os.kill(keeper, signal.SIGSTOP)
            reading = asyncio.ensure_future(echo.lease.stderr)
            try:
                assert [await echo.echo(number) for number in range(3)] == [0, 1, 2]
                assert not reading.done()
            finally:
                os.kill(keeper, signal.SIGCONT)
            text: str = await reading
            return text

    assert asyncio.run(main()) == "hello\n"


def test_lines_are_followed_while_they_are_written(pool: forebay.ServicePool) -> None:
    """What was written before comes first, then each line as it is written."""
    with pool.acquire(Echo) as echo:
        echo.say("before")
        lines = echo.lease.follow()
        assert next(lines) == "before"
        for number in range(5):
            echo.say(f"line {number}")
            assert next(lines) == f"line {number}"


def test_a_follower_waits_for_the_whole_line(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """Half a line, or half a letter, is none."""
    write = "\n    import os; os.write(1, b'gr\\xc3'); os.write(1, b'\\xbc\\xc3\\x9fe\\nrest')"
    with pool.acquire(python(tmp_path, write + ECHO, reuse=False)) as program:
        lines = program.lease.follow()
        assert next(lines) == "grüße"
        program.lease.socket.shutdown(socket.SHUT_WR)  # it ends
        assert list(lines) == ["rest"]


def test_following_ends_with_the_service_after_its_last_words(pool: forebay.ServicePool) -> None:
    """Who follows sees why it died."""
    with pool.acquire(Echo) as echo:
        lines = echo.lease.follow()
        echo.say("first")
        with pytest.raises(forebay.DiedError):
            echo.die(9)
        assert list(lines) == ["first", "about to die"]
        assert list(lines) == []


def test_following_ends_with_the_lease(pool: forebay.ServicePool) -> None:
    """A thread that follows does not wait for ever, and sees nothing of the next holder's."""
    followed: list[str] = []
    with pool.acquire(Echo) as echo:
        follower = threading.Thread(target=lambda: followed.extend(echo.lease.follow()))
        echo.say("mine")
        follower.start()
    with pool.acquire(Echo) as echo:
        follower.join(10)
        assert not follower.is_alive()
        echo.say("another's")
    assert followed in (["mine"], [])


def test_several_follow_one_service(pool: forebay.ServicePool) -> None:
    """One that came later, or that reads slowly, misses nothing that is kept."""
    with pool.acquire(Echo) as echo:
        early = echo.lease.follow()
        echo.say("one")
        assert next(early) == "one"
        late = echo.lease.follow()
        echo.say("two")
        assert next(early) == "two"
        assert list(itertools.islice(late, 2)) == ["one", "two"]


def test_who_is_too_slow_loses_the_oldest(pool: forebay.ServicePool) -> None:
    """Output is bounded; what is lost is never the newest, and no line comes in part."""
    numbered = [f"line {number}" for number in range(5_000)]
    with pool.acquire(Echo) as echo:
        lines = echo.lease.follow()
        echo.say("begin")
        assert next(lines) == "begin"
        echo.say("\n".join([*numbered, "end"]))
        taken = list(itertools.takewhile(lambda line: line != "end", lines))
    assert taken[-1] == numbered[-1]
    assert len(taken) < len(numbered)
    assert set(taken) <= set(numbered)


@given(st.text("ab\n", max_size=80), st.lists(st.integers(1, 80)))
def test_only_whole_lines_are_given_whatever_is_lost(written: str, looks: list[int]) -> None:
    """A line is given where the follower knows that it begins there and has seen every byte."""
    kept = 8
    output = written.encode()
    lines = Follow(cast("forebay.ServicePool", None), cast("_core.Handle", None))
    lost: set[int] = set()
    seen = 0
    for total in sorted({min(look, len(output)) for look in looks} - {0}):
        lost.update(range(seen, total - kept))
        lines._keep(total, output[max(0, total - kept) : total])
        seen = total
    lines._end()
    expected, begin = [], 0
    for line in output[:seen].splitlines(keepends=True):
        end = begin + len(line)
        if lost.isdisjoint(range(begin - 1, end)):
            expected.append(line.removesuffix(b"\n"))
        begin = end
    assert list(lines._lines) == expected


def test_a_task_follows(pool: forebay.ServicePool) -> None:
    """The same on an event loop, while calls go on."""

    async def main() -> list[str]:
        async with pool.acquire(Once) as once:
            seen: list[str] = []

            async def follow() -> None:
                seen.extend([line async for line in once.lease.follow()])

            async with asyncio.TaskGroup() as group:
                group.create_task(follow())
                for word in ("one", "two"):
                    await once.say(word)
                with pytest.raises(forebay.DiedError):
                    await once.leave(3)
            return seen

    assert asyncio.run(main()) == ["one", "two"]


def test_a_cancelled_follower_leaves_everything_in_order(pool: forebay.ServicePool) -> None:
    """The next one begins where it wants to."""

    async def main() -> str:
        async with pool.acquire(Echo) as echo:
            lines = echo.lease.follow()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(lines)
            await echo.say("late")
            return str(await anext(lines))

    assert asyncio.run(main()) == "late"


def test_following_after_the_lease_is_stale(pool: forebay.ServicePool) -> None:
    """Its service may be another's by then."""
    with pool.acquire(Echo) as echo:
        lease = echo.lease
    with pytest.raises(forebay.StaleError):
        lease.follow()


def test_following_leaves_no_descriptor(pool: forebay.ServicePool) -> None:
    """However many followers there were."""
    with pool.acquire(Echo) as echo:
        echo.say("line")
        assert next(echo.lease.follow()) == "line"
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            assert next(echo.lease.follow()) == "line"
        # The pool may open something of its own meanwhile, but not for each follower.
        assert len(os.listdir("/proc/self/fd")) <= before + 2
