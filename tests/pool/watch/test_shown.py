"""What a notebook shows of a pool."""

from __future__ import annotations

import os
import re
from typing import Any

from tests.pool.services import Echo


def test_a_pool_shows_its_services_and_who_holds_them(pool: Any) -> None:
    """A look at it says what runs, and whose lease is old."""
    with pool.acquire(Echo.spec(3)) as echo:
        shown = pool._repr_html_()
        assert "1 live" in shown
        assert "1 leased, 0 callers wait" in shown
        pid, holder = echo.lease.pid, os.getpid()
        cells = rf"<td>Echo</td><td>{pid}</td><td>leased</td><td>{holder}</td><td>[\d.]+ m?s</td>"
        assert re.search(cells, shown), shown
    assert "<td>leased</td>" not in pool._repr_html_()


def test_a_pool_that_is_closed_is_shown_too(pool: Any) -> None:
    """The last line of a cell raises nothing."""
    pool.close()
    assert pool._repr_html_().startswith("<table><caption>&lt;")


def test_a_long_table_says_how_many_more_there_are() -> None:
    """A page of a thousand requests does not fill the notebook."""
    from forebay.executor.client.shown import RequestRows

    rows = RequestRows({"id": f"{number:012}", "name": "x" * 1000} for number in range(60))
    shown = rows._repr_html_()
    assert shown.count("<tr>") == 52
    assert '<td colspan="7">and 10 more</td>' in shown
    assert "x" * 199 + "\N{HORIZONTAL ELLIPSIS}" in shown
    assert "x" * 200 not in shown
