"""What both clients ask a server about its requests, in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.config import parse_timeout
from forebay.errors import ConfigError, Error
from forebay.executor.wire.errors import refusal_error

__all__ = [
    "ONCE",
    "Rows",
    "check_retried",
    "filters",
    "ids_of",
    "parameters_of",
    "prune_rule",
    "raise_first",
]

ONCE = frozenset({"retry", "stop", "reload"})
"""Methods that are not sent again where it is not known whether they were heard."""

Rows = list[dict[str, Any]]
"""What a server tells of requests."""


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
    given: dict[str, Any] = {
        "status": _words(status),
        "name": name,
        "submitter": submitter,
        "lane": lane,
        "since": since,
        "until": until,
        "parent": parent,
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
    return {
        "older_s": parse_timeout(older_than),
        "status": _words(status),
        "ids": _words(ids),
        "dry_run": dry_run,
    }


def ids_of(ids: str | Sequence[str]) -> list[str]:
    """Ids, where one alone is no list of letters."""
    return [ids] if isinstance(ids, str) else list(ids)


def check_retried(answers: list[dict[str, Any]]) -> None:
    """Look at what became of each request that was to be queued again.

    Raises:
        LimitError: one of them found no room in the queue, as a submission does.
        ConfigError: one of them was not queued for another reason. The message, or a note, names
            each that was not, and why.
    """
    refused = [one for one in answers if one.get("refused")]
    if not refused:
        return
    told = "; ".join(f"{one['id']}: {one['refused']}" for one in refused)
    refusals = [one.get("refusal", {}) for one in refused]
    limits = [one for one in refusals if one.get("code") == "limit"]
    if not limits:
        raise ConfigError(f"not queued again: {told}")
    error = refusal_error(limits[0])
    error.add_note(f"not queued again: {told}")
    raise error


def raise_first(refused: Sequence[Error]) -> None:
    """Raise the first refusal of several submissions, if there is one; a note counts the others."""
    if not refused:
        return
    if len(refused) > 1:
        refused[0].add_note(f"{len(refused) - 1} other submissions failed too")
    raise refused[0]


def parameters_of(manifest: dict[str, Any]) -> dict[str, list[str]]:
    """The names of the parameters of every request, in their order, by the request's name."""
    return {
        request["name"]: [parameter["name"] for parameter in request["parameters"]]
        for request in manifest["requests"]
    }


def _words(given: str | Sequence[str] | None) -> list[str] | None:
    return None if given is None else ids_of(given)
