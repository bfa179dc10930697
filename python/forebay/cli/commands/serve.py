"""`forebay serve`: serve an application, or lend warm services, until a signal ends it."""

from __future__ import annotations

import argparse
import signal
from types import FrameType
from typing import Any

from forebay.cli.exit_codes import code_of_signal
from forebay.cli.output import note, say, say_json
from forebay.cli.parser import command, common
from forebay.cli.service.protocol import Manager, take_sockets
from forebay.errors import ConfigError

EXAMPLES = """\
  forebay serve tune.py                             requests of the App in tune.py
  forebay serve package.module:app --reload         loads changed sources by itself
  forebay serve tune.py --http                      at the socket of a unit of systemd
  forebay serve tune.py --http 127.0.0.1:8000       over HTTP too, for this machine
  forebay serve tune.py --http 0.0.0.0:8443 --tls-cert server.pem --tls-key server.key
  forebay serve tune.py --takeover                  in the place of the one that runs
  forebay serve tune.py --engine dask --scheduler tcp://10.0.0.1:8786
  forebay serve                                     no app: lend services, as many as cores
  forebay serve --max-size 8 --idle-timeout 10min   eight at once, ended when idle for long
  forebay serve --max-leases 2                      no program holds more than two

in a program:
  pool = forebay.SharedPool()
  with pool.acquire(Digits) as digits: ..."""

OF_EXECUTOR = {
    "max_workers": "workers at once (as memory and processors admit)",
    "max_memory": "memory of all workers (what the cgroup or the machine has)",
    "synchronous": "what a commit survives: full (loss of power) or normal (its own death)",
    "engine": "where workers run: dask, on the nodes of a Dask cluster (on this machine)",
    "scheduler": "of the cluster, as tcp://10.0.0.1:8786 (the engine starts a cluster here)",
    "drain_grace": "what runs may take so long when it ends (60s)",
}
"""Settings of the executor that have an option here; `forebay config executor` lists all."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "serve",
        run,
        description="Serve the requests of an application, or without one lend warm services to"
        " your programs, until Ctrl-C or SIGTERM. Further settings of the pool (min_idle, max_uses,"
        " canary_every and others) come from forebay.toml and FOREBAY_POOL_*: see forebay config.",
        examples=EXAMPLES,
    )
    common(parser)
    parser.add_argument("--quiet", action="store_true", help="do not say where it listens")
    parser.add_argument(
        "target", nargs="?", metavar="APP", help="tune.py, tune.py:app, package:app"
    )
    serving = parser.add_argument_group("with an application")
    serving.add_argument("--reload", action="store_true", help="load changed sources by itself")
    serving.add_argument(
        "--takeover",
        action="store_true",
        help="take the place of the server that runs, with what runs there; wait at most"
        " --drain-grace for what cannot go over (where none runs, start)",
    )
    serving.add_argument(
        "--detach", action="store_true", help="go on in the background; 0 once it serves"
    )
    serving.add_argument(
        "--allow-chaos",
        action="store_true",
        help="let `forebay chaos --running` kill and stop its processes",
    )
    serving.add_argument("--state-dir", metavar="DIRECTORY", help="where its state lies")
    for option, what in OF_EXECUTOR.items():
        metavar = "N" if option.endswith("workers") else "VALUE"
        serving.add_argument(f"--{option.replace('_', '-')}", metavar=metavar, help=what)
    serving.add_argument("-v", "--verbose", action="count", default=0, help="log what happens")
    _add_http(parser.add_argument_group("over HTTP, with an application"))
    parser.add_argument("--max-size", type=int, metavar="N", help="services at once (cores)")
    parser.add_argument(
        "--max-leases", type=int, metavar="N", help="services that one program may hold (all)"
    )
    parser.add_argument(
        "--max-waiters",
        type=int,
        default=1024,
        metavar="N",
        help="requests of one program that may wait (1024)",
    )
    for name, what, default in (
        ("idle", "an idle service is ended after so long", "5min"),
        ("reset", "a reset may take so long", "1s"),
        ("start", "a start may take so long", "2min"),
    ):
        parser.add_argument(f"--{name}-timeout", metavar="TIME", help=f"{what} ({default})")


def _add_http(group: Any) -> None:
    group.add_argument(
        "--http",
        nargs="?",
        const="fd://http",
        metavar="HOST:PORT",
        help="answer HTTP there; beyond loopback with TLS alone (needs forebay[server]); without an"
        " address, or with fd://NAME, at a socket of systemd",
    )
    group.add_argument(
        "--http-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients call it, beside its address; may be repeated",
    )
    group.add_argument(
        "--rate",
        action="append",
        default=[],
        metavar="NAME=N/s",
        help="the token NAME submits at most N requests a second; may be repeated",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="PEM: its certificate and chain")
    group.add_argument("--tls-key", metavar="FILE", help="PEM: the key (default: in --tls-cert)")
    group.add_argument(
        "--plain-http",
        action="store_true",
        help="in clear beyond loopback, behind a proxy that encrypts",
    )


def run(options: argparse.Namespace) -> int:
    """Serve; returns the exit code for the signal that ended it."""
    if options.target is not None:
        from forebay.cli.serve_app import serve

        return serve(options, OF_EXECUTOR)
    for name in ("takeover", "detach", "allow_chaos"):
        if getattr(options, name):
            raise ConfigError(f"--{name.replace('_', '-')} is for an application; name one")
    if options.http is not None:
        raise ConfigError("--http serves an application; name one: forebay serve APP --http ...")
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        ended.append(number)

    for number in ENDING:
        signal.signal(number, end)
    manager, passed = Manager.take(), take_sockets()
    if passed:
        raise ConfigError(f"LISTEN_FDS={len(passed)}: sockets are for an application; name one")
    if manager.watchdog_s is not None:
        raise ConfigError("WatchdogSec= needs an application; take it out of the unit, or name one")
    lender = _lender(options)
    try:
        # A signal wakes the lender, which waits without running Python.
        signal.set_wakeup_fd(lender.stop_fd, warn_on_full_buffer=False)
        _announce(options, lender)
        manager.ready(f"lending services at {lender.path}")
        while not ended:
            lender.serve()
    finally:
        manager.stopping()
        signal.set_wakeup_fd(-1)
        lender.close()
    if not options.quiet:
        note("forebay: every service is ended")
    return code_of_signal(ended[0])


def _lender(options: argparse.Namespace) -> Any:
    from forebay.configuration import find_configuration
    from forebay.pool import Lender

    names = ("max_size", "idle_timeout", "reset_timeout", "start_timeout")
    configuration = find_configuration({f"pool.{name}": getattr(options, name) for name in names})
    for warning in configuration.warnings:
        note(f"forebay: {warning}")
    return Lender(
        options.path,
        config=configuration.pool,
        max_leases=options.max_leases,
        max_waiters=options.max_waiters,
    )


def _announce(options: argparse.Namespace, lender: Any) -> None:
    import os

    if options.json:
        told = {"path": str(lender.path), "pid": os.getpid(), "max_size": lender.config.max_size}
        say_json({"event": "listening", **told})
    elif not options.quiet:
        say(
            f"lending services at {lender.path} (process {os.getpid()}, "
            f"at most {lender.config.max_size} services); end it with Ctrl-C"
        )
