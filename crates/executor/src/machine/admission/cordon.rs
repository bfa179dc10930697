//! A cordon: an operator's word that a server takes no more submissions, until that is taken back.

use std::sync::Arc;

use crate::error::Refusal;
use crate::request::Millis;

/// What takes it back, for a person.
const UNDO: &str = "make it serve again with: forebay cordon --undo";

/// Who let the server take no more submissions, and what becomes of those that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordon {
    pub by: Arc<str>,
    /// In the words of who asked for it; empty if there were none.
    pub reason: Arc<str>,
    pub at: Millis,
    /// What was accepted is dispatched; `false`: nothing begins.
    pub dispatches: bool,
}

impl Cordon {
    /// Such as `ann drains the server: a new kernel`.
    pub fn text(&self) -> String {
        let act = if self.dispatches {
            "has cordoned"
        } else {
            "drains"
        };
        let by = if self.by.is_empty() {
            "an operator"
        } else {
            &*self.by
        };
        match &*self.reason {
            "" => format!("{by} {act} the server"),
            reason => format!("{by} {act} the server: {reason}"),
        }
    }

    /// Why nothing begins, with what a person can do.
    pub(super) fn stops(&self) -> Option<(String, String)> {
        (!self.dispatches).then(|| (self.text(), UNDO.into()))
    }

    pub(super) fn refusal(&self, name: &str) -> Refusal {
        Refusal {
            code: "draining",
            message: format!("the server takes no submissions: {}", self.text()),
            object: name.into(),
            limit: String::new(),
            value: String::new(),
            next: format!("submit it again later, or {UNDO}"),
        }
    }
}
