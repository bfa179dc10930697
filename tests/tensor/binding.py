"""Shards and links of the compiled core, as the Python faces use them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay._core import TensorHandle, TensorLink, TensorShard, tensor_hello
from forebay.transport import Tls, connect

TIMEOUT_S = 30.0


@contextlib.contextmanager
def shard_at(url: str, *, tls: Tls | None = None, token: bytes | None = None) -> Iterator[Any]:
    """A shard that serves at `url`, and where that is."""
    descriptors: list[int] = []
    path = None
    if url.startswith("unix://"):
        path = url.removeprefix("unix://")
    else:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        url = f"{url.partition(':')[0]}://127.0.0.1:{listening.getsockname()[1]}"
        descriptors.append(listening.detach())
    core: Any = None if tls is None else tls.core
    shard = TensorShard([(descriptors, path, core, token)], name=url)
    shard.open()
    try:
        yield shard, url
    finally:
        shard.close()


def link_to(url: str, slots: int = 16, liveness: float = 5.0, **options: Any) -> TensorLink:
    """A link, set up as a blocking client does it."""
    with connect(url, timeout=TIMEOUT_S, **options) as connection:
        connection.send(tensor_hello(slots))
        welcome = connection.recv()[0]
        return TensorLink(connection._core, welcome, liveness=liveness)


def publish(shard: TensorShard, name: str, array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Serve a numpy array."""
    dtype = array.dtype
    return shard.publish(name, dtype.str, dtype.kind, dtype.itemsize, array.shape, array)


def look_up(link: TensorLink, name: str) -> TensorHandle:
    """What a name means that is there."""
    [handle] = link.look_up([name], TIMEOUT_S)
    assert isinstance(handle, TensorHandle)
    return handle
