//! The code that checks submissions, which wait here while another one is being loaded.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_base::slots::Key;
use forebay_transport::calls::Call as Received;

use crate::dispatcher::limit::{PARKED_BYTES_MAX, PARKED_MAX};
use crate::error::Refusal;
use crate::manifest::Manifest;
use crate::message::{self, Submit};
use crate::request::Submission;
use crate::secret::{self, Secrets};

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

    /// Whether a submission waits.
    pub fn parks(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Let a submission wait.
    pub fn park(&mut self, client: Key, call: Received) {
        let segments = call.segments.iter().map(|one| one.as_slice().len());
        self.parked_bytes += call.head.as_slice().len() + segments.sum::<usize>();
        self.parked.push_back((client, call));
    }

    /// Check submissions against this manifest from now on.
    pub fn install(&mut self, manifest: Arc<Manifest>) {
        self.manifest = Some(manifest);
    }

    pub fn is_installed(&self) -> bool {
        self.manifest.is_some()
    }

    /// Another code is being loaded: submissions wait for it.
    pub fn load(&mut self) {
        self.gate = Gate::Loading;
    }

    /// Accept or refuse submissions; those that waited for it, in their order.
    pub fn open(&mut self, gate: Gate) -> VecDeque<(Key, Received)> {
        self.gate = gate;
        self.parked_bytes = 0;
        std::mem::take(&mut self.parked)
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
    pub fn check(&self, submit: &Submit<'_>, now: u64) -> Result<Submission, Refusal> {
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
        if described.has_secrets() {
            Arc::make_mut(&mut asked.options).sealed = true;
        }
        if asked.options.child.is_some()
            && let Some(child) = &mut Arc::make_mut(&mut asked.options).child
        {
            child.digest = described.digest(submit.arguments);
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

/// Sealing.
impl Code {
    /// A submission that was checked, with its secret arguments sealed. Without a state directory nothing of it leaves
    /// this process, and it stays as it is.
    ///
    /// # Errors
    /// `store`: the machine has no random bytes.
    pub fn sealed(
        &self,
        secrets: &Secrets,
        mut submission: Submission,
    ) -> Result<Submission, Refusal> {
        if !submission.options.sealed {
            return Ok(submission);
        }
        let manifest = self.manifest.as_ref();
        let described = manifest.and_then(|manifest| manifest.request(&submission.name).ok());
        let (Some(described), Some(key)) = (described, secrets.key()) else {
            Arc::make_mut(&mut submission.options).sealed = false;
            return Ok(submission);
        };
        let is_secret = |parameter: &str| described.is_secret(parameter);
        let sealed = secret::seal(key, &submission.name, &submission.arguments, is_secret);
        submission.arguments = sealed
            .map_err(|error| unsealed(&submission.name, &error.to_string()))?
            .into();
        Ok(submission)
    }
}

fn unsealed(name: &str, why: &str) -> Refusal {
    Refusal {
        code: "store",
        message: format!("{name}: its secret arguments cannot be sealed: {why}"),
        object: name.into(),
        limit: String::new(),
        value: String::new(),
        next: "submit it again".into(),
    }
}

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
