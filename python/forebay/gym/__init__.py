"""Gymnasium environments whose work is done by pooled services.

`make_vec` makes a vector environment on warm processes, a one-line swap for AsyncVectorEnv.
`ServiceEnv` is the base of a single environment that borrows its backend.
Needs the extra `gym`; nothing else in Forebay imports gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.gym._environment import AcquireFunction, ServiceEnv
    from forebay.gym._loss import SpacesError
    from forebay.gym._make import environment_pool, make_vec
    from forebay.gym._vector import PooledVectorEnv

__all__ = [
    "AcquireFunction",
    "PooledVectorEnv",
    "ServiceEnv",
    "SpacesError",
    "environment_pool",
    "make_vec",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_environment": ("AcquireFunction", "ServiceEnv"),
        "_loss": ("SpacesError",),
        "_make": ("environment_pool", "make_vec"),
        "_vector": ("PooledVectorEnv",),
    },
)
