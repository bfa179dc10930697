"""What one request changes of its process, the next one does not see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.worker.crew import Seat, seated


@pytest.fixture(scope="module")
def seat(tmp_path_factory: Any) -> Iterator[Seat]:
    with seated(tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize("how", ["returns", "raises", "exits", "is interrupted"])
def test_everything_is_put_back_on_every_way_out(seat: Seat, tmp_path: Path, how: str):
    """Environment, directory, umask, streams, signal handlers, logging."""
    seat.run("noop")
    before = seat.run("state")
    outcome = seat.run("deface", {"directory": str(tmp_path), "how": how})
    assert outcome[0] == ("ok" if how == "returns" else "failed"), outcome
    assert seat.run("state") == before


def test_output_goes_on_after_a_request_that_closed_it(seat: Seat, tmp_path: Path):
    """Streams that a request closed or replaced are there again, and no descriptor is closed."""
    seat.run("deface", {"directory": str(tmp_path)})
    seat.printed()
    for number in range(3):
        assert seat.run("speak", {"text": "again", "number": number}) == ("ok", None)
    assert seat.printed().count("again") == 6


def test_output_goes_on_after_a_request_that_was_broken_off_while_it_redirected_it(seat: Seat):
    """Descriptors 1 and 2 are the log's again."""
    assert seat.run("redirect", {"how": "raises"})[0] == "failed"
    assert seat.run("speak", {"text": "here"}) == ("ok", None)
    assert seat.printed().count("here") == 2


def test_working_directory_that_was_removed_is_put_back(seat: Seat, tmp_path: Path):
    """A request may remove the directory that it works in."""
    before = seat.run("state")
    gone = tmp_path / "gone"
    gone.mkdir()
    assert seat.run("remove", {"directory": str(gone)}) == ("ok", None)
    assert seat.run("state") == before


def test_handlers_of_loggers_do_not_pile_up(seat: Seat, tmp_path: Path):
    """Each line is logged once, however many requests have set logging up."""
    for _ in range(3):
        seat.run("deface", {"directory": str(tmp_path)})
    seat.printed()
    seat.run("log", {"text": "once"})
    assert seat.printed().count("once") == 1


def test_a_pending_alarm_does_not_reach_the_next_request(seat: Seat):
    """A timer that a request set is gone with its handler."""
    seat.run("alarm", {"seconds": 0.05})
    assert seat.run("echo_late", {"seconds": 0.2, "value": 3}) == ("ok", 3)


def test_context_variables_do_not_reach_the_next_request(seat: Seat):
    """Each request runs in a context of its own."""
    assert seat.run("variable", {"value": "first"}) == ("ok", "unset")
    assert seat.run("variable", {"value": "second"}) == ("ok", "unset")
