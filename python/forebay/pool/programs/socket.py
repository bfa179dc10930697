"""The socket of a leased program: a blocking read polls for the answer before it sleeps."""

from __future__ import annotations

import socket
from typing import Any

from forebay._core import Look


class ProgramSocket(socket.socket):
    """A socket whose blocking reads poll before they sleep.

    They poll for at most 60 us, as calls of Python services do: waking a thread costs about as much
    as a small program takes to answer. If answers take longer, reads poll less often.
    """

    __slots__ = ("_look",)

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._look = Look()

    def recv(self, *args: Any) -> bytes:
        """As `socket.socket.recv`."""
        if self.gettimeout() != 0:
            self._look.look(self.fileno())
        return super().recv(*args)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """As `socket.socket.recv_into`."""
        if self.gettimeout() != 0:
            self._look.look(self.fileno())
        return super().recv_into(*args, **kwargs)
