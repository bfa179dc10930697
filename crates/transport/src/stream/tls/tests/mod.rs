//! Two ends in memory, with a CA of their own.

mod authority;
mod calls;
mod damage;
mod files;
mod handshake;
mod pipe;
mod raw;
mod traffic;

use crate::stream::tls; // where the authority looks for it
