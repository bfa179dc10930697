"""Submitting requests to a server, from an event loop.

This and `Client` are no procedures of `forebay._steps`: they are signatures and a line or two
each, and share one loop, that of `ask`; written once it made the two 20 lines longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from forebay.errors import DeadlineError, Error
from forebay.executor.client.accepting import Accepting
from forebay.executor.client.async_links import AsyncLinks
from forebay.executor.client.async_request import AsyncRequest
from forebay.executor.client.call import (
    Target,
    application_of,
    bind,
    item_type,
    name_of,
    options_of,
    result_type,
)
from forebay.executor.client.follow import Following, async_items
from forebay.executor.client.links import Links
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
from forebay.executor.client.shown import RequestRows
from forebay.executor.wire.frames import Message, message, returned, submission
from forebay.executor.wire.ids import ID_CHARS
from forebay.rpc._internal import no_reply

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.executor.client.options import Submit

__all__ = ["AsyncClient"]

# The class has a method called `list`.
Requests = list[AsyncRequest]
Values = list[Any]


class AsyncClient:
    """What `Client` is for threads; the same arguments, and methods to await.

    Connecting, which may mean starting a server, happens in a thread.

    Loop affinity: the loop of the first call; any number of its tasks may use it.
    """

    is_remote = False
    _handle = AsyncRequest

    def __new__(
        cls, url: str | None = None, *, app: str | None = None, **options: Any
    ) -> AsyncClient:
        """A client of a gateway where the address is one."""
        if cls is AsyncClient and remote_url(url, app) is not None:
            made: AsyncClient = object.__new__(client_class(cls))
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
        self._parameters: dict[str, Sequence[str]] = {}
        self._calls = AsyncLinks(self._links)
        self._accepting = Accepting()

    async def submit(
        self,
        target: Target,
        /,
        *args: Any,
        options: Submit | None = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncRequest:
        """Submit a request, and return when it is on disk; arguments as of `Client.submit`.

        Raises:
            ConfigError, LimitError: it was refused.
            BrokenError: no server is there, or it went away before it said whether it had accepted;
                `.delivered` tells. With an idempotency key it was sent again before that.

        Cancellation: the request may be accepted nevertheless.
        """
        name, frame, repeatable = await self._submission(target, args, kwargs, options, arguments)
        id_ = await self._submit(frame, repeatable, target)
        return self._handle(self, id_, name, result_type(target), item_type(target))

    async def submit_nowait(
        self,
        target: Target,
        /,
        *args: Any,
        options: Submit | None = None,
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
        Cost: a task. Once 4,096 are not accepted, the next one waits for the oldest.
        """
        name, frame, repeatable = await self._submission(target, args, kwargs, options, arguments)
        submission = self._submit(frame, repeatable, target)
        task = await self._accepting.start(submission)
        return self._handle(self, task, name, result_type(target), item_type(target))

    async def submit_many(
        self,
        target: Target,
        arguments: Iterable[dict[str, Any]],
        *,
        options: Submit | None = None,
    ) -> Requests:
        """Submit one request for each map of arguments; returns and raises as `Client.submit_many`.

        Cancellation: some may be accepted nevertheless.
        """
        requests = [
            await self.submit_nowait(target, options=options, arguments=one) for one in arguments
        ]
        refused: list[Error] = []
        for request in requests:
            try:
                await request.accepted()
            except Error as error:
                refused.append(error)
        raise_first(refused)
        return requests

    async def run(
        self,
        target: Target,
        /,
        *args: Any,
        options: Submit | None = None,
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
        if len(id_) != ID_CHARS:
            id_ = await self.ask("resolve", id_)
        return AsyncRequest(self, id_, "", Any)

    async def list(
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
        """What the server knows of its requests; arguments as of `Client.list`."""
        wanted = filters(status, name, submitter, lane, since, until, parent)
        rows: Rows = []
        while True:
            page = await self.ask("list", wanted, limit - len(rows), before)
            rows += page["requests"]
            before = page.get("next")  # a server of protocol 1 looks at everything in one answer
            if before is None or len(rows) >= limit:
                return RequestRows(rows)

    async def wait(
        self, requests: Iterable[AsyncRequest], timeout: float | None = None
    ) -> tuple[Requests, Requests]:
        """Wait until all have ended, well or not; those that have, and those that have not.

        Raises:
            BrokenError: the server is gone and did not come back.

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

    async def follow(
        self,
        *,
        names: str | Sequence[str] | None = None,
        ids: str | Sequence[str] | None = None,
        events: str | Sequence[str] | None = None,
        submitter: str | None = None,
        cursor: int | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What happens in the server; arguments, events and errors as of `Client.follow`.

        It begins with the first event that is awaited.

        Cancellation: safe; the reading ends.
        """
        following = Following(names, ids, events, submitter, cursor)
        async for item, peer in async_items(self, "feed", lambda: following.args):
            for event in following.take(item, peer):
                yield event

    async def retry(self, ids: str | Sequence[str]) -> None:
        """Queue ended requests again; arguments and errors as of `Client.retry`."""
        check_retried(await self.ask("retry", ids_of(ids)))

    async def prune(
        self,
        *,
        older_than: str | float | None = None,
        status: str | Sequence[str] | None = None,
        ids: str | Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove ended requests; arguments as of `Client.prune`."""
        rule = prune_rule(older_than, status, ids, dry_run=dry_run)
        done: dict[str, Any] = await self.ask("prune", rule)
        return done

    async def info(self) -> dict[str, Any]:
        """What the server is and how it is."""
        answer: dict[str, Any] = await self.ask("info")
        return answer

    async def ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Call a method of the server; arguments and errors as of `Client.ask`."""
        timeout = self.timeout if timeout is None else timeout
        until = time.monotonic() + timeout
        try:
            values = await self._calls.send(
                message(method, args), until, repeatable=method not in ONCE
            )
        except DeadlineError:
            if self._links.current is None:
                raise  # no server came up
            raise no_reply(self._links.where, timeout) from None
        return returned(values)

    async def stop(self, grace: float | None = None) -> None:
        """Have the server end; arguments as of `Client.stop`."""
        await self.ask("stop", grace)

    async def aclose(self) -> None:
        """Wait until everything submitted is accepted, and close the connection. Idempotent.

        What awaits an answer gets ClosedError.

        Raises:
            what a submission was refused with that the program has not looked at; a note counts
            the others.

        Cancellation: the connection is closed at once.
        """
        try:
            refused = await self._accepting.finish(self.timeout)
        finally:
            self._close()
        raise_first(refused)

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
            self._close()  # cancelled or interrupted: nothing may wait now
            return
        try:
            await self.aclose()
        except Error as other:
            error.add_note(f"and a submission failed: {other}")

    def _close(self) -> None:
        self._accepting.cancel()
        self._links.close()

    async def _submission(
        self,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Submit | None,
        arguments: dict[str, Any] | None,
    ) -> tuple[str, Message, bool]:
        """The name of a request, the call that submits it, and whether it may be sent again."""
        if arguments:
            kwargs = {**arguments, **kwargs}
        name = name_of(target)
        if args and isinstance(target, str):
            await self._learn_names(name)
        blob = bind(target, args, kwargs, lambda one: self._parameters.get(one, ()))
        repeatable = options is not None and options.is_repeatable
        return name, submission("submit", name, blob, options_of(target, options), None), repeatable

    async def _submit(self, frame: Message, repeatable: bool, target: Target) -> str:
        """Send a submission until a server answers it; the id of the request."""
        application = application_of(target, named=self._links.is_named)
        answer = await self._calls.send(frame, None, repeatable=repeatable, application=application)
        id_: str = answer[1]
        return id_

    async def _learn_names(self, name: str) -> None:
        if name not in self._parameters:
            self._parameters.update(parameters_of(await self.ask("manifest")))
