//! How long a wait may last: never shorter than asked, rounded to the kernel's milliseconds.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

const NANOS_PER_MS: u128 = 1_000_000;

/// A timeout that survives interruptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Poll without waiting.
    Zero,
    /// Wait until then.
    Until(Instant),
    /// Wait until something happens.
    Never,
}

impl Timeout {
    /// Wait for `time` from now on.
    pub fn after(time: Duration) -> Self {
        if time.is_zero() {
            return Self::Zero;
        }
        // An end that the clock cannot represent is never reached.
        Instant::now()
            .checked_add(time)
            .map_or(Self::Never, Self::Until)
    }

    /// What is left, rounded up to milliseconds; `None` for no end.
    ///
    /// Rounded down, a timer that is due in half a millisecond would make its loop spin until then.
    pub(super) fn remaining(self) -> Option<Timespec> {
        let left = match self {
            Self::Zero => Duration::ZERO,
            Self::Until(end) => end.saturating_duration_since(Instant::now()),
            Self::Never => return None,
        };
        Some(rounded_up(left))
    }
}

fn rounded_up(time: Duration) -> Timespec {
    let ms = time.as_nanos().div_ceil(NANOS_PER_MS);
    Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_to_milliseconds() {
        for (nanos, expected) in [
            (0, (0, 0)),
            (1, (0, 1_000_000)),
            (1_000_000, (0, 1_000_000)),
            (999_000_001, (1, 0)),
        ] {
            let time = rounded_up(Duration::from_nanos(nanos));
            assert_eq!((time.tv_sec, time.tv_nsec), expected);
        }
    }

    #[test]
    fn a_time_that_no_clock_holds_is_endless() {
        assert_eq!(Timeout::after(Duration::MAX), Timeout::Never);
        assert_eq!(Timeout::after(Duration::ZERO), Timeout::Zero);
        assert_eq!(Timeout::Never.remaining(), None);
    }
}
