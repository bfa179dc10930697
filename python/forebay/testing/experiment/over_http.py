"""A client of an experiment that goes through the gateway, as one in another language does."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from forebay._failures import failure_error
from forebay.testing._ledger import Ledger, cause_of
from forebay.testing.experiment.workload import COMES_BACK_S, Asked, Kind

__all__ = ["ByHttp"]

CALL_S: Final = 15.0
AGAIN_S: Final = 0.05
WAIT_S: Final = 1
ACCEPTED, OK, NO_SUCH_THING, FAILED = 202, 200, 404, 422


class _Answer(NamedTuple):
    status: int
    body: bytes


class ByHttp:
    """By HTTP, with a key for each submission, so that one whose answer was lost is sent again.

    Args:
        port: of the gateway, on this machine.
        token_file: the token of this user, which the server writes.
        ledger: where it notes.
        is_over: whether the experiment is given up.
    """

    def __init__(
        self, port: int, token_file: Path, ledger: Ledger, is_over: Callable[[], bool]
    ) -> None:
        self._port = port
        self._token_file = token_file
        self._ledger = ledger
        self._is_over = is_over

    def submit(self, kind: Kind, key: str, asked: Asked, chance: random.Random) -> str | None:
        """As of all of them."""
        path = f"/v1/requests/{quote(kind.name)}"
        body = json.dumps(asked.arguments).encode()
        deadline = time.monotonic() + COMES_BACK_S
        while time.monotonic() < deadline and not self._is_over():
            answer = self._call("POST", path, body, {"Idempotency-Key": key})
            if answer is not None and answer.status == ACCEPTED:
                id_ = str(json.loads(answer.body)["id"])
                self._ledger.accepted(key, id_, max_runs=kind.max_runs)
                return id_
            if answer is not None and answer.status == FAILED:
                self._ledger.refused(key, answer.body.decode(errors="replace"))
                return None
            time.sleep(AGAIN_S)
        self._ledger.unknown(key, "the gateway has not answered", max_runs=kind.max_runs)
        return None

    def settle(self, key: str, handle: str, asked: Asked, timeout: float) -> str | None:
        """As of all of them."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not self._is_over():
            answer = self._call("GET", f"/v1/requests/{handle}/result?wait={WAIT_S}")
            if answer is not None and answer.status == OK:
                is_right = None if asked.check is None else asked.check(json.loads(answer.body))
                self._ledger.ended(key, handle, "succeeded", is_right=is_right)
                return "succeeded"
            if answer is not None and answer.status == FAILED:
                return self._failed(key, handle)
            time.sleep(AGAIN_S)
        return None

    def id_of(self, handle: str) -> str:
        """As of all of them."""
        return handle

    def close(self) -> None:
        """As of all of them."""

    def _failed(self, key: str, id_: str) -> str | None:
        answer = self._call("GET", f"/v1/requests/{id_}")
        if answer is None or answer.status != OK:
            return None
        told = json.loads(answer.body)
        cause = cause_of(failure_error(id_, told.get("failure") or {}))
        self._ledger.ended(key, id_, told["status"], cause=cause)
        return str(told["status"])

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> _Answer | None:
        """One call on a connection of its own; None: it was lost."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=CALL_S)
        try:
            token = self._token_file.read_text().splitlines()[0]
            sent = {"Authorization": f"Bearer {token}", **(headers or {})}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return _Answer(response.status, response.read())
        except (OSError, http.client.HTTPException, IndexError):
            return None
        finally:
            connection.close()
