//! The key that a peer has on a local block, and how it is revoked.
//!
//! Each slot has one window, bound to the block of its pulls. While they go to the same block nothing is bound or
//! revoked, so the steady state posts transfers only; a pull into another block first revokes the key on the old one.
//! A [`Bound`] holds a lease: the block cannot be reused before its key is revoked.
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
    /// A window must be dropped before the registration that it is bound to.
    _registration: Arc<Registration>,
    key: u32,
}

impl Bound {
    /// The peer's description of the part that begins at `at`.
    pub(super) fn part(&self, at: usize) -> RemotePart {
        RemotePart {
            address: self.block.as_ptr().as_ptr() as u64 + at as u64,
            key: self.key,
        }
    }
}

/// A window, and the block that it is bound to.
#[derive(Debug)]
pub(super) struct SlotWindow {
    /// Dropped first, before the registration that it is bound to.
    window: Window,
    bound: Option<Bound>,
}

impl SlotWindow {
    pub(super) fn new(domain: &Arc<Domain>) -> Result<Self, Error> {
        let window =
            Window::new(domain).map_err(|error| broken("the device refused a window", &error))?;
        Ok(Self {
            window,
            bound: None,
        })
    }

    /// Give the peer the rights `allowed` on all of `block`, and on no other. `bind` and `unbind` describe the two
    /// operations to the link; the latter keeps the old block until the key on it is revoked.
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

    /// Whether the peer has a key on this block.
    pub(super) fn covers(&self, block: &Lease) -> bool {
        self.bound
            .as_ref()
            .is_some_and(|bound| bound.block.reference() == block.reference())
    }

    /// Whether the peer has no key through it.
    pub(super) fn is_idle(&self) -> bool {
        self.bound.is_none()
    }

    /// Revoke the key, if there is one; returns whether there was.
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

/// If posting fails the link is fenced, which revokes all keys.
fn take_back<P>(
    link: &mut Link<P>,
    bound: Bound,
    unbind: impl FnOnce(Bound) -> P,
) -> Result<(), Error> {
    let key = bound.key;
    link.post(unbind(bound), |pair| pair.invalidate(0, key))
}
