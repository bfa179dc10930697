"""Services of the soak: each knows when it is in two hands, and answers what can be checked."""

from __future__ import annotations

import time

import forebay

SLOW_CALL_S = 0.005


class Counter(forebay.Service):
    """Stateless between leases, so what is left of one shows in the next."""

    resets = forebay.Reset.STATELESS

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.holder: str | None = None

    def enter(self, token: str) -> None:
        """Begin a lease."""
        if self.holder is not None:
            raise RuntimeError(f"two hands: {token} came while {self.holder} was here")
        self.holder = token

    def add(self, value: int) -> int:
        return self.base + value

    def slow_add(self, value: int) -> int:
        """Give chaos the time to strike."""
        time.sleep(SLOW_CALL_S)
        return self.base + value

    def leave(self, token: str) -> str:
        """End a lease."""
        if self.holder != token:
            raise RuntimeError(f"two hands: {token} leaves but {self.holder} is here")
        self.holder = None
        return token


class Noting(Counter):
    """Is reset after each lease; a lease need not leave it clean."""

    resets = forebay.Reset.METHOD

    def leave(self, token: str) -> str:
        if self.holder != token:
            raise RuntimeError(f"two hands: {token} leaves but {self.holder} is here")
        return token

    def reset(self) -> None:
        self.holder = None


class Single(Counter):
    """Every lease gets a new one."""

    resets = forebay.Reset.NEVER


class Forked(Counter):
    """Every lease gets a fork of one that was made once."""

    resets = forebay.Reset.FORK


class Shared(Counter):
    """Several leases use one at a time, and no more than it says."""

    max_leases = 3

    def __init__(self, base: int = 0) -> None:
        super().__init__(base)
        self.holders: set[str] = set()

    def enter(self, token: str) -> None:
        if len(self.holders) == self.max_leases:
            raise RuntimeError(f"too many hands: {token} came while {self.holders} were here")
        self.holders.add(token)

    def leave(self, token: str) -> str:
        self.holders.remove(token)
        return token
