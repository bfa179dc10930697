"""One side of a recorded conversation, played against the other side as it is today."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path
from typing import Any, Final

from tests.executor.compat.transcript import (
    CALL,
    FAILURE,
    ITEM,
    REPLY,
    Piece,
    Splitter,
    Transcript,
)

TIMEOUT_S = 30.0
UNHEARD: Final = frozenset({"hello"})
"""Calls that a server of protocol 1 does not know and that need no answer."""

ID = re.compile(r"[0-9a-hjkmnp-tv-z]{12}")

VOLATILE = re.compile(
    r".*(_at|_s|_ms|_bytes)|at|pid|pids|file|socket|pool_socket|state_dir|target|app|version|code"
    r"|message|text|reason|next|doc|trace|last_output|slot|state|uses|said|last|oldest_ready_ms|sources"
)
"""Names of fields whose values are of a moment or a place; all of a refusal's but the first two."""

EXACT = frozenset({"schema", "attempt", "attempts", "retried", "pruned", "count"})
"""Names of numbers that follow from the conversation."""

COUNTED = frozenset({"workers", "services", "decisions", "sources", "running"})
"""Names of lists whose length is of the moment."""


class Alike:
    """Compares what was recorded with what comes today, and learns which id stands for which.

    Attributes:
        ids: of today by those of the recording.
    """

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def check(self, old: Any, new: Any, where: str = "", name: str = "") -> None:
        """Fail where a client of then would not understand what comes today.

        A map may have grown: clients take what they know of it by name.
        """
        if isinstance(old, dict):
            assert isinstance(new, dict), f"{where}: {new!r} is no map"
            for key, value in old.items():
                assert key in new, f"{where}: {key!r} is gone"
                self.check(value, new[key], f"{where}.{key}", key)
        elif isinstance(old, list):
            assert isinstance(new, list), f"{where}: {new!r} is no list"
            if name not in COUNTED:
                assert len(old) == len(new), f"{where}: {old!r} and {new!r}"
            for at, (one, other) in enumerate(zip(old, new, strict=False)):
                self.check(one, other, f"{where}[{at}]", name)
        elif isinstance(old, bytes):
            self._check_blob(old, new, where)
        else:
            self._check_value(old, new, where, name)

    def check_refusal(self, old: dict[str, Any], new: dict[str, Any], where: str) -> None:
        """A refusal is known by its code, and what it is about."""
        assert old.keys() <= new.keys(), f"{where}: {new!r}"
        assert old["code"] == new["code"], f"{where}: {old!r} and {new!r}"
        self._check_value(old["object"], new["object"], f"{where}.object", "")

    def _check_blob(self, old: bytes, new: Any, where: str) -> None:
        assert isinstance(new, bytes), f"{where}: {new!r} is no bytes"
        if old.startswith(b"{"):
            self.check(json.loads(old), json.loads(new), where)
        else:
            assert old == new, f"{where}: {old[:40]!r} and {new[:40]!r}"

    def _check_value(self, old: Any, new: Any, where: str, name: str) -> None:
        if isinstance(old, str) and isinstance(new, str) and ID.fullmatch(old):
            assert self.ids.setdefault(old, new) == new, f"{where}: {new} is another request"
        elif VOLATILE.fullmatch(name):
            known = (type(None), type(old), int, float) if _is_number(old) else (type(None), str)
            assert old is None or isinstance(new, known), f"{where}: {new!r} for {old!r}"
        elif _is_number(old) and name not in EXACT:
            assert _is_number(new), f"{where}: {new!r} for {old!r}"
        else:
            assert old == new, f"{where}: {new!r} for {old!r}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Line:
    """A connection on which pieces are sent and taken."""

    def __init__(self, connected: socket.socket, *, of_the_client: bool) -> None:
        connected.settimeout(TIMEOUT_S)
        self._socket = connected
        self._splitter = Splitter(client=of_the_client)
        self._come: list[Piece] = []

    def send(self, piece: Piece) -> None:
        """Send one piece as it is."""
        self._socket.sendall(piece.raw)

    def take(self, wanted: Any) -> Piece:
        """The first piece that is wanted, once it has come; the others stay."""
        while True:
            for at, piece in enumerate(self._come):
                if wanted(piece):
                    return self._come.pop(at)
            data = self._socket.recv(1 << 16)
            assert data, "the other side has left"
            self._come += self._splitter.feed(data)


