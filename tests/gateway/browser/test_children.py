"""The tree of what a request has submitted."""

from __future__ import annotations

from typing import Any

from tests.gateway.browser.browsing import expect, opened
from tests.gateway.http.http_serving import HttpServing


def test_a_tree_is_opened_branch_by_branch(chromium: Any, serving: HttpServing) -> None:
    """By keys too; what is opened is asked for, and the deepest ones have none."""
    id_ = serving.submit("tree", depth=2)
    assert serving.result(id_).json == 7
    with opened(chromium, serving) as it:
        it.go(f"requests/{id_}")
        rows = it.part("children").locator("tbody tr")
        expect(rows).to_have_count(2)
        first = it.part("open-child").first
        expect(first).to_have_attribute("aria-expanded", "false")
        first.focus()
        it.press("Enter")
        expect(rows).to_have_count(4)
        expect(first).to_have_attribute("aria-expanded", "true")
        it.part("open-child").nth(1).click()
        expect(it.part("children")).to_contain_text("It has submitted none.")
        first.click()
        expect(rows).to_have_count(2)
        it.check()
