"""The owner of the default pool, if that is not a pool of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["make_default_by"]

make_default: Callable[[], Any] | None = None


def make_default_by(make: Callable[[], Any]) -> None:
    """In a worker of the executor, before anything there has used a pool: its server's pool."""
    global make_default
    make_default = make
