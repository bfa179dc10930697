"""Rows of named tensors between processes: pulled into memory that is there, pushed, added up.

A `TensorServer` owns tensors and serves them without the GIL; it is a service, and may be one of
several shards that hold a range of rows each. A `FileTensor` is one whose rows stay in a file.
A `TensorClient` pulls and pushes rows by name, many at once; `with` enters its blocking face,
`async with` the asyncio one, `submit` returns a future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.tensor.client.async_client import AsyncTensorClient
    from forebay.tensor.client.client import TensorClient
    from forebay.tensor.client.plan import AsyncPullPlan, PullPlan
    from forebay.tensor.prepare.ref import TensorRef
    from forebay.tensor.prepare.tensor import Tensor
    from forebay.tensor.server.file_tensor import FileTensor
    from forebay.tensor.server.server import TensorServer

__all__ = [
    "AsyncPullPlan",
    "AsyncTensorClient",
    "FileTensor",
    "PullPlan",
    "Tensor",
    "TensorClient",
    "TensorRef",
    "TensorServer",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "client.async_client": ("AsyncTensorClient",),
        "client.client": ("TensorClient",),
        "server.file_tensor": ("FileTensor",),
        "client.plan": ("AsyncPullPlan", "PullPlan"),
        "prepare.ref": ("TensorRef",),
        "server.server": ("TensorServer",),
        "prepare.tensor": ("Tensor",),
    },
)
