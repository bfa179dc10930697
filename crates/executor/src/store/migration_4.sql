-- Runs before an operator's last retry: they count no more. Of one that was retried under an earlier version all count.
-- In rows of earlier versions `deaths` also counts those that nobody blames the request for, and those before a retry.
ALTER TABLE requests ADD COLUMN forgiven INTEGER NOT NULL DEFAULT 0;
-- When a schedule that was paused went on: times before that are not made up for. 0: it never was.
ALTER TABLE schedules ADD COLUMN resumed_at INTEGER NOT NULL DEFAULT 0;
