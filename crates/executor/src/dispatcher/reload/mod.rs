//! Reloads the application: the code that checks submissions, and the source files that it was loaded from.
//!
//! The dispatcher itself stops when a source changes. Submissions wait from the turn that noticed the change until the
//! supervisor has installed the new code or reported why there is none; [`Reload`] then returns them in their order.

mod code;
mod source_files;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_base::slots::Key;
use forebay_transport::calls::Call as Received;

use crate::dispatcher::context::Context;
use crate::dispatcher::reload::code::{Code, Gate};
use crate::dispatcher::reload::source_files::SourceFiles;
use crate::dispatcher::supervisor::protocol::Order;
use crate::error::Result;
use crate::feed::ServerState;
use crate::machine::Definition;
use crate::manifest::{Described, Manifest};

/// Calls of clients that waited for the code, in their order.
pub type Parked = VecDeque<(Key, Received)>;

/// The newest code, and the sources that make it out of date.
pub struct Reload {
    code: Code,
    source_files: SourceFiles,
    /// A change of a source stops dispatch and acceptance.
    reloads: bool,
}

impl Reload {
    pub fn new(reloads: bool) -> Self {
        Self {
            code: Code::default(),
            source_files: SourceFiles::default(),
            reloads,
        }
    }

    /// The newest code.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Whether a submission waits for code.
    pub fn parks(&self) -> bool {
        self.code.parks()
    }

    /// Let a submission wait for the code that is being loaded.
    pub fn park(&mut self, client: Key, call: Received) {
        self.code.park(client, call);
    }

    /// Watch these source files instead of the previous ones.
    ///
    /// # Errors
    /// `System`.
    pub fn watch(&mut self, cx: &Context, paths: Vec<PathBuf>) -> Result<()> {
        self.source_files.watch(&cx.poll, paths)
    }

    /// Check for changed source files. With `reload`, a change stops dispatch and acceptance until the new code is
    /// installed.
    pub fn check_source_files(&mut self, cx: &mut Context) {
        let changed = self.source_files.changed();
        let Some(first) = changed.first() else {
            return;
        };
        if self.reloads {
            let name = first.file_name().unwrap_or(first.as_os_str());
            let reason = format!("reloading: {} changed", name.display());
            hold(cx, Some(reason.into()));
            self.code.load();
        }
        let paths = changed.into_iter().map(|path| path.display().to_string());
        cx.shared.order(Order::Sources(paths.collect()));
    }

    /// A source change that preceded a submission must be noticed before the submission is accepted.
    pub fn check_before_submissions(&mut self, cx: &mut Context) {
        if self.reloads {
            self.check_source_files(cx);
        }
    }

    /// Install new code: submissions are checked against it from now on. The calls that may go on.
    ///
    /// # Errors
    /// `Refused` for an invalid schedule; `Config` and `System` for a key of secret arguments that cannot be used.
    pub fn install(&mut self, cx: &mut Context, manifest: Arc<Manifest>) -> Result<Parked> {
        if manifest.has_secrets() {
            cx.secrets.load()?;
        }
        let definitions: Vec<_> = manifest.requests().iter().map(definition).collect();
        let code = Arc::clone(&manifest.code);
        cx.machine
            .install(cx.now, code, &definitions)
            .map_err(|refusal| *refusal)?;
        self.code.install(manifest);
        cx.note_server(ServerState::Loaded, None);
        Ok(if self.is_outdated(cx) {
            Parked::new()
        } else {
            self.code.open(Gate::Open)
        })
    }

    /// Stop dispatching for this reason and refuse submissions, or resume with `None`. The calls that may go on.
    pub fn hold(&mut self, cx: &mut Context, reason: Option<Arc<str>>) -> Parked {
        if reason.is_none() && self.is_outdated(cx) {
            return Parked::new(); // the supervisor will load what has changed, and call this again
        }
        hold(cx, reason.clone());
        if !self.code.is_installed() && reason.is_none() {
            return Parked::new();
        }
        self.code.open(reason.map_or(Gate::Open, Gate::Closed))
    }

    /// Whether a source has changed since the supervisor last took such an order: then what it installs is already out
    /// of date.
    fn is_outdated(&mut self, cx: &mut Context) -> bool {
        self.check_before_submissions(cx);
        self.reloads && cx.shared.has_untaken_sources()
    }
}

/// Hold the machine for a reason, or let it go on; the feed tells what changes.
fn hold(cx: &mut Context, reason: Option<Arc<str>>) {
    let was_held = cx.machine.is_held();
    cx.machine.hold(cx.now, reason.clone());
    match reason {
        Some(reason) => cx.note_server(ServerState::Held, Some(reason)),
        // One that drains stays held.
        None if was_held && !cx.machine.is_held() => cx.note_server(ServerState::Resumed, None),
        None => {}
    }
}

fn definition(described: &Described) -> Definition {
    // Without a keyed parameter a limit applies to all requests of the name.
    let by_name = described.key(EMPTY_MAP).as_ref() == Some(&described.name);
    Definition {
        name: Arc::clone(&described.name),
        options: Arc::clone(&described.options),
        concurrency: described.concurrency.filter(|_| by_name),
        cron: described.cron.as_deref().map(Arc::from),
    }
}

const EMPTY_MAP: &[u8] = &[0x80];
