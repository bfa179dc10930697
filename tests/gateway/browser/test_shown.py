"""What is shown where: on a phone, in the dark, by keys alone, and of users who write markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.executor.serving import Caller
from tests.gateway.browser.browsing import Opened, expect, opened
from tests.gateway.http.http_serving import HttpServing

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script><b>bold</b>&amp;\"'`${1}"
VIEWS = ("", "requests", "workers", "pools", "schedules")
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def marked(serving: HttpServing, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Requests that have markup wherever a user can put some."""
    with Caller(serving.socket) as caller:
        options = {"submitter": MARKUP, "key": MARKUP}
        ids = [caller.submit(name, options, text=MARKUP) for name in ("say", "fail")]
    path = str(tmp_path_factory.mktemp("marked") / "never")
    running = serving.submit("tell", text=MARKUP, path=path)
    for id_ in ids:
        serving.result(id_)
    return [*ids, running]


def without_elements(it: Opened) -> None:
    """The text made no element, and nothing of it ran."""
    assert it.page.locator("img, #app script, iframe, object").count() == 0
    it.check()


def test_markup_of_users_is_text(chromium: Any, serving: HttpServing, marked: list[str]) -> None:
    """A submitter, an argument, an error, a log and a progress message run nothing."""
    said, failed, running = marked
    with opened(chromium, serving) as it:
        expect(it.part("failures").get_by_text(MARKUP).first).to_be_visible()
        without_elements(it)
        it.go("requests")
        expect(it.row(said).locator(".cell-submitter")).to_have_text(MARKUP)
        expect(it.row(failed).locator(".cell-what")).to_contain_text(MARKUP)
        expect(it.row(running).get_by_test_id("progress")).to_contain_text(MARKUP)
        without_elements(it)
        it.go(f"requests/{failed}")
        expect(it.part("panel-arguments")).to_contain_text(MARKUP)
        expect(it.part("panel-facts")).to_contain_text(MARKUP)
        without_elements(it)
        it.go(f"requests/{running}")
        expect(it.part("log")).to_contain_text(MARKUP)
        expect(it.part("why").get_by_test_id("progress")).to_contain_text(MARKUP)
        it.part("log-search").fill("<script>")
        expect(it.part("log").locator("mark").first).to_have_text("<script>")
        without_elements(it)


