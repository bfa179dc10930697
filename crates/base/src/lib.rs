//! The ground floor: what every driver asks of the kernel, and no word of a system.
//!
//! It may not contain a policy, a limit that a user can reach, a frame, a call, a lease, a request, a tensor or a
//! block, nor anything that only one crate uses; it uses no other crate of Forebay. What belongs here stands nowhere else.
//!
//! | module | what |
//! |---|---|
//! | [`Queue`], [`wakeup`] | completions from any thread to one consumer; waking a thread that sleeps |
//! | [`waiters`] | which of the threads that wait for one source reads it |
//! | [`poll`], [`slots`] | one epoll whose events name a kind and a slot; slots that tell each use from the one before |
//! | [`accept`], [`unix`], [`peer`] | accepting and its pauses, listening on a Unix socket of this user alone, and who connects to it |
//! | [`packet`] | packets with descriptors |
//! | [`process`], [`PerProcess`] | which process this is after forks; a value that each makes for itself |
//! | [`file_id`], [`host`] | which file a path names; how much memory this process may have, and its cgroups |
//! | [`readiness()`], [`time`], [`mod@spin`] | what a descriptor is ready for, times as the kernel takes them, looking before sleeping |
//! | [`signals`] | sleeping so that no signal stays unheard |
//!
//! # The completion queue: how Rust threads reach an event loop
//!
//! Rust threads finish operations; one consumer, usually an event loop, wants to know.
//! Waking it once for each operation costs a system call and a task switch each time.
//! A [`Queue`] wakes it once per *batch*: whoever finds the consumer waiting writes the eventfd,
//! and everybody who pushes before the consumer has come back finds the flag down and writes nothing.
//!
//! # Invariant
//!
//! *An item in the queue implies that the consumer will drain again*:
//! either the eventfd is readable, or a producer that lowered the flag is about to write it,
//! or a consumer is inside [`Queue::drain`] and has not taken the items yet.
//!
//! A producer puts its item in and lowers the flag in one turn with the lock, and writes the eventfd after it.
//! The consumer clears the eventfd, **then** raises the flag and takes the items in one turn with the lock.
//! Both orders matter:
//!
//! * taking the items in one turn and raising the flag in a later one loses wake-ups:
//!   a producer between the two finds the flag down and writes nothing, and its item waits for ever;
//! * clearing the eventfd after the flag is up swallows the write of a producer that came between.
//!
//! A write may come late, when its item has been taken already; the next drain is then empty, which is harmless.
//! The test `loom` checks every interleaving of two producers and a consumer, and of closing.
//!
//! # Alternatives
//!
//! * *Write when the queue was empty* needs no flag, but wakes a consumer that takes a part of the queue never again.
//! * *An atomic flag beside the lock* was written first.
//!   It is right if raised before the items are taken, but only by an argument about the flag's modification order,
//!   which loom cannot follow (it lets a swap read past a store that the swap's own atomicity puts after it),
//!   and it costs one more atomic exchange than a flag under the lock, which is held anyway.
//! * A lock-free list saves the lock, which is held for one `push` or one swap of two vectors,
//!   and pays with an allocation per item; the lock's cost is lost in that of what is pushed.
//! * A pipe holds two descriptors and can fill up; an eventfd is one and cannot.
//!
//! # Example
//!
//! ```
//! use forebay_base::Queue;
//!
//! let queue = Queue::new(1024)?;
//! queue.push("read 7 is done").unwrap();
//! queue.push("read 8 is done").unwrap();         // the eventfd was written once, by the first
//!
//! // the event loop finds `queue.fileno()` readable:
//! let mut batch = Vec::new();
//! queue.drain(&mut batch)?;
//! assert_eq!(batch, ["read 7 is done", "read 8 is done"]);
//! # Ok::<(), forebay_base::Error>(())
//! ```
pub mod accept;
mod error;
pub mod file_id;
pub mod host;
pub mod packet;
pub mod peer;
mod per_process;
pub mod poll;
pub mod process;
mod queue;
mod readiness;
pub mod signals;
pub mod slots;
pub mod spin;
mod sync;
mod sys;
pub mod time;
pub mod unix;
pub mod waiters;
pub mod wakeup;

pub use error::{Error, Refused};
pub use per_process::PerProcess;
pub use queue::Queue;
pub use readiness::readiness;
