//! The executor's errors, by what the caller can do.

use std::fmt;
use std::io;

/// Why a request of a caller is refused; it is sent to that caller.
///
/// The message alone is enough for a person; the other fields say the same to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// "limit", "unknown", "invalid", "draining", "store", "hold" or "forbidden".
    pub code: &'static str,
    pub message: String,
    /// Its subject: a request's name, an option, a parameter.
    pub object: String,
    /// What is allowed, or the name of the limit.
    pub limit: String,
    /// What was asked for, cut if it is long.
    pub value: String,
    /// What the caller can do.
    pub next: String,
}

impl Refusal {
    /// A named limit was reached.
    pub fn limit(object: &str, limit: &str, maximum: u64, value: u64, next: &str) -> Self {
        Self {
            code: "limit",
            message: format!("{object}: {limit} is {maximum}, this would make {value}"),
            object: object.into(),
            limit: limit.into(),
            value: value.to_string(),
            next: next.into(),
        }
    }

    /// There is nothing of that name.
    pub fn unknown(object: &str, value: &str, next: impl Into<String>) -> Self {
        Self {
            code: "unknown",
            message: format!("there is no {object} {value:?}"),
            object: object.into(),
            limit: String::new(),
            value: value.into(),
            next: next.into(),
        }
    }

    /// A value is not what is allowed there.
    pub fn invalid(object: &str, allowed: &str, value: &str, next: impl Into<String>) -> Self {
        Self {
            code: "invalid",
            message: format!("{object}: expected {allowed}, got {value}"),
            object: object.into(),
            limit: allowed.into(),
            value: value.into(),
            next: next.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.next.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", self.next)
    }
}

impl std::error::Error for Refusal {}

/// Errors of the executor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for is not done.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// A setting is wrong.
    #[error("{0}")]
    Config(String),
    /// A named limit was reached.
    #[error("{limit} is {maximum}, {value} asked for; {next}")]
    Limit {
        limit: &'static str,
        maximum: u64,
        value: u64,
        next: &'static str,
    },
    /// A peer or a file violates its format.
    #[error("{what} at byte {offset}")]
    Malformed { what: &'static str, offset: usize },
    /// The dispatcher is closed.
    #[error("the dispatcher is closed")]
    Closed,
    /// A connection could not be taken over, or a socket could not listen.
    #[error(transparent)]
    Transport(#[from] forebay_transport::Error),
    /// The store could not be opened or read.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
}

impl Error {
    /// Names the system call or file that failed; for `map_err`.
    pub fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::System {
            what,
            source: source.into(),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// The result of the executor's functions.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let refusal = Refusal::limit("queue", "max_queued", 2, 3, "wait, or raise it");
        let text = "queue: max_queued is 2, this would make 3; wait, or raise it";
        assert_eq!(refusal.to_string(), text);
        assert_eq!(Error::from(refusal).to_string(), text);
    }
}
