"""Every command: its module, which is imported when it is used, and what its line of help says."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """A command of `forebay`.

    Attributes:
        module: it has `add(commands)`.
        summary: what it does, without a capital and a full stop.
        is_local: whether it is about this machine alone.
    """

    module: str
    summary: str
    is_local: bool = False


COMMANDS: Final = {
    "serve": Command(
        "forebay.cli.commands.serve",
        "serve an application, or lend warm services to your programs",
        is_local=True,
    ),
    "run": Command("forebay.cli.commands.run", "run a request, wait for it, print its result"),
    "submit": Command("forebay.cli.commands.submit", "submit a request, print its id"),
    "ps": Command("forebay.cli.commands.ps", "requests and their states, the newest first"),
    "show": Command("forebay.cli.commands.show", "everything that is known about a request"),
    "why": Command(
        "forebay.cli.commands.why", "why a request waits, is slow or died, and what to do"
    ),
    "logs": Command("forebay.cli.commands.logs", "what a request wrote"),
    "items": Command("forebay.cli.commands.store.items", "what a request has yielded"),
    "wait": Command("forebay.cli.commands.wait", "wait until requests have ended"),
    "result": Command("forebay.cli.commands.result", "print what a request returned"),
    "cancel": Command("forebay.cli.commands.cancel", "cancel requests"),
    "retry": Command("forebay.cli.commands.retry", "queue ended requests again"),
    "replay": Command(
        "forebay.cli.commands.replay", "run a request again, here, in the foreground"
    ),
    "prune": Command(
        "forebay.cli.commands.prune", "remove ended requests with their results and logs"
    ),
    "backup": Command(
        "forebay.cli.commands.store.backup",
        "copy a store into a directory that a server can start from",
    ),
    "top": Command("forebay.cli.commands.top", "who runs, who waits, and for what"),
    "events": Command("forebay.cli.commands.events", "what happens in a server, as it happens"),
    "cron": Command("forebay.cli.commands.cron", "requests that a server submits by itself"),
    "hooks": Command(
        "forebay.cli.commands.server.hooks",
        "what a server calls when a request is dead, and how it went",
    ),
    "token": Command(
        "forebay.cli.commands.token", "who may call a server over HTTP, and what", is_local=True
    ),
    "pool": Command(
        "forebay.cli.commands.pool", "look at the shared pool and change it", is_local=True
    ),
    "records": Command("forebay.cli.commands.records", "look into a record file", is_local=True),
    "status": Command("forebay.cli.commands.status", "whether a server runs, and how it is"),
    "cordon": Command(
        "forebay.cli.service.cordon", "let a server take no more submissions, or again"
    ),
    "drain": Command(
        "forebay.cli.service.drain", "let a server begin nothing more, until nothing runs"
    ),
    "stop": Command(
        "forebay.cli.commands.stop", "end a server when its running requests have ended"
    ),
    "config": Command(
        "forebay.cli.commands.config", "every setting, and where it comes from", is_local=True
    ),
    "doctor": Command(
        "forebay.cli.commands.doctor",
        "what works on this machine, and what to change",
        is_local=True,
    ),
    "chaos": Command(
        "forebay.cli.commands.server.chaos",
        "kill, stop and starve a server under requests, and see that nothing is lost",
        is_local=True,
    ),
    "completion": Command(
        "forebay.cli.commands.completion",
        "a script that completes this command in your shell",
        is_local=True,
    ),
}
"""In the order in which help lists them."""
