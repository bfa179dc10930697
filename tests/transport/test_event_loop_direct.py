"""The direct path of the selector: numbers that change their meaning, at any moment."""

from __future__ import annotations

import gc
import os
import select
import socket
import weakref
from collections.abc import Iterator

import pytest

from forebay.errors import BusyError, ClosedError, ConfigError
from forebay.transport import EventLoop, new_event_loop
from forebay.transport._selector import Selector

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def selector() -> Iterator[Selector]:
    """A selector whose callbacks may not fail."""

    def fail(error: BaseException, callback: object) -> None:
        raise error

    made = Selector(fail)
    yield made
    made.close()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = new_event_loop()
    yield made
    made.close()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for near, far in made:
        near.close()
        far.close()


def test_events_asked_for_change_and_pause(selector: Selector, pairs: list[Pair]):
    """A connection that lags stops reading and goes on, without being attached anew."""
    near, far = pairs[0]
    seen: list[int] = []
    selector.attach(near.fileno(), 1, seen.append)
    selector.select(0)
    far.send(b"x")
    selector.select(0)
    selector.change(near.fileno(), 3)
    selector.select(0)
    selector.change(near.fileno(), 0)
    far.close()
    selector.select(0)
    selector.change(near.fileno(), 2)
    selector.select(0)
    assert seen == [1, 3, 2]
    assert selector.metrics()["direct_calls"] == 3


def test_a_callback_may_detach_others_that_are_ready_too(selector: Selector, pairs: list[Pair]):
    """A connection that closes another one never sees it called afterwards."""
    called: list[int] = []

    def on_ready(number: int) -> None:
        called.append(number)
        for near, _ in pairs:
            selector.detach(near.fileno())

    for number, (near, far) in enumerate(pairs):
        selector.attach(near.fileno(), 1, lambda _, number=number: on_ready(number))
        far.send(b"x")
    selector.select(0)
    selector.select(0)
    assert len(called) == 1


def test_an_event_never_meets_the_next_owner_of_its_number(selector: Selector, pairs: list[Pair]):
    """A socket that gets the number of one that was closed a moment ago is not blamed for it."""
    (first, first_far), (second, second_far), (quiet, _) = pairs
    called: list[str] = []

    def replace(victim: socket.socket) -> None:
        called.append("first")
        number = victim.fileno()
        selector.detach(number)
        os.dup2(quiet.fileno(), number)
        selector.attach(number, 1, lambda _: called.append("next"))

    selector.attach(first.fileno(), 1, lambda _: replace(second))
    selector.attach(second.fileno(), 1, lambda _: replace(first))
    first_far.send(b"x")
    second_far.send(b"x")
    selector.select(0)
    assert called == ["first"]


def test_a_number_closed_unseen_can_be_attached_again(selector: Selector, pairs: list[Pair]):
    """A forgotten detach costs the one who forgot, not the next connection."""
    (old, _), (new, new_far), _ = pairs
    called: list[str] = []
    selector.attach(old.fileno(), 1, lambda _: called.append("old"))
    os.dup2(new.fileno(), old.fileno())
    selector.attach(old.fileno(), 1, lambda _: called.append("new"))
    new_far.send(b"x")
    selector.select(0)
    assert called == ["new"]


def test_a_reader_replaced_in_a_callback_stays(loop: EventLoop, pairs: list[Pair]):
    """Readers of asyncio are looked up after the callbacks, so that they see what those did."""
    (direct, direct_far), (watched, watched_far), _ = pairs
    called: list[str] = []

    def on_ready(_: int) -> None:
        direct.recv(1)
        loop.remove_reader(watched)
        loop.add_reader(watched, on_readable)

    def on_readable() -> None:
        called.append("new")
        loop.stop()

    loop.add_reader(watched, called.append, "old")
    loop.forebay_selector.attach(direct.fileno(), 1, on_ready)
    for far in (watched_far, direct_far):
        far.send(b"x")
    loop.call_later(10, loop.stop)
    loop.run_forever()
    assert called == ["new"]


def test_a_file_that_outlives_its_descriptor_does_not_spin_the_loop(
    selector: Selector, pairs: list[Pair]
):
    """A duplicate in a child process does not cost the parent a core for ever."""
    near, far = pairs[0]
    number = near.fileno()
    selector.register(near, 1)
    with socket.socket(fileno=os.dup(number)):
        near.close()
        selector.unregister(number)
        far.send(b"x")
        assert selector.select(0) == []
        assert selector.metrics()["heals"] == 1
        with select.epoll() as outer:  # is anything ready in the set that it uses now?
            outer.register(selector.fileno(), select.EPOLLIN)
            assert outer.poll(0) == []


def test_attaching_twice_is_an_error_that_says_so(selector: Selector, pairs: list[Pair]):
    """Two owners of one descriptor are told, instead of one of them being silent."""
    number = pairs[0][0].fileno()
    selector.register(number, 1)
    with pytest.raises(BusyError, match=f"descriptor {number} is watched already"):
        selector.attach(number, 1, print)
    assert not selector.detach(number)
    selector.unregister(number)
    selector.attach(number, 1, print)
    with pytest.raises(KeyError, match="already registered"):
        selector.register(number, 1)
    with pytest.raises(KeyError, match="not registered"):
        selector.get_key(number)
    with pytest.raises(BusyError):
        selector.attach(number, 1, print)


def test_what_cannot_be_attached_is_refused(selector: Selector, pairs: list[Pair]):
    """Wrong numbers are errors at once, and leave nothing behind."""
    number = pairs[0][0].fileno()
    with pytest.raises(ConfigError, match="events is 4"):
        selector.attach(number, 4, print)
    with pytest.raises(OSError, match="Bad file descriptor"):
        selector.attach(-1, 1, print)
    with open("/proc/self/exe", "rb") as file, pytest.raises(PermissionError):
        selector.attach(file.fileno(), 1, print)
    with pytest.raises(KeyError, match="not attached"):
        selector.change(number, 1)
    assert not selector.detach(number)


def test_a_closed_selector_refuses_and_lets_go(selector: Selector, pairs: list[Pair]):
    """Connections that outlive their loop get an error, and may still clean up."""
    number = pairs[0][0].fileno()
    selector.attach(number, 1, print)
    selector.close()
    selector.close()
    assert not selector.detach(number)
    with pytest.raises(ClosedError):
        selector.attach(number, 1, print)
    with pytest.raises(ClosedError):
        selector.change(number, 1)
    with pytest.raises(ValueError, match="closed"):
        selector.select(0)
    assert selector.get_map() is None


def test_a_selector_that_was_never_closed_is_freed_with_its_callbacks(pairs: list[Pair]):
    """A loop that a program dropped takes its connections with it."""

    class Owner:
        def __init__(self) -> None:
            self.selector = Selector(self.on_error)
            self.selector.attach(pairs[0][0].fileno(), 1, self.on_ready)

        def on_error(self, error: BaseException, callback: object) -> None: ...

        def on_ready(self, events: int) -> None: ...

    owner = weakref.ref(Owner())
    gc.collect()
    assert owner() is None
