"""A server whose requests have ended before they came: `python -m ... SOCKET`, one client."""

from __future__ import annotations

import socket
import sys

from msgspec import msgpack

from forebay._core import Connection


def main() -> None:
    """Answer every call alike until the client leaves."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    accepted, _ = listener.accept()
    connection = Connection(accepted.detach(), server=True, by_reference=False)
    answer = msgpack.encode([0, "000000000001", "succeeded", b"\xc0"])
    while (call := connection.next_call(None)) is not None:
        connection.reply(call[0], 0, answer)
        for call in connection.poll_calls(256):
            connection.reply(call[0], 0, answer)
    connection.close()
    listener.close()


if __name__ == "__main__":
    main()
