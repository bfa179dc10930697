"""What one request changes of its process, the next one does not see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.worker.supervising import Slot, in_slot


@pytest.fixture(scope="module")
def slot(tmp_path_factory: Any) -> Iterator[Slot]:
    with in_slot(tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize("how", ["returns", "raises", "exits", "is interrupted"])
def test_everything_is_put_back_on_every_way_out(slot: Slot, tmp_path: Path, how: str):
    """Environment, directory, umask, streams, signal handlers, logging."""
    slot.run("noop")
    before = slot.run("state")
    outcome = slot.run("deface", {"directory": str(tmp_path), "how": how})
    assert outcome[0] == ("ok" if how == "returns" else "failed"), outcome
    assert slot.run("state") == before


def test_output_goes_on_after_a_request_that_closed_it(slot: Slot, tmp_path: Path):
    """Streams that a request closed or replaced are there again, and no descriptor is closed."""
    slot.run("deface", {"directory": str(tmp_path)})
    slot.printed()
    for number in range(3):
        assert slot.run("speak", {"text": "again", "number": number}) == ("ok", None)
    assert slot.printed().count("again") == 6


def test_output_goes_on_after_a_request_that_was_broken_off_while_it_redirected_it(slot: Slot):
    """Descriptors 1 and 2 are the log's again."""
    assert slot.run("redirect", {"how": "raises"})[0] == "failed"
    assert slot.run("speak", {"text": "here"}) == ("ok", None)
    assert slot.printed().count("here") == 2


def test_working_directory_that_was_removed_is_put_back(slot: Slot, tmp_path: Path):
    """A request may remove the directory that it works in."""
    before = slot.run("state")
    gone = tmp_path / "gone"
    gone.mkdir()
    assert slot.run("remove", {"directory": str(gone)}) == ("ok", None)
    assert slot.run("state") == before


def test_handlers_of_loggers_do_not_pile_up(slot: Slot, tmp_path: Path):
    """Each line is logged once, however many requests have set logging up."""
    for _ in range(3):
        slot.run("deface", {"directory": str(tmp_path)})
    slot.printed()
    slot.run("log", {"text": "once"})
    assert slot.printed().count("once") == 1


def test_a_pending_alarm_does_not_reach_the_next_request(slot: Slot):
    """A timer that a request set is gone with its handler."""
    slot.run("alarm", {"seconds": 0.05})
    assert slot.run("echo_late", {"seconds": 0.2, "value": 3}) == ("ok", 3)


def test_context_variables_do_not_reach_the_next_request(slot: Slot):
    """Each request runs in a context of its own."""
    assert slot.run("variable", {"value": "first"}) == ("ok", "unset")
    assert slot.run("variable", {"value": "second"}) == ("ok", "unset")
