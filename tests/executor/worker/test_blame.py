"""What is shown of an import that failed."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from forebay.executor.app.blame import without_own_lines
from forebay.executor.app.load import find_app, load
from forebay.pool._internal import MAIN_ALIAS


@pytest.fixture(autouse=True)
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading makes the file the main module, which is put back for the tests that come after."""
    for name in ("__main__", MAIN_ALIAS):
        monkeypatch.setitem(sys.modules, name, sys.modules["__main__"])


def text_of_loading(path: Path) -> str:
    """What a worker's traceback looks like where it cannot load a file."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any import's
        find_app(load("path", str(path), None) or {}, None, str(path))
    error = caught.value
    assert error.__traceback__ is not None
    lines = traceback.format_exception(type(error), error, error.__traceback__.tb_next)
    return "its constructor raised:\n" + "".join(lines)


def test_the_frames_of_the_application_are_all_that_is_shown(tmp_path: Path) -> None:
    """The line that its author has to mend is not the last of twenty."""
    path = tmp_path / "broken.py"
    path.write_text("def first():\n    return 1 / 0\n\nfirst()\n")
    told = without_own_lines(text_of_loading(path))
    assert "forebay" not in told
    assert f'File "{path}", line 4, in <module>\n    first()' in told
    assert told.endswith("ZeroDivisionError: division by zero")


def test_a_mistake_in_the_syntax_keeps_its_line(tmp_path: Path) -> None:
    """Such a frame has no function."""
    path = tmp_path / "broken.py"
    path.write_text("this is no Python\n")
    told = without_own_lines(text_of_loading(path))
    assert f'File "{path}", line 1\n    this is no Python' in told


def test_an_error_of_ours_stands_alone(tmp_path: Path) -> None:
    """Nothing of the application is to blame but that it has no App."""
    path = tmp_path / "empty.py"
    path.write_text("")
    told = without_own_lines(text_of_loading(path))
    assert told.startswith("its constructor raised:\nforebay.errors.ConfigError: ")
