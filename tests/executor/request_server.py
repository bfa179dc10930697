"""A small server of requests, which speaks the wire of the real one: `python -m ... SOCKET STATE`.

It runs nothing: what a request does is told by its name. `echo` returns its arguments, `hold` ends
when it is released, `hold_elsewhere` so too, after this server has told its id alone and ended; the
others end as their names say. What it accepted is in STATE, a JSON file,
so that another one goes on with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from msgspec import msgpack

from forebay._core import Connection, ItemWriter
from forebay.errors import Error

BLOB_BYTES_MAX = 64 << 10

FAILURES: dict[str, dict[str, Any]] = {
    "raise": {
        "kind": "raised",
        "builtin": "ValueError",
        "name": "app.OddError",
        "message": "odd",
        "trace": "line 1",
    },
    "die": {
        "kind": "died",
        "cause": "memory",
        "pid": 7,
        "exit_code": None,
        "signal": 9,
        "peak_bytes": 310_000_000,
        "limit_bytes": 300_000_000,
        "last_output": "so far\nand no further\n",
    },
    "late": {"kind": "timed_out", "timeout_s": 2.5},
    "cancelled": {"kind": "cancelled"},
    "unknown": {"kind": "outcome_unknown"},
}
MANIFEST = {
    "schema": 1,
    "app": "small",
    "target": "small.py:app",
    "code": "0" * 16,
    "sources": [],
    "definitions": {"Mode": {"enum": ["slow", "quick"]}},
    "requests": [
        {
            "name": "echo",
            "doc": "Return the arguments.\n\nAll of them, 100 % of the time.",
            "parameters": [
                {
                    "name": "first",
                    "doc": "how many",
                    "required": False,
                    "default": 1,
                    "schema": {"type": "integer"},
                },
                {"name": "second", "required": False, "schema": {}},
                {"name": "learning_rate", "required": False, "schema": {"type": "number"}},
                {"name": "loud", "required": False, "schema": {"type": "boolean"}},
                {"name": "mode", "required": False, "schema": {"$ref": "#/definitions/Mode"}},
                {
                    "name": "seeds",
                    "required": False,
                    "schema": {"type": "array", "items": {"type": "integer"}},
                },
                {
                    "name": "table",
                    "required": False,
                    "schema": {"anyOf": [{"type": "object"}, {"type": "null"}]},
                },
                {"name": "timeout", "required": False, "schema": {"type": "string"}},
            ],
        },
        {
            "name": "need",
            "doc": "",
            "parameters": [{"name": "path", "required": True, "schema": {"type": "string"}}],
        },
        *(
            {"name": name, "doc": "", "parameters": []}
            for name in ("hold", "refuse", "full", "vanish", *FAILURES)
        ),
    ],
}
FIGURES = {
    "lanes": {"short": {"running": 0}, "long": {"running": 1}},
    "unfinished": 3,
    "succeeded": 7,
    "resident_bytes": 210_000_000,
    "promised_bytes": 0,
    "memory_limit_bytes": 750_000_000,
}


class Requests:
    """What was accepted, by id."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.arguments = state.with_suffix(".arguments")
        self.changed = threading.Condition()
        self.known: dict[str, dict[str, Any]] = {}
        self.blobs: dict[str, bytes] = {}
        self.events: list[dict[str, Any]] = []
        if state.exists():
            self.known = json.loads(state.read_text())
            lines = map(str.split, self.arguments.read_text().splitlines())
            self.blobs = {id_: bytes.fromhex(text) for id_, text in lines}

    def accept(self, name: str, blob: bytes, options: dict[str, Any]) -> str:
        key = options.get("idempotency")
        with self.changed:
            for id_, one in self.known.items():
                if key is not None and one["key"] == key:
                    return id_
            id_ = f"{len(self.known) + 1:012d}"
            status = "running" if name.startswith("hold") else "succeeded"
            if name in FAILURES:
                status = "cancelled" if name == "cancelled" else "failed"
            self.known[id_] = {"id": id_, "name": name, "status": status, "key": key}
            self.blobs[id_] = blob
            self.state.write_text(json.dumps(self.known))
            with open(self.arguments, "a") as file:
                file.write(f"{id_} {blob.hex()}\n")
            self.note("accepted", id_)
            if status != "running":
                self.note("ended", id_)
        return id_

    def note(self, event: str, id_: str) -> None:
        """Number an event of a request; with the lock."""
        one = self.known[id_]
        told = {"seq": len(self.events) + 1, "at_ms": 1_795_000_000_123, "event": event, "id": id_}
        told |= {"name": one["name"]}
        self.events.append(told | ({"status": one["status"]} if event == "ended" else {}))
        self.changed.notify_all()

    def release(self) -> None:
        with self.changed:
            for one in self.known.values():
                if one["status"] == "running":
                    one["status"] = "succeeded"
                    self.note("ended", one["id"])
            self.changed.notify_all()

    def end(self, id_: str) -> tuple[str, bytes]:
        """Wait for the end of one; its status and payload."""
        one = self.known[id_]
        with self.changed:
            while one["status"] in ("queued", "running"):
                self.changed.wait()
        if one["status"] == "succeeded":
            return "succeeded", self.blobs.get(id_) or msgpack.encode({})
        failure = FAILURES[one["name"]] if one["name"] in FAILURES else FAILURES["cancelled"]
        return one["status"], json.dumps(failure).encode()


