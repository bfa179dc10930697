"""Submitting requests to a server over HTTP, from threads."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from forebay_client.errors import DeadlineError, Error
from forebay_client.http.steps import Procedure, Stream, block, iterate
from forebay_client.http.threads import ThreadIO
from forebay_client.opening import Token, hidden, open_session
from forebay_client.outbox import Outbox
from forebay_client.questions import (
    ID_CHARS,
    check_retried,
    events_filter,
    filters,
    ids_of,
    prune_rule,
    question,
    raise_first,
)
from forebay_client.request import Request
from forebay_client.submission import Submission, Target, by_name, parameters_of, submission

__all__ = ["Client"]

T = TypeVar("T")
# The class has a method called `list`.
Requests = list[Request]
Rows = list[dict[str, Any]]
Words = str | Sequence[str] | None


class Client:
    """The requests of one server, over its gateway.

    `with Client(url) as client` leaves when everything that was submitted is on disk, and raises
    for what was refused and never looked at. The first use connects.

    Each submission has an idempotency key, its own or one by chance: where the connection breaks it
    is sent again by itself, and is one request.

    Args:
        url: of the gateway, `https://host:port`.
        token: what `forebay token add` printed. No repr, log or traceback shows it.
        token_file: a file whose first line is the token.
        ca_file: certificates in PEM, by which that of the gateway is verified instead of by the
            system's. It is verified always.
        proxy: of HTTP, as a URL; default: HTTPS_PROXY, NO_PROXY or the system's settings; "": none.
        timeout: seconds for a call, for a gateway that went away to come back, and for one that
            asks to come later.
        plain_http: allow a token to go to another machine over `http://`, where others can read it.

    Raises:
        ConfigError: an argument is wrong.

    Threads: any number may use one client. Forks: a child makes a client of its own.

    Attributes:
        timeout: seconds, as it was given.
        url: of the gateway.
        calls: for its handles, as `outbox` is.
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        proxy: str | None = None,
        timeout: float = 30.0,
        plain_http: bool = False,
    ) -> None:
        token = hidden(token)
        self.timeout = timeout
        self.url = url
        self._session, self.calls = open_session(
            url,
            token,
            token_file=token_file,
            ca_file=ca_file,
            proxy=proxy,
            timeout=timeout,
            plain_http=plain_http,
        )
        self._io = ThreadIO()
        self.outbox = Outbox(lambda some: self.perform(self.calls.submit_all(some)))
        self._manifest: dict[str, Any] | None = None

    def submit(
        self,
        target: Target,
        /,
        *args: Any,
        options: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Request:
        """Submit a request, and return when it is on disk.

        Args:
            target: the name of a request, or where forebay is installed a function.
            args: its positional arguments.
            options: a `Submit`.
            arguments: further arguments by name, for names that mean something here.
            kwargs: its arguments by name.

        Returns:
            A handle with the id; `request.result()` waits until the request has ended.

        Raises:
            ConfigError, LimitError: the arguments do not fit, or the server refused the request.
            BrokenError: the gateway was away for `timeout`.

        Interrupting (Ctrl-C): the request may be accepted nevertheless.
        Cost: a round trip, and the server's commit.
        """
        made = self._submission(target, args, kwargs, arguments, options)
        id_ = self.perform(self.calls.submit(made))
        return Request(self, None, id_, made.name, made.type, made.item_type)

    def submit_nowait(
        self,
        target: Target,
        /,
        *args: Any,
        options: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Request:
        """Begin to submit a request; arguments as of `submit`.

        For many submissions one after another, which share calls. Leaving the client waits until
        all of them are on disk.

        Returns:
            A handle: `request.accepted()` waits until the request is on disk, `request.result()`
            until it has ended. Both raise what it was refused with.

        Raises:
            ConfigError: the arguments do not fit; nothing was sent.

        Cost: it is handed to a thread. Once 4,096 are not accepted, the next one waits.
        """
        made = self._submission(target, args, kwargs, arguments, options)
        return Request(self, self.outbox.add(made), None, made.name, made.type, made.item_type)

    def submit_many(
        self, target: Target, arguments: Iterable[dict[str, Any]], *, options: Any = None
    ) -> Requests:
        """Submit one request for each map of arguments, and return when all are on disk.

        Raises:
            what `submit` raises, for the first one that was refused; a note counts the others. The
            rest is accepted.

        Cost: a call for each 1,000.
        """
        made = [submission(target, one, options, many=True) for one in arguments]
        outcomes = self.perform(self.calls.submit_all(made))
        raise_first([one for one in outcomes if isinstance(one, Error)])
        return [
            Request(self, None, str(id_), one.name, one.type, one.item_type)
            for one, id_ in zip(made, outcomes, strict=True)
        ]

    def run(
        self,
        target: Target,
        /,
        *args: Any,
        options: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Submit a request and wait for its result; arguments and errors as of both.

        Interrupting (Ctrl-C) leaves it running.
        """
        request = self.submit(target, *args, options=options, arguments=arguments, **kwargs)
        return request.result()

    def get(self, id_: str) -> Request:
        """A request by its id, a unique beginning of it, or "@last" for the newest.

        Raises:
            ConfigError: there is none, or several begin so. BrokenError: no server is there.
        """
        if len(id_) < ID_CHARS:
            id_ = self.ask("resolve", id_)
        return Request(self, None, id_, "", Any)

    def list(
        self,
        *,
        status: Words = None,
        name: str | None = None,
        submitter: str | None = None,
        lane: str | None = None,
        since: str | float | None = None,
        until: str | float | None = None,
        parent: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> Rows:
        """What the server knows of its requests, the newest first.

        Args:
            status: only those that are in one of these states.
            name: only those of this definition.
            submitter: only those of this submitter.
            lane: only those of "short", "long" or "async".
            since: only those that were accepted at this time or later: seconds since 1970, or text
                as of RFC 3339.
            until: only those that were accepted before it.
            parent: only those that this request submitted.
            limit: at most so many.
            before: only those older than this id, for the next page.
        """
        wanted = filters(status, name, submitter, lane, since, until, parent)
        return self.perform(self.calls.list(wanted, limit, before))

    def follow(
        self,
        *,
        names: Words = None,
        ids: Words = None,
        events: Words = None,
        submitter: str | None = None,
        cursor: int | None = None,
    ) -> Generator[dict[str, Any], None, None]:
        """What happens in the server, as it happens; it has no end.

        Args:
            names: only of requests of these names.
            ids: only of these requests, 64 at most.
            submitter: only of requests of this one.
            events: only these kinds.
            cursor: number (`seq`) of the last event that you had; 0: all that is kept; None: from
                now on.

        Yields:
            Maps with `seq`, `at_ms`, `event` and what that has; `gap` where some were missed.

        What happens after this has returned is not missed. Where the connection breaks it goes on
        behind the last event. Leaving the loop ends it.
        """
        chosen = events_filter(names, ids, submitter, events)
        return self.stream(self.calls.follow(chosen, cursor))

    def wait(
        self, requests: Iterable[Request], timeout: float | None = None
    ) -> tuple[Requests, Requests]:
        """Wait until all have ended, well or not; returns those that have and those that have not.

        Raises:
            BrokenError: the gateway is gone and did not come back.
        """
        until = None if timeout is None else time.monotonic() + timeout
        ended: Requests = []
        others: Requests = []
        for request in requests:
            try:
                request.exception(None if until is None else max(0.0, until - time.monotonic()))
            except DeadlineError:
                others.append(request)
            else:
                ended.append(request)
        return ended, others

    def retry(self, ids: str | Sequence[str]) -> None:
        """Queue requests again that failed, were cancelled or were set aside.

        Args:
            ids: of them, or of one.

        Raises:
            ConfigError: one of them is in no such state; the others were queued.
        """
        check_retried(self.ask("retry", ids_of(ids)))

    def prune(
        self,
        *,
        older_than: str | float | None = None,
        status: Words = None,
        ids: Words = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove ended requests with their results and logs; returns how many, and the bytes.

        Args:
            older_than: only those that ended so long ago: seconds, or text such as "7d".
            status: only those that ended so.
            ids: only these.
            dry_run: only count them.
        """
        rule = prune_rule(older_than, status, ids, dry_run=dry_run)
        return self.perform(self.calls.prune(rule))

    def info(self) -> dict[str, Any]:
        """What the server is and how it is: version, application, code, queue, memory."""
        return self.perform(self.calls.about("info"))

    def manifest(self) -> dict[str, Any]:
        """The requests of the application, with the schemas of their arguments."""
        return self.perform(self.calls.about("manifest"))

    def workers(self) -> Rows:
        """The workers, and what each does."""
        rows: Rows = self.perform(self.calls.about("workers"))["workers"]
        return rows

    def services(self) -> Rows:
        """The services of the application."""
        rows: Rows = self.perform(self.calls.about("services"))["services"]
        return rows

    def schedules(self) -> Rows:
        """What the server submits by itself, and when."""
        rows: Rows = self.perform(self.calls.about("schedules"))["schedules"]
        return rows

    def ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Ask what `forebay.Client.ask` asks, by the same names, as far as a gateway answers it.

        Args:
            method: its name, such as "info".
            args: its arguments.
            timeout: seconds; by default the client's.

        Raises:
            ConfigError: it does not.
        """
        return self.perform(question(self.calls.within(timeout), method, args))

    def stop(self, grace: float | None = None) -> None:
        """Have the server end; requests that wait stay on disk for the next one.

        Args:
            grace: seconds that running requests have to end. By default the server's setting.
        """
        self.ask("stop", grace)

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the server that answers now has ended; whether it has."""
        return self.perform(self.calls.gone(timeout))

    def close(self) -> None:
        """Wait until everything submitted is accepted, and close the connections. Idempotent.

        Raises:
            what a submission was refused with that nobody has looked at; a note counts the others.
        """
        try:
            refused = self.outbox.finish(self.timeout)
        finally:
            self._close()
        raise_first(refused)

    def perform(self, procedure: Procedure[T]) -> T:
        """Run one of its calls."""
        return block(procedure, self._io)

    def stream(self, stream: Stream[T]) -> Generator[T, None, None]:
        """Run one of its streams; what happens after this has returned is not missed."""
        items = iterate(stream, self._io)
        next(items)
        return items

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        if not isinstance(error, Exception):
            self._close()  # interrupted: nothing may wait now
            return
        try:
            self.close()
        except Error as other:
            error.add_note(f"and a submission failed: {other}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _close(self) -> None:
        self._session.close()
        self._io.close()
        self.outbox.close()

    def _submission(
        self,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arguments: dict[str, Any] | None,
        options: Any,
    ) -> Submission:
        """What is submitted; the manifest says the parameters of a name."""
        kwargs = {**(arguments or {}), **kwargs}
        if args:
            if isinstance(target, str) and self._manifest is None:
                self._manifest = self.manifest()
            kwargs = by_name(target, args, kwargs, parameters_of(target, self._manifest))
        return submission(target, kwargs, options)