def test_markup_in_a_link_is_text(chromium: Any, serving: HttpServing) -> None:
    """Somebody else may have written it."""
    with opened(chromium, serving) as it:
        for view in (f"{MARKUP}", f"requests/{MARKUP}", f"requests?name={MARKUP}"):
            it.go(view)
            it.page.wait_for_timeout(300)
            without_elements(it)
        it.go("requests?submitter=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        chip = it.page.get_by_role("button", name="submitter <img src=x onerror=alert(1)>")
        expect(chip).to_be_visible()
        without_elements(it)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_down_alone(
    chromium: Any, serving: HttpServing, marked: list[str], scheme: str
) -> None:
    """At 360 pixels nothing is cut off, and nothing has to be moved sideways."""
    with opened(chromium, serving, color_scheme=scheme, **PHONE) as it:
        for view in (*VIEWS, f"requests/{marked[1]}", f"requests/{marked[2]}"):
            it.go(view)
            expect(it.page.locator("main h1")).to_be_visible()
            it.page.wait_for_timeout(300)
            width, seen = it.page.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            assert width <= seen == 360, view
        it.part("nav-requests").click()
        expect(it.row(marked[0])).to_be_visible()


def luminance(it: Opened) -> float:
    """How bright the page's ground is, 0 to 255."""
    color = it.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    red, green, blue = (float(part) for part in re.findall(r"[\d.]+", color)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_dark_is_dark(chromium: Any, serving: HttpServing) -> None:
    """As the system says, or as was chosen, which is kept."""
    with opened(chromium, serving, color_scheme="dark") as it:
        expect(it.part("view-overview")).to_be_visible()
        assert luminance(it) < 60
    with opened(chromium, serving, color_scheme="light") as it:
        expect(it.part("view-overview")).to_be_visible()
        assert luminance(it) > 200
        it.part("theme-toggle").click()
        assert luminance(it) < 60
        it.page.reload()
        expect(it.part("view-overview")).to_be_visible()
        assert luminance(it) < 60
        it.part("theme-toggle").click()
        assert luminance(it) > 200


OUTLINE = """
(({outlineStyle, outlineWidth, boxShadow}) => [outlineStyle, outlineWidth, boxShadow])(
  getComputedStyle(document.activeElement))
"""
"""By which what has the focus is seen."""


def focused(it: Opened) -> str:
    """What has the focus: its `data-testid`, or its text."""
    found: str = it.page.evaluate(
        "document.activeElement.dataset.testid ?? document.activeElement.innerText ?? ''"
    )
    return found


ACTIVE = re.compile(r"\bactive\b")


def begin_list(it: Opened, id_: str) -> None:
    """To the first row, once the list is there and hears of keys."""
    expect(it.row(id_)).to_be_visible()
    for _ in range(100):
        it.press("Home")
        if re.search(ACTIVE, it.row(id_).get_attribute("class") or ""):
            return
        it.page.wait_for_timeout(100)
    raise AssertionError("the list hears of no key")


def test_all_is_done_by_keys_alone(chromium: Any, serving: HttpServing, tmp_path: Path) -> None:
    """From the first view to a request that is cancelled."""
    path = str(tmp_path / "never")
    ids = [serving.submit("hold", path=path) for _ in range(3)]
    with opened(chromium, serving) as it:
        expect(it.part("live")).to_have_text("live")
        it.press("?")
        expect(it.part("keys-help")).to_be_visible()
        it.press("Escape")
        expect(it.part("keys-help")).to_have_count(0)
        it.press("g", "r")
        begin_list(it, ids[2])
        it.press("j")
        expect(it.row(ids[1])).to_have_class(ACTIVE)
        it.press("Enter")
        expect(it.part("request-id")).to_have_text(ids[1])
        it.press("Escape")
        begin_list(it, ids[2])
        it.press("x")
        expect(it.part("toolbar")).to_contain_text("1 selected")
        it.press("j")
        expect(it.row(ids[1])).to_have_class(ACTIVE)
        it.press("x")
        expect(it.part("toolbar")).to_contain_text("2 selected")
        it.press("c")
        expect(it.part("confirm-keep")).to_be_focused()
        it.press("Tab")
        expect(it.part("confirm-act")).to_be_focused()
        it.press("Enter")
        for id_ in ids[1:]:
            expect(it.row(id_).get_by_test_id("status")).to_have_text("cancelled")
        expect(it.row(ids[0]).get_by_test_id("status")).to_have_text("running")
    serving.call("POST", f"/v1/requests/{ids[0]}/cancel")


def test_escape_in_a_field_leaves_that_alone(chromium: Any, serving: HttpServing) -> None:
    """Who has typed a word wrongly loses neither the selection nor the request."""
    id_ = serving.submit("shout", count=3)
    serving.result(id_)
    with opened(chromium, serving, "requests?name=shout") as it:
        it.row(id_).get_by_role("checkbox").click()
        expect(it.part("toolbar")).to_contain_text("1 selected")
        it.part("filter-name").fill("shou")
        it.part("filter-name").press("Escape")
        expect(it.part("filter-name")).not_to_be_focused()
        expect(it.part("filter-name")).to_have_value("shout")
        expect(it.part("toolbar")).to_contain_text("1 selected")
        it.go(f"requests/{id_}")
        it.part("log-search").fill("line 2")
        expect(it.part("log-found")).to_be_visible()
        it.part("log-search").press("Escape")
        expect(it.part("log-found")).to_have_count(0)
        expect(it.part("log-search")).not_to_be_focused()
        expect(it.part("request-id")).to_have_text(id_)


def test_a_request_leads_back_to_the_list_as_it_was(chromium: Any, serving: HttpServing) -> None:
    """By Escape and by the link above it; the filter would have to be set again."""
    id_ = serving.submit("shout", count=1)
    serving.result(id_)
    with opened(chromium, serving, "requests?name=shout&status=succeeded") as it:
        for leave in (lambda: it.press("Escape"), lambda: it.page.locator(".crumb a").click()):
            it.row(id_).get_by_role("link").click()
            expect(it.part("request-id")).to_have_text(id_)
            leave()
            expect(it.row(id_)).to_be_visible()
            assert "name=shout" in it.page.url
            assert "status=succeeded" in it.page.url


def test_the_key_behind_g_leads_to_a_view(chromium: Any, serving: HttpServing) -> None:
    """Also where it does something else: r asks whether to retry what is selected."""
    id_ = serving.submit("shout", count=1)
    serving.result(id_)
    with opened(chromium, serving, "requests?name=shout") as it:
        it.row(id_).get_by_role("checkbox").click()
        expect(it.part("toolbar")).to_contain_text("1 selected")
        it.press("g", "r")
        expect(it.part("filter-name")).to_have_value("")
        expect(it.part("confirm-dialog")).to_have_count(0)
        it.press("g", "w")
        expect(it.part("view-workers")).to_be_visible()


def test_a_page_of_high_rows_is_passed_by_page_down(chromium: Any, serving: HttpServing) -> None:
    """On a narrow screen a row is higher: rows would be passed over unseen."""
    ids = [serving.submit("yearly") for _ in range(30)][::-1]
    with opened(chromium, serving, "requests?name=yearly", viewport=PHONE["viewport"]) as it:
        begin_list(it, ids[0])
        height = it.page.locator(".grid-body").evaluate("(body) => body.clientHeight")
        it.press("PageDown")
        expect(it.row(ids[height // 60 - 1])).to_have_class(ACTIVE)


@pytest.mark.parametrize(("copies", "said"), [("true", "Copied"), ("false", "Not copied")])
def test_a_clipboard_that_is_refused_is_said(
    chromium: Any, serving: HttpServing, copies: str, said: str
) -> None:
    """Where the older way does not copy either; who pastes would paste something else."""
    id_ = serving.submit("shout", count=1)
    with opened(chromium, serving, f"requests/{id_}") as it:
        it.page.evaluate(
            "navigator.clipboard.writeText = async () => { throw new DOMException('no'); };"
            f"document.execCommand = () => {copies};"
        )
        copy = it.part("request-head").get_by_test_id("copy")
        copy.click()
        expect(copy).to_have_attribute("aria-label", re.compile(said))
        expect(copy).to_have_attribute("aria-label", "Copy the id")


def test_tab_leads_through_the_page_and_the_focus_is_seen(
    chromium: Any, serving: HttpServing
) -> None:
    """Who uses no pointer sees where they are, and can pass over what is the same everywhere."""
    with opened(chromium, serving) as it:
        expect(it.part("view-overview")).to_be_visible()
        it.press("Tab")
        assert focused(it) == "To the content"
        expect(it.page.get_by_text("To the content")).to_be_in_viewport()
        seen = []
        for _ in range(12):
            it.press("Tab")
            seen.append(focused(it))
            style, width, shadow = it.page.evaluate(OUTLINE)
            assert (style != "none" and width != "0px") or shadow != "none", seen[-1]
        wanted = ["nav-overview", "nav-requests", "nav-workers", "nav-pools", "nav-schedules"]
        assert [one for one in seen if one in wanted] == wanted
        assert "theme-toggle" in seen


def test_who_wants_no_movement_has_none(chromium: Any, serving: HttpServing) -> None:
    """`prefers-reduced-motion` holds for what turns and slides."""
    with opened(chromium, serving, reduced_motion="reduce") as it:
        expect(it.part("view-overview")).to_be_visible()
        moving = it.page.evaluate(
            "document.getAnimations().filter((one) => one.playState === 'running').length"
        )
        assert moving == 0
