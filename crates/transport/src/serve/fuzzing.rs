//! A native listener with arbitrary input.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use forebay_base::poll::Ready;

use super::metrics::Metrics;
use super::service::{Health, Service, Table};
use super::session::{Action, ClientSession};
use super::store::Store;
use crate::error::Error;
use crate::fuzzing::Speaker;
use crate::limit::Limits;
use crate::link::admission::Admission;
use crate::messages::state::State;

/// A service of every kind that needs no other process, by its name.
fn table() -> Service {
    let store = Store::default();
    store.put(b"key", vec![Arc::new(*b"value"), Arc::new(*b"more")]);
    let services = [
        (&b"echo"[..], Service::Echo),
        (b"store", Service::Store(Arc::new(store))),
        (
            b"health",
            Service::Health(Arc::new(Health::new("well".into()))),
        ),
    ];
    let services = services.map(|(name, service)| (name.to_vec(), service));
    Service::Table(Arc::new(Table::new(HashMap::from(services), false)))
}

thread_local! {
    static SERVICE: RefCell<Service> = RefCell::new(table());
}

/// A listener's connection receives any bytes, and answers messages. The first byte says how much it receives at once.
///
/// # Panics
/// If it neither continues nor ends.
pub fn native(input: &[u8]) -> bool {
    let (&step, bytes) = input.split_first().unwrap_or((&0, &[]));
    let limits = Limits {
        frame_bytes_max: 64 << 10,
        ..Limits::of_messages()
    };
    let speaker = Speaker::new(bytes.to_vec(), 1 << (step % 16), false);
    let client = State::new(speaker, limits, Admission::Anybody, None);
    let service = SERVICE.with_borrow(Service::clone);
    let (mut peer, metrics) = (ClientSession::new(client, service), Metrics::default());
    for _ in 0..2 * bytes.len() + 8 {
        match peer.step(Ready::BOTH, Ready::NOTHING, &metrics) {
            Action::Wait | Action::Again => {}
            Action::Close(why) => return matches!(why, Some(Error::Protocol { .. })),
            other => panic!("{other:?} of a service that it does not have"),
        }
    }
    panic!("the client has gone and its connection stays");
}