def play_client(transcript: Transcript, server: str, directory: Path) -> Alike:
    """Say to today's server what a client said, and compare what it answers."""
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(server)
    alike = Alike()
    roots = {transcript.root: str(directory)}
    methods: dict[int, tuple[str, dict[str, list[Any]]]] = {}
    with connected:
        line = Line(connected, of_the_client=False)
        for piece in transcript.pieces:
            if piece.client:
                line.send(piece.replaced(alike.ids | roots))
                if piece.kind == CALL:
                    methods[piece.call] = (piece.head[0], {"old": [], "new": []})
            elif piece.is_preface:
                line.take(lambda one: one.is_preface)
            elif piece.kind in (REPLY, FAILURE, ITEM):
                method, items = methods[piece.call]
                _expect(line, piece, method, items, alike)
    return alike


def _expect(line: Line, old: Piece, method: str, items: dict[str, list[Any]], alike: Alike) -> None:
    """Take the answer to one call of today's server: as it was, in the same place."""
    if old.kind == ITEM:
        if not items["old"]:
            first = line.take(lambda one: one.kind == ITEM and one.call == old.call)
            items["new"].append(first.head)
        items["old"].append(old.head)
        return
    while (new := line.take(lambda one: _answers(one, old.call))).kind == ITEM:
        items["new"].append(new.head)
    assert new.kind == old.kind, f"{method}: kind {new.kind} for {old.kind}"
    if items["old"]:
        _check_items(method, items["old"], items["new"], alike, whole=new.kind == REPLY)
    elif old.kind == REPLY:
        _check_answer(method, old, new, alike)


def _answers(piece: Piece, call: int) -> bool:
    return piece.kind in (REPLY, FAILURE, ITEM) and piece.call == call


def _check_items(method: str, old: list[Any], new: list[Any], alike: Alike, *, whole: bool) -> None:
    if old[0] and isinstance(old[0], list) and old[0][0] == 1 and isinstance(old[0][1], dict):
        alike.check_refusal(old[0][1], new[0][1], method)
    elif method == "logs":
        assert [type(one) for one in old[0]] == [type(one) for one in new[0]]
        was, now = (b"".join(one[1] for one in items) for items in (old, new))
        assert was == now or not whole, f"{method}: {now!r} for {was!r}"
    elif whole:
        known = {one["event"]: one for one in old}
        for event in new:
            if event["event"] in known:
                assert known[event["event"]].keys() <= event.keys(), f"{method}: {event}"
        alike.check(old[-1], new[-1], method)


def _check_answer(method: str, old: Piece, new: Piece, alike: Alike) -> None:
    was, now = old.head, new.head
    assert isinstance(now, type(was)), f"{method}: {now!r} for {was!r}"
    if not isinstance(was, list):
        assert was == now, f"{method}: {now!r} for {was!r}"
        return
    assert was[0] == now[0], f"{method}: {now!r} for {was!r}"
    if was[0] == 1:
        alike.check_refusal(was[1], now[1], method)
        return
    if len(was) == 4 and isinstance(was[3], list):  # a result in a file: its path and its length
        assert [type(one) for one in now[3]] == [bytes, int], f"{method}: {now!r}"
        assert was[3][1] == now[3][1], f"{method}: {now!r}"
        was, now = was[:3], now[:3]
    alike.check(was, now, method)
    assert old.segments == new.segments, f"{method}: another blob"


class RecordedServer:
    """Answers today's client as a server did, in the order in which that one did.

    Attributes:
        path: where it listens.
        fault: what the client said otherwise than a client of then; None: nothing so far.
    """

    def __init__(self, transcript: Transcript, directory: Path) -> None:
        self.path = f"{directory}/recorded"
        self.fault: BaseException | None = None
        self._transcript = transcript
        self._root = {transcript.root: str(directory)}
        for path, data in transcript.files.items():
            here = Path(path.replace(transcript.root, str(directory)))
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(data)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything was said, and raise what was not."""
        self._thread.join(TIMEOUT_S)
        self._listener.close()
        if self.fault is not None:
            raise self.fault

    def _serve(self) -> None:
        try:
            self._listener.settimeout(TIMEOUT_S)
            connected, _ = self._listener.accept()
            with connected:
                self._play(Line(connected, of_the_client=True))
        except BaseException as fault:
            self.fault = fault

    def _play(self, line: Line) -> None:
        calls: dict[int, int] = {}
        for piece in self._transcript.pieces:
            if not piece.client:
                here = piece if piece.is_preface else piece.about(calls.get(piece.call, piece.call))
                line.send(here.replaced(self._root))
            elif piece.is_preface:
                line.take(lambda one: one.is_preface)
            elif piece.kind == CALL:
                come = line.take(lambda one: one.kind == CALL and one.head[0] not in UNHEARD)
                assert come.head == piece.head, f"it said {come.head!r} for {piece.head!r}"
                assert come.segments == piece.segments, f"another blob of {piece.head[0]}"
                assert come.is_one_way == piece.is_one_way
                calls[piece.call] = come.call
