from __future__ import annotations

from collections.abc import Iterator

import pytest

import forebay


@pytest.fixture
def pool() -> Iterator[forebay.ServicePool]:
    """A pool of two services, closed at the end."""
    with forebay.ServicePool(max_size=2, name="test") as made:
        yield made
