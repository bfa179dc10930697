"""A server as systemd knows it: its state, its life signs, its listening socket.

The concept is docs/concepts/executor/service.md.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from forebay.cli.commands.status import counts, memory
from forebay.cli.service.protocol import Manager, Passed, take_sockets
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.executor._internal import Predecessor

PAUSE_S: Final = 1.0
"""Between two looks at the server: a status is sent at most so often."""

END_S: Final = 30.0
"""From the end of the drain to that of the process: workers and services end meanwhile."""

HTTP: Final = "http"
"""`FileDescriptorName=` of the gateway's listening socket."""

PASSED: Final = "fd://"
"""How an address begins that is a passed socket."""

Look = Callable[[], dict[str, Any] | None]
"""Gives the dispatcher's figures when it answers; None: it is not there."""


class Systemd:
    """The manager of a server that runs in this process, where systemd started it.

    Entering it starts a thread that looks at the server; leaving it ends the thread.

    Args:
        look: asks the dispatcher.
        manager: is told.

    Threads: `note` is called from any.
    """

    def __init__(self, look: Look, manager: Manager) -> None:
        self._look = look
        self._manager = manager
        self._lock = threading.Lock()
        """Of what follows: the order of messages is that of the events."""
        self._listens = self._has_code = self._is_ready = self._reloads = self._ends = False
        self._is_given = False
        """Its dispatcher has ended for another server, which does not serve yet."""
        self._fault = ""
        """Why the newest code cannot be imported."""
        self._told = ""
        """The last status that the thread has sent."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forebay-systemd", daemon=True)

    def note(self, event: str, facts: dict[str, Any]) -> None:
        """Tell it what an event of the server means, if it means anything to it."""
        with self._lock:
            if event in ("draining", "ended"):
                self._end(facts.get("drain_s"))
            elif event in ("given", "resumed"):
                self._is_given = event == "given"
            elif event == "taken":
                self._is_given = False
                self._ends = True  # the other one speaks for the unit now
                self._manager.replaced(facts["pid"])
            elif event == "reloading" and self._is_ready:
                self._reloads = True
                self._manager.reloading()
            elif event in ("ready", "loaded", "unfit"):
                self._take_in(event, facts)

    def _end(self, drain_s: float | None) -> None:
        """It ends: after a drain of so many seconds, or now."""
        if self._ends:
            return
        self._ends = True
        if drain_s is None:
            self._manager.stopping()
        else:
            self._manager.stopping("what runs has its time to end", within_s=drain_s + END_S)

    def _take_in(self, event: str, facts: dict[str, Any]) -> None:
        self._listens |= event == "ready"
        self._has_code |= event == "loaded" or bool(facts.get("serves"))
        self._told = ""  # what is sent here takes its place
        if event == "loaded":
            self._fault = ""
        elif event == "unfit":
            self._fault = (str(facts.get("reason", "")).strip().splitlines() or ["?"])[-1]
        is_ready = self._listens and self._has_code
        if is_ready and (self._reloads or not self._is_ready):
            self._is_ready, self._reloads = True, False
            self._manager.ready(self._unfit())
        elif self._fault:
            self._manager.status(self._unfit())

    def _unfit(self) -> str:
        """What is wrong with the code; empty if nothing is."""
        if not self._fault:
            return ""
        serves = "the code before it serves" if self._has_code else "requests wait"
        return f"the application cannot be imported ({self._fault}); {serves}"

    def _run(self) -> None:
        within = self._manager.watchdog_s
        # A ping may be late by one look, and half of the time is left.
        pause = PAUSE_S if within is None else min(PAUSE_S, within / 4)
        alive_at = status_at = time.monotonic()
        while not self._over.wait(pause):
            figures = self._look()  # while the dispatcher hangs, this does
            if figures is None and not self._is_given:
                continue
            now = time.monotonic()
            if within is not None and now >= alive_at:
                self._manager.alive()
                alive_at = now + within / 2 - pause
            if figures and now >= status_at and self._tell(self._state(figures)):
                status_at = now + PAUSE_S

    def _tell(self, text: str) -> bool:
        """Send a status, if it is another one than the last."""
        with self._lock:
            is_new = bool(text) and text != self._told
            if is_new:
                self._manager.status(text)
                self._told = text
        return is_new

    def _state(self, figures: dict[str, Any]) -> str:
        """One line about the server; empty until it serves."""
        with self._lock:
            if self._ends:
                return f"ending: {counts(figures)}"
            fault = self._unfit()
            if not self._is_ready:
                return fault
        cordon = figures.get("cordon")
        state = cordon["text"] if cordon else figures.get("held") or "serving"
        return "; ".join(filter(None, (f"{state}: {counts(figures)}", memory(figures), fault)))

    def __enter__(self) -> Self:
        if self._manager:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over.set()
        self.note("ended", {})
        if self._thread.is_alive():
            self._thread.join(PAUSE_S)


def passed_http(asked: str | None) -> Passed | None:
    """The listening socket that systemd has for the gateway, if `--http` asks for one.

    Args:
        asked: the value of `--http`; None: it is not given.

    Raises:
        ConfigError: it asks for one that was not passed, or one was passed that nobody asks for.
    """
    passed = take_sockets()
    wanted = asked.removeprefix(PASSED) if asked and asked.startswith(PASSED) else None
    for one in passed:
        if one.name not in (HTTP, wanted):
            raise ConfigError(
                f"descriptor {one.descriptor} of LISTEN_FDS is called {one.name!r}, and a server"
                f" takes {HTTP!r} alone; write FileDescriptorName={HTTP} into the socket's unit"
            )
    if passed and wanted is None:
        raise ConfigError(
            f"systemd passes a socket for HTTP (LISTEN_FDS={len(passed)}) that nothing would"
            " accept from; give --http without an address, or stop the socket's unit"
        )
    found = [one for one in passed if one.name == wanted]
    if wanted is not None and len(found) != 1:
        raise ConfigError(
            f"--http {PASSED}{wanted}: systemd passes {len(found)} sockets of that name; give"
            f" --http HOST:PORT, or one socket's unit with FileDescriptorName={wanted}"
        )
    return found[0] if found else None


def inherited_http(asked: str | None, predecessor: Predecessor) -> Passed | None:
    """The listening socket of the server whose place is taken, if `--http` asks for its address.

    Args:
        asked: the value of `--http`; None: it is not given.
        predecessor: that server.

    Raises:
        ConfigError: nobody would accept from its socket, or there is none to take.
    """
    if predecessor.http is None:
        if asked == f"{PASSED}{HTTP}":
            raise ConfigError(
                f"the server in process {predecessor.pid} does not answer HTTP; give --http"
                " HOST:PORT"
            )
        return None
    descriptor, url = predecessor.http
    if asked is None:
        raise ConfigError(
            f"the server in process {predecessor.pid} answers at {url}, and the new one would not;"
            " give --http, or stop that one and start the new one"
        )
    if asked in (f"{PASSED}{HTTP}", url.partition("://")[2]):
        return Passed(descriptor, HTTP)
    os.close(descriptor)
    return None


def inherited_manager(own: Manager, predecessor: Predecessor) -> Manager:
    """The service manager of the server whose place is taken, unless this one has another.

    A command of the same unit has its manager's socket, and hears nothing of the watchdog.
    """
    if own.address in (None, predecessor.notify):
        return Manager(predecessor.notify, predecessor.watchdog_s)
    return own