class Refused(Exception):
    def __init__(self, code: str, **members: str) -> None:
        super().__init__(code)
        self.refusal = {"code": code, "message": f"{code} it is", "object": "", "limit": ""}
        self.refusal |= {"value": "", "next": "do otherwise"} | members


class Peer:
    """One client."""

    def __init__(self, connection: Connection, requests: Requests) -> None:
        self.connection = connection
        self.requests = requests
        self.tokens: dict[int, str] = {}

    def serve(self) -> None:
        with contextlib.suppress(Error):
            while (call := self.connection.next_call(None)) is not None:
                self.answer(call)
        self.connection.close()

    def answer(self, call: Any) -> None:
        id_, _, head, segments, _, _, stream = call
        method, args, _ = msgpack.decode(head)
        if method in ("run", "wait"):
            try:
                accepted = self.begin(method, args, segments)
            except Refused as refused:
                self.reply(id_, [1, refused.refusal])
                return
            if method == "run" and args[0] == "hold_elsewhere":
                self.reply(id_, [0, accepted])
                os._exit(0)
            if self.requests.known[accepted]["status"] != "running":
                self.end(id_, accepted)
            else:
                threading.Thread(target=self.end, args=(id_, accepted), daemon=True).start()
        elif stream:
            threading.Thread(target=self.tell, args=(id_, method, args), daemon=True).start()
        else:
            try:
                if method == "submit":
                    value = self.begin(method, args, segments)
                else:
                    value = getattr(self, f"do_{method}")(*args)
            except Refused as refused:
                self.reply(id_, [1, refused.refusal])
            else:
                self.reply(id_, [0, value])

    def begin(self, method: str, args: list[Any], segments: Any) -> str:
        if method == "wait":
            return self.find(args[0])
        name, blob, options, token = args
        if name == "refuse":
            raise Refused("limit", limit="2", value="3", object="queue")
        if name == "full":
            raise Refused("store", object="requests.db")
        blob = bytes(segments[0]) if blob is None else blob
        if name == "vanish":
            os._exit(1)
        accepted = self.requests.accept(name, blob, options or {})
        if name == "accept_and_vanish" and not os.environ.get("STAYS"):
            os._exit(1)
        self.tokens[token] = accepted
        return accepted

    def end(self, call: int, id_: str) -> None:
        status, payload = self.requests.end(id_)
        for token in [token for token, known in self.tokens.items() if known == id_]:
            self.tokens.pop(token, None)
        beside = len(payload) >= BLOB_BYTES_MAX
        answer = [0, id_, status, None if beside else payload]
        self.reply(call, answer, [payload] if beside else None)

    def reply(self, call: int, answer: Any, segments: Any = None) -> None:
        with contextlib.suppress(Error):
            self.connection.reply(call, 0, msgpack.encode(answer), segments)
            self.connection.drain()

    def tell(self, call: int, method: str, args: list[Any]) -> None:
        writer = ItemWriter(self.connection, call, 0)
        if method != "feed" and args[0] not in self.requests.known:
            refusal = Refused("unknown", object=args[0]).refusal
            writer.send(msgpack.encode([1, refusal]), None)
        else:
            for item in getattr(self, f"tell_{method}")(*args):
                writer.send(msgpack.encode(item), None)
        self.connection.reply(call, 0, msgpack.encode(None))
        self.connection.drain()

    def tell_logs(self, id_: str, offset: int, follow: bool) -> Any:
        text = "grün\nand blue\n".encode()
        yield [offset, text[offset:3]] if offset < 3 else [offset, b""]
        if os.environ.get("BREAKS_LOGS"):
            self.connection.drain()
            os._exit(1)
        if follow:
            self.requests.end(id_)
        offset = max(3, offset)
        yield [offset, text[offset:]]

    def tell_events(self, id_: str, cursor: int | None = None) -> Any:
        had = cursor or 0
        if had < 1:
            yield {"event": "status", "status": "running", "attempt": 1, "seq": 1}
        if had < 2:
            progress = {"done": 1, "total": 4, "message": "m", "unit": "row"}
            yield {"event": "progress", "seq": 2, **progress}
        if os.environ.get("BREAKS_EVENTS"):
            self.connection.drain()
            os._exit(1)
        if had < 3:
            yield {"event": "status", "status": self.requests.end(id_)[0], "attempt": 1, "seq": 3}

    def tell_feed(self, wanted: dict[str, Any], cursor: int | None) -> Any:
        if os.environ.get("BREAKS_FEED"):
            os._exit(1)
        events, changed = self.requests.events, self.requests.changed
        at = len(events) if cursor is None else cursor
        if cursor is None:
            yield [{"event": "begin", "seq": at}]
        fields = {"names": "name", "ids": "id", "events": "event"}
        while True:
            with changed:
                while len(events) <= at:
                    changed.wait()
                fresh, at = events[at:], len(events)
            told = [
                one
                for one in fresh
                if all(
                    one[field] in wanted.get(name, [one[field]]) for name, field in fields.items()
                )
            ]
            if told:
                yield told

    def find(self, id_: str) -> str:
        if id_ not in self.requests.known:
            raise Refused("unknown", object=id_)
        return id_

    def do_hello(self, protocol: int) -> int:
        return protocol

    def do_accepted(self, token: int) -> str:
        if token not in self.tokens:
            raise Refused("unknown", object="token")
        return self.tokens[token]

    def do_status(self, id_: str) -> Any:
        return {"schema": 1, "id": id_, "status": self.requests.known[self.find(id_)]["status"]}

    def do_resolve(self, text: str) -> str:
        known = sorted(self.requests.known)
        found = known[-1:] if text == "@last" else [one for one in known if one.startswith(text)]
        if len(found) != 1:
            raise Refused("unknown", object=text)
        return found[0]

    def do_list(self, filters: dict[str, Any], limit: int, before: str | None) -> Any:
        wanted = filters.get("status")
        rows = [dict(one) for one in self.requests.known.values()]
        rows = [one for one in reversed(rows) if wanted is None or one["status"] in wanted]
        rows = [one for one in rows if before is None or one["id"] < before]
        return {"schema": 1, "requests": rows[:limit], "more": len(rows) > limit}

    def do_cancel(self, id_: str) -> str:
        one = self.requests.known[self.find(id_)]
        with self.requests.changed:
            if one["status"] != "running":
                return "ended"
            one["status"] = "cancelled"
            self.requests.changed.notify_all()
        return "asked"

    def do_retry(self, ids: list[str]) -> Any:
        return [{"id": one} | self.queued_again(one) for one in ids]

    def queued_again(self, id_: str) -> dict[str, str]:
        refusals = {
            "running": f"request {id_} has not ended; wait for it, or cancel it",
            "succeeded": f"request {id_} succeeded; to run it once more, submit it again",
        }
        refusal = refusals.get(self.requests.known[id_]["status"])
        return {"refused": refusal} if refusal else {"status": "queued"}

    def do_manifest(self) -> Any:
        return MANIFEST

    def do_info(self) -> Any:
        return {
            "schema": 1,
            "pid": os.getpid(),
            "app": "small",
            "target": "small.py",
            "file": os.environ.get("SMALL_FILE", "small.py"),
            "code": "0" * 16,
            "state_dir": "/state",
            "synchronous": "full",
            "started_at": "2026-11-21T12:00:00.000Z",
            "figures": FIGURES,
        }

    def do_workers(self) -> Any:
        return {"schema": 1, "workers": []}

    def do_show(self, id_: str) -> Any:
        one = dict(self.requests.known[self.find(id_)])
        if one["name"] in FAILURES:
            one["failure"] = FAILURES[one["name"]]
        one |= {"schema": 1, "accepted_at": "2026-11-21T12:00:00.000Z", "run_s": 0.25}
        one |= {"peak_bytes": 12_300_000, "arguments": {"first": 1}, "reason": None}
        run = {"attempt": 1, "ended_at": "2026-11-21T12:00:01.000Z", "failure": FAILURES["die"]}
        return one | {"runs": [run], "next": "look"}

    def do_why(self, id_: str) -> Any:
        at = "2026-11-21T12:00:00.000Z"
        return {
            "schema": 1,
            "id": self.find(id_),
            "status": "queued",
            "reason": "waiting: needs 210 MB, 95 MB free of 750 MB",
            "next": "wait, or raise the limit",
            "decisions": [{"at": at, "text": "accepted"}, {"at": at, "text": "210 MB learnt"}],
        }

    def do_prune(self, rule: dict[str, Any]) -> Any:
        doomed = [one for one in self.requests.known.values() if one["status"] != "running"]
        if not rule["dry_run"]:
            for one in doomed:
                del self.requests.known[one["id"]]
        return {"schema": 1, "pruned": len(doomed), "bytes": 2_500_000}

    def do_schedules(self, *, paused: bool = False) -> Any:
        one = {"name": "report", "cron": "*/5 * * * *", "fired_at": None, "paused": paused}
        return {"schema": 1, "schedules": [one]}

    def do_set_schedule(self, name: str, paused: bool) -> Any:
        if name != "report":
            raise Refused("unknown", object=name)
        return self.do_schedules(paused=paused)

    def do_top(self) -> Any:
        worker = {"slot": 1, "lane": "long", "state": "busy", "burst": True, "age_ms": 1500}
        worker |= {"private_bytes": 5_500_000, "uses": 2, "running": ["000000000001"]}
        rows = self.do_list({}, 50, None)["requests"]
        return {
            "schema": 1,
            "figures": FIGURES,
            "workers": [worker],
            "services": [],
            "requests": rows,
        }

    def do_arguments(self, id_: str) -> Any:
        one = self.requests.known[self.find(id_)]
        blob = self.requests.blobs[id_]
        return {"id": id_, "name": one["name"], "code": "0" * 16, "arguments": blob}

    def do_stop(self, drain_s: float | None) -> Any:
        threading.Timer(0.05, os._exit, (0,)).start()
        return {"stopping": True}

    def do_release(self) -> None:
        self.requests.release()


def main() -> None:
    """Serve until killed."""
    path, state = sys.argv[1:]
    requests = Requests(Path(state))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        accepted, _ = listener.accept()
        connection = Connection(accepted.detach(), server=True, by_reference=False)
        peer = Peer(connection, requests)
        threading.Thread(target=peer.serve, daemon=True).start()


if __name__ == "__main__":
    main()
