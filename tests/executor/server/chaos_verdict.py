"""What must be true after chaos, read from the marks of the runs and from the store's file."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from msgspec import msgpack

from forebay.executor.server.rows import STATUSES
from forebay.executor.wire.ids import text_of
from tests.executor.server.chaos_clients import End, Told

MAY_RUN_AGAIN = ("again", "large")
"""How often they do is not told here: a claim may trail the dispatch of such a request, so that the
death of the server may cost it a run that nobody has counted."""

CAUSES = ("signal", "server", "unknown")
"""Of a death here: killed; with its server; with its keeper, who would have known how."""


@dataclass(frozen=True)
class Store:
    """What a server left on disk, read without it.

    Attributes:
        ends: by id; None for a request that has not ended.
        orphans: files of results that belong to no row.
    """

    ends: dict[str, End | None]
    orphans: set[str]

    @classmethod
    def read(cls, state: Path) -> Store:
        """All requests, and the files beside them."""
        with sqlite3.connect(f"file:{state / 'requests.db'}?mode=ro", uri=True) as database:
            rows = database.execute(
                "SELECT id, status, result_kind, result, failure FROM requests"
            ).fetchall()
        database.close()
        ends: dict[str, End | None] = {}
        orphans = {path.name for path in (state / "results").iterdir()}
        for number, status, kind, result, failure in rows:
            id_ = text_of(number)
            if kind == 1 and result is None:
                result = (state / "results" / id_).read_bytes()
                orphans.remove(id_)
            value = msgpack.decode(result) if kind == 1 else None
            cause = json.loads(failure).get("cause") if failure else None
            ended = STATUSES[status] not in ("queued", "running")
            ends[id_] = End(STATUSES[status], value, cause) if ended else None
        return cls(ends, orphans)


@dataclass(frozen=True)
class Verdict:
    """The counts of a run of chaos, and what is wrong."""

    counts: Counter[str]
    wrong: list[str]

    @classmethod
    def of(cls, told: list[Told], store: Store, marks: str) -> Verdict:
        """Compare what clients were told, what the store has and which runs there were."""
        counts: Counter[str] = Counter()
        wrong = [f"a file of nobody's result: {name}" for name in sorted(store.orphans)]
        runs: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for line in marks.splitlines():
            label, id_, attempt = line.split()
            runs[label].append((id_, int(attempt)))
        for one in told:
            counts["ends told to clients"] += len(one.ends)
            for id_, label in one.accepted.items():
                _accepted(id_, label, one, store, runs[label], counts, wrong)
            for label in one.maybe:
                counts["unknown whether accepted"] += 1
                _ran_as_often_as_it_may(label, runs[label], counts, wrong)
            for label, why in one.refused.items():
                counts[f"refused: {why[:60]}"] += 1
                if runs[label]:
                    wrong.append(f"{label} was refused and ran: {why}")
        return cls(counts, wrong)

    def table(self) -> str:
        """The counts, a line each."""
        width = max(map(len, self.counts), default=0)
        return "\n".join(f"  {key:{width}}  {value}" for key, value in sorted(self.counts.items()))


def _accepted(
    id_: str,
    label: str,
    told: Told,
    store: Store,
    runs: list[tuple[str, int]],
    counts: Counter[str],
    wrong: list[str],
) -> None:
    counts["accepted"] += 1
    end = store.ends.get(id_)
    counts["accepted and lost"] += id_ not in store.ends
    counts["accepted and without an end"] += id_ in store.ends and end is None
    if end is None:
        wrong.append(
            f"{label} {id_} was accepted and is {'there' if id_ in store.ends else 'gone'}"
        )
        return
    counts[f"ended: {end.status}" + (f", {end.cause}" if end.cause else "")] += 1
    counts["told otherwise than stored"] += told.ends.get(id_, end) != end
    if told.ends.get(id_, end) != end:
        wrong.append(f"{label} {id_}: told {told.ends[id_]}, stored {end}")
    if any(run[0] != id_ for run in runs):
        wrong.append(f"{label} {id_} ran under another id: {runs}")
    _ran_as_often_as_it_may(label, runs, counts, wrong)
    if end.status == "succeeded":
        if not runs or end.value is None or end.value.rstrip(".") != label:
            wrong.append(f"{label} {id_} succeeded: {len(runs)} runs, {str(end.value)[:40]}")
    elif end.status not in ("failed", "dead") or end.cause not in CAUSES:
        wrong.append(f"{label} {id_} ended as {end}")


def _ran_as_often_as_it_may(
    label: str, runs: list[tuple[str, int]], counts: Counter[str], wrong: list[str]
) -> None:
    counts["runs"] += len(runs)
    twice = len(runs) > 1
    may = label.startswith(MAY_RUN_AGAIN)
    counts["ran again, as it may"] += twice and may
    counts["ran twice and may not"] += twice and not may
    if twice and not may:
        wrong.append(f"{label} may run once and ran as {runs}")
