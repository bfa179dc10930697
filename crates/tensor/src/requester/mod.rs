//! Pulls and pushes of one client at one server: what goes next, what an answer means, when each has ended. Sans-I/O.
mod request;

pub use request::{Canceled, End, Limits, Outcome, Pull, Push, Refused, Rows, Ticket};

use std::time::Instant;

use crate::error::Error;
use crate::sys::span::Span;

/// All that one client has at one server.
#[derive(Debug)]
pub struct Requester<K> {
    limits: Limits,
    keeper: Option<K>,
}

#[allow(missing_docs, unused_variables, clippy::todo)] // skeleton
impl<K: Send> Requester<K> {
    pub fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            keeper: None,
        }
    }
    pub fn pull(
        &mut self,
        pull: Pull,
        keeper: K,
        deadline: Option<Instant>,
    ) -> Result<Ticket, Refused<K>> {
        todo!()
    }
    pub fn push(
        &mut self,
        push: Push,
        keeper: K,
        deadline: Option<Instant>,
    ) -> Result<Ticket, Refused<K>> {
        todo!()
    }
    pub fn look_up(
        &mut self,
        names: &[&str],
        keeper: K,
        deadline: Option<Instant>,
    ) -> Result<Ticket, Refused<K>> {
        todo!()
    }
    pub fn outgoing(&mut self, into: &mut [Span]) -> usize {
        todo!()
    }
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        todo!()
    }
    pub fn wants_write(&self) -> bool {
        todo!()
    }
    pub fn incoming(&mut self) -> [Span; 2] {
        todo!()
    }
    pub fn received(&mut self, bytes: usize, now: Instant) -> Result<(), Error> {
        todo!()
    }
    pub fn feed(&mut self, bytes: &[u8], now: Instant) -> Result<(), Error> {
        todo!()
    }
    pub fn take_end(&mut self) -> Option<End<K>> {
        todo!()
    }
    pub fn cancel(&mut self, ticket: Ticket) -> Canceled<K> {
        todo!()
    }
    pub fn expire(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        todo!()
    }
    pub fn break_off(&mut self, error: Error) {
        todo!()
    }
    pub fn is_idle(&self) -> bool {
        todo!()
    }
    pub fn waiting(&self) -> usize {
        todo!()
    }
    pub fn outstanding(&self) -> usize {
        todo!()
    }
}
