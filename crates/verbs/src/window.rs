//! The key that a peer has on a block of ours, and how it is taken back.
//!
//! A slot has one window for ever, bound over the block that its pulls go to. While they go to the same block nothing
//! is bound or taken back, so the steady state posts transfers alone; a pull into another block takes the key on the
//! old one back first. Whoever holds a [`Bound`] holds the block: it is nobody else's before its key has been taken back.
use std::sync::Arc;

use forebay_memory::Lease;
use forebay_tensor::Error;

use crate::link::{Link, broken};
use crate::registry::Registry;
use crate::sys::device::Domain;
use crate::sys::pair::RemotePart;
use crate::sys::registration::Registration;
use crate::sys::window::Window;

/// A block that the peer has a key on.
#[derive(Debug)]
pub(super) struct Bound {
    block: Lease,
    /// Windows must go before what they are bound on.
    _registration: Arc<Registration>,
    key: u32,
}

impl Bound {
    /// What the peer is told of a part that begins at `at`.
    pub(super) fn part(&self, at: usize) -> RemotePart {
        RemotePart {
            address: self.block.as_ptr().as_ptr() as u64 + at as u64,
            key: self.key,
        }
    }
}

/// A window and what it is bound over.
#[derive(Debug)]
pub(super) struct SlotWindow {
    /// First: it goes before what it is bound on.
    window: Window,
    bound: Option<Bound>,
}

impl SlotWindow {
    pub(super) fn new(domain: &Arc<Domain>) -> Result<Self, Error> {
        let window =
            Window::new(domain).map_err(|error| broken("the device gives no window", &error))?;
        Ok(Self {
            window,
            bound: None,
        })
    }

    /// Have the peer allowed to do `allowed` with all of `block`, and with no other. `bind` and `unbind` are
    /// what a link is told that the two operations were of; the latter keeps the old block until it is done.
    pub(super) fn cover<P>(
        &mut self,
        link: &mut Link<P>,
        registry: &Registry,
        block: &Lease,
        allowed: u32,
        (bind, unbind): (P, impl FnOnce(Bound) -> P),
    ) -> Result<&Bound, Error> {
        if !self.covers(block) {
            let registration = registry.find(block)?;
            if let Some(bound) = self.bound.take() {
                take_back(link, bound, unbind)?;
            }
            let (address, bytes) = (block.as_ptr().as_ptr() as u64, block.len() as u64);
            let key = link.post(bind, |pair| {
                pair.bind(0, &mut self.window, &registration, address, bytes, allowed)
            })?;
            self.bound = Some(Bound {
                block: block.clone(),
                _registration: registration,
                key,
            });
        }
        Ok(self.bound.as_ref().expect("bound above"))
    }

    /// Whether the peer has a key on this block by it.
    pub(super) fn covers(&self, block: &Lease) -> bool {
        self.bound
            .as_ref()
            .is_some_and(|bound| bound.block.reference() == block.reference())
    }

    /// Whether the peer has no key by it.
    pub(super) fn is_idle(&self) -> bool {
        self.bound.is_none()
    }

    /// Take the key back, if there is one; says whether there was.
    pub(super) fn revoke<P>(
        &mut self,
        link: &mut Link<P>,
        unbind: impl FnOnce(Bound) -> P,
    ) -> Result<bool, Error> {
        let Some(bound) = self.bound.take() else {
            return Ok(false);
        };
        take_back(link, bound, unbind)?;
        Ok(true)
    }
}

/// Where posting fails the link is fenced, which is as good.
fn take_back<P>(
    link: &mut Link<P>,
    bound: Bound,
    unbind: impl FnOnce(Bound) -> P,
) -> Result<(), Error> {
    let key = bound.key;
    link.post(unbind(bound), |pair| pair.invalidate(0, key))
}
