"""Chromium and a served application, one of each for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.browser.browsing import APP, Opened, expect, launched, opened
from tests.gateway.http.http_serving import HttpServing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What all tests of this folder need, and leave until the last one of their module."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.needs("chromium"))
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.leaks(reason="the browser stays for the module's tests"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. Playwright's loop runs in this thread, so it ends with the module."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    """A server with its gateway."""
    with HttpServing(tmp_path_factory.mktemp("shown"), APP) as running:
        yield running


@pytest.fixture(scope="module")
def modules(chromium: Any, serving: HttpServing) -> Iterator[Opened]:
    """A page whose modules are called."""
    with opened(chromium, serving) as it:
        expect(it.part("view-overview")).to_be_visible()
        yield it
