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
    from forebay.tensor._async_client import AsyncTensorClient
    from forebay.tensor._client import TensorClient
    from forebay.tensor._file_tensor import FileTensor
    from forebay.tensor._plan import AsyncPullPlan, PullPlan
    from forebay.tensor._ref import TensorRef
    from forebay.tensor._server import TensorServer
    from forebay.tensor._tensor import Tensor

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
        "_async_client": ("AsyncTensorClient",),
        "_client": ("TensorClient",),
        "_file_tensor": ("FileTensor",),
        "_plan": ("AsyncPullPlan", "PullPlan"),
        "_ref": ("TensorRef",),
        "_server": ("TensorServer",),
        "_tensor": ("Tensor",),
    },
)
