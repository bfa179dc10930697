"""A tool server on stdin and stdout; its tool finds where the standard library defines a name.

It knows nothing of Forebay, and starts slowly: it reads a good part of the standard library.
Talk to it by hand:

    echo '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' | python examples/stdio_backend/server.py
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROTOCOL = "2025-06-18"
FILES_MAX = 80

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601

TOOL = {
    "name": "find_definition",
    "description": "Where the standard library defines a function or a class",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}

Index = dict[str, list[str]]


class Refused(Exception):
    """A request that cannot be served: a number and a reason."""


def build_index() -> Index:
    """Every function and class at the top of a module: name to places."""
    index: Index = {}
    for path in sorted(Path(ast.__file__).parent.glob("*.py"))[:FILES_MAX]:
        for name, line in _definitions(path):
            index.setdefault(name, []).append(f"{path.name}:{line}")
    return index


def _definitions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno


def answer(index: Index, method: str, params: dict[str, Any]) -> Any:
    """The result of one request."""
    if method == "initialize":
        return {
            "protocolVersion": PROTOCOL,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "definitions", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        name = params.get("arguments", {}).get("name")
        if not isinstance(name, str):
            raise Refused(INVALID_PARAMS, "the argument 'name' is missing")
        found = index.get(name, [])
        return {"content": [{"type": "text", "text": ", ".join(found) or "nowhere"}]}
    raise Refused(METHOD_NOT_FOUND, f"there is no method {method!r}")


def main() -> None:
    """Answer requests until stdin ends."""
    index = build_index()
    print(f"{len(index)} names indexed", file=sys.stderr)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue  # a notification
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(index, request["method"], request.get("params", {}))
        except Refused as refused:
            code, message = refused.args
            reply["error"] = {"code": code, "message": message}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
