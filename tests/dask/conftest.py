"""For every test of comms: nothing that Dask keeps for good is taken for a leak."""

from __future__ import annotations

import asyncio

import pytest
from distributed.utils import offload

from tests.loops import run

__all__ = ["run"]


@pytest.fixture(scope="session", autouse=True)
def kept_by_dask() -> None:
    """Make the thread in which Dask serializes what is large, which it makes once and keeps."""
    asyncio.run(offload(int))
