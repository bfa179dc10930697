"""The end of a request, as commands print it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from forebay.cli.exit_codes import NEVER_BEGUN, code_of_end, error_text
from forebay.cli.output import note, say, say_json
from forebay.errors import Error, RemoteError

if TYPE_CHECKING:
    from forebay.executor import Request


def report(request: Request, options: argparse.Namespace) -> int:
    """Print the result of a request that has ended, or why there is none; its exit code."""
    error = request.exception()
    status = request.status()
    if options.json:
        _report_json(request, status, error)
    elif error is None:
        say_value(request.result())
    else:
        note(failure_of(request, error))
    return code_of_end(status, error)


def end_line(request: Request, options: argparse.Namespace) -> int:
    """Print one line on how it ended; its exit code."""
    error = request.exception()
    status = request.status()
    if options.json:
        _report_json(request, status, error)
    elif not options.quiet:
        say(f"{request.id} {status}")
    if error is not None and not options.json:
        note(failure_of(request, error))
    return code_of_end(status, error)


def failure_of(request: Request, error: Error) -> str:
    """Why there is no result; with the traceback if the function raised."""
    if isinstance(error, RemoteError):
        name = error.type_name.rpartition(".")[2] or "an exception"
        trace = error.traceback_text.rstrip()
        told = f"forebay: request {request.id} raised {name}: {error}"
        return f"{trace}\n{told}" if trace else told
    return error_text(error, as_json=False)


def say_value(value: Any) -> None:
    """Print a result: text as it is, nothing for None, JSON for other values that JSON can hold."""
    if value is None:
        return
    if isinstance(value, str):
        say(value)
        return
    try:
        say(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        say(str(value))


def _report_json(request: Request, status: str, error: Error | None) -> None:
    told: dict[str, Any] = {"status": status}
    if status not in NEVER_BEGUN:
        told = {"id": request.id, **told, **request.show()}
        told.pop("schema", None)
    if error is None:
        told["result"] = request.result()
    else:
        told["error"] = json.loads(error_text(error, as_json=True))["error"]
    say_json(told)
