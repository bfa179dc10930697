"""One kind of service in one pool: what its services have in common, and how one is started."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Mapping
from typing import Any

from forebay import _core
from forebay.pool._command import Command
from forebay.pool._proxy import Backend, proxy_classes, public_methods
from forebay.pool._record import ProgramRecord, PythonRecord
from forebay.pool._reset import Reset, reset_of
from forebay.pool._spec import Spec
from forebay.rpc import Channel

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Set to 1 in a template, which has one thread: these libraries start more at import."""


class PythonKind:
    """Services of a Python class, forked from the template of their application.

    Attributes:
        key: number of the kind in its pool.
        name: stands in messages.
        resets: how a service is made clean.
        methods: names that calls may use.
        proxies: what holders of a lease see: of the blocking face, of the asyncio face.
        template: number of the template in its pool.
        max_leases: leases that one service may have at once.
        copies: the kind of copies of its services, which end with their lease.
    """

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
        self.methods = public_methods(service)
        self.proxies = proxy_classes(self.name, self.methods)
        self.resets = reset_of(service)
        self.max_leases = service.max_leases
        self.template = template
        self.copies = self
        if self.resets is not Reset.NEVER:
            self.copies = copy.copy(self)
            self.copies.resets = Reset.NEVER
            self.copies.max_leases = 1
            self.copies.copies = self.copies
        self._make = (*make, canary)

    def start(
        self, core: _core.Pool, handle: _core.Handle, *, start_ms: int, idle_ms: int
    ) -> PythonRecord:
        """Have the template fork; what to make travels over the service's own socket."""
        descriptor = core.fork(handle, self.template, start_ms=start_ms, idle_ms=idle_ms)
        return self._record(handle, descriptor, "@start", self._make)

    def branch(self, core: _core.Pool, parent: _core.Handle, *, start_ms: int) -> PythonRecord:
        """Have a lent service copied, as its holder will tell it to."""
        handle, descriptor = core.branch(parent, self.key, start_ms=start_ms, idle_ms=0)
        return self._record(handle, descriptor, "@branched", ())

    def _record(
        self, handle: _core.Handle, descriptor: int, call: str, args: tuple[Any, ...]
    ) -> PythonRecord:
        """The record of a service that answers its first call when it is ready."""
        connection = _core.Connection(descriptor, peer=f"service {self.name}")
        channel = Channel(connection, codec="pickle", name=self.name)
        channel.generation = handle.tag
        return PythonRecord(self, handle, channel, channel.begin(call, args))


class CommandKind:
    """Services that are programs, started by the keeper.

    Attributes as above; a program has no methods.
    """

    methods: frozenset[str] = frozenset()
    max_leases = 1
    proxies: tuple[type[Any], type[Any]] = (Backend, Backend)

    def __init__(self, key: int, command: Command) -> None:
        self.key = key
        self.name = os.path.basename(command.arguments[0])
        self.resets = Reset.STATELESS if command.reuse else Reset.NEVER
        self._command = command

    def start(
        self, core: _core.Pool, handle: _core.Handle, *, start_ms: int, idle_ms: int
    ) -> ProgramRecord:
        """Have the keeper start the program, with its end of a socket as descriptor 3."""
        command = self._command
        arguments = [command.program(), *command.arguments[1:]]
        descriptor = core.launch(
            handle,
            [os.fsencode(argument.replace("{fd}", "3")) for argument in arguments],
            environment_of(command.env),
            os.fsencode(command.cwd or os.getcwd()),
            start_ms=start_ms,
            idle_ms=idle_ms,
        )
        return ProgramRecord(self, handle, socket.socket(fileno=descriptor))


Kind = PythonKind | CommandKind


def environment_of(extra: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The environment of this process with `extra` on top, as the keeper wants it."""
    merged = {
        **os.environb,
        **{os.fsencode(name): os.fsencode(value) for name, value in extra.items()},
    }
    return list(merged.items())
