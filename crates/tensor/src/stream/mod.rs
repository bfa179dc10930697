//! TCP and Unix sockets, with or without TLS: the thread of a server, and the links of clients.
//!
//! Both sides drive a machine that knows no socket (`Shard`, `Requester`): it says where the next bytes go and which ones
//! are to be sent, and this moves them, straight between the socket and the memory that the rows lie in.
//!
//! A connection begins as one of [`forebay_transport`], which is where tokens, certificates and users are checked.
//! After one message each way ([`Hello`](crate::Hello), [`Welcome`](crate::Welcome)) its stream is taken over.
//!
//! | module | what |
//! |---|---|
//! | `channel` | the stream that was taken over: vectored sends and receives, TLS |
//! | `exchange` | one bounded turn of a machine at a channel |
//! | `server` | a shard's thread: accepting, greeting, serving, the owner's commands |
//! | `link` | a client's connection, driven by whoever waits for it |
//! | `batch` | pulls and pushes that were asked for together, and what became of them |
//! | `deadline` | the time that a call or a wait may take |
//! | `port` | where an event loop or a thread drives links and hears of batches |
//! | `sys` | system calls on memory that is lent: the `unsafe` of this module |
mod batch;
mod channel;
mod deadline;
mod error;
mod exchange;
mod link;
mod port;
mod server;
mod sys;

pub use batch::{Batch, OperationState};
pub use deadline::Deadline;
pub use error::StreamError;
pub use link::{Fabric, Link, LinkCounters, Settings, Submission, Until, VerbsCounters, Work};
pub use port::Port;
pub use server::{Entrance, Options, Server, ServerCounters};
