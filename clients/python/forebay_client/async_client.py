"""Submitting requests to a server over HTTP, from the tasks of an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from forebay_client.async_outbox import AsyncOutbox
from forebay_client.async_request import AsyncRequest
from forebay_client.errors import Error
from forebay_client.http.loops import LoopIO
from forebay_client.http.steps import Procedure, Stream, awaited, iterate_async
from forebay_client.opening import Token, hidden, open_session
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
from forebay_client.submission import Submission, Target, by_name, parameters_of, submission

__all__ = ["AsyncClient"]

T = TypeVar("T")
# The class has a method called `list`.
Requests = list[AsyncRequest]
Rows = list[dict[str, Any]]
Words = str | Sequence[str] | None


class AsyncClient:
    """What `Client` is for threads; the same arguments, and methods to await.

    Loop affinity: the loop of the first call; any number of its tasks may use it.
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
        self._io = LoopIO()
        self.outbox = AsyncOutbox(self._submit_all)
        self._manifest: dict[str, Any] | None = None

    async def submit(
        self,
        target: Target,
        /,
        *args: Any,
        options: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncRequest:
        """Submit a request, and return when it is on disk; arguments as of `Client.submit`.

        Raises:
            as `Client.submit`.

        Cancellation: the request may be accepted nevertheless.
        """
        made = await self._submission(target, args, kwargs, arguments, options)
        id_ = await self.perform(self.calls.submit(made))
        return AsyncRequest(self, None, id_, made.name, made.type, made.item_type)

    async def submit_nowait(
        self,
        target: Target,
        /,
        *args: Any,
        options: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncRequest:
        """Begin to submit a request, without waiting for it to be accepted.

        Leaving the client waits until all of them are on disk; arguments as of `Client.submit`.

        Returns:
            A handle: `accepted` and `result` raise what the server refused it with.

        Raises:
            ConfigError: the arguments do not fit; nothing was sent.

        Cancellation: safe; nothing was sent.
        """
        made = await self._submission(target, args, kwargs, arguments, options)
        sent = await self.outbox.add(made)
        return AsyncRequest(self, sent, None, made.name, made.type, made.item_type)

    async def submit_many(
        self, target: Target, arguments: Iterable[dict[str, Any]], *, options: Any = None
    ) -> Requests:
        """Submit one request for each map of arguments; returns and raises as `Client.submit_many`.

        Cancellation: some may be accepted nevertheless.
        """
        made = [submission(target, one, options, many=True) for one in arguments]
        outcomes = await self._submit_all(made)
        raise_first([one for one in outcomes if isinstance(one, Error)])
        return [
            AsyncRequest(self, None, str(id_), one.name, one.type, one.item_type)
            for one, id_ in zip(made, outcomes, strict=True)
        ]

    async def run(
        self,
        target: Target,
        /,
        *args: Any,
        options: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Submit a request and await its result; arguments and errors as of both.

        Cancellation: the request goes on.
        """
        request = await self.submit(target, *args, options=options, arguments=arguments, **kwargs)
        return await request.result()

    async def get(self, id_: str) -> AsyncRequest:
        """A request by its id, a unique beginning of it, or "@last"; errors as of `Client.get`."""
        if len(id_) < ID_CHARS:
            id_ = await self.ask("resolve", id_)
        return AsyncRequest(self, None, id_, "", Any)

    async def list(
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
        """What the server knows of its requests; arguments as of `Client.list`."""
        wanted = filters(status, name, submitter, lane, since, until, parent)
        return await self.perform(self.calls.list(wanted, limit, before))

    def follow(
        self,
        *,
        names: Words = None,
        ids: Words = None,
        events: Words = None,
        submitter: str | None = None,
        cursor: int | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What happens in the server, as it happens; arguments and items as of `Client.follow`.

        Cancellation: safe; the stream ends.
        """
        chosen = events_filter(names, ids, submitter, events)
        return self.stream(self.calls.follow(chosen, cursor))

    async def wait(
        self, requests: Iterable[AsyncRequest], timeout: float | None = None
    ) -> tuple[Requests, Requests]:
        """Wait until all have ended, well or not; those that have, and those that have not.

        Raises:
            BrokenError: the gateway is gone and did not come back.

        Cancellation: safe; the requests go on.
        """
        requests = list(requests)
        ended: set[AsyncRequest] = set()

        async def watch(request: AsyncRequest) -> None:
            await request.exception()
            ended.add(request)

        try:
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
                for request in requests:
                    group.create_task(watch(request))
        except TimeoutError:
            pass
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return (
            [one for one in requests if one in ended],
            [one for one in requests if one not in ended],
        )

    async def retry(self, ids: str | Sequence[str]) -> None:
        """Queue ended requests again; arguments and errors as of `Client.retry`."""
        check_retried(await self.ask("retry", ids_of(ids)))

    async def prune(
        self,
        *,
        older_than: str | float | None = None,
        status: Words = None,
        ids: Words = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove ended requests; arguments as of `Client.prune`."""
        rule = prune_rule(older_than, status, ids, dry_run=dry_run)
        return await self.perform(self.calls.prune(rule))

    async def info(self) -> dict[str, Any]:
        """What the server is and how it is."""
        return await self.perform(self.calls.about("info"))

    async def manifest(self) -> dict[str, Any]:
        """The requests of the application, with the schemas of their arguments."""
        return await self.perform(self.calls.about("manifest"))

    async def workers(self) -> Rows:
        """The workers, and what each does."""
        rows: Rows = (await self.perform(self.calls.about("workers")))["workers"]
        return rows

    async def services(self) -> Rows:
        """The services of the application."""
        rows: Rows = (await self.perform(self.calls.about("services")))["services"]
        return rows

    async def schedules(self) -> Rows:
        """What the server submits by itself, and when."""
        rows: Rows = (await self.perform(self.calls.about("schedules")))["schedules"]
        return rows

    async def ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Ask what `forebay.Client.ask` asks; arguments and errors as of `Client.ask`."""
        return await self.perform(question(self.calls.within(timeout), method, args))

    async def stop(self, grace: float | None = None) -> None:
        """Have the server end; arguments as of `Client.stop`."""
        await self.ask("stop", grace)

    async def aclose(self) -> None:
        """Wait until everything submitted is accepted, and close the connections. Idempotent.

        What awaits an answer gets ClosedError.

        Raises:
            what a submission was refused with that the program has not looked at; a note counts
            the others.

        Cancellation: the connections are closed at once.
        """
        try:
            refused = await self.outbox.finish(self.timeout)
        finally:
            await self._close()
        raise_first(refused)

    async def perform(self, procedure: Procedure[T]) -> T:
        """Run one of its calls."""
        return await awaited(procedure, self._io)

    def stream(self, stream: Stream[T]) -> AsyncGenerator[T, None]:
        """Run one of its streams."""
        return iterate_async(stream, self._io)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
            return
        if not isinstance(error, Exception):
            await self._close()  # cancelled or interrupted: nothing may wait now
            return
        try:
            await self.aclose()
        except Error as other:
            error.add_note(f"and a submission failed: {other}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    async def _close(self) -> None:
        self._session.close()
        try:
            await self._io.aclose()
        finally:
            await self.outbox.aclose()

    async def _submit_all(self, some: Sequence[Submission]) -> Sequence[str | Error]:
        return await self.perform(self.calls.submit_all(some))

    async def _submission(
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
                self._manifest = await self.manifest()
            kwargs = by_name(target, args, kwargs, parameters_of(target, self._manifest))
        return submission(target, kwargs, options)
