"""A server of one line per connection, for the tests: it listens late, elsewhere, or never.

    listen.py unix PATH | tcp HOST PORT | http HOST PORT | none [--gate FIFO] [--say LINE]
              [--file PATH] [--exit CODE]

With a gate it does nothing before somebody has opened that FIFO for writing.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys


def arguments() -> argparse.Namespace:
    """What it is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("address", nargs="*")
    parser.add_argument("--gate")
    parser.add_argument("--say")
    parser.add_argument("--file")
    parser.add_argument("--exit", type=int)
    parser.add_argument("--unhealthy", type=int, default=0)
    return parser.parse_args()


def listen(kind: str, address: list[str]) -> socket.socket | None:
    """The listening socket, where there is one."""
    if kind == "none":
        return None
    listener = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    listener.bind(address[0] if kind == "unix" else (address[0], int(address[1])))
    listener.listen()
    return listener


def serve(listener: socket.socket, kind: str, unhealthy: int) -> None:
    """Answer each connection with what it sent, in capitals; or with a status."""
    while True:
        connection, _ = listener.accept()
        with connection:
            data = connection.recv(1000)
            if data and kind == "http":
                status = b"200 OK" if unhealthy <= 0 else b"503 Service Unavailable"
                unhealthy -= 1
                connection.sendall(b"HTTP/1.0 " + status + b"\r\n\r\n" + data.split()[1])
            elif data:
                connection.sendall(data.upper())


def main() -> None:
    """Start as told, then serve."""
    told = arguments()
    if told.gate:
        with open(told.gate) as gate:
            gate.read()
    if told.exit is not None:
        print("no licence left", file=sys.stderr)
        sys.exit(told.exit)
    listener = listen(told.kind, told.address)
    if told.file:
        with open(told.file + ".new", "w") as file:
            file.write(told.address[1] if told.address[1:] else "here")
        os.rename(told.file + ".new", told.file)
    if told.say:
        print("about to listen")
        print(told.say, flush=True)
    if listener is None:
        signal.pause()
    else:
        serve(listener, told.kind, told.unhealthy)


if __name__ == "__main__":
    main()
