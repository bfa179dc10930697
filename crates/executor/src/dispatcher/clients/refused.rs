//! Clients that come where there is no room: they are told so, rather than left to wait.

use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::dispatcher::limit::{CLIENTS_MAX, REFUSED_WARNING_MS};
use crate::error::Refusal;

/// What there is no room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Clients,
    Descriptors,
}

impl Lack {
    /// What its calls are answered with.
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

/// How many were refused, and when that was last said.
#[derive(Debug, Default)]
pub struct Count {
    refused: u64,
    lack: Option<Lack>,
    said: Option<Instant>,
}

impl Count {
    pub fn add(&mut self, lack: Lack) {
        self.refused += 1;
        self.lack = Some(lack);
    }

    /// What to warn of, once a minute at most.
    pub fn take_warning(&mut self, now: Instant) -> Option<String> {
        let every = Duration::from_millis(REFUSED_WARNING_MS);
        if self
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < every)
        {
            return None;
        }
        let (limit, most, next) = self.lack.take()?.named();
        self.said = Some(now);
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
        let (mut count, start) = (Count::default(), Instant::now());
        assert_eq!(count.take_warning(start), None);
        count.add(Lack::Clients);
        let first = count.take_warning(start).unwrap();
        assert!(
            first.starts_with("clients_max (1024) is reached, 1 "),
            "{first}"
        );
        (0..9).for_each(|_| count.add(Lack::Clients));
        assert_eq!(count.take_warning(start + Duration::from_secs(59)), None);
        let second = count.take_warning(start + Duration::from_secs(60)).unwrap();
        assert!(second.contains(" 9 connections"), "{second}");
    }
}
