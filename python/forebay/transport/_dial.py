"""Connected sockets to where a listener listens."""

from __future__ import annotations

import asyncio
import os
import socket

from forebay._core import connect_unix
from forebay.errors import DeadlineError
from forebay.transport._address import PATH_SCHEMES, Address
from forebay.transport._socket import refused, resolve, tune

__all__ = ["dial", "dial_blocking", "dial_unix", "late"]

REDIAL_S = 0.005
"""Between two attempts at a Unix socket whose queue is full: a loop cannot wait for room in it."""


async def dial(address: Address) -> int:
    """The descriptor of a nonblocking socket connected to an address, the caller's to close.

    Raises:
        BrokenError: nobody listens there, or the host is not known.

    Cancellation: safe; nothing stays open.
    """
    if address.scheme in PATH_SCHEMES:
        return await dial_unix(address.path)
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, where in await resolve(loop, address.host, address.port):
        dialled = socket.socket(family, socket.SOCK_STREAM)
        try:
            dialled.setblocking(False)
            tune(dialled)
            await loop.sock_connect(dialled, where)
        except OSError as error:
            dialled.close()
            failure = error
        except BaseException:
            dialled.close()
            raise
        else:
            return dialled.detach()
    raise refused(str(address), failure or OSError(f"no address of {address.host}"))


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
        DeadlineError: nobody answered within `timeout` seconds.
    """
    if address.scheme in PATH_SCHEMES:
        return connect_unix(address.path, timeout)
    try:
        dialled = socket.create_connection((address.host, address.port), timeout)
    except TimeoutError:
        raise late(address, timeout) from None
    except OSError as error:
        raise refused(str(address), error) from None
    tune(dialled)
    descriptor = dialled.detach()
    os.set_blocking(descriptor, False)
    return descriptor


def late(address: Address, timeout: float) -> DeadlineError:
    """What connecting raises when its time has run out."""
    return DeadlineError(f"{address} did not answer within {timeout:g} s", timeout=timeout)
