from __future__ import annotations

from tests.pool.conftest import path, pool, pool_of

__all__ = ["path", "pool", "pool_of"]
