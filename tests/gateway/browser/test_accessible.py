"""axe-core over each view of the dashboard, in light and dark: no serious finding."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.browser.browsing import Opened, expect, opened
from tests.gateway.http.http_serving import HttpServing

AXE = Path(__file__).parents[2] / "vendored/axe_core"
SERIOUS = ("serious", "critical")
RUN = """
async (impacts) => {
  const {violations} = await axe.run(document, {resultTypes: ["violations"]});
  return violations.filter((one) => impacts.includes(one.impact)).flatMap(({id, nodes}) =>
    nodes.map(({html, failureSummary}) => `${id}: ${html.slice(0, 200)}: ${failureSummary}`));
}
"""


@pytest.fixture(scope="module")
def ids(serving: HttpServing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A request of each kind that a view shows in its own way."""
    never = str(tmp_path_factory.mktemp("axe") / "never")
    found = {
        "succeeded": serving.submit("say", text="a\nb"),
        "failed": serving.submit("fail", text="no"),
        "running": serving.submit("tell", text="on the way", path=never),
    }
    for name in ("succeeded", "failed"):
        serving.result(found[name])
    found["queued"] = serving.call("POST", "/v1/requests/add?delay=300", {"a": 1}).json["id"]
    return found


def findings(it: Opened) -> list[str]:
    """What axe-core finds serious in what is shown now."""
    it.page.wait_for_timeout(300)
    if not it.page.evaluate("'axe' in window"):
        it.page.evaluate((AXE / "axe.min.js").read_text())
    found: list[str] = it.page.evaluate(RUN, SERIOUS)
    return found


SHOWN = {
    "overview": "",
    "requests": "requests",
    "none fits": "requests?name=nothing",
    "no view": "nothing",
    "workers": "workers",
    "pools": "pools",
    "schedules": "schedules",
    "succeeded": "requests/{succeeded}",
    "failed": "requests/{failed}",
    "running": "requests/{running}",
    "queued": "requests/{queued}",
    "unknown": "requests/000000000000",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(
    chromium: Any, serving: HttpServing, ids: dict[str, str], scheme: str
) -> None:
    """To who hears the page, sees little contrast, or uses no pointer."""
    with opened(chromium, serving, color_scheme=scheme) as it:
        found = {}
        for name, view in SHOWN.items():
            it.go(view.format(**ids))
            expect(it.page.get_by_test_id("loading")).to_have_count(0)
            expect(it.page.locator("main h1, [data-testid=nothing]").first).to_be_visible()
            if serious := findings(it):
                found[name] = serious
        assert found == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dialogs_and_the_login_are_accessible(
    chromium: Any, serving: HttpServing, ids: dict[str, str], scheme: str
) -> None:
    """What asks a question is reached first."""
    with opened(chromium, serving, f"requests/{ids['running']}", color_scheme=scheme) as it:
        it.part("cancel").click()
        expect(it.part("confirm-dialog")).to_be_visible()
        assert findings(it) == []
        it.press("Escape", "?")
        expect(it.part("keys-help")).to_be_visible()
        assert findings(it) == []
        it.press("Escape")
        it.go("requests")
        it.page.get_by_role("checkbox").nth(1).click()
        expect(it.part("toolbar")).to_be_visible()
        assert findings(it) == []
    with opened(chromium, serving, log_in=False, color_scheme=scheme) as it:
        expect(it.part("view-login")).to_be_visible()
        assert findings(it) == []


def test_a_phone_is_accessible(chromium: Any, serving: HttpServing, ids: dict[str, str]) -> None:
    """Its layout is another one."""
    with opened(chromium, serving, viewport={"width": 360, "height": 740}) as it:
        for view in ("", "requests", f"requests/{ids['failed']}"):
            it.go(view)
            expect(it.page.get_by_test_id("loading")).to_have_count(0)
            assert findings(it) == [], view


def test_the_copy_is_unmodified() -> None:
    """Nobody has taken a rule out."""
    rows = re.findall(
        r"^\| `([^`]+)` \| `([0-9a-f]{40})` \|$", (AXE / "README.md").read_text(), re.M
    )
    assert len(rows) == 2
    for name, blob in rows:
        content = (AXE / name).read_bytes()
        assert hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == blob, name
