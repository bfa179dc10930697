//! TCP and Unix sockets, with or without TLS: the thread of a server, and the links of clients.
//!
//! Both sides drive a sans-I/O state machine (`Shard`, `Requester`), which names the memory to receive into and to send
//! from; this module moves the bytes directly between the socket and the memory of the rows.
//!
//! A connection begins as one of [`forebay_transport`], which checks tokens, certificates and users.
//! After one message each way ([`Hello`](crate::Hello), [`Welcome`](crate::Welcome)) this module takes its stream over.
//!
//! | module | what |
//! |---|---|
//! | `channel` | the stream that was taken over: gathered sends, scattered receives, TLS |
//! | `exchange` | one bounded turn of a state machine at a channel |
//! | `server` | a shard's thread: accepting, handshakes, serving, the owner's commands |
//! | `link` | a client's connection, driven by the threads and ports that wait for it |
//! | `batch` | pulls and pushes that were submitted together, and their results |
//! | `deadline` | how long a call or a wait may take |
//! | `port` | how an event loop or a thread drives links and learns of finished batches |
//! | `ready` | the batches that a port has to report |
//! | `sys` | system calls on lent memory: the `unsafe` of this module |
mod batch;
mod channel;
mod deadline;
mod error;
mod exchange;
mod link;
mod port;
mod ready;
mod server;
mod sys;

pub use batch::{Batch, OperationState};
pub use deadline::Deadline;
pub use error::StreamError;
pub use link::{Fabric, Link, LinkCounters, Settings, Submission, Until, VerbsCounters, Work};
pub use port::Port;
pub use server::{Entrance, Options, Server, ServerCounters};
