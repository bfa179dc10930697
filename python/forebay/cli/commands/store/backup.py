"""`forebay backup`: copy a store into a directory that a server can start from."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from forebay._units import duration, size
from forebay.cli.exit_codes import FAILED, SUCCEEDED, code_of_signal
from forebay.cli.output import is_terminal, murmur, note, say, say_json
from forebay.cli.parser import UsageError, command, talking
from forebay.cli.session import log, session, tell

EXAMPLES = """\
  forebay backup /mnt/disk/monday                  of the server that was started last
  forebay backup --app tune.py monday              while its server runs, or does not
  forebay backup --check monday                    is it whole?
  forebay serve tune.py --state-dir monday         start from it"""

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_TOLD_S: Final = 0.1
"""Between two reports on a terminal."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "backup",
        run,
        description="Copy the requests of a server, with their results and logs, into a directory"
        " that a server can start from. It works while the server runs and while it does not, and"
        " has every request that was accepted before. The copy holds secret.key, which opens sealed"
        " arguments: keep it as you keep that file, or leave it out with --without-key.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("directory", metavar="DIR", help="does not exist, or is empty")
    parser.add_argument("--check", action="store_true", help="look at a backup instead")
    parser.add_argument(
        "--state-dir", metavar="DIRECTORY", help="where the state lies, as of forebay serve"
    )
    parser.add_argument(
        "--without-key", action="store_true", help="without what opens sealed arguments"
    )
    parser.add_argument(
        "--with-tokens", action="store_true", help="with the tokens of the gateway (their digests)"
    )


def run(options: argparse.Namespace) -> int:
    """Copy, or check; prints what is in it."""
    log(options)
    if options.check:
        return _check(options)
    from forebay.executor._internal import back_up

    with _state(options) as state, _signals():
        meter = _Meter(is_shown=not options.quiet and is_terminal(sys.stderr))
        try:
            told = back_up(
                state,
                Path(options.directory),
                with_key=not options.without_key,
                with_tokens=options.with_tokens,
                told=meter.take,
                removed=lambda left: tell(options, _removed(left)),
            )
        finally:
            meter.end()
    if options.json:
        say_json({"directory": options.directory, **told})
        return SUCCEEDED
    say(
        f"{options.directory}: {_contents(told)}, {size(told['bytes'])}"
        f" in {duration(told['took_s'])}"
    )
    if told["key"]:
        tell(options, "it holds secret.key, which opens sealed arguments; keep it to yourself")
    for name in told["missing"]:
        note(f"forebay: {name} is named by the store, and was not there to be copied")
    return SUCCEEDED


def _removed(left: Path) -> str:
    return f"forebay: {left} is removed: a backup that was killed had left it, in part"


@contextlib.contextmanager
def _state(options: argparse.Namespace) -> Iterator[Path]:
    """The state directory, which must be on this machine."""
    from forebay.cli.commands.store.state import state_of
    from forebay.executor._internal import remote_url

    here = "it copies files; type it on the machine of the server"
    if options.state_dir is None and remote_url(options.url, options.app) is not None:
        raise UsageError(f"this command does nothing over HTTP: {here}")
    if options.url is not None:
        with session(options, here=here) as client:
            yield Path(client.info()["state_dir"])
        return
    yield state_of(options.app, options.state_dir)


def _check(options: argparse.Namespace) -> int:
    from forebay.executor._internal import check_backup

    found = check_backup(Path(options.directory))
    if options.json:
        members = {"directory": options.directory, **found.told}
        say_json({**members, "served": found.served, "faults": found.faults})
        return FAILED if found.faults else SUCCEEDED
    for fault in found.faults:
        say(fault)
    if found.served:
        tell(options, "a server has started from it since: it is a state directory, no backup")
    if found.faults:
        note(f"forebay: {options.directory} is damaged; take another backup, or see what is left")
        return FAILED
    taken = found.told["began_at"]
    say(f"{options.directory} is whole: {_contents(found.told)}, taken {taken}")
    return SUCCEEDED


def _contents(told: dict[str, Any]) -> str:
    of = told.get("app") or told["name"]
    return (
        f"{told['requests']} requests of {of} ({told['unfinished']} have not ended), "
        f"{told['files']} results and logs, database of version {told['version']}"
    )


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """End by a signal so that what was copied is removed, which may hold the key; ignore Ctrl-Z.

    A stopped copy would let the log of the store grow for as long.
    """
    before = {signal.SIGTSTP: signal.signal(signal.SIGTSTP, signal.SIG_IGN)}
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            before[number] = signal.signal(number, _end)
    try:
        yield
    except SystemExit:
        before.clear()  # further ones are ignored until the end
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    for one in _ENDING:
        signal.signal(one, signal.SIG_IGN)  # a second one would leave what is being removed
    raise SystemExit(code_of_signal(number))


class _Meter:
    """One line on a terminal that says how far it is."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._at = 0.0
        self._width = 0

    def take(self, what: str, done: int, whole: int) -> None:
        """Show it, ten times a second at most."""
        now = time.monotonic()
        if not self._is_shown or now - self._at < _TOLD_S:
            return
        self._at = now
        far = f"{size(done)} of {size(whole)}" if whole else f"{done} files"
        self._show(f"{what}: {far}")

    def end(self) -> None:
        """Remove the line."""
        if self._width:
            self._show("")
            murmur("\r", is_log=True)

    def _show(self, text: str) -> None:
        murmur(f"\r{text:<{self._width}}", is_log=True)
        self._width = len(text)
