from __future__ import annotations

from tests.pool.conftest import pool

__all__ = ["pool"]
