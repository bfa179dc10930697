//! Links and servers over real sockets.
#![cfg(not(loom))]

mod connect;
mod endings;
mod files;
mod leads;
mod liar;
mod moves;
mod near;
mod peers;
mod ports;
mod sys;
