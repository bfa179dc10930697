//! Refuses clients for lack of room: they are answered rather than left waiting.

use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::dispatcher::limit::{CLIENTS_MAX, REFUSED_WARNING_MS};
use crate::error::Refusal;

/// What the server lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    Clients,
    Descriptors,
}

impl Shortage {
    /// The answer to each call of a refused client.
    pub fn refusal(self) -> Refusal {
        let (limit, most, next) = self.named();
        Refusal::limit("the clients of the server", limit, most, most + 1, next)
    }

    fn named(self) -> (&'static str, u64, &'static str) {
        match self {
            Self::Clients => (
                "clients_max",
                CLIENTS_MAX as u64,
                "close some clients, or share one between threads",
            ),
            Self::Descriptors => (
                "RLIMIT_NOFILE",
                getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
                "raise the server's limit of open files (ulimit -n), or close some clients",
            ),
        }
    }
}

/// How many clients were refused, and when that was last reported.
#[derive(Debug, Default)]
pub struct Refusals {
    refused: u64,
    shortage: Option<Shortage>,
    reported: Option<Instant>,
}

impl Refusals {
    pub fn add(&mut self, shortage: Shortage) {
        self.refused += 1;
        self.shortage = Some(shortage);
    }

    /// A warning, once a minute at most.
    pub fn take_warning(&mut self, now: Instant) -> Option<String> {
        let every = Duration::from_millis(REFUSED_WARNING_MS);
        if self
            .reported
            .is_some_and(|reported| now.saturating_duration_since(reported) < every)
        {
            return None;
        }
        let (limit, most, next) = self.shortage.take()?.named();
        self.reported = Some(now);
        let refused = std::mem::take(&mut self.refused);
        Some(format!(
            "{limit} ({most}) is reached, {refused} connections were refused; {next}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_warned_of_once_a_minute_with_its_number() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.take_warning(start), None);
        refusals.add(Shortage::Clients);
        let first = refusals.take_warning(start).unwrap();
        assert!(
            first.starts_with("clients_max (1024) is reached, 1 "),
            "{first}"
        );
        (0..9).for_each(|_| refusals.add(Shortage::Clients));
        assert_eq!(refusals.take_warning(start + Duration::from_secs(59)), None);
        let second = refusals
            .take_warning(start + Duration::from_secs(60))
            .unwrap();
        assert!(second.contains(" 9 connections"), "{second}");
    }
}
