//! Cron patterns of minute, hour, day, month, weekday in UTC: which times they name.
//!
//! Written here rather than taken from a crate: the maintained ones bring twelve others that derive code at build time,
//! for what is a search over days. UTC, because a local hour that is skipped or repeated twice a year would run a
//! schedule never or twice.

use crate::request::Millis;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
/// A pattern that names a 29 February is met within eight years, over a century without a leap day.
const DAYS_MAX: u64 = 8 * 366 + 1;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A parsed pattern: a bit per value that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day and weekday are both said: either is enough, as in every cron.
    either: bool,
}

impl Cron {
    /// Reads `minute hour day month weekday`, each `*`, a value, a range, with `/step`, or a list of them;
    /// or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        let written = match pattern.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let fields: Vec<&str> = written.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!("it has {} fields, not five", fields.len()));
        };
        let weekdays = field("weekday", weekday, 0, 7, &WEEKDAYS)?;
        let cron = Self {
            minutes: field("minute", minute, 0, 59, &[])?,
            hours: field("hour", hour, 0, 23, &[])?,
            days: field("day", day, 1, 31, &[])?,
            months: field("month", month, 1, 12, &MONTHS)?,
            // 7 is Sunday too.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either: !day.starts_with('*') && !weekday.starts_with('*'),
        };
        cron.after(0)
            .map(|_| cron)
            .ok_or_else(|| "no such day exists".into())
    }

    /// The first time that it names after `now`.
    pub fn after(&self, now: Millis) -> Option<Millis> {
        let start = (now / MINUTE_MS + 1) * MINUTE_MS;
        let today = start / DAY_MS;
        (today..today + DAYS_MAX)
            .filter(|day| self.names_day(*day))
            .find_map(|day| {
                let from = if day == today {
                    start % DAY_MS / MINUTE_MS
                } else {
                    0
                };
                let minute = self.minute_from(from)?;
                Some(day * DAY_MS + minute * MINUTE_MS)
            })
    }

    /// The first minute of a day, from this one on.
    fn minute_from(&self, from: u64) -> Option<u64> {
        let first_hour = from / 60;
        (first_hour..24)
            .filter(|hour| has(self.hours, *hour))
            .find_map(|hour| {
                let start = if hour == first_hour { from % 60 } else { 0 };
                let minute = (start..60).find(|minute| has(self.minutes, *minute))?;
                Some(hour * 60 + minute)
            })
    }

    fn names_day(&self, since_1970: u64) -> bool {
        let (month, day) = month_and_day(since_1970);
        let weekday = (since_1970 + 4) % 7; // 1970 began on a Thursday
        let (by_day, by_weekday) = (has(self.days, day), has(self.weekdays, weekday));
        let day = if self.either {
            by_day || by_weekday
        } else {
            by_day && by_weekday
        };
        day && has(self.months, month)
    }
}

fn has(bits: u64, value: u64) -> bool {
    bits >> value & 1 == 1
}

fn field(name: &str, text: &str, low: u64, high: u64, words: &[&str]) -> Result<u64, String> {
    let wrong = |part: &str| format!("{name} {part:?} is not within {low} to {high}");
    let value = |part: &str| {
        let word = words
            .iter()
            .position(|word| part.eq_ignore_ascii_case(word));
        let number = word
            .map(|index| index as u64 + low)
            .or_else(|| part.parse().ok());
        number
            .filter(|value| (low..=high).contains(value))
            .ok_or_else(|| wrong(part))
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u64>().map_err(|_| wrong(part))?),
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (value(first)?, value(last)?),
            // `5/10` means from 5 on.
            None if part.contains('/') => (value(range)?, high),
            None => (value(range)?, value(range)?),
        };
        if step == 0 || first > last {
            return Err(wrong(part));
        }
        let mut one = first;
        while one <= last {
            bits |= 1 << one;
            one += step;
        }
    }
    Ok(bits)
}

/// Month (1 to 12) and day (1 to 31) of a day counted from 1970-01-01.
///
/// The year is taken to begin in March, so that the leap day is its last.
fn month_and_day(since_1970: u64) -> (u64, u64) {
    const FROM_YEAR_0: u64 = 719_468;
    const ERA: u64 = 146_097; // 400 years
    let of_era = (since_1970 + FROM_YEAR_0) % ERA;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    (if march < 10 { march + 3 } else { march - 9 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21, a Saturday, 00:00 UTC.
    const SATURDAY: u64 = 1_795_219_200_000;

    fn minutes_later(pattern: &str) -> u64 {
        let at = Cron::parse(pattern).unwrap().after(SATURDAY).unwrap();
        assert_eq!(at % MINUTE_MS, 0);
        (at - SATURDAY) / MINUTE_MS
    }

    #[test]
    fn the_next_time_is_the_first_that_matches() {
        let day = 24 * 60;
        for (pattern, minutes) in [
            ("* * * * *", 1),
            ("*/15 * * * *", 15),
            ("5/20 * * * *", 5),
            ("30 4 * * *", 4 * 60 + 30),
            ("0 0 * * *", day),
            ("@hourly", 60),
            ("0 9 * * mon-fri", 2 * day + 9 * 60),
            ("0 0 * * 7", day),
            ("0 0 * * sun", day),
            ("0 0 1 * *", 10 * day),
            ("0 0 1 jan *", 41 * day),
            // Either the 25th or a Sunday.
            ("0 0 25 * sun", day),
            ("0 0 29 2 *", (41 + 365 + 31 + 28) * day),
        ] {
            assert_eq!(minutes_later(pattern), minutes, "{pattern}");
        }
    }

    #[test]
    fn days_follow_each_other_over_four_centuries() {
        let mut last = month_and_day(0);
        assert_eq!(last, (1, 1));
        for day in 1..=146_097 {
            let (month, of_month) = month_and_day(day);
            let next_day = (month, of_month) == (last.0, last.1 + 1);
            let next_month = of_month == 1 && month == last.0 % 12 + 1 && last.1 >= 28;
            assert!(next_day || next_month, "{day}");
            last = (month, of_month);
        }
        assert_eq!(last, (1, 1));
    }

    #[test]
    fn what_names_no_time_is_refused() {
        for (pattern, said) in [
            ("* * * *", "4 fields"),
            ("60 * * * *", "minute"),
            ("* * * foo *", "month"),
            ("5-1 * * * *", "minute"),
            ("*/0 * * * *", "minute"),
            ("0 0 30 2 *", "no such day"),
        ] {
            let error = Cron::parse(pattern).unwrap_err();
            assert!(
                error.contains(said) || error.contains("4 fields"),
                "{error}"
            );
        }
    }
}
