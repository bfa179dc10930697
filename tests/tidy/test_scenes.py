"""What the guides show of a scene comes from the script that plays it."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT
from tools.scenes import guide
from tools.scenes.__main__ import SCENES
from tools.scenes.fresh import Fresh
from tools.scenes.shell import Scene

PAGE = """Before.

<!-- scene: one start -->
```
$ old
```

<!-- scene: two start -->
```
$ kept
```
"""


def page_of(scene: str) -> str:
    """The guide that shows a scene."""
    return (ROOT / "docs" / "guides" / f"{scene}.md").read_text()


@pytest.mark.parametrize("scene", SCENES)
def test_a_guide_shows_each_part_of_its_scene(scene: str):
    """A part that nobody reads, or a block that nobody records any more, is noticed at once."""
    source = inspect.getsource(sys.modules[SCENES[scene].play.__module__])
    parts = re.findall(r'scene\.part\("(\w+)"\)', source)
    assert parts
    assert sorted(guide.marked(page_of(scene), scene)) == sorted(parts)


@pytest.mark.parametrize("scene", SCENES)
def test_a_recording_that_is_the_same_changes_no_page(scene: str):
    """What is written reads as what was read."""
    page = page_of(scene)
    assert guide.written(page, scene, guide.marked(page, scene)) == page


def test_a_recording_replaces_the_blocks_of_its_scene_alone():
    """Another scene on the same page keeps what it shows."""
    page = guide.written(PAGE, "one", {"start": "$ new\nseen"})
    assert guide.marked(page, "one") == {"start": "$ new\nseen\n"}
    assert guide.marked(page, "two") == {"start": "$ kept\n"}
    with pytest.raises(ValueError, match="start"):
        guide.written(PAGE, "one", {"start": "", "end": ""})


def test_a_scene_compares_what_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A transcript that shows a failure is never recorded as if it were as promised."""
    for name in ("FOREBAY_STATE_DIR", "XDG_RUNTIME_DIR", "PATH", "TMPDIR", "PYTHONPATH"):
        monkeypatch.setenv(name, "/usr/bin:/bin")  # a scene sets them
    scene = Scene(Fresh(tmp_path))
    scene.part("start")
    seen = scene.shell(f"echo {tmp_path}/file; exit 3", shown="what a reader types")
    scene.expect("file" in seen, "the file is named")
    scene.expect("another" in seen, "another file is named")
    assert scene.parts == {"start": ["$ what a reader types", "$HOME/file", "[3]"]}
    assert scene.failures == ["another file is named"]
    assert "!! not so: another file is named" in capsys.readouterr().err


def test_a_bar_is_waited_for_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a program shows on a terminal alone is seen, too."""
    for name in ("FOREBAY_STATE_DIR", "XDG_RUNTIME_DIR", "PATH", "TMPDIR", "PYTHONPATH"):
        monkeypatch.setenv(name, "/usr/bin:/bin")
    shown = "import sys, time; time.sleep(0.2); print('bar' if sys.stderr.isatty() else 'none')"
    took = Scene(Fresh(tmp_path)).until_shown([sys.executable, "-c", shown], b"bar")
    assert 0.2 <= took < 20
