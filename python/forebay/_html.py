"""Small tables and bars as HTML, for notebooks.

Every text is escaped. There is no script, no style and no colour: the notebook's theme decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

__all__ = ["bar", "table"]

ROWS_MAX: Final = 50
"""Rows of a table that are shown."""

CHARS_MAX: Final = 200
"""Characters of one text that are shown."""


def table(title: str, head: Sequence[str], rows: Sequence[Iterable[Any]]) -> str:
    """Rows under a title, as a table; of many rows the first ones, and how many there are."""
    columns = "".join(f"<th>{_text(name)}</th>" for name in head)
    shown = "".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_MAX]
    )
    more = len(rows) - ROWS_MAX
    if more > 0:
        shown += f'<tr><td colspan="{len(head)}">and {more} more</td></tr>'
    body = f"<thead><tr>{columns}</tr></thead><tbody>{shown}</tbody>" if rows else ""
    return f"<table><caption>{_text(title)}</caption>{body}</table>"


def bar(title: str, done: float, total: float | None, text: str) -> str:
    """How far something is; without a total, that it goes on."""
    value = "" if not total else f' max="1" value="{min(1.0, max(0.0, done / total)):.4f}"'
    return f"<div>{_text(title)} <progress{value}></progress> {_text(text)}</div>"


def _text(value: Any) -> str:
    import html  # which takes a millisecond, for those who show something

    text = "" if value is None else str(value)
    if len(text) > CHARS_MAX:
        text = f"{text[: CHARS_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
    return html.escape(text)
