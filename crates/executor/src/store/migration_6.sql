-- Calls of hooks that were not answered yet, or were given up. `token` is the same for all tries.
CREATE TABLE outbox(
    number INTEGER PRIMARY KEY,
    token TEXT NOT NULL,
    hook TEXT NOT NULL,
    event TEXT NOT NULL,
    at INTEGER NOT NULL,
    request INTEGER,                -- of a request: its id, name and run
    name TEXT,
    attempt INTEGER,
    detail TEXT NOT NULL,           -- JSON: the failure, or the limit
    tries INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER DEFAULT 0,       -- 0: at once; null: given up
    error TEXT                      -- of the last try
);
CREATE INDEX outbox_due ON outbox(hook, due_at);
