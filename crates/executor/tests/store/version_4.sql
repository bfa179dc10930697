-- A database as version 4 left it; never changed. Its ids have 16 bits of sequence and no number of a server.
PRAGMA journal_mode = WAL;
CREATE TABLE requests(
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    code TEXT NOT NULL,
    submitter TEXT NOT NULL,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    status INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    claimed_at INTEGER,
    ended_at INTEGER,
    wake_at INTEGER,
    peak_bytes INTEGER,
    idempotency TEXT,
    options BLOB,
    result_kind INTEGER NOT NULL,
    result_bytes INTEGER,
    failure TEXT,
    result BLOB,
    forgiven INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE arguments(id INTEGER PRIMARY KEY, blob BLOB NOT NULL);

CREATE INDEX unfinished ON requests(id) WHERE ended_at IS NULL;
CREATE INDEX unsuccessful ON requests(status, id) WHERE status > 2;
CREATE INDEX names ON requests(name, id);
CREATE UNIQUE INDEX idempotencies ON requests(idempotency) WHERE idempotency IS NOT NULL;

CREATE TABLE runs(
    id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    began_at INTEGER,
    ended_at INTEGER NOT NULL,
    failure TEXT NOT NULL,
    PRIMARY KEY(id, attempt)
) WITHOUT ROWID;

CREATE TABLE peaks(
    name TEXT NOT NULL,
    code TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    at INTEGER NOT NULL
);
CREATE INDEX peaks_of ON peaks(name, code);

CREATE TABLE schedules(
    name TEXT PRIMARY KEY,
    fired_at INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    resumed_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE waits(id INTEGER PRIMARY KEY, wake_at INTEGER NOT NULL);

CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID;

INSERT INTO requests(id, name, code, submitter, lane, priority, status, attempts, deaths, retried, accepted_at,
    claimed_at, ended_at, wake_at, idempotency, options, result_kind, result_bytes, failure, result, forgiven) VALUES
    (1593206374400000, 'digits', 'c0de', 'alice', 1, 0, 2, 1, 0, 0, 1760000000000, 1760000000001, 1760000000002, NULL, 'once', NULL, 1, 1, NULL, x'07', 0),
    (1593206374400001, 'digits', 'c0de', 'alice', 0, 5, 0, 3, 1, 1, 1760000000000, 1760000000001, NULL, 1760000009000, NULL, x'81A77265747269657303', 0, NULL, NULL, NULL, 2),
    (1593206374465534, 'words', 'c0de', 'bob', 1, 0, 3, 1, 0, 0, 1760000000000, 1760000000001, 1760000000004, NULL, NULL, NULL, 2, NULL, '{"kind":"outcome_unknown"}', NULL, 0),
    (1593206374465535, 'words', 'c0de', 'bob', 2, 0, 1, 1, 0, 0, 1760000000000, 1760000000001, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0);
INSERT INTO arguments(id, blob) VALUES(1593206374400000, x'80'), (1593206374400001, x'80'), (1593206374465534, x'80'), (1593206374465535, x'80');
INSERT INTO runs(id, attempt, began_at, ended_at, failure) VALUES(1593206374400001, 3, 1760000000001, 1760000000003, '{"kind":"outcome_unknown"}');
INSERT INTO peaks(name, code, bytes, at) VALUES('digits', 'c0de', 1, 9000000000000), ('digits', 'c0de', 2, 9000000000000);
INSERT INTO schedules(name, fired_at, paused, resumed_at) VALUES('nightly', 1760000000000, 0, 1760000000005), ('weekly', 0, 1, 0);
INSERT INTO waits(id, wake_at) VALUES(1593206374400001, 1760000009000);
INSERT INTO facts(name, value) VALUES('boot', '00000000-0000-0000-0000-000000000000'), ('last', 1593206374465535);
PRAGMA user_version = 4;
