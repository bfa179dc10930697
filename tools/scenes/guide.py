"""The guides' side of a scene: blocks of code, each below a mark that names scene and part."""

from __future__ import annotations

import re
from collections.abc import Mapping

BLOCK = re.compile(
    r"(<!-- scene: (?P<scene>\w+) (?P<part>\w+) -->\n```\n)(?P<text>.*?)(```\n)", re.S
)


def marked(page: str, scene: str) -> dict[str, str]:
    """What a page shows of a scene: the text of each part."""
    found = BLOCK.finditer(page)
    return {each["part"]: each["text"] for each in found if each["scene"] == scene}


def commands(text: str) -> list[str]:
    """The lines that are typed in a transcript."""
    return [line for line in text.splitlines() if line.startswith("$ ")]


def written(page: str, scene: str, parts: Mapping[str, str]) -> str:
    """The page with these parts in the place of those that it shows.

    Raises:
        ValueError: the page shows other parts.
    """
    there = marked(page, scene).keys()
    if there != parts.keys():
        raise ValueError(f"the guide shows {sorted(there)}, the scene has {sorted(parts)}")

    def put(block: re.Match[str]) -> str:
        if block["scene"] != scene:
            return block[0]
        return f"{block[1]}{parts[block['part']].rstrip()}\n```\n"

    return BLOCK.sub(put, page)
