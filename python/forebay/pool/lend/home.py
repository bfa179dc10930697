"""Whose pool is the default one, where that is not a pool of this process's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

make_default: Callable[[], Any] | None = None
"""Set in a worker of the executor, before anything there has used a pool: its server's pool."""
