"""Reads a Dockerfile as far as ours goes: stages of instructions, continued lines, exec forms."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


class Instruction(NamedTuple):
    """One instruction: its word, and the rest of it."""

    word: str
    text: str

    @property
    def exec_form(self) -> list[str]:
        """A JSON list."""
        listed: list[str] = json.loads(self.text[self.text.index("[") :])
        return listed


class Stage(NamedTuple):
    """From one FROM to the next."""

    base: str
    instructions: list[Instruction]

    def all(self, word: str) -> list[Instruction]:
        """The instructions of a word."""
        return [one for one in self.instructions if one.word == word]

    def one(self, word: str) -> Instruction:
        """The only one of a word."""
        (found,) = self.all(word)
        return found

    @property
    def environment(self) -> dict[str, str]:
        """What ENV sets."""
        words = [word for one in self.all("ENV") for word in shlex.split(one.text)]
        return dict(word.split("=", 1) for word in words)


def stages(path: Path = DOCKERFILE) -> list[Stage]:
    """The stages of a Dockerfile."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n", " ", "\n".join(lines))
    found: list[Stage] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append(Stage(rest.split()[0], []))
        else:
            found[-1].instructions.append(Instruction(word, rest.strip()))
    return found
