"""The program's own stdout and stderr for its workers.

The output of a call goes to the output of the program, as with the standard library's pools.
A keeper's processes inherit nothing of the program, so the descriptors are sent over a socket: the
template asks for them once, and every worker is a copy of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading

STREAMS = (1, 2)
ASK_S = 10.0
"""The longest wait of a template; the program answers from a separate thread."""


class OutputDoor:
    """Gives this program's output to templates that ask for it, until `close`.

    Args:
        path: of the socket, in a folder that is this user's alone.
    """

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="forebay-output", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                template, _ = self._listener.accept()
            except OSError:
                return  # closed
            with (
                template,
                contextlib.suppress(OSError),
            ):  # the template has left, or we have no output
                socket.send_fds(template, [b"."], STREAMS)

    def close(self) -> None:
        """Stop giving it."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


def ask(path: str) -> tuple[int, ...]:
    """Descriptors of the program's stdout and stderr; none if it has no output."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(ASK_S)
        door.connect(path)
        _, descriptors, _, _ = socket.recv_fds(door, 1, len(STREAMS))
    return tuple(descriptors)


def use(descriptors: tuple[int, ...]) -> None:
    """Make them stdout and stderr of this process, and of programs that it starts."""
    for descriptor, stream in zip(descriptors, STREAMS, strict=False):
        os.dup2(descriptor, stream)
        os.close(descriptor)
