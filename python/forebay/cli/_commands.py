"""Every command: its module, which is imported when it is used, and what its line of help says."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """A command of `forebay`.

    Attributes:
        module: in `forebay.cli`; it has `add(commands)`.
        summary: what it does, without a capital and a full stop.
    """

    module: str
    summary: str


COMMANDS: Final = {
    "serve": Command("_serve", "serve an application, or lend warm services to your programs"),
    "run": Command("_run", "run a request, wait for it, print its result"),
    "submit": Command("_submit", "submit a request, print its id"),
    "ps": Command("_ps", "requests and their states, the newest first"),
    "show": Command("_show", "everything that is known about a request"),
    "why": Command("_why", "why a request waits, is slow or died, and what to do"),
    "logs": Command("_logs", "what a request wrote"),
    "wait": Command("_wait", "wait until requests have ended"),
    "result": Command("_result", "print what a request returned"),
    "cancel": Command("_cancel", "cancel requests"),
    "retry": Command("_retry", "queue ended requests again"),
    "replay": Command("_replay", "run a request again, here, in the foreground"),
    "prune": Command("_prune", "remove ended requests with their results and logs"),
    "top": Command("_top", "who runs, who waits, and for what"),
    "cron": Command("_cron", "requests that a server submits by itself"),
    "pool": Command("_pool", "look at the shared pool and change it"),
    "status": Command("_status", "whether a server runs, and how it is"),
    "stop": Command("_stop", "end a server when its running requests have ended"),
    "config": Command("_config", "every setting, and where it comes from"),
    "doctor": Command("_doctor", "what works on this machine, and what to change"),
    "completion": Command("_completion", "a script that completes this command in your shell"),
}
"""In the order in which help lists them."""
