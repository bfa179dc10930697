//! What a queue is made from, and the sizes that are decisions.
use crate::error::Error;

/// Operations handed to the kernel by one system call, unless set. Source: blockio-uring's own default.
const BATCH_LIMIT: u32 = 64;
/// Operations in flight per ring, unless set; a multiple of the batch keeps a device busy while one is refilled.
const CONCURRENCY_LIMIT: u32 = 192;
/// Threads of the fallback: the reads in flight there. 16, 32 and 64 reached 170, 175 and 183 thousand reads a second.
const THREADS: u32 = 32;
/// Memory of cancelled operations that the kernel may still write.
const QUARANTINE_BYTES_MAX: u64 = 64 << 20;

/// No batch of a ring is this long: the kernel allows 32,768 entries to submit.
const BATCH_LIMIT_END: u32 = 1 << 15;
/// No ring holds so many completions: the kernel allows 65,536.
const CONCURRENCY_LIMIT_END: u32 = 1 << 16;
const THREADS_MAX: u32 = 1024;

/// Which engine carries out operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// A ring where the kernel allows one, else threads.
    #[default]
    Auto,
    /// A ring, or an error that says why there is none.
    Ring,
    /// Threads of `preadv2`, whatever the kernel allows.
    Threads,
}

/// What a queue is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limit `batch_limit`: operations handed to the kernel by one system call.
    pub batch_limit: u32,
    /// The limit `concurrency_limit`: operations in flight, per ring or per pool of threads.
    pub concurrency_limit: u32,
    /// Which engine.
    pub engine: Choice,
    /// Threads of the fallback.
    pub threads: u32,
    /// The limit `quarantine_bytes_max` on memory of cancelled operations that the kernel may still write.
    pub quarantine_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_limit: BATCH_LIMIT,
            concurrency_limit: CONCURRENCY_LIMIT,
            engine: Choice::Auto,
            threads: THREADS,
            quarantine_bytes_max: QUARANTINE_BYTES_MAX,
        }
    }
}

impl Config {
    /// Check the five conditions of the limits, and the number of threads.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the setting, its value and what would be right.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |setting, value: u32, advice| {
            Err(Error::Config {
                setting,
                value: u64::from(value),
                advice,
            })
        };
        let (batch, concurrency) = (self.batch_limit, self.concurrency_limit);
        if batch == 0 {
            return refuse("batch_limit", batch, "give 1 or more");
        }
        if batch >= BATCH_LIMIT_END {
            return refuse(
                "batch_limit",
                batch,
                "give less than 32768, which is what a ring takes",
            );
        }
        if concurrency == 0 {
            return refuse("concurrency_limit", concurrency, "give 1 or more");
        }
        if concurrency >= CONCURRENCY_LIMIT_END {
            let advice = "give less than 65536, which is what a ring holds";
            return refuse("concurrency_limit", concurrency, advice);
        }
        if batch > concurrency {
            let advice = "give at most concurrency_limit: a batch is in flight as a whole";
            return refuse("batch_limit", batch, advice);
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return refuse("threads", self.threads, "give 1 to 1024");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, Error};

    fn refused(batch_limit: u32, concurrency_limit: u32) -> Option<(&'static str, u64)> {
        let config = Config {
            batch_limit,
            concurrency_limit,
            ..Config::default()
        };
        match config.check() {
            Ok(()) => None,
            Err(Error::Config { setting, value, .. }) => Some((setting, value)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn each_of_the_five_conditions_is_told_by_name() {
        assert_eq!(refused(0, 128), Some(("batch_limit", 0)));
        assert_eq!(refused(1 << 15, 40_000), Some(("batch_limit", 1 << 15)));
        assert_eq!(refused(1, 0), Some(("concurrency_limit", 0)));
        assert_eq!(refused(1, 1 << 16), Some(("concurrency_limit", 1 << 16)));
        assert_eq!(refused(129, 128), Some(("batch_limit", 129)));
        assert_eq!(refused(128, 128), None);
        assert_eq!(refused((1 << 15) - 1, (1 << 16) - 1), None);
    }
}
