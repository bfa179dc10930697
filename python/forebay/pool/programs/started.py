"""The facts of a program that has started."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass

REPORT_BYTES_MAX = 16 * 1024
"""More than the longest report: a path, and 4,096 bytes of a line or a file."""

_HEADER = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Started:
    """Facts of a started program, for the function that connects to it.

    Attributes:
        pid: its process id.
        directory: its private directory (mode 0700), removed with it.
        socket_path: the Unix socket `{socket}`; None where the command names none.
        port: on the loopback interface: `{port}`, or the one in the ready line or the port file.
        text: the ready line, or what the port file holds; else empty.
        match: of the ready line.
        stream: the connected socket that is its `{fd}`, or its stdin and stdout. It belongs to the
            service: a connect function that wraps it closes it in `close`.
        timeout: seconds that the caller still waits; None: without limit.
    """

    pid: int
    directory: str
    socket_path: str | None = None
    port: int | None = None
    text: str = ""
    match: re.Match[str] | None = None
    stream: socket.socket | None = None
    timeout: float | None = None

    @property
    def address(self) -> str:
        """Where it serves, in the notation of gRPC and many others.

        That is `unix:/path` or `127.0.0.1:port`; empty where it has neither.
        """
        if self.socket_path is not None:
            return f"unix:{self.socket_path}"
        return "" if self.port is None else f"127.0.0.1:{self.port}"


def read_report(data: bytes) -> tuple[int, str, str]:
    """Process id, directory and text of a keeper's report."""
    pid, directory, text = _HEADER.unpack_from(data)
    middle = _HEADER.size + directory
    path = data[_HEADER.size : middle].decode("utf-8", "surrogateescape")
    return pid, path, data[middle : middle + text].decode(errors="replace")
