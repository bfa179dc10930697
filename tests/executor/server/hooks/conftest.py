"""Fixtures of the tests of hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.server.hooks.hooked import APP, QUICK
from tests.executor.server.hooks.receiver import Receiver
from tests.executor.serving import Serving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    with Receiver() as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Servers of the application with hooks."""
    made: list[Serving] = []

    def start(*hooks: dict[str, Any], **settings: Any) -> Serving:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        serving = Serving(folder, APP, hooks=hooks, **QUICK | settings)
        made.append(serving)
        return serving.start()

    yield start
    for serving in made:
        serving.close()
