"""Connected sockets to where a listener listens.

Not one procedure of `forebay._steps`: a thread gives each address its part of the time and looks
the host up in another thread, a loop is cancelled by its caller. One would have as many lines.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from forebay._core import connect_unix
from forebay._steps import awaited, block
from forebay.errors import DeadlineError
from forebay.transport._address import PATH_SCHEMES, Address
from forebay.transport._socket import Found, number, refused, resolve, tune

__all__ = ["dial", "dial_blocking", "dial_unix", "late"]

REDIAL_S = 0.005
"""Between two attempts at a Unix socket whose queue is full: a loop cannot wait for room in it."""


async def dial(address: Address) -> int:
    """The descriptor of a nonblocking socket connected to an address, the caller's to close.

    Raises:
        BrokenError: no server listens there, or the host is not known.

    Cancellation: safe; nothing stays open.
    """
    if address.scheme in PATH_SCHEMES:
        return await dial_unix(address.path)
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, where in await awaited(resolve(address.host, address.port), None):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as dialled:
                dialled.setblocking(False)
                tune(dialled)
                await loop.sock_connect(dialled, where)
                return dialled.detach()
        except OSError as error:
            failure = error
    raise refused(str(address), failure or OSError(f"no address of {address.host}")) from failure


async def dial_unix(path: str) -> int:
    """The same for a Unix socket; while its queue is full, it comes back to it."""
    while True:
        try:
            return connect_unix(path, 0.0)
        except DeadlineError:
            await asyncio.sleep(REDIAL_S)


def dial_blocking(address: Address, timeout: float) -> int:
    """The same, for threads.

    Raises:
        DeadlineError: no answer within `timeout` seconds, looking the host up included; each
            of its addresses gets an equal part of what is left.
    """
    if address.scheme in PATH_SCHEMES:
        return connect_unix(address.path, timeout)
    end = time.monotonic() + timeout
    failure: OSError | None = None
    found = _look_up(address, timeout)
    for at, (family, where) in enumerate(found):
        left = end - time.monotonic()
        if left <= 0:
            break
        try:
            with socket.socket(family, socket.SOCK_STREAM) as dialled:
                dialled.settimeout(left / (len(found) - at))
                tune(dialled)
                dialled.connect(where)
                dialled.setblocking(False)
                return dialled.detach()
        except OSError as error:
            failure = error
    if time.monotonic() >= end:
        raise late(address, timeout)
    raise refused(str(address), failure or OSError(f"no address of {address.host}")) from failure


def _look_up(address: Address, timeout: float) -> Sequence[Found]:
    """The addresses of a host, looked up in a separate thread, since a look-up has no timeout."""
    known = number(address.host, address.port)
    if known is not None:
        return [known]
    answer: Future[Sequence[Found]] = Future()

    def ask() -> None:
        try:
            answer.set_result(block(resolve(address.host, address.port), None))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="forebay-look-up", daemon=True).start()
    try:
        return answer.result(timeout)
    except TimeoutError:
        raise late(address, timeout) from None


def late(address: Address, timeout: float) -> DeadlineError:
    """What connecting raises when its time has run out."""
    return DeadlineError(f"{address} did not answer within {timeout:g} s", timeout=timeout)
