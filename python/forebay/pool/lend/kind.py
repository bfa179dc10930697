"""One kind of service in one pool: what its services have in common, and how one is started."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from forebay import _core, _trace
from forebay._working_directory import path_to_enter
from forebay.errors import BrokenError, ConfigError
from forebay.pool.lend.acquire import Acquire
from forebay.pool.lend.proxy import proxy_class, public_methods, streaming_methods
from forebay.pool.lend.record import NEVER_BEGUN, PythonRecord
from forebay.pool.programs.backend import Backend, ProgramAcquire
from forebay.pool.programs.command import Command
from forebay.pool.programs.connect import Faces
from forebay.pool.programs.listener import choose_port
from forebay.pool.programs.program import ProgramRecord
from forebay.pool.programs.readiness import Accepting, Http, Line, PortFile
from forebay.pool.programs.socket import ProgramSocket
from forebay.pool.service.factory import Factory
from forebay.pool.service.limits import STATEFUL, Limits, Terms
from forebay.pool.service.reset import Reset
from forebay.pool.service.service import Service
from forebay.pool.service.spec import Spec
from forebay.rpc import Channel

PROGRAM_TELLS, KEEPER_READS_LINES, KEEPER_WATCHES_FILE, IT_RUNS = range(4)
"""Who notices that a program is ready, as the number that the keeper gets."""


class PythonKind:
    """Services of a Python class, forked from the template of their application.

    Attributes:
        key: number of the kind in its pool.
        name: for messages.
        resets: how a service is made clean.
        methods: names that calls may use; those of a factory are known once one was made.
        proxy: what holders of a lease see.
        template: number of the template in its pool.
        told_at_start: whether its methods are known only once a service was made.
        max_leases: leases that one service may have at once.
        copies: the kind of copies of its services, which end with their lease.
        acquires: how one is acquired.
        limits: what the keeper enforces on each process; None: nothing.
        call_timeout: seconds that a call may take unless its caller says otherwise; None: for ever.
        is_replaced: whether its class goes by value and was defined again since; see `Definitions`.
    """

    acquires: type[Acquire[Any]] = Acquire
    is_replaced = False

    def __init__(
        self,
        key: int,
        spec: Spec[Any],
        make: tuple[Any, bytes],
        template: int,
        *,
        canary: bool = False,
    ) -> None:
        service = spec.service
        self.key = key
        self.name = service.__name__
        self.told_at_start = told_at_start = isinstance(spec, Factory)
        self.methods = frozenset() if told_at_start else public_methods(service)
        self.limits, self.call_timeout = parts_of(spec.limits, stateful=is_stateful(service))
        streams = frozenset() if told_at_start else streaming_methods(service)
        self.proxy = proxy_class(self.name, self.methods, self.call_timeout, streams)
        self.resets = spec.resets
        self.max_leases = getattr(service, "max_leases", 1)
        self.template = template
        if _trace.spans is not None:
            from forebay.pool.lend.traced import traced

            self.acquires = traced(type(self).acquires, _trace.spans)
        self.copies = self
        if self.resets is not Reset.NEVER:
            self.copies = copy.copy(self)
            self.copies.resets = Reset.NEVER
            self.copies.max_leases = 1
            self.copies.limits, _ = parts_of(spec.limits)  # they end with their lease
            self.copies.copies = self.copies
        self._make = (*make, canary, told_at_start)

    def learn(self, methods: list[str]) -> None:
        """Note the methods that a new service reported; those of a factory are not known before."""
        if self.methods != frozenset(methods):
            self.methods = self.copies.methods = frozenset(methods)
            self.proxy = self.copies.proxy = proxy_class(self.name, self.methods, self.call_timeout)

    def start(
        self,
        core: _core.Pool,
        handle: _core.Handle,
        *,
        start_ms: int,
        idle_ms: int,
        private_bytes_max: int,
    ) -> PythonRecord:
        """Have the template fork; the service gets what to make over its own socket."""
        descriptor = core.fork(
            handle,
            self.template,
            start_ms=start_ms,
            idle_ms=idle_ms,
            private_bytes_max=private_bytes_max,
            limits=self.limits,
        )
        return self._record(handle, descriptor, "@start", self._make)

    def branch(self, core: _core.Pool, parent: _core.Handle, *, start_ms: int) -> PythonRecord:
        """Order a copy of a lent service; its holder tells the service to make the copy."""
        handle, descriptor = core.branch(
            parent, self.key, start_ms=start_ms, idle_ms=0, limits=self.limits
        )
        try:
            return self._record(handle, descriptor, "@branched", ())
        except BaseException:
            core.discard(handle)  # nobody else would free its place in the pool
            raise

    def _record(
        self, handle: _core.Handle, descriptor: int, call: str, args: tuple[Any, ...]
    ) -> PythonRecord:
        """The record of a service that answers its first call when it is ready."""
        connection = _core.Connection(descriptor, peer=f"service {self.name}")
        channel = Channel(connection, codec="pickle", name=self.name)
        channel.generation = handle.tag
        try:
            begun = channel.begin(call, args)
        except BrokenError:
            begun = NEVER_BEGUN  # it has ended already: taking its answer raises why
        return PythonRecord(self, handle, channel, begun)


class Launch(NamedTuple):
    """How one program is started.

    The caller owns `own`, the program's end of its socket, and `stream`, ours; None if it has none.
    """

    how: tuple[list[bytes], list[tuple[bytes, bytes]], bytes, tuple[int, bytes], bool, bool]
    """Command line, environment, directory, readiness, whether the caller looks, stdio."""
    own: int | None
    stream: socket.socket | None
    port: int | None

    def ends(self) -> tuple[int, int] | None:
        """The program's end of its socket, and a duplicate of ours; both are the caller's."""
        if self.own is None or self.stream is None:
            return None
        try:
            return self.own, os.dup(self.stream.fileno())
        except OSError:
            os.close(self.own)
            raise


class CommandKind:
    """Services that are programs, started by the keeper.

    Attributes as above; a program has no methods.
        command: how it is started.
        speaks_on_link: whether its socket is all that is known of it.
        faces: how its client is made; None where it has none.
    """

    methods: frozenset[str] = frozenset()
    max_leases = 1
    is_replaced = False
    proxy: type[Any] = Backend
    acquires: type[Acquire[Any]] = ProgramAcquire

    def __init__(self, key: int, command: Command) -> None:
        self.key = key
        self.name = os.path.basename(command.arguments[0])
        self.resets = Reset.STATELESS if command.reuse else Reset.NEVER
        self.limits, self.call_timeout = parts_of(command.limits)
        self.command = command
        self.speaks_on_link = command.speaks_on_link
        self.faces = None if command.connect is None else Faces(command.connect)

    def start(
        self,
        core: _core.Pool,
        handle: _core.Handle,
        *,
        start_ms: int,
        idle_ms: int,
        private_bytes_max: int,
    ) -> ProgramRecord:
        """Have the keeper start the program, with its end of a socket where it has one."""
        launch = self.launch()
        try:
            descriptor = core.launch(
                handle,
                launch.how,
                start_ms=start_ms,
                idle_ms=idle_ms,
                own=launch.own,
                private_bytes_max=private_bytes_max,
                limits=self.limits,
            )
        except BaseException:
            if launch.stream is not None:
                launch.stream.close()
            raise
        return ProgramRecord(self, handle, ProgramSocket(descriptor), launch.stream, launch.port)

    def launch(self) -> Launch:
        """How the next program is started: with a port and a socket of its own, if it has them."""
        command = self.command
        port = choose_port() if command.takes("{port}") else None
        arguments = [command.filled(argument, port) for argument in command.arguments[1:]]
        environment = {
            os.fsencode(name): command.filled(value, port) for name, value in command.env.items()
        }
        stream = own = None
        if not command.speaks_on_link and (command.stdio or command.takes("{fd}")):
            ours, theirs = socket.socketpair()
            stream, own = ProgramSocket(ours.detach()), theirs.detach()
        how = (
            [os.fsencode(command.program()), *arguments],
            self.environment(environment),
            command.filled(command.cwd or self.directory(), port),
            self._readiness(),
            self._caller_looks(),
            command.stdio,
        )
        return Launch(how, own, stream, port)

    def environment(self, filled: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """The environment of a program: this program's, replaced by what its command says."""
        return list({**os.environb, **filled}.items())

    def directory(self) -> str:
        """The current directory of a program whose command says none."""
        return path_to_enter()

    def _caller_looks(self) -> bool:
        """Whether the caller checks that it is ready, because the keeper cannot."""
        ready = self.command.ready
        if isinstance(ready, (Accepting, Http)) or (self.faces and self.faces.wants_listener):
            return True
        return ready == "fd" and not self.speaks_on_link

    def _readiness(self) -> tuple[int, bytes]:
        """Who notices that it is ready, as the keeper wants it."""
        ready = self.command.ready
        if isinstance(ready, Line):
            return KEEPER_READS_LINES, ready.pattern.encode()
        if isinstance(ready, PortFile):
            return KEEPER_WATCHES_FILE, os.fsencode(ready.name)
        return (PROGRAM_TELLS if self.command.speaks_on_link else IT_RUNS), b""


Kind = PythonKind | CommandKind


def spec_of(what: Any) -> Spec[Any] | Command:
    """What a caller wants lent.

    Raises:
        ConfigError: it is no service.
    """
    if isinstance(what, type) and issubclass(what, Service):
        return Spec(what, (), {})
    if isinstance(what, (Spec, Command)):
        return what
    raise ConfigError(
        f"{what!r} is no service: give a subclass of forebay.Service, its spec(),"
        " forebay.factory(function, ...) or a Command"
    )


def is_stateful(service: object) -> bool:
    """Whether a class has `stateful = True`; False for what a factory makes."""
    return bool(getattr(service, "stateful", False))


def parts_of(limits: Limits | None, *, stateful: bool = False) -> tuple[Terms | None, float | None]:
    """What the keeper enforces, and the longest time of a call, which the client enforces."""
    terms = None if limits is None else limits.terms
    if stateful:
        terms = STATEFUL if terms is None else (*terms[:5], True)
    return terms, None if limits is None else limits.call_seconds


def environment_of(extra: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The environment of this process, replaced by `extra`, in the keeper's form."""
    merged = {
        **os.environb,
        **{os.fsencode(name): os.fsencode(value) for name, value in extra.items()},
    }
    return list(merged.items())
