//! Rows over RDMA verbs: reliable connections of a device, through libibverbs, which is loaded on first use.
//!
//! A [`Puller`] writes requests into the inbox of a [`Responder`], which writes the rows into the destination blocks,
//! with immediate data that identifies the request. Tensors with many readers are [`Exposed`]: the puller reads them
//! without the owner's CPU. Both ends are set up over a stream, which is their lifeline afterwards.
//!
//! It is a fabric of [`forebay_tensor`], which knows it only by its traits: [`Device`] is the
//! [`Provider`](forebay_tensor::fabric::Provider) that a program gives to a server, and [`Puller::into_endpoint`] makes
//! the endpoint that it gives to a link. Both ends can be used without servers and links too.
//!
//! # Invariants
//!
//! 1. *Memory is registered when a chunk is made* ([`Registry`]), never for a transfer
//!    ([`Registering::PerTransfer`] exists as a baseline for measurements).
//! 2. *A peer's key covers one block and one connection*: a memory window (type 2B), not the chunk's own key.
//! 3. *A block is released only when no key on it is left*: its answer has come and its slot has moved to another
//!    block, or the window was invalidated, or the queue pair is in error. Until then this crate holds a lease of it.
//!    A slot keeps its key on the block of its last pull: a malicious peer may change those bytes until the slot is
//!    used for another block, as it could have sent wrong ones in the first place. It never reaches another
//!    block.
//! 4. *Completions are waited for, not spun on*: poll, ask for an event, poll again, sleep.
//! 5. *As many receives are posted as the peer may send*; each is posted again before its content is processed.
//! 6. *Everything pending ends*: by its answer, by a completion in error, or by the end of the lifeline, which comes
//!    long before a device gives up on a killed peer.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | `discovery` | devices, ports, addresses, and why none is usable |
//! | `device` | the device of a process, opened once |
//! | `registry` | chunks of a region, registered with a device |
//! | `requests` | memory for the requests of a connection |
//! | `wire` | the messages between both ends |
//! | `link` | a queue pair with its completions, and the fence |
//! | `window` | the key that a peer has on a block |
//! | `puller`, `responder` | the two ends |
//! | `catalog` | the tensors of an owner without a server |
//! | `fabric` | the two ends as servers and links use them |
//! | `sys` | libibverbs and its memory: all of the `unsafe` |
//!
//! Sources: the `InfiniBand` architecture specification, volume 1, chapters 9 to 11; `ibv_post_send(3)`,
//! `ibv_bind_mw(3)`, `ibv_get_cq_event(3)`; rdma-core 44.
mod catalog;
mod device;
mod discovery;
mod fabric;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod link;
mod puller;
mod registry;
mod requests;
mod responder;
mod sys;
mod window;
mod wire;

pub use catalog::Catalog;
pub use device::Device;
pub use discovery::{Adapter, Found, devices};
pub use link::Lifeline;
pub use puller::{Arrival, Offer, Prepared, Puller, Settled};
pub use registry::Registry;
pub use responder::Responder;
pub use wire::Exposed;

/// Largest pull in bytes: a message of a reliable connection is below 2 GiB.
pub const PULL_BYTES_MAX: usize = 1 << 30;

/// When memory is registered with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registering {
    /// With its chunk.
    Once,
    /// For each transfer, on both sides, and deregistered after it: the baseline of measurements.
    PerTransfer,
}
