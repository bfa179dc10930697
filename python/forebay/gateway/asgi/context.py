"""What the handlers of all routes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.gateway.asgi.fresh import Fresh
from forebay.gateway.dashboard.overview import Overview
from forebay.gateway.forms import Forms
from forebay.gateway.metrics.answered import HttpMetrics
from forebay.gateway.routes.conversions import Conversions
from forebay.gateway.routes.idempotency import Idempotency
from forebay.gateway.routes.streams import Streams

if TYPE_CHECKING:
    from forebay.gateway.access import Access
    from forebay.gateway.asgi.server_link import ServerLink
    from forebay.gateway.http.state import State
    from forebay.gateway.routes.rates import Rates
    from forebay.gateway.tokens import Tokens

__all__ = ["Context"]


class Context:
    """The parts of one gateway.

    Loop affinity: the gateway's.

    Attributes:
        url: of the gateway, for what names it.
        server: the connection to the server.
        access: who may do what.
        tokens: the tokens in force.
        state: of the connections.
        rates: of the submissions of tokens.
        idempotency: the keys of submissions.
        streams: the open streams.
        conversions: of results into other forms.
        info: of the server, not older than a second.
        overview: of the server, for people.
        metrics: of the answers.
    """

    def __init__(
        self,
        url: str,
        server: ServerLink,
        access: Access,
        tokens: Tokens,
        state: State,
        rates: Rates,
    ) -> None:
        self.url = url
        self.server = server
        self.access = access
        self.tokens = tokens
        self.state = state
        self.rates = rates
        self.idempotency = Idempotency()
        self.streams = Streams(access)
        self.conversions = Conversions()
        self.info: Fresh[dict[str, Any]] = Fresh(lambda: server.ask("info"))
        self.overview = Overview(server, self.info)
        self.metrics = HttpMetrics()
        self._manifest: Fresh[dict[str, Any]] = Fresh(lambda: server.ask("manifest"))
        self._forms: tuple[dict[str, Any], Forms] | None = None

    async def manifest(self) -> dict[str, Any]:
        """The requests of the application, not older than a second."""
        return await self._manifest.get()

    async def forms(self) -> Forms:
        """The forms of the arguments of the application's requests."""
        manifest = await self._manifest.get()
        known = self._forms
        if known is None or (known[0] is not manifest and known[0] != manifest):
            known = manifest, Forms(manifest)
            self._forms = known
        return known[1]
