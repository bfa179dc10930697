"""A JSON-RPC program for the tests: each method of it goes wrong in its own way."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    """Answer until stdin ends."""
    held: list[Any] = []
    for line in sys.stdin:
        message = json.loads(line)
        method, params, number = message.get("method"), message.get("params"), message.get("id")
        if method is None:
            say({"method": "refused", "params": message["error"]["code"]})
        elif method == "notifications/initialized":
            say({"method": "seen", "params": method})
        elif number is None:
            say({"method": "heard", "params": params})
        elif method == "fail":
            say({"id": number, "error": {"code": -32001, "message": "no", "data": {"why": 7}}})
        elif method == "die":
            print("out of paper", file=sys.stderr)
            os._exit(9)
        elif method == "hang":
            pass
        elif method == "chat":
            print("let me think", flush=True)
        elif method == "hold":
            held.append(number)
        elif method == "let go":
            for other in reversed([*held, number]):
                say({"id": other, "result": other})
            held.clear()
        elif method == "ask back":
            say({"id": "x", "method": "sampling/createMessage", "params": {}})
            say({"id": number, "result": None})
        elif method == "close":
            with socket.socket(fileno=os.dup(1)) as both:
                both.shutdown(socket.SHUT_WR)
        else:
            say({"id": number, "result": params})


if __name__ == "__main__":
    main()
