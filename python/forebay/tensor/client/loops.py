"""The event loops that a client was entered in: each has one face, which ends with its last user.

Tasks of a loop share its face and may leave it in any order. Only the loop's own thread touches it.
asyncio is imported when there is a loop, for the blocking face does without.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from forebay.tensor.client.async_client import AsyncTensorClient
    from forebay.tensor.client.client import TensorClient

__all__ = ["Loops"]


@dataclass(slots=True)
class _Entered:
    face: AsyncTensorClient
    users: int = 0


class Loops:
    """The loops of one client.

    Threads: any; each method is about the running loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered: dict[AbstractEventLoop, _Entered] = {}

    def enter(self, client: TensorClient) -> AsyncTensorClient:
        """The running loop's face, for one user more."""
        from asyncio import get_running_loop

        from forebay.tensor.client.async_client import AsyncTensorClient

        loop = get_running_loop()
        with self._lock:
            entered = self._entered.get(loop)
        if entered is None:
            entered = _Entered(AsyncTensorClient(client))
            with self._lock:
                self._entered[loop] = entered
        elif entered.face.closed:
            entered.face = AsyncTensorClient(client)
        entered.users += 1
        return entered.face

    async def leave(self) -> bool:
        """Count one user less of the running loop, whose face closes with its last one.

        Returns:
            Whether that was the last user of the last loop.
        """
        from asyncio import get_running_loop

        loop = get_running_loop()
        with self._lock:
            entered = self._entered.get(loop)
            if entered is None:
                return False  # entered before a fork
            entered.users -= 1
            if entered.users:
                return False
            del self._entered[loop]
            last = not self._entered
        await entered.face.aclose()
        return last
