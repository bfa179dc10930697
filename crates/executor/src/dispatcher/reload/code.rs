//! The code that checks submissions, which wait here while another one is being loaded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::slots::Key;
use forebay_transport::calls::Call as Received;

use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::{PARKED_BYTES_MAX, PARKED_MAX};
use crate::error::{Refusal, Result};
use crate::machine::Definition;
use crate::manifest::{Described, Manifest};
use crate::message::{self, Submit};
use crate::request::Submission;

/// Whether submissions are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// They wait: the code that will check them is being loaded.
    #[default]
    Loading,
    /// They are refused: there is no code that could run them.
    Closed(Arc<str>),
}

/// The newest code.
#[derive(Debug, Default)]
pub struct Code {
    manifest: Option<Arc<Manifest>>,
    gate: Gate,
    /// Submissions that wait, in their order.
    parked: VecDeque<(Key, Received)>,
    parked_bytes: usize,
    unnamed: Arc<str>,
}

impl Code {
    /// Whether a submission waits until the code is loaded.
    pub fn is_loading(&self) -> bool {
        self.gate == Gate::Loading
            && self.parked.len() < PARKED_MAX
            && self.parked_bytes < PARKED_BYTES_MAX
    }

    /// Let a submission wait.
    pub fn park(&mut self, client: Key, call: Received) {
        let segments = call.segments.iter().map(|one| one.as_slice().len());
        self.parked_bytes += call.head.as_slice().len() + segments.sum::<usize>();
        self.parked.push_back((client, call));
    }

    /// The code's hash, for requests of this process.
    pub fn name(&self) -> Arc<str> {
        let manifest = self.manifest.as_ref();
        Arc::clone(manifest.map_or(&self.unnamed, |manifest| &manifest.code))
    }

    /// Check a submission against the application; the result has the options that apply to it.
    ///
    /// # Errors
    /// The application cannot be loaded, has no such request, or does not take such arguments or options.
    pub fn check(&self, submit: &Submit<'_>, now: u64) -> std::result::Result<Submission, Refusal> {
        let manifest = match (&self.gate, &self.manifest) {
            (Gate::Closed(reason), _) => return Err(held(reason)),
            (_, None) => return Err(held("the application is being loaded")),
            (_, Some(manifest)) => manifest,
        };
        let described = manifest.check(submit.name, submit.arguments)?;
        let mut asked = message::options(submit.options, &described.options, now)?;
        if asked.options.key.is_none()
            && let Some(concurrency) = described.concurrency
            && let Some(key) = described
                .key(submit.arguments)
                .filter(|key| *key != described.name)
        {
            let options = Arc::make_mut(&mut asked.options);
            (options.key, options.key_at_once) = (Some(key), concurrency);
        }
        let submitter = asked.submitter.as_ref().or(manifest.submitter.as_ref());
        Ok(Submission {
            name: Arc::clone(&described.name),
            code: Arc::clone(&manifest.code),
            submitter: Arc::clone(submitter.unwrap_or(&self.unnamed)),
            arguments: submit.arguments.into(),
            options: asked.options,
        })
    }
}

impl Driver {
    /// Install new code: submissions are checked against it from now on.
    ///
    /// # Errors
    /// `Refused` for an invalid schedule.
    pub fn install(&mut self, manifest: Arc<Manifest>) -> Result<()> {
        let definitions: Vec<_> = manifest.requests().iter().map(definition).collect();
        let code = Arc::clone(&manifest.code);
        self.machine
            .install(self.now, code, &definitions)
            .map_err(|refusal| *refusal)?;
        self.code.manifest = Some(manifest);
        if !self.is_outdated() {
            self.open(Gate::Open);
        }
        Ok(())
    }

    /// Stop dispatching for this reason and refuse submissions, or resume with `None`.
    pub fn hold(&mut self, reason: Option<Arc<str>>) {
        if reason.is_none() && self.is_outdated() {
            return; // the supervisor will load what has changed, and call this again
        }
        self.machine.hold(self.now, reason.clone());
        if self.code.manifest.is_some() || reason.is_some() {
            self.open(reason.map_or(Gate::Open, Gate::Closed));
        }
    }

    /// Whether a source has changed since the supervisor last took such an order: then what it installs is already out
    /// of date.
    fn is_outdated(&mut self) -> bool {
        if self.reloads {
            self.check_source_files();
        }
        self.reloads && self.shared.sources.load(Ordering::Acquire) > 0
    }

    /// Begin a reload: submissions wait for the new code from now on.
    pub fn load(&mut self, reason: Arc<str>) {
        self.machine.hold(self.now, Some(reason));
        self.code.gate = Gate::Loading;
    }

    fn open(&mut self, gate: Gate) {
        self.code.gate = gate;
        self.code.parked_bytes = 0;
        for (client, call) in std::mem::take(&mut self.code.parked) {
            self.take_call(client, call);
        }
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

fn held(reason: &str) -> Refusal {
    Refusal {
        code: "hold",
        message: reason.into(),
        object: "the application".into(),
        limit: String::new(),
        value: String::new(),
        next: "correct it and submit again".into(),
    }
}
