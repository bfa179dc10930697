"""Sessions and connections of the dashboard: begun, lost, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.gateway.login import new_link
from tests.gateway.browser.browsing import APP, Opened, expect, opened
from tests.gateway.http.http_serving import HttpServing


@pytest.fixture
def own(tmp_path: Path) -> Iterator[HttpServing]:
    """A server that the test may end."""
    with HttpServing(tmp_path, APP) as running:
        yield running


def log_in(it: Opened, token: str) -> None:
    """As somebody does who has a token."""
    it.part("login-token").fill(token)
    it.part("login-submit").click()


def test_the_link_of_serve_opens_the_page(chromium: Any, serving: HttpServing) -> None:
    """It is what a terminal shows, and what is clicked there."""
    with opened(chromium, serving, log_in=False) as it:
        it.page.goto(new_link(serving.state, serving.url, "local"))
        assert it.page.url == f"{serving.url}/ui/"
        expect(it.part("view-overview")).to_be_visible()


def test_without_a_session_a_token_is_asked_for(chromium: Any, serving: HttpServing) -> None:
    """A wrong one is refused beside the field, and the right one leads to where the link led."""
    with opened(chromium, serving, "workers", log_in=False) as it:
        expect(it.part("view-login")).to_contain_text("forebay token link")
        log_in(it, "fb_" + "x" * 43)
        expect(it.part("refusal")).to_contain_text("unknown")
        log_in(it, serving.token)
        expect(it.part("view-workers")).to_be_visible()
        kept = it.page.evaluate("JSON.stringify([{...localStorage}, document.cookie])")
        assert "fb_" not in kept  # no script can read the session


def test_a_gateway_that_is_killed_is_back_and_asks_again(chromium: Any, own: HttpServing) -> None:
    """Its sessions were in its memory; the page goes on where it was."""
    id_ = own.submit("fail", text="before")
    own.result(id_)
    with opened(chromium, own, "requests?status=failed") as it:
        expect(it.row(id_)).to_be_visible()
        own.kill_gateway()
        expect(it.part("view-login")).to_be_visible()
        log_in(it, own.token)
        expect(it.row(id_)).to_be_visible()
        expect(it.part("live")).to_have_text("live")
        later = own.submit("fail", text="after")
        expect(it.row(later)).to_be_visible()


def test_a_server_that_is_away_is_said_so_and_back(chromium: Any, own: HttpServing) -> None:
    """Figures stay with their age, and the next try is told."""
    with opened(chromium, own) as it:
        expect(it.part("stat-failed")).to_be_visible()
        own.kill()
        bar = it.part("connection-bar")
        expect(bar).to_contain_text("The connection is lost")
        expect(bar).to_contain_text(re.compile(r"Next try in \d+ s|Trying"))
        expect(it.part("stat-failed")).to_be_visible()
        expect(it.part("view-overview")).to_have_class(re.compile("stale"))
        own.start()
        expect(it.part("view-login")).to_be_visible()
        log_in(it, own.token)
        expect(it.part("view-overview")).to_be_visible()
        expect(bar).to_have_count(0)
        expect(it.part("live")).to_have_text("live")


def test_a_network_that_is_away_costs_no_session(chromium: Any, serving: HttpServing) -> None:
    """A laptop that was closed goes on by itself, and misses nothing."""
    with opened(chromium, serving, "requests?name=add") as it:
        expect(it.part("live")).to_have_text("live")
        it.page.context.set_offline(True)
        expect(it.part("connection-bar")).to_be_visible()
        expect(it.part("live")).to_have_text("lost")
        id_ = serving.submit("add", a=1)
        serving.result(id_)
        it.part("try-now").click()
        expect(it.part("connection-bar")).to_be_visible()
        it.page.context.set_offline(False)
        expect(it.part("connection-bar")).to_have_count(0)
        expect(it.row(id_).get_by_test_id("status")).to_have_text("succeeded")


def test_a_page_that_nobody_sees_gives_its_stream_up(chromium: Any, serving: HttpServing) -> None:
    """Six connections are all that a browser has for one server."""
    with opened(chromium, serving, "requests?name=add") as it:
        expect(it.part("live")).to_have_text("live")
        hide = """(is) => {
          Object.defineProperty(document, "visibilityState", {value: is, configurable: true});
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
        it.page.evaluate(hide, "hidden")
        expect(it.part("live")).not_to_have_text("live")
        id_ = serving.submit("add", a=2)
        serving.result(id_)
        it.page.evaluate(hide, "visible")
        expect(it.part("live")).to_have_text("live")
        expect(it.row(id_).get_by_test_id("status")).to_have_text("succeeded")


OVERVIEW = re.compile("/v1/overview")


def test_what_is_no_answer_of_the_server_is_tried_again(
    chromium: Any, serving: HttpServing
) -> None:
    """A proxy answers with a page of its own, at first too, and the figures go on after it."""
    with opened(chromium, serving) as it:
        expect(it.part("view-overview")).to_be_visible()
        it.page.route(OVERVIEW, lambda route: route.fulfill(body="<p>Sign in</p>"))
        expect(it.part("connection-bar")).to_be_visible()
        it.page.unroute(OVERVIEW)
        expect(it.part("connection-bar")).to_have_count(0)
        refusal = {"status": 503, "json": {"status": 503, "code": "hold", "detail": "not now"}}
        it.page.route(OVERVIEW, lambda route: route.fulfill(**refusal))
        it.page.reload()
        expect(it.part("refusal")).to_contain_text("not now")
        it.page.unroute(OVERVIEW)
        expect(it.part("view-overview")).to_be_visible()


def test_what_could_not_be_read_is_read_once_it_can(chromium: Any, serving: HttpServing) -> None:
    """Also what is read once alone, such as arguments: nobody presses F5."""
    id_ = serving.submit("say", text="read later")
    serving.result(id_)
    requests, arguments = re.compile("/v1/requests"), re.compile("/arguments$")
    with opened(chromium, serving) as it:
        expect(it.part("live")).to_have_text("live")
        it.page.route(requests, lambda route: route.abort())
        it.go("requests?name=say")
        expect(it.part("refusal")).to_be_visible()
        it.page.unroute(requests)
        expect(it.row(id_)).to_be_visible()
        it.page.route(arguments, lambda route: route.abort())
        it.go(f"requests/{id_}")
        expect(it.part("panel-arguments").get_by_test_id("loading")).to_be_visible()
        it.page.unroute(arguments)
        expect(it.part("panel-arguments")).to_contain_text("read later")


def test_a_question_ends_with_its_session(chromium: Any, serving: HttpServing) -> None:
    """Who logs in next would stand before the question of somebody else."""
    id_ = serving.submit("fail", text="asked")
    serving.result(id_)
    with opened(chromium, serving, f"requests/{id_}") as it:
        it.part("retry").click()
        expect(it.part("confirm-dialog")).to_be_visible()
        it.page.context.clear_cookies()
        expect(it.part("view-login")).to_be_visible()
        log_in(it, serving.token)
        expect(it.part("request-id")).to_have_text(id_)
        expect(it.part("confirm-dialog")).to_have_count(0)


def test_who_logs_out_is_out_in_other_tabs_too(chromium: Any, serving: HttpServing) -> None:
    """At a machine that others use as well."""
    with opened(chromium, serving) as it:
        other = it.page.context.new_page()
        other.goto(f"{serving.url}/ui/#/workers")
        expect(other.get_by_test_id("view-workers")).to_be_visible()
        it.part("log-out").click()
        expect(it.part("view-login")).to_be_visible()
        expect(other.get_by_test_id("view-login")).to_be_visible()
