"""Serving an application in the foreground."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

from forebay._log_format import log_to_stderr
from forebay.cli.exit_codes import code_of_signal
from forebay.cli.output import note, say, say_json
from forebay.cli.service.detach import Starter, detach
from forebay.cli.service.protocol import Manager
from forebay.cli.service.systemd import (
    Systemd,
    inherited_http,
    inherited_manager,
    passed_http,
)
from forebay.cli.session import log
from forebay.errors import Error

_log = logging.getLogger(__name__)


def serve(options: argparse.Namespace, settings: Iterable[str]) -> int:
    """Serve until a signal; returns it as an exit code.

    Args:
        options: of the command line.
        settings: of the executor, which are options of the same names.
    """
    from forebay.configuration import find_configuration
    from forebay.executor._internal import Offer, Server, find_predecessor, parse_target, paths_of

    if options.detach:
        return detach(sys.argv[1:])
    starter = Starter.take()
    arguments = {f"executor.{name}": getattr(options, name) for name in settings}
    configuration = find_configuration(arguments | {"state_dir": options.state_dir})
    options.log_format, options.unread = configuration.value("log_format"), False
    _begin_log(options, configuration.warnings)
    target = parse_target(options.target)
    state_dir = configuration.value("state_dir")
    with contextlib.ExitStack() as parts:
        manager, predecessor = Manager.take(), None
        if options.takeover:
            predecessor = find_predecessor(paths_of(target, state_dir=state_dir))
        if predecessor is None:
            passed = passed_http(options.http)
        else:
            parts.callback(predecessor.close)
            passed = inherited_http(options.http, predecessor)
            manager = inherited_manager(manager, predecessor)
        gateway = None
        if options.http is not None:
            from forebay.cli.serve_http import Gateway

            gateway = parts.enter_context(Gateway(options, configuration.gateway, passed))

        def report(event: str, facts: dict[str, Any]) -> None:
            _report(options, event, facts)
            if event == "ready" and gateway is not None:
                gateway.start(facts, server.set_gateway, report)
            systemd.note(event, facts)
            if event == "ready":
                starter.ready()
            elif event == "taken" and gateway is not None:
                gateway.leave()

        def offer() -> Offer:
            http = None if gateway is None else (gateway.fileno(), gateway.url)
            return Offer(http, manager.address, manager.watchdog_s)

        server = Server(
            target,
            configuration.executor,
            pool=configuration.pool,
            reloads=options.reload,
            state_dir=state_dir,
            http=None if gateway is None else gateway.url,
            log_format=options.log_format,
            hooks=configuration.hooks,
            allows_chaos=options.allow_chaos,
            predecessor=predecessor,
            offer=offer,
            report=report,
        )
        systemd = parts.enter_context(Systemd(server.look, manager))
        number = server.run()
    return code_of_signal(number) if number else 0


def _begin_log(options: argparse.Namespace, warnings: Iterable[str]) -> None:
    """Log as the options say, first what is wrong with the configuration."""
    if options.log_format == "json":
        log_to_stderr("DEBUG" if options.verbose > 1 else "INFO", options.log_format)
    else:
        log(options)
        if not options.verbose:
            logging.getLogger("forebay").addHandler(logging.NullHandler())  # `_report` prints it
    for warning in warnings:
        if options.log_format == "json":
            _log.warning("%s", warning)
        else:
            note(f"forebay: {warning}")


_LOGGED = ("text", "reason", "url", "socket")
"""What the log says of an event, the first that is there. Not a link: it opens a session."""


def _log_event(event: str, facts: dict[str, Any]) -> None:
    """Log an event of the server; from any of its threads."""
    level = logging.WARNING if event in ("unfit", "warning") else logging.INFO
    told = next((facts[name] for name in _LOGGED if facts.get(name)), "")
    _log.log(level, "%s %s", event, told)


def _report(options: argparse.Namespace, event: str, facts: dict[str, Any]) -> None:
    """Print an event of the server; from any of its threads."""
    if options.json:
        _say(options, {"event": event, **facts})
    elif options.log_format == "json":
        _log_event(event, facts)
    elif event == "ready" and not options.quiet:
        say(
            f"serving {facts.get('app') or facts['target']} at {facts['socket']}"
            f" (process {os.getpid()}, state in {facts['state_dir']}); end it with Ctrl-C"
        )
    elif event == "unfit":
        note(f"forebay: {facts['reason'].rstrip()}\nrequests wait until that is mended")
    elif not options.quiet and event in _TOLD:
        if event == "http" and facts["link"] is None:
            event = "http, no link"
        note(_TOLD[event].format(**facts | {"paths": ", ".join(facts.get("paths", ()))}))


def _say(options: argparse.Namespace, event: dict[str, Any]) -> None:
    """Print an event; if stdout fails, report that once, and let the server go on."""
    if options.unread:
        return
    try:
        say_json(event)
    except (OSError, Error) as error:
        options.unread = True
        note(f"forebay: events are not printed any more, and the server goes on: {error}")


_TOLD = {
    "engine": "forebay: workers run on {cluster}",
    "http": "forebay: HTTP at {url}; a browser opens, within five minutes, {link}",
    "http, no link": "forebay: HTTP at {url}",
    "loaded": "forebay: loaded {app}, code {code}",
    "changed": "forebay: {paths} changed; load them with SIGHUP, or serve with --reload",
    "draining": "forebay: what runs has {drain_s:g} s to end; Ctrl-C once more ends it now",
    "taking": "forebay: the server in process {pid} gives its place; it waits for {text}",
    "given": "forebay: process {pid} takes the place of this server",
    "taken": "forebay: process {pid} serves now; this one ends with what it has begun",
    "resumed": "forebay: process {pid} has not taken the place of this server, which serves on",
    "warning": "forebay: warning: {text}",
    "ended": "forebay: the server has ended; what waits is on disk",
}
