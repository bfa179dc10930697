"""How a program reports that it can serve."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from forebay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Line:
    """A line that the program writes to stdout or stderr.

    The keeper reads the output in any case and checks each whole line, so nothing is polled.
    A program that buffers its output has to flush that line.

    Args:
        pattern: a regular expression, searched in the first 4,096 bytes of each line. No
            look-around and no back references: it is matched in linear time.
            A group named `port` gives the port on the loopback interface.

    Raises:
        ConfigError: it is no such expression.
    """

    pattern: str

    def __post_init__(self) -> None:
        from forebay import _core

        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(f"Line({self.pattern!r}) is no regular expression: {error}") from None
        _core.Pool.check_pattern(self.pattern)


@dataclass(frozen=True, slots=True)
class PortFile:
    """A file that the program writes into its private directory, as with CompilerGym's `port.txt`.

    `{port_file}` in an argument is its path, `{dir}` the directory.
    The program is ready once the file was closed after writing, or moved there, and is not empty;
    the kernel notifies the keeper. A number in it is the port on the loopback interface.

    Args:
        name: the file's name.

    Raises:
        ConfigError: the name has a slash in it.
    """

    name: str = "port"

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name in (".", ".."):
            raise ConfigError(f"PortFile({self.name!r}) needs the name of a file, without a path")


@dataclass(frozen=True, slots=True)
class Accepting:
    """A socket that accepts connections: the Unix socket `{socket}`, or the loopback port `{port}`.

    The kernel notifies nobody that a socket listens, so the caller tries to connect, at growing
    intervals from 1 to 50 ms, until the program ends.
    """


@dataclass(frozen=True, slots=True)
class Http:
    """A `GET` that is answered with status 200, on `{socket}` or `{port}`; tried as `Accepting`.

    Args:
        path: of the request.

    Raises:
        ConfigError: the path does not begin with a slash, or has a blank in it.
    """

    path: str = "/"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"/[\x21-\x7e]*", self.path):
            raise ConfigError(f"Http({self.path!r}) needs a path such as '/healthz'")


Ready = Literal["fd", "started"] | Line | PortFile | Accepting | Http
