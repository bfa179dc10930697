//! By which clock the stored times are, so that the next server can read them by its own.
//!
//! A server's times follow one clock, which agreed with the wall's when it started. Where the wall's clock was wrong
//! then, the next server's times differ from those by as much: a delay of seconds would take a day, and what ended a
//! minute ago would be a week old. Two servers of one boot are told apart by the kernel's count since the boot; over a
//! boot, by what the earlier one saw of a correction while it ran.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::recovery::boot_id;
use crate::clock::Clock;
use crate::limit::STEP_MS;
use crate::request::Millis;

/// What is written from now on is by this clock.
pub(super) const NOTE: &str = "INSERT OR REPLACE INTO facts(name, value) VALUES('clock', ?1)";

/// The clock of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    /// Where its count since the boot began; `None`: nobody knows.
    origin: Option<String>,
    /// The time of the boot by its clock.
    boot: i64,
    /// When it started.
    start: Millis,
    /// How far the wall's clock had been set forward when it was noted.
    ahead: i64,
}

impl Timeline {
    pub fn of(clock: &Clock) -> Self {
        Self {
            origin: origin(),
            boot: clock.boot(),
            start: clock.start(),
            ahead: clock.ahead(),
        }
    }

    /// Whether another one says the same, but for what a clock drifts.
    pub fn is_like(&self, clock: &Clock) -> bool {
        clock.ahead().abs_diff(self.ahead) < STEP_MS
    }

    /// What is to be added to times of `self` to have them by `next`.
    fn shift_to(&self, next: &Self) -> i64 {
        if self.origin.is_some() && self.origin == next.origin {
            next.boot - self.boot
        } else {
            self.ahead
        }
    }

    /// As it is stored.
    pub fn text(&self) -> String {
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

/// Have the times of the last server by the clock of this one. Once: its own clock is noted with them.
///
/// Times of unfinished requests, and of what ended under the last server; what ended before was by another clock.
pub(super) fn take_over(connection: &mut Connection, clock: &Clock) -> rusqlite::Result<()> {
    let noted = "SELECT value FROM facts WHERE name = 'clock'";
    let noted: Option<Option<String>> = connection
        .query_row(noted, [], |row| row.get(0))
        .optional()?;
    let Some(last) = noted.flatten().as_deref().and_then(Timeline::parse) else {
        return Ok(());
    };
    let this = Timeline::of(clock);
    let shift = last.shift_to(&this);
    if shift.unsigned_abs() < STEP_MS {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "UPDATE requests SET wake_at = max(wake_at + ?1, 0), accepted_at = max(accepted_at + ?1, 0), \
         claimed_at = max(claimed_at + ?1, 0) WHERE ended_at IS NULL",
        [shift],
    )?;
    transaction.execute(
        "UPDATE requests SET ended_at = max(ended_at + ?1, 0), accepted_at = max(accepted_at + ?1, 0), \
         claimed_at = max(claimed_at + ?1, 0) WHERE ended_at >= ?2",
        params![shift, last.start.cast_signed()],
    )?;
    transaction.execute(NOTE, [this.text()])?;
    transaction.commit()
}

/// This boot, and the namespace by whose clock its time is counted.
fn origin() -> Option<String> {
    let boot = boot_id()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{boot}/{}", namespace.display()))
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
