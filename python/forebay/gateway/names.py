"""What the parts of a body and of a query are called in problems.

The server calls them as its wire does: `add: parameter image[2]`, `option timeout_s`. Who wrote a
body finds `arguments.image[2]` in it, and who wrote a query `timeout`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["argument_path", "option_name"]

_PARAMETER: Final = ": parameter "
_UNKNOWN_PARAMETER: Final = ": there is no parameter "
_OPTION: Final = "option "

_OPTIONS: Final = {
    "timeout_s": "timeout",
    "backoff_s": "backoff",
    "backoff_max_s": "max_backoff",
    "memory_bytes": "memory",
    "delay_s": "delay",
}
"""Options that have another name on the wire, where it says their unit."""


def argument_path(subject: str, message: str) -> str:
    """The path of what a refusal of a submission is about; its subject where it is no part of one.

    Args:
        subject: of the refusal.
        message: of it, which alone names a parameter that there is not.
    """
    request, found, path = subject.partition(_PARAMETER)
    if found:
        return f"arguments.{path}"
    if subject.startswith(_OPTION):
        return option_name(subject.removeprefix(_OPTION))
    if message.startswith(f"{request}{_UNKNOWN_PARAMETER}"):
        name = message.removeprefix(f"{request}{_UNKNOWN_PARAMETER}")
        return "arguments." + name.strip('"')
    return subject


def option_name(wire: str) -> str:
    """The name of an option in `forebay.executor.Submit`, by that on the wire."""
    return _OPTIONS.get(wire, wire)
