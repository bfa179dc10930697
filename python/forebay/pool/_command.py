"""A description of a service that is any executable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from forebay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Command:
    """Any executable as a service.

    It is started with a connected socket, and lent when it has said that it is ready.

    Each `{fd}` in an argument is replaced by the number of the inherited descriptor, a connected
    stream socket whose other end the lease holds as `socket`.
    With `ready="fd"` the program writes one byte to it when it can serve; until then nobody gets
    it.
    Its stdout and stderr are kept, the newest 16 KiB, for `lease.stderr` and for its death.
    A lease that ends gives the program to the next one as it is: it must be stateless, or
    `reuse=False`.

    Args:
        arguments: the program and its arguments; found on `PATH`.
        ready: how it says that it can serve; so far only "fd".
        env: variables that are set besides those of this process.
        cwd: working directory; default: that of this process.
        reuse: whether one process may serve several leases, one after another.

    Raises:
        ConfigError: there is no such program, or no argument takes the descriptor.
    """

    arguments: Sequence[str]
    ready: Literal["fd"] = "fd"
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.arguments, str) or not self.arguments:
            raise ConfigError("Command needs a list: the program and its arguments")
        if self.ready != "fd":
            raise ConfigError(f"Command ready={self.ready!r} is not known; it can be 'fd'")
        if not any("{fd}" in argument for argument in self.arguments):
            raise ConfigError(
                f"no argument of {list(self.arguments)} holds '{{fd}}', the descriptor to serve on"
            )

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
        """What makes two programs interchangeable.

        The file itself, how it is started, whether it is used again.
        """
        path = self.program()
        file = os.stat(path)
        identity = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)
        return (
            path,
            identity,
            tuple(self.arguments),
            tuple(sorted(self.env.items())),
            self.cwd or os.getcwd(),
            self.reuse,
        )
