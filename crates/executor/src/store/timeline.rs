//! The clock of the stored times, so that the next server can convert them to its own.
//!
//! A server's times follow one clock, which agreed with the wall clock when it started. If the wall clock was wrong
//! then, the next server's times differ from those by as much: a delay of seconds would take a day, and what ended a
//! minute ago would be a week old. Between two servers of one boot the kernel's time since the boot gives the
//! difference; across a boot, what the earlier server saw of a correction while it ran.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::boot::origin;
use crate::clock::Clock;
use crate::limit::STEP_MS;
use crate::request::Millis;

/// The clock that the stored times of a boot follow: of one server, or of several whose clocks agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    /// The boot and the time namespace in which its monotonic time counts; `None`: unknown.
    origin: Option<String>,
    /// The time of the boot by its clock.
    boot: i64,
    /// When the first server of the boot started: what was stored since is by this clock, after corrections.
    start: Millis,
    /// How far the wall clock had been set forward, when this was noted, since the last of the servers started.
    ahead: i64,
}

impl Timeline {
    fn of(clock: &Clock) -> Self {
        Self {
            origin: origin(),
            boot: clock.boot(),
            start: clock.start(),
            ahead: clock.ahead(),
        }
    }

    /// Whether a clock agrees with this one, except for drift.
    pub fn is_like(&self, clock: &Clock) -> bool {
        clock.ahead().abs_diff(self.ahead) < STEP_MS
    }

    fn is_of_the_boot_of(&self, other: &Self) -> bool {
        self.origin.is_some() && self.origin == other.origin
    }

    /// What to add to times of `self` to convert them to `next`.
    fn shift_to(&self, next: &Self) -> i64 {
        if self.is_of_the_boot_of(next) {
            next.boot - self.boot
        } else {
            self.ahead
        }
    }

    /// Its stored form.
    fn text(&self) -> String {
        let origin = self.origin.as_deref().unwrap_or("-");
        format!("{origin} {} {} {}", self.boot, self.start, self.ahead)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let origin = words.next().filter(|origin| *origin != "-");
        Some(Self {
            origin: origin.map(Into::into),
            boot: words.next()?.parse().ok()?,
            start: words.next()?.parse().ok()?,
            ahead: words.next()?.parse().ok()?,
        })
    }
}

/// Note this clock as that of everything written from now on, within the writer's transaction. `again`: this server
/// noted it before, and the wall clock was set since.
pub(super) fn note(
    connection: &Connection,
    clock: &Clock,
    again: bool,
) -> rusqlite::Result<Timeline> {
    let mut this = Timeline::of(clock);
    if let Some(last) = noted(connection)?
        && (again || last.is_of_the_boot_of(&this))
    {
        // They agree, or `take_over` has made them agree.
        (this.boot, this.start) = (last.boot, last.start);
    } else {
        keep_waits(connection)?;
    }
    write(connection, &this)?;
    Ok(this)
}

fn noted(connection: &Connection) -> rusqlite::Result<Option<Timeline>> {
    let noted = "SELECT value FROM facts WHERE name = 'clock'";
    let noted: Option<Option<String>> = connection
        .query_row(noted, [], |row| row.get(0))
        .optional()?;
    Ok(noted.flatten().as_deref().and_then(Timeline::parse))
}

fn write(connection: &Connection, timeline: &Timeline) -> rusqlite::Result<()> {
    let note = "INSERT OR REPLACE INTO facts(name, value) VALUES('clock', ?1)";
    connection.execute(note, [timeline.text()]).map(drop)
}

/// Remember which waits were written under an earlier clock: no clock of a later boot applies to them.
fn keep_waits(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM waits", [])?;
    let kept = "INSERT INTO waits(id, wake_at) SELECT id, wake_at FROM requests \
        WHERE ended_at IS NULL AND wake_at IS NOT NULL";
    connection.execute(kept, []).map(drop)
}

/// Convert the times of the last server to this one's clock. Once: the new clock is noted in the same transaction.
///
/// It converts times since the noted clock's start, and waits that were stored since; earlier ones followed another
/// clock.
pub(super) fn take_over(connection: &mut Connection, clock: &Clock) -> rusqlite::Result<()> {
    let Some(last) = noted(connection)? else {
        return Ok(());
    };
    let mut this = Timeline::of(clock);
    let shift = last.shift_to(&this);
    // Drift is not worth rewriting every row.
    if shift.unsigned_abs() < STEP_MS {
        return Ok(());
    }
    let since = last.start.cast_signed();
    let mut until = i64::MAX;
    let rebooted = !last.is_of_the_boot_of(&this);
    if !rebooted {
        // The present by the noted clock: a later time was stored under an earlier boot.
        until = this.start.cast_signed() - shift + STEP_MS.cast_signed();
        let first = last.start.saturating_add_signed(shift);
        this.start = this.start.min(first);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "UPDATE requests SET wake_at = max(wake_at + ?1, 0) WHERE ended_at IS NULL AND NOT EXISTS \
         (SELECT 1 FROM waits w WHERE w.id = requests.id AND w.wake_at = requests.wake_at)",
        [shift],
    )?;
    for time in ["accepted_at", "claimed_at", "ended_at"] {
        let sql = format!(
            "UPDATE requests SET {time} = max({time} + ?1, 0) WHERE {time} BETWEEN ?2 AND ?3"
        );
        transaction.execute(&sql, params![shift, since, until])?;
    }
    if rebooted {
        keep_waits(&transaction)?;
    }
    write(&transaction, &this)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_back() {
        let known = Timeline {
            origin: Some("boot/time:[4026531834]".into()),
            boot: -5,
            start: 7,
            ahead: -86_400_000,
        };
        let unknown = Timeline {
            origin: None,
            ..known.clone()
        };
        for one in [known, unknown] {
            assert_eq!(Timeline::parse(&one.text()), Some(one));
        }
        assert_eq!(Timeline::parse("of a later version"), None);
    }
}
