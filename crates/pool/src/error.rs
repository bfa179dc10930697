//! What can go wrong in the pool, by what the caller can do.

use std::borrow::Cow;
use std::io;

use rustix::io::Errno;

use crate::sys::descriptors_max;

/// Errors of the pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool was closed by its owner.
    #[error("the pool is closed; make a new one")]
    Closed,
    /// The process forked after the pool was made; the pool belongs to the parent.
    #[error("the pool belongs to process {owner}, this is its fork {here}; make a new pool here")]
    Forked {
        /// Process that made the pool.
        owner: u32,
        /// Process that called.
        here: u32,
    },
    /// A named limit was reached.
    #[error("{limit} is {maximum}, {value} asked for; {next}")]
    Limit {
        /// Name of the limit.
        limit: &'static str,
        /// Its value.
        maximum: u64,
        /// What was asked for.
        value: u64,
        /// What to do.
        next: &'static str,
    },
    /// A limit of a service that nothing here can hold it to.
    #[error("limit {limit} cannot be enforced here: {why}; {next}")]
    Unenforceable {
        /// Name of the limit.
        limit: &'static str,
        /// What is missing.
        why: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// No descriptor is left to this process.
    #[error(
        "{what}: all {maximum} descriptors of {whose} are in use; \
        raise the limit (ulimit -n {twice}) or keep fewer services at once"
    )]
    Descriptors {
        /// What was attempted.
        what: Cow<'static, str>,
        /// Which process.
        whose: &'static str,
        /// Its limit.
        maximum: u64,
        /// A better one.
        twice: u64,
    },
    /// The lease is from before a release.
    #[error("lease {generation} of service {slot} has ended; acquire a new one")]
    Stale {
        /// Slot of the service.
        slot: u32,
        /// Generation of the lease.
        generation: u64,
    },
    /// A signal arrived while waiting; the caller runs its handlers and waits again.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The keeper is gone; its services were ended with it.
    #[error("the keeper of this pool is gone; the next acquire starts another")]
    KeeperLost,
    /// The address of a shared pool cannot be used; the message says why, and what to do.
    #[error("{0}")]
    Address(String),
    /// The process that lends services is gone, or does not answer; its services ended with it.
    #[error("{0}")]
    Gone(String),
    /// A message of the control protocol could not be read.
    #[error("bad control message: {what}")]
    Malformed {
        /// What was wrong with it.
        what: &'static str,
    },
    /// A line of a program's output cannot be matched against this.
    #[error(
        "invalid pattern {pattern:?} for a ready line: {reason}; no look-around and no back references"
    )]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: Cow<'static, str>,
        /// Why it failed.
        source: io::Error,
    },
}

/// Results of the pool.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A want of descriptors, from a kernel error that says so; anything else as it is.
    #[must_use]
    pub fn explained(self) -> Self {
        match self {
            Self::System { what, source } if is_want(&source) => Self::descriptors(what),
            other => other,
        }
    }

    /// This process has no descriptor left for what was attempted.
    pub fn descriptors(what: impl Into<Cow<'static, str>>) -> Self {
        let (whose, maximum) = descriptors_max();
        Self::Descriptors {
            what: what.into(),
            whose,
            maximum,
            twice: maximum.saturating_mul(2),
        }
    }

    /// Name the attempted call in a kernel error.
    pub fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            what: what.into(),
            source: errno.into(),
        }
    }
}

impl From<forebay_base::Error> for Error {
    fn from(error: forebay_base::Error) -> Self {
        match error {
            forebay_base::Error::Descriptor { source } => Self::System {
                what: "eventfd".into(),
                source,
            },
            _ => Self::Malformed {
                what: "no queue for wake-ups",
            },
        }
    }
}

fn is_want(source: &io::Error) -> bool {
    let want = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    source
        .raw_os_error()
        .is_some_and(|errno| want.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_want_of_descriptors_names_the_limit_and_the_next_step() {
        let error = Error::system("pipe2")(Errno::MFILE).explained();
        let (whose, maximum) = descriptors_max();
        let expected =
            format!("pipe2: all {maximum} descriptors of {whose} are in use; raise the limit");
        assert!(error.to_string().starts_with(&expected), "{error}");
        let other = Error::system("pipe2")(Errno::NOMEM).explained();
        assert!(matches!(other, Error::System { .. }));
    }
}
