"""What was submitted, begun and ended, in a file that outlives every process that writes it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import BrokenError, DeadlineError, Error, RemoteError
from forebay.testing._verdict import Entry, Verdict

if TYPE_CHECKING:
    from forebay.executor import Client, Context, Request, Submit

__all__ = ["Ledger"]

_ANY: Final = object()

VARIABLE: Final = "FOREBAY_CHAOS_LEDGER"


class Ledger:
    """An account of requests that is kept outside of the server under test.

    Clients write what they were told, and the functions of the requests that they have begun; the
    `verdict` compares both. Each request has a key of your choice, which its function is given.
    An entry is one line, appended by one write, so any number of processes may write, and one that
    is killed loses no entry that it has made.

    Args:
        path: of the file, on a local file system; made by the first entry.

    Threads and processes: any.
    Cost: an entry opens, writes and closes the file, about 10 us; it is not synced, so that it
    survives the death of processes and not that of the machine.

    Example:
        >>> import tempfile
        >>> from forebay.testing import Ledger
        >>> directory = tempfile.TemporaryDirectory()
        >>> ledger = Ledger(directory.name + "/ledger")
        >>> ledger.accepted("mail-7", "03f14m722000")
        >>> ledger.begun("mail-7")  # by the function of the request
        >>> ledger.begun("mail-7")  # which may run once
        >>> ledger.ended("mail-7", "03f14m722000", "succeeded")
        >>> ledger.verdict().wrong
        ['mail-7: begun 2 times and may begin once']
        >>> directory.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @classmethod
    def current(cls) -> Ledger | None:
        """That of the experiment that runs this process's server; None: there is none.

        `forebay chaos APP` names it by the variable FOREBAY_CHAOS_LEDGER.
        """
        path = os.environ.get(VARIABLE)
        return None if path is None else cls(path)

    # By the function of a request.

    def begun(self, key: str, run: Context | None = None) -> None:
        """Note that a run of this request has begun; the first thing that its function does.

        Args:
            key: of the request.
            run: its context, for the message about a run that was one too many.

        Raises:
            OSError: the file cannot be written; then the run is not counted, and must not go on.
        """
        self._write("begun", key, "" if run is None else f"{run.id}, attempt {run.attempt}")

    # By its client.

    def accepted(self, key: str, id_: str, *, max_runs: int | None = 1) -> None:
        """Note that the server has accepted it under this id.

        Args:
            key: of the request.
            id_: what the server calls it.
            max_runs: how often it may begin: 1 with `retries=0`. None: any number of times. With
                retries a run whose server was killed may not be counted by the server, so that more
                than `retries + 1` may begin.
        """
        self._write("accepted", key, id_, max_runs)

    def unknown(self, key: str, reason: str = "", *, max_runs: int | None = 1) -> None:
        """Note that the server went away before it said whether it had accepted it."""
        self._write("unknown", key, reason, max_runs)

    def refused(self, key: str, reason: str = "") -> None:
        """Note that the server has not taken it; it must never begin."""
        self._write("refused", key, reason)

    def ended(
        self,
        key: str,
        id_: str,
        status: str,
        *,
        cause: str = "",
        is_right: bool | None = None,
    ) -> None:
        """Note an end that a client was told.

        Args:
            key: of the request.
            id_: of the request.
            status: "succeeded", "failed", "cancelled" or "dead".
            cause: of a death, or the type of what was raised.
            is_right: whether its result is what it must be; None: that was not looked at.
        """
        self._write("ended", key, id_, status, cause, is_right)

    def submit(
        self,
        client: Client,
        target: Any,
        key: str,
        *,
        max_runs: int | None = 1,
        options: Submit | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> Request | None:
        """Submit a request by `client.submit`, and note what became of that.

        Returns:
            Its handle, for `settle`; None: it was refused, or nobody knows.

        Raises:
            nothing of Forebay: every such error is noted.
        """
        try:
            request = client.submit(target, options=options, arguments=arguments)
        except BrokenError as error:
            if error.delivered == "no":
                self.refused(key, str(error))
            else:
                self.unknown(key, str(error), max_runs=max_runs)
        except Error as error:
            self.refused(key, str(error))
        else:
            self.accepted(key, request.id, max_runs=max_runs)
            return request
        return None

    def settle(
        self,
        key: str,
        request: Request,
        *,
        expected: Any = _ANY,
        check: Callable[[Any], bool] | None = None,
        timeout: float | None = None,
    ) -> str | None:
        """Wait for the end of a request, and note it.

        Args:
            key: of the request.
            request: what `submit` returned.
            expected: its result; compared by `==`.
            check: tells whether a result is right, in the place of `expected`.
            timeout: seconds.

        Returns:
            Its status; None: the time ran out, or the server did not come back, and nothing was
            noted.
        """
        try:
            error = request.exception(timeout)
        except (BrokenError, DeadlineError):
            return None
        status = request.status()
        if status in ("refused", "unknown"):
            return None
        is_right = None
        if error is None:
            if check is not None:
                is_right = bool(check(request.result()))
            elif expected is not _ANY:
                is_right = bool(request.result() == expected)
        self.ended(key, request.id, status, cause=cause_of(error), is_right=is_right)
        return status

    # For whoever judges.

    def entries(self) -> Iterator[Entry]:
        """Everything that was noted, in the order of writing."""
        try:
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    yield Entry(*json.loads(line))
        except FileNotFoundError:
            return

    def verdict(
        self,
        *,
        may_end: Callable[[str, str], bool] | None = None,
        counts_runs: bool = False,
    ) -> Verdict:
        """Compare what was accepted, begun and ended, once everything has ended.

        Args:
            may_end: gets the status and the cause of each end that is no success, and tells whether
                it is one that your faults explain. None: every end is.
            counts_runs: whether every function calls `begun`, so that one that succeeded without is
                wrong.
        """
        return Verdict.of(self.entries(), may_end=may_end, counts_runs=counts_runs)

    def _write(self, what: str, key: str, *values: Any) -> None:
        line = json.dumps([what, key, *values]).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, "the disk of the ledger is full", self.path)
        finally:
            os.close(file)


def cause_of(error: Error | None) -> str:
    """One word for an end: the cause of a death, the type of what was raised."""
    if error is None:
        return ""
    if isinstance(error, RemoteError):
        return error.type_name
    return str(getattr(error, "cause", type(error).__name__))
