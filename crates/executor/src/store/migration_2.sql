-- A schedule that is paused stays so. One that was paused before it ever fired has `fired_at` 0.
ALTER TABLE schedules ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
