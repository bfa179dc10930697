"""What a request has yielded, on its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.browser.browsing import expect, opened
from tests.gateway.http.http_serving import HttpServing

MARKUP = "<img src=x onerror=alert(1)>"


def test_the_last_items_are_shown_as_they_come(
    chromium: Any, serving: HttpServing, tmp_path: Path
) -> None:
    """With their number and epoch; a large one by its size, and markup as text."""
    gate = tmp_path / "gate"
    id_ = serving.submit("yields", path=str(gate), text=MARKUP, count=1_200)
    with opened(chromium, serving, f"requests/{id_}") as it:
        rows = it.part("items").locator("div")
        expect(it.part("panel-items")).to_contain_text("1,199 items")
        expect(it.part("panel-items")).to_contain_text("epoch 1")
        expect(rows).to_have_count(5)
        expect(rows.last).to_contain_text("1,199")
        expect(rows.last).to_contain_text(f"{MARKUP} 1199")
        assert it.page.locator("img").count() == 0
        gate.touch()
        expect(it.part("panel-items")).to_contain_text("1,200 items")
        expect(rows.last).to_contain_text("4.0 kB")
        expect(rows.first).to_contain_text(f"{MARKUP} 1196")
        gate.unlink()
        assert serving.call("POST", f"/v1/requests/{id_}/retry").status == 202
        expect(it.part("panel-items")).to_contain_text("epoch 2")
        expect(rows.last).to_contain_text(f"{MARKUP} 1199")
        it.check()
    serving.call("POST", f"/v1/requests/{id_}/cancel")


def test_a_request_that_yields_nothing_has_no_such_part(
    chromium: Any, serving: HttpServing
) -> None:
    """An empty panel would say that something is to come."""
    id_ = serving.submit("add", a=1)
    serving.result(id_)
    with opened(chromium, serving, f"requests/{id_}") as it:
        expect(it.part("panel-children")).to_be_visible()
        expect(it.part("panel-items")).to_have_count(0)
