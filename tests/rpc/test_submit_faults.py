"""Submitted calls where the kernel or the program refuses the reader thread something."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forebay.rpc import Channel
from forebay.rpc._reader import reader

from .conftest import ROOT, descriptors

LIMITED = """
import contextlib, resource, sys, threading
import forebay.rpc._reader
from tests.rpc.conftest import Service, descriptors

def no_descriptors():
    return resource.RLIMIT_NOFILE, 3

def no_thread():
    threading.stack_size(1 << 30)
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    return resource.RLIMIT_AS, (pages << 12) + (64 << 20)

service = Service()
with service.channel() as channel:
    assert channel.call("echo", (0,), timeout=20) == 0
    before = descriptors()
    what, limit = globals()[sys.argv[1]]()
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit, hard))
    for _ in range(3):
        try:
            channel.submit("echo", (1,))
        except (OSError, RuntimeError) as error:
            refused = error
    resource.setrlimit(what, (soft, hard))
    threading.stack_size(0)
    print(type(refused).__name__, refused)
    assert descriptors() == before, (before, descriptors())
    assert channel.metrics()["in_flight"] == 0, channel.metrics()
    assert channel.call("echo", (2,), timeout=20) == 2
    assert channel.submit("echo", (3,)).result(20) == 3
    assert channel.call("echo", (4,), timeout=20) == 4
service.close()
"""


@pytest.mark.parametrize(
    ("want", "said"),
    [("no_descriptors", "OSError [Errno 24]"), ("no_thread", "RuntimeError can't start new")],
)
def test_a_reader_that_cannot_start_costs_the_calls_that_asked_for_it(want: str, said: str) -> None:
    """A moment without descriptors or threads must not hang the channel's later calls for ever."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, want],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said), done.stdout


@pytest.mark.parametrize("which", ["socket", "process"])
def test_a_channel_that_cannot_be_watched_is_usable_later(channel: Channel, which: str) -> None:
    """What the kernel does not watch now is undone whole, so that the next call is read for."""
    taken = channel._connection.fileno() if which == "socket" else channel._pidfd
    before = descriptors()
    epoll = reader()._epoll
    epoll.register(taken, 0)
    try:
        with pytest.raises(FileExistsError):
            channel.submit("echo", (1,))
    finally:
        epoll.unregister(taken)
    assert channel.metrics()["in_flight"] == 0
    assert channel.call("echo", (2,), timeout=20) == 2
    assert channel.submit("echo", (3,)).result(20) == 3
    assert channel.call("echo", (4,), timeout=20) == 4
    assert descriptors() == before
