"""Play the scenes of the guides in a fresh environment: `python -m tools.scenes SCENE ...`.

Each line is run as it stands there; lines that begin with # tell what is done between them.
What is seen is compared with what the scene promises: 1 if something is not so.
With `--write` a scene that holds replaces what its guide shows.
`small_node` needs the right to make control groups, `environments` needs gcc.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools.scenes import environments, guide, small_node, training
from tools.scenes.fresh import ROOT, built_wheel, install
from tools.scenes.shell import Scene


class Played(NamedTuple):
    """What a scene needs, and how it is played."""

    play: Callable[[Scene], None]
    packages: tuple[str, ...]
    examples: tuple[str, ...]


SCENES = {
    "environments": Played(environments.play, environments.PACKAGES, environments.EXAMPLES),
    "small_node": Played(small_node.play, small_node.PACKAGES, small_node.EXAMPLES),
    "training": Played(training.play, training.PACKAGES, training.EXAMPLES),
}


def play(name: str, wheel: Path, *, write: bool) -> int:
    """Play one scene in an environment of its own; 1 if something is not as it promises."""
    played = SCENES[name]
    page = ROOT / "docs" / "guides" / f"{name}.md"
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as home:
        scene = Scene(install(Path(home), wheel, played.packages, played.examples))
        played.play(scene)
    parts = {part: "\n".join(lines) for part, lines in scene.parts.items()}
    if scene.failures:
        print(f"==> {name}: {len(scene.failures)} not so", file=sys.stderr)
        return 1
    text = guide.written(page.read_text(), name, parts)
    if write:
        page.write_text(text)
    print(f"==> {name}: as promised", file=sys.stderr)
    return 0


def main() -> int:
    """Play the scenes that are named, each to its end."""
    parser = argparse.ArgumentParser(prog="python -m tools.scenes", description=__doc__)
    parser.add_argument("scenes", nargs="+", choices=SCENES)
    parser.add_argument("--wheel", type=Path, help="of forebay; default: the newest in dist/")
    parser.add_argument("--write", action="store_true", help="replace what the guides show")
    options = parser.parse_args()
    wheel: Path = options.wheel or built_wheel()
    before = dict(os.environ)
    failed = 0
    for name in options.scenes:
        failed += play(name, wheel, write=options.write)
        os.environ.clear()
        os.environ.update(before)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
