"""Links inside the repository lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.test_words import FENCE
from tests.tidy.tree import complain, files, name, text

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors(source: str) -> set[str]:
    """The fragments that a document's headings make."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(source))
    return {heading.strip().replace(" ", "-") for heading in plain}


def is_dead(path: Path, link: str) -> bool:
    """Whether a relative link misses its file or its heading."""
    if re.match(r"[a-z+]+:", link):
        return False
    target, _, fragment = link.partition("#")
    page = (path.parent / target).resolve() if target else path
    if not page.exists():
        return True
    return bool(fragment) and page.suffix == ".md" and fragment not in anchors(text(page))


def test_no_relative_link_is_dead():
    """A reader who follows a link arrives."""
    dead = [
        f"{name(path)}: {link}"
        for path in files(".md")
        for pair in LINK.findall(FENCE.sub("", text(path)))
        for link in pair
        if link and is_dead(path, link)
    ]
    complain(dead, next_step="Point each at the file or heading that is meant.")
