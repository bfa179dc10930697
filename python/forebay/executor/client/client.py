"""Submitting requests to a server, from threads.

This and `AsyncClient` are no procedures of `forebay._steps`: they are signatures and a line or two
each, and share one loop, that of `ask`; written once it made the two 20 lines longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, DeadlineError, Error, ProtocolError
from forebay.executor.client.call import (
    Target,
    application_of,
    bind,
    item_type,
    name_of,
    options_of,
    result_type,
)
from forebay.executor.client.follow import Following, feed
from forebay.executor.client.links import Links
from forebay.executor.client.outstanding import Outstanding
from forebay.executor.client.questions import (
    ONCE,
    Rows,
    check_retried,
    filters,
    ids_of,
    parameters_of,
    prune_rule,
    raise_first,
)
from forebay.executor.client.remote import check_local, client_class, remote_url
from forebay.executor.client.request import Request
from forebay.executor.client.shown import RequestRows
from forebay.executor.wire.frames import Answers, returned, submission, value_of
from forebay.executor.wire.ids import ID_CHARS
from forebay.rpc._internal import no_reply

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.executor.client.options import Submit

__all__ = ["Client"]

# The class has a method called `list`.
Requests = list[Request]


class Client:
    """The requests of one server.

    `with Client() as client` leaves when everything that was submitted is on disk, and raises for
    what was refused and never looked at. The connection is made by the first use.

    A server that is elsewhere is reached over its gateway, by the package forebay-client (the extra
    `http`): `Client("https://host:port")`, or `FOREBAY_URL` set to such an address.

    Args:
        url: of the server, `unix:///path/of.sock`, or of its gateway, `https://host:port`.
        app: TARGET of the application, such as "tune.py:app", whose server is meant. Without both:
            the application of the first function that is submitted, else `FOREBAY_URL`,
            `FOREBAY_APP`, `app =` of `forebay.toml`, else the server that was started last.
        start: start a server of the application where none runs.
        timeout: seconds for connecting, which may mean starting a server, for short calls, and for
            a server that went away to come back.
        on_start: gets a line when a server was started; by default it is logged.
        token: what `forebay token add` printed, for a gateway.
        token_file: a file whose first line is the token.
        ca_file: certificates in PEM, by which that of a gateway is verified instead of by the
            system's.
        proxy: of HTTP, as a URL; default: HTTPS_PROXY, NO_PROXY; "": none.
        plain_http: allow a token to go to another machine over `http://`.

    Threads: any number may use one client. Forks: a child makes a client of its own.

    Attributes:
        is_remote: whether it reaches its server over a gateway.
    """

    is_remote = False
    _handle = Request

    def __new__(cls, url: str | None = None, *, app: str | None = None, **options: Any) -> Client:
        """A client of a gateway where the address is one."""
        if cls is Client and remote_url(url, app) is not None:
            made: Client = object.__new__(client_class(cls))
            return made
        return object.__new__(cls)

    def __init__(
        self,
        url: str | None = None,
        *,
        app: str | None = None,
        start: bool = True,
        timeout: float = 30.0,
        on_start: Callable[[str], None] | None = None,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
        plain_http: bool = False,
    ) -> None:
        check_local(token, token_file, ca_file, proxy, plain_http=plain_http)
        self.timeout = timeout
        self._links = Links(url, app, start=start, timeout=timeout, on_start=on_start)
        self._outstanding = Outstanding(self._links)
        self._parameters: dict[str, Sequence[str]] = {}

    def submit(
        self,
        target: Target,
        /,
        *args: Any,
        options: Submit | None = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Request:
        """Submit a request, and return when it is on disk.

        Args:
            target: a function of an application, or the name of a request.
            args: its positional arguments.
            options: of this submission.
            arguments: further arguments by name, for names that mean something here.
            kwargs: its arguments by name.

        Returns:
            A handle with the id; `request.result()` waits until the request has ended.

        Raises:
            ConfigError, LimitError: the arguments do not fit, or the server refused the request.
            BrokenError: no server is there, or it went away before it said whether it had accepted;
                `.delivered` tells. With an idempotency key it was sent again before that.

        Interrupting (Ctrl-C): the request may be accepted nevertheless.
        Cost: two system calls, and the server's commit, which submissions of other threads share.
        """
        request = self.submit_nowait(target, *args, options=options, arguments=arguments, **kwargs)
        request.accepted()
        return request

    def submit_nowait(
        self,
        target: Target,
        /,
        *args: Any,
        options: Submit | None = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Request:
        """Send a request to the server, without waiting for it to be accepted.

        For many submissions one after another: they share the server's commits. Leaving the client
        waits until all of them are on disk. Arguments as of `submit`.

        Returns:
            A handle: `request.accepted()` waits until the request is on disk, `request.result()`
            until it has ended. Both raise what the server refused it with.

        Raises:
            ConfigError: the arguments do not fit; nothing was sent.
            BrokenError: no server is there.

        Cost: one system call. Once 4,096 have not ended, the next one waits until the server has
        accepted those before it.
        """
        if arguments:
            kwargs = {**arguments, **kwargs}
        name = name_of(target)
        blob = bind(target, args, kwargs, self._names)
        wire = options_of(target, options)
        repeatable = options is not None and options.is_repeatable
        outstanding = self._outstanding
        token = outstanding.next_token()
        frame = submission("run", name, blob, wire, token)
        channel = self._links.current or self._links.get(
            application_of(target, named=self._links.is_named)
        )
        sent = outstanding.send(channel, frame, token, repeatable=repeatable)
        return self._handle(self, sent, None, name, result_type(target), item_type(target))

    def submit_many(
        self,
        target: Target,
        arguments: Iterable[dict[str, Any]],
        *,
        options: Submit | None = None,
    ) -> Requests:
        """Submit one request for each map of arguments, and return when all are on disk.

        Raises:
            what `submit` raises, for the first one that was refused; a note counts the others. The
            rest is accepted.

        Cost: as so many of `submit_nowait`; their commits are shared.
        """
        requests = [self.submit_nowait(target, options=options, arguments=one) for one in arguments]
        self._outstanding.accept_all([one._sent for one in requests if one._sent is not None])
        refused: list[Error] = []
        for request in requests:
            try:
                request.accepted()
            except Error as error:
                refused.append(error)
        raise_first(refused)
        return requests

    def run(
        self,
        target: Target,
        /,
        *args: Any,
        options: Submit | None = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Submit a request and wait for its result; arguments and errors as of both.

        Interrupting (Ctrl-C) leaves it running.
        """
        request = self.submit_nowait(target, *args, options=options, arguments=arguments, **kwargs)
        return request.result()  # which implies that it was accepted

    def get(self, id_: str) -> Request:
        """A request by its id, a unique beginning of it, or "@last" for the newest.

        Raises:
            ConfigError: there is none, or several begin so. BrokenError: no server is there.
        """
        if len(id_) != ID_CHARS:
            id_ = self.ask("resolve", id_)
        return Request(self, None, id_, "", Any)

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
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

        Cost: an answer for each 10,000 requests that the server looks at, which are few for what
        has not ended, did not succeed, or is of one name.
        """
        wanted = filters(status, name, submitter, lane, since, until, parent)
        rows: Rows = []
        while True:
            page = self.ask("list", wanted, limit - len(rows), before)
            rows += page["requests"]
            before = page.get("next")  # a server of protocol 1 looks at everything in one answer
            if before is None or len(rows) >= limit:
                return RequestRows(rows)

    def wait(
        self, requests: Iterable[Request], timeout: float | None = None
    ) -> tuple[Requests, Requests]:
        """Wait until all have ended, well or not; returns those that have and those that have not.

        Raises:
            BrokenError: the server is gone and did not come back.
        """
        until = None if timeout is None else time.monotonic() + timeout
        ended: Requests = []
        others: Requests = []
        for request in requests:
            try:
                request.exception(None if until is None else max(0.0, until - time.monotonic()))
            except DeadlineError:  # what has ended may still lack its result
                (others if request._told is None else ended).append(request)
            else:
                ended.append(request)
        return ended, others

    def follow(
        self,
        *,
        names: str | Sequence[str] | None = None,
        ids: str | Sequence[str] | None = None,
        events: str | Sequence[str] | None = None,
        submitter: str | None = None,
        cursor: int | None = None,
    ) -> Generator[dict[str, Any], None, None]:
        """What happens in the server: an event for each change of a request, a worker, a service.

        Args:
            names: only those of requests with these names; 64 at most.
            ids: only those of these requests, by their whole ids; 64 at most.
            events: only these kinds, such as "ended"; `forebay events --help` lists them.
            submitter: only those of requests of this submitter.
            cursor: the `seq` of the last event that you had; 0: all that the server keeps. By
                default it begins with what happens from now on.

        Yields:
            Maps with `seq`, `at_ms`, `event` and the fields of that kind, in their order. It goes
            on behind the last one when the server comes back. `{"event": "gap", "first", "last"}`
            says which were missed: by a reader that was too slow, or with a server that ended.

        Raises:
            ConfigError, LimitError: an argument is wrong. BrokenError: the server is gone and did
            not come back within the client's time.

        What happens after this has returned is not missed: without a cursor it waits until the
        server has said behind which number it begins. Leaving the loop ends the reading.
        """
        return feed(self, Following(names, ids, events, submitter, cursor))

    def retry(self, ids: str | Sequence[str]) -> None:
        """Queue requests again that failed, were cancelled or were set aside.

        Args:
            ids: of them, or of one; 1,000 at most.

        Raises:
            ConfigError: one of them is in no such state, or that it is queued could not be
                written to the disk; the others were queued.
            LimitError: one of them found no room in the queue, as a submission does: `max_queued`
                or the quota of its submitter; the others were queued.
        """
        check_retried(self.ask("retry", ids_of(ids)))

    def prune(
        self,
        *,
        older_than: str | float | None = None,
        status: str | Sequence[str] | None = None,
        ids: str | Sequence[str] | None = None,
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
        done: dict[str, Any] = self.ask("prune", rule)
        return done

    def info(self) -> dict[str, Any]:
        """What the server is and how it is: version, application, code, queue, memory."""
        answer: dict[str, Any] = self.ask("info")
        return answer

    def ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Call a method of the server that is not about submitting; returns its answer's value.

        Args:
            method: its name, such as "info".
            args: its arguments.
            timeout: seconds; by default the client's.

        Raises:
            ConfigError, LimitError: refused. DeadlineError: no answer in time.
            BrokenError: no server is there, or did not come back in time.
        """
        timeout = self.timeout if timeout is None else timeout
        until = time.monotonic() + timeout
        while True:
            channel = self._channel(until)
            try:
                answer = channel.call(method, args, timeout=max(0.0, until - time.monotonic()))
            except DeadlineError:
                raise no_reply(channel.name, timeout) from None
            except ProtocolError:
                raise
            except BrokenError as error:
                if not channel.is_spent or (method in ONCE and error.delivered != "no"):
                    raise
                self._links.again(channel, until)
            else:
                return returned(value_of(answer, channel.name))

    def stop(self, grace: float | None = None) -> None:
        """Have the server end; requests that wait stay on disk for the next one.

        Args:
            grace: seconds that running requests have to end; then they are killed, and the next
                server fails them or runs them again. By default the server's setting.
        """
        self.ask("stop", grace)

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the server that it is connected to has ended; whether it has."""
        return self._channel().wait_gone(timeout)

    def close(self) -> None:
        """Wait until everything submitted is accepted, and close the connection. Idempotent.

        Raises:
            what a submission was refused with that nobody has looked at; a note counts the others.

        Handles that have not ended yet keep their ids, and nothing else.
        """
        refused: list[Error] = []
        try:
            if self._links.current is not None:
                refused = self._outstanding.confirm(self.timeout)
        finally:
            self._links.close()
        raise_first(refused)

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
            self._links.close()  # interrupted: nothing may wait now
            return
        try:
            self.close()
        except Error as other:
            error.add_note(f"and a submission failed: {other}")

    def _another(self) -> Client:
        """A client of the same server with a connection of its own, made by its first use."""
        self._channel()
        return Client(self._links.where, timeout=self.timeout)

    def _channel(self, until: float | None = None) -> Answers:
        return self._links.current or self._links.get(until=until)

    def _names(self, name: str) -> Sequence[str]:
        """The parameters of a request that is known by its name alone."""
        known = self._parameters.get(name)
        if known is None:
            self._parameters.update(parameters_of(self.ask("manifest")))
            known = self._parameters.get(name, ())
        return known
