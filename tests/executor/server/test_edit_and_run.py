"""Edit and run: `forebay run` right after an edit never answers with the code of before.

Each way of writing is tried that could hide an edit: a new file in the old one's place, the same
file written again, and one of the same size with the same time of modification, by which Python's
own cache of compiled modules would take it for unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.cli.command_line import main
from forebay.cli.manifest import manifest_of
from forebay.executor import Client
from forebay.executor.app.sources import code_of
from tests.executor.serving import Serving

APP = """
import forebay
from part import PART

app = forebay.App("edited")

@app.request()
def version() -> str:
    return "{version:03}" + PART
"""

PART = 'PART = "-{version:03}"\n'

Write = Callable[[Path, str], None]


def replaced(path: Path, text: str) -> None:
    """As most editors do: a new file takes the old one's place."""
    fresh = path.with_suffix(".swp")
    fresh.write_text(text)
    os.replace(fresh, path)


def rewritten(path: Path, text: str) -> None:
    """As some editors and every `>` do: the same file is written again."""
    path.write_text(text)


def back_dated(path: Path, text: str) -> None:
    """As a checkout or an archive may: the size and the time of modification stay as they were."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


WAYS = (replaced, rewritten, back_dated)


def edit_and_run(
    serving: Serving, capsys: pytest.CaptureFixture[str], edits: int, write: Callable[[int], Write]
) -> None:
    """Edit the application, or what it imports, and run it at once; over and over."""
    part = serving.file.with_name("part.py")
    versions = [0, 0]
    for number in range(1, edits + 1):
        which = number % 2
        versions[which] = number
        path, text = ((serving.file, APP), (part, PART))[which]
        write(number)(path, text.format(version=number))
        assert main(["run", str(serving.file) + ":version", "--no-start"]) == 0
        assert capsys.readouterr().out == f"{versions[0]:03}-{versions[1]:03}\n"


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """A server that loads changed sources, of an application of two files."""
    tmp_path.joinpath("part.py").write_text(PART.format(version=0))
    serving = Serving(tmp_path, APP.format(version=0), reloads=True)
    for name in ("XDG_RUNTIME_DIR", "FOREBAY_STATE_DIR"):
        monkeypatch.setenv(name, serving.environment[name])
    return serving


@pytest.mark.parametrize("way", WAYS)
def test_a_run_after_an_edit_runs_what_was_edited(
    serving: Serving, capsys: pytest.CaptureFixture[str], way: Write
) -> None:
    """However the file was written, and whichever of the application's files it is."""
    with serving:
        edit_and_run(serving, capsys, 6, lambda number: way)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_edits_at_once_after_one_another(
    serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a promise, so it holds the twentieth time, too."""
    with serving:
        edit_and_run(serving, capsys, 20, lambda number: WAYS[number % len(WAYS)])


def test_an_edit_that_cannot_be_imported_is_told_until_it_is_mended(
    serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever runs it sees why at once, and no result of the code of before."""
    words = ["run", str(serving.file) + ":version", "--no-start"]
    with serving:
        for number in range(1, 6):
            replaced(serving.file, "import nowhere_to_be_found\n")
            assert main(words) == 2
            assert "cannot be used: Traceback" in capsys.readouterr().err
            replaced(serving.file, APP.format(version=number))
            assert main(words) == 0
            assert capsys.readouterr().out == f"{number:03}-000\n"


class Reloading:
    """A client of a server that loads changed sources, which no worker of the old code can start.

    A node whose files were edited refuses such workers. `loaded` is the manifest, after a while.
    """

    is_remote = False
    timeout = 20.0

    def __init__(self, stale: dict[str, Any], loaded: dict[str, Any]) -> None:
        self._manifests = iter([stale, stale, loaded])

    def ask(self, method: str) -> dict[str, Any]:
        """The manifest."""
        assert method == "manifest"
        return next(self._manifests)

    def info(self) -> dict[str, Any]:
        """Why nothing is dispatched."""
        held = "workers do not start (1 times): the application on node vm has the code 1"
        return {"reloads": True, "unfit": None, "figures": {"held": held}}


def test_an_edit_whose_old_workers_cannot_start_is_waited_for(tmp_path: Path) -> None:
    """It says nothing of the new code."""
    source = tmp_path / "app.py"
    source.write_text("edited")
    stale = {"requests": [], "sources": [str(source)], "code": "of before"}
    loaded = stale | {"code": code_of([str(source)])}
    assert manifest_of(cast("Client", Reloading(stale, loaded))) == loaded
