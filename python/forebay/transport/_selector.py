"""A selector as `selectors` describes one, for asyncio or any other loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from selectors import BaseSelector, SelectorKey
from typing import Any

from forebay import _core

__all__ = ["Selector"]


class Selector(_core.Selector, BaseSelector):
    """Waits for descriptors with the GIL held as long as one of them is ready.

    Args:
        report: called as `report(error, callback)` with what a callback of `attach` raised.
        spin_us: how long a wait polls with the GIL held before it sleeps, in microseconds; None:
            for at most 60, where that has paid lately.

    Besides the methods of `selectors.BaseSelector` it has `attach`, `change` and `detach`: see
    `forebay.transport.new_event_loop`.
    """

    def __init__(self, report: Callable[[BaseException, Any], object], spin_us: int | None = None):
        self._map = _KeyMap(self)

    def get_map(self) -> Mapping[Any, SelectorKey] | None:  # type: ignore[override]
        """The keys by file object or descriptor, read-only and alive; None when closed."""
        return None if self.closed else self._map


class _KeyMap(Mapping[Any, SelectorKey]):
    """What is registered; attached descriptors are not in it."""

    __slots__ = ("_selector",)

    def __init__(self, selector: Selector):
        self._selector = selector

    def __getitem__(self, fileobj: Any) -> SelectorKey:
        key = self._selector.find(fileobj)
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        return key

    def get(self, fileobj: Any, default: Any = None) -> Any:
        key = self._selector.find(fileobj)
        return default if key is None else key

    def __len__(self) -> int:
        return len(self._selector.registered())

    def __iter__(self) -> Iterator[int]:
        return iter(self._selector.registered())
