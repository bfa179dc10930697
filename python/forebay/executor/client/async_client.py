"""Submitting requests to a server, from an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, ClosedError, DeadlineError, ProtocolError
from forebay.executor.client.async_request import AsyncRequest
from forebay.executor.client.call import (
    Target,
    application_of,
    bind,
    name_of,
    options_of,
    result_type,
)
from forebay.executor.client.links import Links
from forebay.executor.client.questions import (
    ONCE,
    Rows,
    check_retried,
    filters,
    ids_of,
    parameters_of,
    prune_rule,
)
from forebay.executor.wire.frames import Message, message, returned, submission, value_of
from forebay.executor.wire.ids import ID_CHARS
from forebay.rpc._internal import no_reply

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.executor.client.options import Submit
    from forebay.executor.wire.frames import Answers

__all__ = ["AsyncClient"]

# The class has a method called `list`.
Requests = list[AsyncRequest]
Values = list[Any]


class AsyncClient:
    """What `Client` is for threads; the same arguments, and methods to await.

    Connecting, which may mean starting a server, happens in a thread.

    Loop affinity: the loop of the first call; any number of its tasks may use it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        app: str | None = None,
        start: bool = True,
        timeout: float = 30.0,
        told: Callable[[str], None] | None = None,
    ) -> None:
        self.timeout = timeout
        self._links = Links(url, app, start=start, timeout=timeout, told=told)
        self._parameters: dict[str, Sequence[str]] = {}
        self._connecting = asyncio.Lock()

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
        if arguments:
            kwargs = {**arguments, **kwargs}
        name = name_of(target)
        if args and isinstance(target, str):
            await self._learn_names(name)
        blob = bind(target, args, kwargs, lambda one: self._parameters.get(one, ()))
        wire = options_of(target, options)
        repeatable = options is not None and options.idempotency is not None
        frame = submission("submit", name, blob, wire, None)
        application = application_of(target)
        id_ = (await self._send(frame, None, repeatable=repeatable, application=application))[1]
        return AsyncRequest(self, id_, name, result_type(target))

    async def submit_many(
        self,
        target: Target,
        arguments: Iterable[dict[str, Any]],
        *,
        options: Submit | None = None,
    ) -> Requests:
        """Submit one request for each map of arguments, all at once; errors as of `submit`.

        Where one is refused, the others may be accepted.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.submit(target, options=options, arguments=one))
                for one in arguments
            ]
        return [task.result() for task in tasks]

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
        limit: int = 100,
        before: str | None = None,
    ) -> Rows:
        """What the server knows of its requests; arguments as of `Client.list`."""
        listed: Rows = (await self.ask("list", filters(status, name, submitter), limit, before))[
            "requests"
        ]
        return listed

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

    async def retry(self, ids: str | Sequence[str]) -> None:
        """Queue ended requests again; arguments and errors as of `Client.retry`."""
        check_retried(await self.ask("retry", ids_of(ids)))

    async def prune(
        self,
        *,
        older_s: float | None = None,
        status: str | Sequence[str] | None = None,
        ids: str | Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove ended requests; arguments as of `Client.prune`."""
        rule = prune_rule(older_s, status, ids, dry_run=dry_run)
        done: dict[str, Any] = await self.ask("prune", rule)
        return done

    async def info(self) -> dict[str, Any]:
        """What the server is and how it is."""
        told: dict[str, Any] = await self.ask("info")
        return told

    async def ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Call a method of the server; arguments and errors as of `Client.ask`."""
        timeout = self.timeout if timeout is None else timeout
        until = time.monotonic() + timeout
        try:
            values = await self._send(message(method, args), until, repeatable=method not in ONCE)
        except DeadlineError:
            if self._links.current is None:
                raise  # no server came up
            raise no_reply(self._links.where, timeout) from None
        return returned(values)

    async def stop(self, drain: float | None = None) -> None:
        """Have the server end; arguments as of `Client.stop`."""
        await self.ask("stop", drain)

    async def aclose(self) -> None:
        """Close the connection; what awaits an answer gets ClosedError. Idempotent, never waits."""
        self._links.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._links.close()

    async def _send(
        self,
        frame: Message,
        until: float | None,
        *,
        repeatable: bool,
        application: str | None = None,
    ) -> Values:
        """Send a call until a server answers it; the values of the answer.

        Args:
            frame: the call.
            until: on the monotonic clock, when it is given up; None: never.
            repeatable: whether it may be sent again where a server may have had it.
            application: whose server it is, where nothing else says that.
        """
        channel = await self._channel(application, until)
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                told = await channel.acall_frame(frame, left)
            except ProtocolError:
                raise
            except ClosedError:
                if self._links.closed:
                    raise
                channel = await self._channel(until=until)  # it was replaced before this was sent
            except BrokenError as error:
                if not channel.broken or not (repeatable or error.delivered == "no"):
                    raise
                channel = await self._again(channel, until)
            else:
                return value_of(told, channel.name)

    async def _channel(self, application: str | None = None, until: float | None = None) -> Answers:
        if self._links.current is not None:
            return self._links.current
        end = self._links.end(until)
        async with self._alone(end):
            return await asyncio.to_thread(self._links.get, application, end)

    async def _again(self, broken: Answers, until: float | None = None) -> Answers:
        broken.close()  # here, because its callbacks are this loop's
        end = self._links.end(until)
        async with self._alone(end):
            return await asyncio.to_thread(self._links.again, broken, end)

    @asynccontextmanager
    async def _alone(self, end: float) -> AsyncIterator[None]:
        """One task at a time tries to reach the server: a thread is enough for all of them."""
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                await self._connecting.acquire()
        except TimeoutError:
            raise self._links.gone() from None
        try:
            yield
        finally:
            self._connecting.release()

    async def _learn_names(self, name: str) -> None:
        if name not in self._parameters:
            self._parameters.update(parameters_of(await self.ask("manifest")))
