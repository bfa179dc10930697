//! The outbox of hooks: what ends call, and what became of the calls.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::os::fd::RawFd;
use std::sync::Arc;

use forebay_executor::store::{HookOutbox, HookRule, OutboxReport};
use pyo3::prelude::*;

use crate::error::Result;

/// A setting of the dispatcher, which fills it. Any thread may call any method; none waits for the disk.
#[pyclass(name = "HookOutbox", module = "forebay._core", frozen)]
pub struct PyHookOutbox {
    pub core: Arc<HookOutbox>,
}

#[pymethods]
impl PyHookOutbox {
    #[new]
    fn new(rules: Vec<(String, bool, bool, Vec<String>)>) -> Result<Self> {
        let rules = rules.into_iter();
        let rules = rules.map(|(hook, dead, failed, names)| HookRule {
            hook,
            dead,
            failed,
            names,
        });
        let core = Arc::new(HookOutbox::new(rules.collect())?);
        Ok(Self { core })
    }

    fn add(&self, hook: String, event: String, at: u64, detail: String) -> bool {
        self.core.report(OutboxReport::Added {
            hook,
            event,
            at,
            detail,
        })
    }

    fn answered(&self, number: i64, token: String) -> bool {
        self.core.report(OutboxReport::Answered { number, token })
    }

    fn tried(
        &self,
        number: i64,
        token: String,
        tries: u32,
        due_at: Option<u64>,
        error: String,
    ) -> bool {
        self.core.report(OutboxReport::Tried {
            number,
            token,
            tries,
            due_at,
            error,
        })
    }

    fn write(&self) {
        self.core.write();
    }

    fn reports(&self) -> usize {
        self.core.reports()
    }

    fn room(&self) -> usize {
        self.core.room()
    }

    fn dropped(&self) -> u64 {
        self.core.dropped()
    }

    fn fileno(&self) -> RawFd {
        self.core.fileno()
    }

    fn clear(&self) {
        self.core.clear();
    }

    fn wake(&self) {
        self.core.wake();
    }
}
