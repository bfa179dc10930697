"""Changed sources: which code runs, and what happens where it cannot be imported."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.executor.serving import RefusedError, Serving

TEXT = """
import forebay

app = forebay.App("edited")

@app.request(lane="short")
def version() -> str:
    return {version!r}
"""


def edit(serving: Serving, text: str) -> None:
    """As an editor does it: a new file takes the old one's place."""
    fresh = serving.file.with_suffix(".swp")
    fresh.write_text(text)
    os.replace(fresh, serving.file)


def test_edit_and_run_never_answers_with_old_code(tmp_path: Path) -> None:
    """The next request after an edit runs what was edited, with nothing in between."""
    with (
        Serving(tmp_path, TEXT.format(version="0"), reloads=True) as serving,
        serving.caller() as caller,
    ):
        assert caller.run("version") == "0"
        codes = {caller.ask("status", "@last")["code"]}
        for number in range(1, 6):
            edit(serving, TEXT.format(version=str(number)))
            assert caller.run("version") == str(number)
            codes.add(caller.ask("status", "@last")["code"])
        assert len(codes) == 6


def test_a_new_request_is_known_at_once(tmp_path: Path) -> None:
    """The names that are accepted are those of the file as it is."""
    text = TEXT.format(version="0")
    with Serving(tmp_path, text, reloads=True) as serving, serving.caller() as caller:
        edit(serving, text + "\n@app.request()\ndef another() -> int:\n    return 7\n")
        assert caller.run("another") == 7


def test_an_import_error_is_told_and_the_next_edit_mends_it(tmp_path: Path) -> None:
    """Nothing runs by old code meanwhile, and what waits, waits."""
    with (
        Serving(tmp_path, TEXT.format(version="0"), reloads=True) as serving,
        serving.caller() as caller,
    ):
        edit(serving, "raise RuntimeError('broken edit')\n")
        with pytest.raises(RefusedError, match="broken edit") as caught:
            caller.run("version")
        assert caught.value.told["code"] == "hold"
        edit(serving, TEXT.format(version="1"))
        serving.hear("loaded")
        assert caller.run("version") == "1"


def test_a_server_starts_with_an_application_that_cannot_be_imported(tmp_path: Path) -> None:
    """What was accepted before is kept, and the reason is told to who asks."""
    serving = Serving(tmp_path, "import no_such_module\n", reloads=True)
    try:
        serving.start(ready=False)
        assert "no_such_module" in serving.hear("unfit")["reason"]
        serving.hear("ready")
        with serving.caller() as caller:
            assert "no_such_module" in caller.ask("info")["figures"]["held"]
            edit(serving, TEXT.format(version="2"))
            serving.hear("loaded")
            assert caller.run("version") == "2"
    finally:
        serving.close()


def test_plain_serve_says_what_changed_and_loads_it_when_told(tmp_path: Path) -> None:
    """A server in production does not follow an editor."""
    with Serving(tmp_path, TEXT.format(version="0")) as serving, serving.caller() as caller:
        edit(serving, TEXT.format(version="1"))
        assert serving.hear("changed")["paths"] == [str(serving.file)]
        assert caller.run("version") == "0"
        os.kill(serving.pid, signal.SIGHUP)
        serving.hear("loaded")
        assert caller.run("version") == "1"
