"""A description of a service that is any executable."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forebay._working_directory import path_to_tell_apart
from forebay.errors import ConfigError
from forebay.pool.programs.connect import Connect, Connector
from forebay.pool.programs.readiness import Accepting, Http, Line, PortFile, Ready
from forebay.pool.service import identity
from forebay.pool.service.limits import Limits

INHERITED_FD = "3"
"""Where a program finds its descriptor, as with systemd and s6."""

OWN_DIRECTORY = "\0"
"""The keeper replaces this by the service's directory; no argument can hold a null character."""

DIRECTORY_NAMES = ("{dir}", "{socket}", "{port_file}")


@dataclass(frozen=True, slots=True)
class Command:
    """Any executable as a service.

    It is lent when it is ready, and given to the next holder as it is: it must be stateless, or
    `reuse=False`. Its stdout and stderr are kept, the newest 16 KiB, for `lease.stderr` and for its
    death. It runs in a session of its own and ends with this program, however that ends.

    In arguments (but for the program itself) and in values of `env` these are replaced:

    - `{fd}`: the number of an inherited descriptor, a connected stream socket whose other end the
      lease holds as `socket`; with `{socket}` or `{port}` it only serves to report ready;
    - `{dir}`: the service's private directory, mode 0700, which is removed with it (also in `cwd`);
    - `{socket}`: the path of a Unix socket in it, for the program to listen on;
    - `{port_file}`: the path of the `PortFile` in it;
    - `{port}`: a free port of the loopback interface, for programs that cannot use Unix sockets; a
      program that listens on other interfaces is refused. Every user of this machine can connect to
      the port: use `{socket}`, or let the program authenticate, to keep other users out.

    Args:
        arguments: the program and its arguments; found on `PATH`.
        ready: how it says that it can serve, best first: "fd", a byte that it writes to `{fd}`;
            `Line`, a line of its output; `PortFile`, a file; `Accepting`, a socket; `Http`, a
            status of 200; "started", nothing more than that it runs.
            Default: "fd" with `{fd}`, "started" with `stdio`, `Accepting()` where `{socket}`
            or `{port}` stands.
        env: variables that are set besides those of this process.
        cwd: working directory; default: that of this process.
        reuse: whether one process may serve several leases, one after another.
        stdio: make the program's stdin and stdout the socket of the lease; its stderr is kept.
        connect: makes the client that the lease hands out as `client`, once per service: a function
            that is given a `Started`, or a connector such as `Grpc` or `JsonRpc`. A plain function
            serves both faces and runs in a thread where an event loop waits; a coroutine function
            serves `async with`, once per loop. A client's `close` is called when the service ends.
            Define it once, at the top level: only programs with the same one are interchangeable.
        limits: what its processes may use; without `call_timeout`, because only the client knows
            what a call is.

    Raises:
        ConfigError: the program does not exist, nothing reports it ready, or its limits have
            `call_timeout`.
    """

    arguments: Sequence[str]
    ready: Ready | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    reuse: bool = True
    stdio: bool = False
    connect: Connect | None = None
    limits: Limits | None = None
    _fixed: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.arguments, str) or not self.arguments:
            raise ConfigError("Command needs a list: the program and its arguments")
        object.__setattr__(self, "arguments", tuple(self.arguments))
        object.__setattr__(self, "env", dict(self.env))
        if any("\0" in text for text in self._texts()):
            raise ConfigError(f"an argument of {list(self.arguments)} holds a null character")
        if self.ready is None:
            object.__setattr__(self, "ready", self._default())
        self._check()
        object.__setattr__(self, "_fixed", self._describe())
        try:
            hash(self._fixed)
        except TypeError as error:
            raise ConfigError(
                f"connect={self.connect!r} cannot be compared with others: {error}; "
                "give a function, or a frozen dataclass"
            ) from None

    def _default(self) -> Ready:
        if self.takes("{fd}"):
            return "fd"
        if self.stdio:
            return "started"
        if self.takes("{socket}") or self.takes("{port}"):
            return Accepting()
        raise ConfigError(
            f"nothing in {list(self.arguments)} says where the program serves: name '{{fd}}', "
            "'{socket}' or '{port}' in it, or give ready= or stdio=True"
        )

    def _check(self) -> None:
        ready, shown = self.ready, list(self.arguments)
        sockets = [name for name in ("{socket}", "{port}") if self.takes(name)]
        known = ready in ("fd", "started") or isinstance(ready, (Line, PortFile, Accepting, Http))
        if not known:
            raise ConfigError(
                f"Command ready={ready!r} is not known; it can be 'fd', 'started', Line(...), "
                "PortFile(...), Accepting() or Http(...)"
            )
        if ready == "fd" and not self.takes("{fd}"):
            raise ConfigError(f"no argument of {shown} holds '{{fd}}', the descriptor to serve on")
        if self.stdio and self.takes("{fd}"):
            raise ConfigError(f"{shown} has stdio=True and '{{fd}}'; it has one socket of its own")
        if isinstance(ready, (Accepting, Http)) and len(sockets) != 1:
            raise ConfigError(
                f"{ready} needs one of '{{socket}}' and '{{port}}' in {shown}, it has {sockets}"
            )
        if isinstance(ready, PortFile) and not (self.takes("{port_file}") or self.takes("{dir}")):
            raise ConfigError(
                f"{ready} needs '{{port_file}}' or '{{dir}}' in {shown}, in env or in cwd"
            )
        if not isinstance(ready, PortFile) and self.takes("{port_file}"):
            raise ConfigError(f"'{{port_file}}' in {shown} needs ready=PortFile(...)")
        if self.limits is not None and self.limits.call_timeout is not None:
            raise ConfigError(
                f"limits of {shown} have call_timeout={self.limits.call_timeout!r}, and calls of a"
                " program are its client's; give that the timeout, as in lease.options(timeout=)"
            )

    def _texts(self) -> list[str]:
        return [*self.arguments, *self.env.values(), *([] if self.cwd is None else [self.cwd])]

    def takes(self, name: str) -> bool:
        """Whether a name in braces occurs somewhere."""
        return any(name in text for text in self._texts())

    @property
    def speaks_on_link(self) -> bool:
        """Whether the inherited descriptor is all that connects the program with its holder."""
        placed = any(map(self.takes, (*DIRECTORY_NAMES, "{port}")))
        return self.ready == "fd" and self.connect is None and not placed

    @property
    def only_notifies(self) -> bool:
        """Whether the inherited descriptor only reports ready: the program serves elsewhere."""
        return self.ready == "fd" and (self.takes("{socket}") or self.takes("{port}"))

    @property
    def keeps_session(self) -> bool:
        """Whether its client speaks on the inherited socket, and may hold what comes next."""
        inherited = self.stdio or self.takes("{fd}")
        return self.connect is not None and inherited and not self.only_notifies

    def filled(self, text: str, port: int | None) -> bytes:
        """A text with its names in braces replaced; the keeper replaces that of the directory."""
        name = self.ready.name if isinstance(self.ready, PortFile) else ""
        replaced = {
            "{fd}": INHERITED_FD,
            "{socket}": OWN_DIRECTORY + "/socket",
            "{port_file}": f"{OWN_DIRECTORY}/{name}",
            "{dir}": OWN_DIRECTORY,
            "{port}": str(port),
        }
        for placeholder, value in replaced.items():
            text = text.replace(placeholder, value)
        return os.fsencode(text)

    def program(self) -> str:
        """The path of the executable.

        Raises:
            ConfigError: it cannot be found or executed.
        """
        name = self.arguments[0]
        path = shutil.which(name)
        if path is None:
            raise ConfigError(f"there is no executable {name!r} on PATH; give its full path")
        return os.path.abspath(path)

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two programs interchangeable: see `forebay.pool.service.identity`.

        Raises:
            ConfigError: there is no such program.
        """
        name = self.arguments[0]
        path = name if os.path.isabs(name) else self.program()
        try:
            file = identity.executable(path)
        except OSError:
            raise ConfigError(f"there is no executable {name!r}; give its full path") from None
        here = self.cwd or path_to_tell_apart()
        return self._fixed, file, identity.environment_that_matters(), here, os.getuid()

    def _describe(self) -> tuple[Any, ...]:
        """The part of its key that never changes."""
        ready: Any = self.ready
        if not isinstance(ready, str):
            ready = (type(ready).__name__, *dataclasses.astuple(ready))
        env = tuple(sorted(self.env.items()))
        connect: tuple[Any, ...] = ()
        if self.connect is not None:
            named = not isinstance(self.connect, Connector) and hasattr(
                self.connect, "__qualname__"
            )
            connect = identity.defined(self.connect) if named else (self.connect,)
        limits = None if self.limits is None else self.limits.terms
        return "command", self.arguments, env, ready, self.stdio, self.reuse, connect, limits
