-- A request from its acceptance to its end. Times are milliseconds since 1970; status, lane as in request.rs.
-- Small columns first and the result last: a listing does not follow the pages of a large result.
CREATE TABLE requests(
    id INTEGER PRIMARY KEY,         -- sorts by the time of acceptance
    name TEXT NOT NULL,
    code TEXT NOT NULL,
    submitter TEXT NOT NULL,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    status INTEGER NOT NULL,
    attempts INTEGER NOT NULL,      -- runs that began
    deaths INTEGER NOT NULL,        -- runs that ended by the death of their worker
    retried INTEGER NOT NULL,       -- times that an operator wanted it again
    accepted_at INTEGER NOT NULL,
    claimed_at INTEGER,             -- beginning of the last run
    ended_at INTEGER,
    wake_at INTEGER,
    peak_bytes INTEGER,
    idempotency TEXT,
    options BLOB,                   -- msgpack map of what differs from the defaults
    result_kind INTEGER NOT NULL,   -- 0 none, 1 result, 2 failure
    result_bytes INTEGER,
    failure TEXT,                   -- JSON
    result BLOB                     -- null while result_kind is 1: it is the file results/<id>
);

-- Written once; apart, so that the changes of a request's way do not write them again.
CREATE TABLE arguments(id INTEGER PRIMARY KEY, blob BLOB NOT NULL);

-- What recovery and a listing of the unfinished walk. On the end, not the status: a claim leaves it alone.
CREATE INDEX unfinished ON requests(id) WHERE ended_at IS NULL;
-- Listings of what did not succeed; costs nothing for what does.
CREATE INDEX unsuccessful ON requests(status, id) WHERE status > 2;
CREATE INDEX names ON requests(name, id);
CREATE UNIQUE INDEX idempotencies ON requests(idempotency) WHERE idempotency IS NOT NULL;

-- Runs that did not end their request.
CREATE TABLE runs(
    id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    began_at INTEGER,
    ended_at INTEGER NOT NULL,
    failure TEXT NOT NULL,
    PRIMARY KEY(id, attempt)
) WITHOUT ROWID;

-- Memory that runs needed; the newest of each name and code are kept.
CREATE TABLE peaks(
    name TEXT NOT NULL,
    code TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    at INTEGER NOT NULL
);
CREATE INDEX peaks_of ON peaks(name, code);

CREATE TABLE schedules(name TEXT PRIMARY KEY, fired_at INTEGER NOT NULL) WITHOUT ROWID;

-- 'boot': the boot id of the kernel under which it was last written. 'last': the largest id that was ever kept.
CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
