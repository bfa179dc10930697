//! The manifest: an application's description of its requests, against which arguments are checked.
//!
//! A worker writes the manifest where the application is imported; the server only reads it, so that a submission is
//! refused before it is stored, with a reason that its sender understands.

mod arguments;
mod read;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Refusal, Result};
use crate::hash;
use crate::nearest::nearest;
use crate::request::Options;
use crate::schema::{Field, Schemas, Set};

/// The version of the format that this server reads.
pub const MANIFEST_SCHEMA: u64 = 1;

/// An application's requests.
#[derive(Debug)]
pub struct Manifest {
    pub app: Arc<str>,
    /// As a person wrote it.
    pub target: String,
    /// The hash of the application's sources.
    pub code: Arc<str>,
    /// The submitter of requests whose client names none.
    pub submitter: Option<Arc<str>>,
    pub sources: Vec<PathBuf>,
    /// The JSON that this was read from.
    pub text: Arc<[u8]>,
    requests: Vec<Described>,
    by_name: HashMap<Arc<str>, usize>,
    schemas: Schemas,
}

/// One request of an application.
#[derive(Debug)]
pub struct Described {
    pub name: Arc<str>,
    /// What a submission's options go on top of.
    pub options: Arc<Options>,
    /// How many may run at once, or of one key.
    pub concurrency: Option<u32>,
    pub cron: Option<String>,
    /// How long it is kept once it has ended; `None`: as the server's settings say.
    pub retention_ms: Option<u64>,
    /// The parameter whose values are counted apart.
    key: Option<usize>,
    parameters: Vec<Field>,
    required: Set,
    /// Parameters whose values are sealed, and shown nowhere.
    secrets: Set,
    /// Values that stand for a parameter that was not passed, as JSON; empty: not known.
    defaults: Vec<String>,
}

impl Manifest {
    /// Read what a worker made.
    ///
    /// # Errors
    /// `Config`, with the place and what is wrong there.
    pub fn parse(text: &[u8]) -> Result<Self> {
        read::parse(text)
    }

    /// The requests, in their order.
    pub fn requests(&self) -> &[Described] {
        &self.requests
    }

    /// How long ended requests are kept, of those names that say so.
    pub fn ages(&self) -> HashMap<Arc<str>, u64> {
        let own = |request: &Described| Some((Arc::clone(&request.name), request.retention_ms?));
        self.requests.iter().filter_map(own).collect()
    }

    /// Whether a request has secret parameters.
    pub fn has_secrets(&self) -> bool {
        self.requests.iter().any(Described::has_secrets)
    }

    /// The request of that name.
    ///
    /// # Errors
    /// A [`Refusal`] with the nearest name, or all of them.
    pub fn request(&self, name: &str) -> std::result::Result<&Described, Refusal> {
        if let Some(&number) = self.by_name.get(name) {
            return Ok(&self.requests[number]);
        }
        let names = || self.requests.iter().map(|request| &*request.name);
        let next = match nearest(name, names()) {
            Some(near) => format!("did you mean {near:?}?"),
            None if self.requests.is_empty() => format!("{:?} has no requests", self.app),
            None => format!(
                "{:?} has {}",
                self.app,
                names().collect::<Vec<_>>().join(", ")
            ),
        };
        Err(Refusal::unknown("request", name, next))
    }

    /// Check arguments, a map in msgpack, against the request's parameters. Cost: below 1 us for a small request.
    ///
    /// # Errors
    /// A [`Refusal`] that names the request, the parameter, its value and what was expected.
    pub fn check(&self, name: &str, encoded: &[u8]) -> std::result::Result<&Described, Refusal> {
        let request = self.request(name)?;
        arguments::check(&self.schemas, request, encoded)?;
        Ok(request)
    }
}

impl Described {
    /// Whether a parameter is secret.
    pub fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Whether this parameter is secret.
    pub fn is_secret(&self, parameter: &str) -> bool {
        let number = self
            .parameters
            .iter()
            .position(|one| *one.name == *parameter);
        number.is_some_and(|number| self.secrets.contains(number))
    }

    /// A hash of name and arguments, by which two children of one request are told apart. Secret values are left out: a
    /// stored hash would let them be guessed.
    pub fn digest(&self, encoded: &[u8]) -> u64 {
        if self.has_secrets() {
            return arguments::digest_without_secrets(self, encoded);
        }
        hash::digest([self.name.as_bytes(), encoded])
    }

    /// The key that `concurrency` counts by, of arguments that were checked: the parameter and its value.
    /// `None` where nothing is counted; without a parameter all requests of the name share one key.
    pub fn key(&self, encoded: &[u8]) -> Option<Arc<str>> {
        self.concurrency?;
        let Some(number) = self.key else {
            return Some(Arc::clone(&self.name));
        };
        Some(arguments::key(self, number, encoded).into())
    }
}

#[cfg(test)]
mod tests;
