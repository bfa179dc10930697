"""Every command: its module, which is imported when it is used, and what its line of help says."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """A command of `forebay`.

    Attributes:
        module: it has `add(commands)`.
        summary: what it does, without a capital and a full stop.
    """

    module: str
    summary: str


COMMANDS: Final = {
    "serve": Command(
        "forebay.cli._serve", "serve an application, or lend warm services to your programs"
    ),
    "run": Command("forebay.cli._run", "run a request, wait for it, print its result"),
    "submit": Command("forebay.cli._submit", "submit a request, print its id"),
    "ps": Command("forebay.cli._ps", "requests and their states, the newest first"),
    "show": Command("forebay.cli._show", "everything that is known about a request"),
    "why": Command("forebay.cli._why", "why a request waits, is slow or died, and what to do"),
    "logs": Command("forebay.cli._logs", "what a request wrote"),
    "wait": Command("forebay.cli._wait", "wait until requests have ended"),
    "result": Command("forebay.cli._result", "print what a request returned"),
    "cancel": Command("forebay.cli._cancel", "cancel requests"),
    "retry": Command("forebay.cli._retry", "queue ended requests again"),
    "replay": Command("forebay.cli._replay", "run a request again, here, in the foreground"),
    "prune": Command("forebay.cli._prune", "remove ended requests with their results and logs"),
    "top": Command("forebay.cli._top", "who runs, who waits, and for what"),
    "cron": Command("forebay.cli._cron", "requests that a server submits by itself"),
    "pool": Command("forebay.cli._pool", "look at the shared pool and change it"),
    "records": Command("forebay.cli._records", "look into a record file"),
    "status": Command("forebay.cli._status", "whether a server runs, and how it is"),
    "stop": Command("forebay.cli._stop", "end a server when its running requests have ended"),
    "config": Command("forebay.cli._config", "every setting, and where it comes from"),
    "doctor": Command("forebay.cli._doctor", "what works on this machine, and what to change"),
    "completion": Command(
        "forebay.cli._completion", "a script that completes this command in your shell"
    ),
}
"""In the order in which help lists them."""
