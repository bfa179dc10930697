"""The requests of an application and their parameters, without importing it."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay.cli.exit_codes import NoSuchThingError
from forebay.errors import ConfigError, DeadlineError

if TYPE_CHECKING:
    from forebay.executor import Client

__all__ = ["cached", "find_request", "manifest_of"]

Manifest = dict[str, Any]

LOOK_S: Final = 0.02
"""Seconds between two checks whether code is loaded, which takes a fork and an import."""


def manifest_of(client: Client) -> Manifest:
    """The manifest that the server has of its application, for the sources of now.

    If they changed and the server loads them by itself, this waits for that.

    Raises:
        ConfigError: the application cannot be imported. DeadlineError: it is not loaded in time.
    """
    until = time.monotonic() + client.timeout
    while True:
        manifest: Manifest = client.ask("manifest")
        known = "requests" in manifest
        if known and (client.is_remote or not _is_stale(manifest)):
            return manifest  # the sources of a remote server are not here
        info = client.info()
        if known and not info.get("reloads"):
            return manifest  # `forebay serve` has said that they changed
        held = (info.get("figures") or {}).get("held")
        # Other reasons why nothing runs pass: it reloads, or no worker of the old code starts.
        if not known or (held and held == info.get("unfit")):
            raise ConfigError(f"the application cannot be used: {held or 'it is not loaded yet'}")
        if time.monotonic() >= until:
            raise DeadlineError(
                f"{info.get('target')} changed and was not loaded within {client.timeout:g} s; see"
                f" what its import does, and {info.get('state_dir')}/server.log",
                timeout=client.timeout,
            )
        time.sleep(LOOK_S)


def _is_stale(manifest: Manifest) -> bool:
    """Whether the sources have changed since they were loaded; False if they are elsewhere."""
    from forebay.executor._internal import code_of

    try:
        return bool(manifest["sources"]) and code_of(manifest["sources"]) != manifest["code"]
    except OSError:
        return False


def cached(options: argparse.Namespace) -> Manifest | None:
    """The manifest that the last server of an application left, unless its sources are newer.

    Without `--app` the application is that of the configuration, else that of the server that was
    started last. A server that is named by its URL leaves none here and has to be asked.
    """
    if options.url is not None or _is_remote(options):
        return None
    try:
        path = _state(options.app) / "manifest.json"
        written = path.stat().st_mtime
        manifest: Manifest = json.loads(path.read_text())
        fresh = all(os.stat(source).st_mtime <= written for source in manifest["sources"])
    except (OSError, ValueError, KeyError, ConfigError):
        return None
    return manifest if fresh else None


def find_request(manifest: Manifest, wanted: str | None, *, of_target: bool) -> dict[str, Any]:
    """The request that a word of the command line means.

    Args:
        manifest: of the application.
        wanted: the word; None where only the application was named.
        of_target: it came after the colon of a TARGET, so it may name the App instead.

    Raises:
        NoSuchThingError: no request has this name; the message names the nearest.
    """
    requests = {one["name"]: one for one in manifest["requests"]}
    if wanted in requests:
        found: dict[str, Any] = requests[wanted]
        return found
    named = wanted is None or wanted == manifest.get("attribute")
    if of_target and named and len(requests) == 1:
        (found,) = requests.values()
        return found
    names = ", ".join(sorted(requests)) or "none"
    where = f"application {manifest.get('app')!r}"
    if of_target:
        told = "say which request" if named else f"{wanted!r} is no request"
        near = "" if named else _near(wanted, requests)
        raise NoSuchThingError(f"{told} of {where}{near}, which has: {names}; as in FILE.py:NAME")
    raise NoSuchThingError(
        f"{where} has no request {wanted!r}{_near(wanted, requests)}; it has: {names}"
    )


def summary_of(request: dict[str, Any]) -> str:
    """The first line of its documentation."""
    return (request.get("doc") or "").strip().partition("\n")[0]


def listing(manifest: Manifest | None) -> str:
    """The requests of an application, for a help text."""
    if manifest is None or not manifest["requests"]:
        return ""
    width = max(len(one["name"]) for one in manifest["requests"])
    lines = [
        f"  {one['name']:<{width}}  {summary_of(one)}".rstrip() for one in manifest["requests"]
    ]
    return f"requests of {manifest['app']}:\n" + "\n".join(lines)


def split_target(options: argparse.Namespace) -> tuple[str | None, bool, list[str]]:
    """What the words after the command name; a TARGET among them sets `options.app`.

    Returns:
        The name of a request, whether it comes from a TARGET, and the words that remain.
    """
    from forebay.executor._internal import looks_like_target

    word, *rest = options.words
    if not looks_like_target(word):
        return word, False, rest
    options.app = word
    wanted = word.partition(":")[2]
    if not wanted and rest and not rest[0].startswith("-"):
        return rest[0], False, rest[1:]  # tune.py tune
    return wanted or None, True, rest


def _is_remote(options: argparse.Namespace) -> bool:
    """Whether the settings name a gateway."""
    from forebay.executor._internal import remote_url

    return remote_url(None, options.app) is not None


def _near(wanted: str | None, known: dict[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(wanted or "", known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _state(app: str | None) -> Path:
    from forebay.executor._internal import newest, parse_target, paths_of

    if app is None:
        from forebay.configuration import find_configuration

        configuration = find_configuration()
        app = configuration.value("app")
        if app is None and configuration.value("url"):
            raise ConfigError("the server is named by its URL alone")
    if app is not None:
        return paths_of(parse_target(app)).state
    running = newest()
    if running is None:
        raise ConfigError("no server runs, and no application is named; give --app")
    return Path(running.state)
