"""What both clients take and give in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from forebay_client.calls import Calls
from forebay_client.errors import ConfigError, Error
from forebay_client.http.steps import Procedure

__all__ = [
    "ID_CHARS",
    "check_retried",
    "events_filter",
    "filters",
    "ids_of",
    "prune_rule",
    "question",
    "raise_first",
]

ID_CHARS: Final = 12
"""Of a whole id; what is shorter is the beginning of one."""

ABOUT: Final = frozenset({"info", "manifest", "workers", "services", "schedules"})
PARTS: Final = {"status": "", "show": "show", "why": "why", "arguments": "arguments"}


def question(calls: Calls, method: str, args: tuple[Any, ...]) -> Procedure[Any]:
    """The procedure for a method of `forebay.Client.ask`.

    Raises:
        ConfigError: a gateway has no such method.
    """
    if method in ABOUT:
        return calls.about(method)
    if method in PARTS:
        return calls.get(args[0], PARTS[method])
    if method == "resolve":
        return _resolve(calls, args[0])
    if method == "set_schedule":
        return calls.set_schedule(args[0], paused=args[1])
    if method == "prune":
        return calls.prune(args[0])
    if method in ("cancel", "retry", "cordon", "uncordon", "reload", "stop", "top"):
        made: Procedure[Any] = getattr(calls, method)(*args)
        return made
    raise ConfigError(f"a gateway answers no {method!r}; see docs/concepts/gateway.md")


def listed(value: str | Sequence[str] | None) -> list[str] | None:
    """Words, where one alone is no list of letters."""
    return None if value is None else ids_of(value)


def ids_of(ids: str | Sequence[str]) -> list[str]:
    """Ids, likewise."""
    return [ids] if isinstance(ids, str) else list(ids)


def filters(
    status: str | Sequence[str] | None,
    name: str | None,
    submitter: str | None,
    lane: str | None,
    since: str | float | None,
    until: str | float | None,
    parent: str | None,
) -> dict[str, Any]:
    """What a listing leaves out, of what was given."""
    given: dict[str, Any] = {"status": listed(status), "name": name, "submitter": submitter}
    given |= {"lane": lane, "since": _moment(since), "until": _moment(until), "parent": parent}
    return {key: value for key, value in given.items() if value is not None}


def events_filter(
    names: str | Sequence[str] | None,
    ids: str | Sequence[str] | None,
    submitter: str | None,
    events: str | Sequence[str] | None,
) -> dict[str, Any]:
    """Which events a reader of the feed gets."""
    given = {
        "names": listed(names),
        "ids": listed(ids),
        "submitter": submitter,
        "events": listed(events),
    }
    return {key: value for key, value in given.items() if value is not None}


def prune_rule(
    older_than: str | float | None,
    status: str | Sequence[str] | None,
    ids: str | Sequence[str] | None,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """Which ended requests are to go."""
    given = {"older_than": older_than, "status": listed(status), "ids": listed(ids)}
    rule = {key: value for key, value in given.items() if value is not None}
    return {**rule, "dry_run": dry_run}


def check_retried(answers: Sequence[dict[str, Any]]) -> None:
    """Look at what became of each request that was to be queued again.

    Raises:
        ConfigError: one of them was not; the message names each that was not, and why.
    """
    refused = [one for one in answers if one.get("refused")]
    if refused:
        told = "; ".join(f"{one['id']}: {one['refused']}" for one in refused)
        raise ConfigError(f"not queued again: {told}")


def raise_first(refused: Sequence[Error]) -> None:
    """Raise the first refusal of several submissions, if there is one; a note counts the others."""
    if not refused:
        return
    if len(refused) > 1:
        refused[0].add_note(f"{len(refused) - 1} other submissions failed too")
    raise refused[0]


def _moment(at: str | float | None) -> str | None:
    """A time as text of RFC 3339."""
    return at if at is None or isinstance(at, str) else datetime.fromtimestamp(at, UTC).isoformat()


def _resolve(calls: Calls, text: str) -> Procedure[str]:
    return str((yield from calls.get(text))["id"])
