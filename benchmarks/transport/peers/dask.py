"""The comms of Dask's distributed, of both releases, with both of their backends.

Payloads stay as they are (`Serialized`, `deserialize=False`), as in the benchmark of the asyncio
comm's author, so that nobody packs or unpacks them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.transport.certificates import Certificates
from benchmarks.transport.entry_points import announce
from benchmarks.transport.side import Handler, Link, Stream, event_loop

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Where a backend's comms are defined: proof that the one that was asked for does run.
MODULES = {
    "asyncio": "distributed.comm.asyncio_tcp",
    "forebay": "forebay.dask",
    "tornado": "distributed.comm.tcp",
}
SCHEMES = (("tcp", "tls"), ("forebay", "forebay+tls"))
CONNECT_TIMEOUT_S = 20
BATCH_INTERVAL = "2ms"


class Side:
    """distributed's listeners and comms."""

    def __init__(self, backend: str, loop: str, tls: bool, interval: str) -> None:
        import dask

        if backend == "forebay":
            announce()
        else:
            # Read when the comms are imported, and ignored by a release that has one of them only.
            dask.config.set({"distributed.comm.tcp.backend": backend})
        from distributed import comm
        from distributed.batched import BatchedSend
        from distributed.protocol.serialize import Serialized

        self._comm: Any = comm
        self._batched = BatchedSend
        self._interval = interval
        self._serialized = Serialized
        self._module = MODULES[backend]
        self._loop = loop
        self._certificates = Certificates.make() if tls else None
        self._scheme = SCHEMES[backend == "forebay"][tls]

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that `distributed.admin.event-loop` would choose, or ours around it all."""
        return event_loop(self._loop)

    async def listen(self, handler: Handler) -> str:
        """Listen on a free port."""

        async def handle(comm: Any) -> None:
            await handler(self._link(comm))

        self._listener = self._comm.listen(
            f"{self._scheme}://127.0.0.1:0", handle, deserialize=False, **self._security(ssl_server)
        )
        await self._listener.start()
        address: str = self._listener.contact_address
        return address

    async def connect(self, address: str) -> Link:
        """Dial."""
        return self._link(
            await self._comm.connect(
                address,
                deserialize=False,
                timeout=CONNECT_TIMEOUT_S,
                **self._security(ssl_client),
            )
        )

    def _security(self, context: Any) -> dict[str, ssl.SSLContext]:
        return {"ssl_context": context(self._certificates)} if self._certificates else {}

    def _link(self, comm: Any) -> Link:
        if not type(comm).__module__.startswith(self._module):
            raise ValueError(f"the comm is of {type(comm).__module__}, not of {self._module}")
        return Link(comm.write, comm.read, self._message, _frames, self._stream(comm))

    def _stream(self, comm: Any) -> Stream:
        """Sending as workers and scheduler do it to each other, with the interval of theirs."""
        batched = self._batched(interval=self._interval)
        begun = False

        async def put(messages: list[bytes]) -> None:
            nonlocal begun
            if not begun:
                batched.start(comm)
                begun = True
            batched.send(*messages)
            await asyncio.sleep(0)  # its sending is a task, which gets its turn here

        return Stream(put, comm.read, _same, _same)

    def _message(self, frames: Sequence[bytes]) -> Any:
        return self._serialized({}, list(frames))


def ssl_server(certificates: Certificates) -> ssl.SSLContext:
    """What a listener takes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.chain, certificates.key)
    return context


def ssl_client(certificates: Certificates) -> ssl.SSLContext:
    """What a connector takes; it checks the listener's certificate, and like ours its name."""
    return ssl.create_default_context(cafile=certificates.authority)


def _same(frame: bytes) -> bytes:
    return frame


def _frames(message: Any) -> Sequence[Buffer]:
    frames: Sequence[Buffer] = message.frames
    return frames


def make(backend: str, loop: str, tls: bool = False, interval: str = BATCH_INTERVAL) -> Side:
    """The side: backend "asyncio", "tornado" or ours, "forebay"; loop as `event_loop` names it."""
    return Side(backend, loop, tls, interval)
