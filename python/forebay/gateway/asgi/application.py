"""The ASGI application of the gateway: it finds the route, checks the token, and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from forebay.gateway.http.exchange import Exchange, GoneError
from forebay.gateway.problems import problem_of

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.asgi.table import Table

__all__ = ["Application"]


class Application:
    """A bare ASGI application; no lifespan, no websockets."""

    def __init__(self, context: Context, table: Table) -> None:
        self._context = context
        self._table = table

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Answer one request; what a handler raises becomes a problem document."""
        context = self._context
        exchange = Exchange(scope, receive, send)
        began = perf_counter()
        try:
            raw_path = scope.get("raw_path", b"")  # optional in ASGI
            route, exchange.part = self._table.find(scope["method"], scope["path"], raw_path)
            exchange.token = context.access.check(scope["headers"], scope["method"], route.role)
            await route.handler(context, exchange)
        except GoneError:
            pass
        except Exception as error:
            if exchange.answered:
                raise  # its head is out: the connection ends
            await exchange.problem(problem_of(error))
        if exchange.answered:
            took = perf_counter() - began
            context.metrics.answered(exchange.method, exchange.answered, took)
