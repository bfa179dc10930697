-- Times to wait for that were stored before this boot: by the wall's clock, whatever a server's clock says since. One
-- that has another in `requests` by now waits by the clock of this boot.
CREATE TABLE waits(id INTEGER PRIMARY KEY, wake_at INTEGER NOT NULL);
