"""The dashboard follows what happens, and acts: cancel, retry, one and many."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from forebay.gateway.token_file import add_token
from forebay.gateway.tokens import Role
from tests.executor.serving import until
from tests.gateway.browser.browsing import Opened, enter, expect, opened
from tests.gateway.http.http_serving import HttpServing


def status(it: Opened, id_: str) -> Any:
    return it.row(id_).get_by_test_id("status")


def status_of(serving: HttpServing, id_: str) -> str:
    return str(serving.call("GET", f"/v1/requests/{id_}").json["status"])


def test_a_request_appears_and_ends_without_a_reload(
    chromium: Any, serving: HttpServing, tmp_path: Path
) -> None:
    """Nobody presses F5 on a page that is live."""
    with opened(chromium, serving, "requests?name=hold") as it:
        expect(it.part("live")).to_have_text("live")
        it.page.evaluate("window.isTheSame = true")
        id_ = serving.submit("hold", path=str(tmp_path / "go"))
        expect(status(it, id_)).to_have_text("running")
        (tmp_path / "go").touch()
        expect(status(it, id_)).to_have_text("succeeded")
        assert it.page.evaluate("window.isTheSame")


def test_the_overview_counts_what_has_failed(chromium: Any, serving: HttpServing) -> None:
    """It is the page that stays open on a wall."""
    with opened(chromium, serving) as it:
        before = int(it.part("stat-failed").locator(".stat-value").inner_text())
        id_ = serving.submit("fail", text="a reason of its own")
        expect(it.part("failures").get_by_text("a reason of its own")).to_be_visible()
        expect(it.part("stat-failed").locator(".stat-value")).to_have_text(str(before + 1))
        it.part("failures").get_by_role("link").first.click()
        expect(it.part("request-id")).to_have_text(id_)
        expect(it.part("status").first).to_have_text("failed")


def test_a_running_request_is_cancelled_once_it_is_confirmed(
    chromium: Any, serving: HttpServing, tmp_path: Path
) -> None:
    """The button with the focus is the one that keeps it, and Escape leaves."""
    id_ = serving.submit("hold", path=str(tmp_path / "never"))
    with opened(chromium, serving, f"requests/{id_}") as it:
        expect(it.part("status").first).to_have_text("running")
        it.part("cancel").click()
        expect(it.part("confirm-dialog")).to_contain_text(f"hold {id_}")
        expect(it.part("confirm-keep")).to_be_focused()
        it.press("Escape")
        expect(it.part("confirm-dialog")).to_have_count(0)
        it.part("cancel").click()
        it.press("Enter")  # on the button that has the focus
        expect(it.part("confirm-dialog")).to_have_count(0)
        assert status_of(serving, id_) == "running"
        it.part("cancel").click()
        it.part("confirm-act").click()
        expect(it.part("status").first).to_have_text("cancelled")
        expect(it.part("cancel")).to_have_attribute("aria-disabled", "true")
    assert status_of(serving, id_) == "cancelled"


def test_a_failed_request_is_retried(chromium: Any, serving: HttpServing) -> None:
    """With the same arguments, and the page says that it was."""
    id_ = serving.submit("fail", text="again")
    serving.result(id_)
    with opened(chromium, serving, f"requests/{id_}") as it:
        expect(it.part("status").first).to_have_text("failed")
        it.part("retry").click()
        it.part("confirm-act").click()
        expect(it.part("panel-facts")).to_contain_text("retried 1")
        expect(it.part("status").first).to_have_text("failed")
    assert serving.call("GET", f"/v1/requests/{id_}/show").json["retried"] == 1


def test_many_are_cancelled_at_once(chromium: Any, serving: HttpServing, tmp_path: Path) -> None:
    """The question names how many; those that have ended are left out."""
    path = str(tmp_path / "never")
    ids = [serving.submit("hold", path=path) for _ in range(30)]
    with opened(chromium, serving, "requests?name=hold&status=queued%2Crunning") as it:
        expect(it.part("request-row").first).to_be_visible()
        expect(it.part("requests-count")).to_contain_text("30 requests")
        it.part("select-all").click()
        expect(it.part("toolbar")).to_contain_text("30 selected")
        it.part("cancel-selected").click()
        expect(it.part("confirm-dialog")).to_contain_text("Cancel 30 requests?")
        it.part("confirm-act").click()
        expect(it.part("nothing")).to_be_visible()  # none fits the filter any more
        it.go("requests?name=hold&status=cancelled")
        expect(status(it, ids[-1])).to_have_text("cancelled")
    assert until(lambda: {status_of(serving, id_) for id_ in ids} == {"cancelled"})


def test_some_of_many_are_selected_and_retried(chromium: Any, serving: HttpServing) -> None:
    """A range by Shift, as in any list."""
    ids = [serving.submit("fail", text="many") for _ in range(5)]
    for id_ in ids:
        serving.result(id_)
    with opened(chromium, serving, "requests?name=fail") as it:
        it.row(ids[4]).get_by_role("checkbox").click()
        it.row(ids[1]).get_by_role("checkbox").click(modifiers=["Shift"])
        expect(it.part("toolbar")).to_contain_text("4 selected")
        it.part("retry-selected").click()
        it.part("confirm-act").click()
        expect(it.part("confirm-dialog")).to_have_count(0)
    retried = [serving.call("GET", f"/v1/requests/{id_}/show").json["retried"] for id_ in ids]
    assert retried == [0, 1, 1, 1, 1]


def test_progress_and_log_come_while_it_runs(
    chromium: Any, serving: HttpServing, tmp_path: Path
) -> None:
    """Also what was told before the page was opened, and is not told again."""
    id_ = serving.submit("tell", text="grüße", path=str(tmp_path / "go"), each_s=600)
    until(lambda: serving.call("GET", f"/v1/requests/{id_}/logs").body)
    with opened(chromium, serving, f"requests/{id_}") as it:
        expect(it.part("log")).to_contain_text("grüße")
        expect(it.part("why").get_by_test_id("progress")).to_contain_text("1 of 2")
        (tmp_path / "go").touch()
        expect(it.part("status").first).to_have_text("failed")
        expect(it.part("panel-timeline")).to_be_visible()


def test_a_link_leads_where_it_was_copied(chromium: Any, serving: HttpServing) -> None:
    """The filter of a list is in its link."""
    id_ = serving.submit("fail", text="linked")
    serving.result(id_)
    with opened(chromium, serving, "requests?status=failed&name=fail") as it:
        expect(it.row(id_)).to_be_visible()
        expect(it.part("filter-failed")).to_have_attribute("aria-pressed", "true")
        it.part("filter-failed").click()
        it.part("filter-succeeded").click()
        expect(it.row(id_)).to_have_count(0)
        assert re.search(r"status=succeeded", it.page.url)
        it.page.reload()
        expect(it.part("filter-succeeded")).to_have_attribute("aria-pressed", "true")


def test_nothing_yet_is_not_loading(chromium: Any, tmp_path: Path) -> None:
    """A new server says what would fill each view."""
    from tests.gateway.browser.browsing import APP

    with HttpServing(tmp_path, APP) as empty, opened(chromium, empty, "requests") as it:
        expect(it.part("nothing")).to_contain_text("forebay submit")
        it.go("pools")
        expect(it.part("nothing")).to_contain_text("forebay.acquire")


def test_who_may_only_read_cannot_press(chromium: Any, serving: HttpServing) -> None:
    """The buttons are there, and say which role may."""
    add_token(serving.state / "tokens.json", "viewer", Role.READ)
    id_ = serving.submit("fail", text="seen")
    serving.result(id_)
    time.sleep(1.1)  # the gateway looks at the file once a second
    with opened(chromium, serving, log_in=False, checks=False) as it:
        enter(it, "viewer")
        it.page.reload()
        it.go(f"requests/{id_}")
        expect(it.part("retry")).to_have_attribute("aria-disabled", "true")
        expect(it.part("retry")).to_have_attribute("title", re.compile("read.*submit"))
        it.part("retry").click(force=True)
        expect(it.part("confirm-dialog")).to_have_count(0)
        it.go("schedules")
        expect(it.part("pause").first).to_have_attribute("title", re.compile("admin"))


@pytest.mark.parametrize("view", ["", "requests", "workers", "pools", "schedules"])
def test_each_view_is_opened_by_its_link(chromium: Any, serving: HttpServing, view: str) -> None:
    """And nothing fails in it."""
    with opened(chromium, serving, view) as it:
        expect(it.part(f"view-{view or 'overview'}")).to_be_visible()
        expect(it.part("live")).to_have_text("live")
        assert it.page.title().endswith("shown")


def test_a_schedule_is_paused_and_resumed(chromium: Any, serving: HttpServing) -> None:
    """After a question, as it changes what runs."""
    with opened(chromium, serving, "schedules") as it:
        for word, then in (("pause", "resume"), ("resume", "pause")):
            it.part(word).click()
            it.part("confirm-act").click()
            expect(it.part(then)).to_be_visible()
    (schedule,) = serving.call("GET", "/v1/schedules").json["schedules"]
    assert schedule["paused"] is False


def test_a_cordon_is_said_above_the_figures(chromium: Any, serving: HttpServing) -> None:
    """Somebody looks why what they submit is refused."""
    with opened(chromium, serving) as it:
        serving.call("POST", "/v1/cordon", {"reason": "a new disk"})
        try:
            expect(it.part("server-notice")).to_contain_text("a new disk")
        finally:
            serving.call("POST", "/v1/cordon", {"undo": True})
        expect(it.part("server-notice")).to_have_count(0)


def test_a_rare_filter_reads_on_when_it_is_asked_to(chromium: Any, serving: HttpServing) -> None:
    """With few rows the end is always in sight: the page would read the whole store."""
    serving.result(serving.submit("add", a=1))
    (row,) = serving.call("GET", "/v1/requests?limit=1").json["requests"]
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        rows = [] if "cursor=" in asked[-1] else [row | {"name": "rare"}]
        route.fulfill(json={"schema": 1, "requests": rows, "next": f"{len(asked):012}"})

    with opened(chromium, serving) as it:
        expect(it.part("live")).to_have_text("live")
        it.page.route(re.compile(r"/v1/requests\?.*name=rare"), answer)
        it.go("requests?name=rare")
        older = it.part("look-older")
        expect(older).to_be_visible()
        before = len(asked)
        it.page.wait_for_timeout(1500)
        assert len(asked) == before
        older.click()
        expect(older).to_be_visible()
        it.page.wait_for_timeout(1500)
        assert before < len(asked) <= before + 20
        it.page.unroute_all(behavior="wait")
