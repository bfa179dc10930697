//! Links and servers over real sockets.
#![cfg(not(loom))]

#[path = "../../../transport/src/stream/tls/tests/authority.rs"]
#[allow(dead_code)] // of what the transport's own tests use
mod authority;
mod connect;
mod endings;
mod fabric;
mod files;
mod leads;
mod liar;
mod moves;
mod peers;
mod ports;
mod sealed;
mod shm;
mod sys;

use forebay_transport::stream::tls; // where the authority looks for it
