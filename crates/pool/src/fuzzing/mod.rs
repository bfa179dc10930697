//! Any bytes as a control message: one entry for each protocol that another process speaks.
//!
//! Built for tests and with the feature `fuzzing`; see the module of this name in `forebay-transport`.

#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use crate::error::Result;
use crate::wire::{Event, KeeperRequest, Order, Report, shared};

/// The messages of client, keeper and template; the first byte selects the receiver.
///
/// # Panics
/// Where what was read means something else once it was written again.
pub fn control(input: &[u8]) -> bool {
    let (&who, bytes) = input.split_first().unwrap_or((&0, &[]));
    match who % 4 {
        0 => keeps(bytes, KeeperRequest::decode, KeeperRequest::encode),
        1 => keeps(bytes, Event::decode, Event::encode),
        2 => keeps(bytes, Order::decode, Order::encode),
        _ => keeps(bytes, Report::decode, Report::encode),
    }
}

/// The messages of programs and the lender of one pool; the first byte selects the receiver.
///
/// # Panics
/// As [`control`].
pub fn lender(input: &[u8]) -> bool {
    let (&who, bytes) = input.split_first().unwrap_or((&0, &[]));
    match who % 2 {
        0 => keeps(bytes, shared::Request::decode, shared::Request::encode),
        _ => keeps(bytes, shared::Reply::decode, shared::Reply::encode),
    }
}

fn keeps<M: Debug + PartialEq>(
    bytes: &[u8],
    decode: fn(&[u8]) -> Result<M>,
    encode: fn(&M) -> Vec<u8>,
) -> bool {
    let Ok(message) = decode(bytes) else {
        return true;
    };
    let again = decode(&encode(&message)).expect("what was written can be read");
    assert_eq!(again, message);
    false
}
