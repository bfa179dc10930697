//! Any way of requests, in any batches: a new server finds what a small model says.

use std::collections::BTreeMap;

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Death, Failure, Outcome, Status};
use forebay_executor::store::{StoreConfig, Synchronous};
use proptest::prelude::*;

use crate::given::{self, Directory, Driven, accept, claim, end, end_with};

const IDS: u64 = 5;

/// What happens to a request next; what cannot happen to it as it stands is passed over.
#[derive(Clone, Copy, Debug)]
enum Event {
    Next(u64),
    Succeed(u64),
    FailByDeath(u64),
    Park(u64),
    /// By a death that the request is not blamed for.
    ParkExcused(u64),
    Retry(u64),
    /// The batch ends here, and is given.
    Give,
    /// The server ends, and another begins.
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stands {
    status: Status,
    attempts: u32,
    forgiven: u32,
    deaths: u32,
    wake_at: Option<u64>,
}

fn died() -> Failure {
    Failure::Died(Death {
        pid: 1,
        exit_code: Some(1),
        ..Death::of("exit")
    })
}

/// An end as of a request that stands so.
fn ending(op: Op, stands: &Stands) -> Op {
    let Op::End { id, ending, .. } = op else {
        return op;
    };
    let mut ending = (*ending).clone();
    ending.attempts = stands.attempts;
    Op::End {
        id,
        ending: std::sync::Arc::new(ending),
        deaths: stands.deaths,
        claimed: stands.attempts,
    }
}

/// Apply an event to the model; the change that says it to the store.
fn apply(model: &mut BTreeMap<u64, Stands>, event: Event) -> Option<Op> {
    let (Event::Next(id)
    | Event::Succeed(id)
    | Event::FailByDeath(id)
    | Event::Park(id)
    | Event::ParkExcused(id)
    | Event::Retry(id)) = event
    else {
        return None;
    };
    let Some(stands) = model.get_mut(&id) else {
        let fresh = Stands {
            status: Status::Queued,
            attempts: 0,
            forgiven: 0,
            deaths: 0,
            wake_at: None,
        };
        model.insert(id, fresh);
        return Some(accept(id));
    };
    match (event, stands.status) {
        (Event::Next(_), Status::Queued) => {
            stands.status = Status::Running;
            stands.attempts += 1;
            stands.wake_at = None;
            Some(claim(id, stands.attempts))
        }
        (Event::Succeed(_), Status::Running) => {
            stands.status = Status::Succeeded;
            Some(ending(end(id), stands))
        }
        (Event::FailByDeath(_), Status::Running) => {
            stands.status = Status::Dead;
            stands.deaths += 1;
            let dead = end_with(id, Status::Dead, Outcome::Failed(died()));
            Some(ending(dead, stands))
        }
        (Event::Park(_) | Event::ParkExcused(_), Status::Running) => {
            stands.status = Status::Queued;
            stands.deaths += u32::from(matches!(event, Event::Park(_)));
            stands.wake_at = Some(77);
            Some(Op::Park {
                id: RequestId(id),
                attempt: stands.attempts,
                wake_at: 77,
                failure: died(),
                deaths: stands.deaths,
            })
        }
        (Event::Retry(_), Status::Dead) => {
            stands.status = Status::Queued;
            (stands.forgiven, stands.deaths) = (stands.attempts, 0);
            let id = RequestId(id);
            Some(Op::Retry { id, at: 5 })
        }
        _ => None,
    }
}

fn open(directory: &Directory) -> (Driven, Vec<(u64, Stands)>) {
    let config = StoreConfig {
        synchronous: Synchronous::Normal,
        ..given::config(directory.path())
    };
    let (driven, recovery) = Driven::with(config);
    let found = recovery.restored.iter().map(|one| {
        let stands = Stands {
            status: one.status,
            attempts: one.attempts,
            forgiven: one.forgiven,
            deaths: one.deaths,
            wake_at: one.wake_at,
        };
        (one.request.id.0, stands)
    });
    let found = found.collect();
    (driven, found)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let id = || 1..=IDS;
    let event = prop_oneof![
        6 => id().prop_map(Event::Next),
        3 => id().prop_map(Event::Succeed),
        2 => id().prop_map(Event::FailByDeath),
        2 => id().prop_map(Event::Park),
        1 => id().prop_map(Event::ParkExcused),
        2 => id().prop_map(Event::Retry),
        4 => Just(Event::Give),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_new_server_finds_what_the_model_says(events in events()) {
        let directory = Directory::new();
        let mut model = BTreeMap::new();
        let mut batch = Vec::new();
        let (mut driven, _) = open(&directory);
        for event in events.into_iter().chain([Event::Restart]) {
            batch.extend(apply(&mut model, event));
            match event {
                Event::Give => driven.store.write(std::mem::take(&mut batch)),
                Event::Restart => {
                    driven.store.write(std::mem::take(&mut batch));
                    driven.store.close();
                    let found;
                    (driven, found) = open(&directory);
                    let unfinished = model.iter().filter(|(_, stands)| !stands.status.has_ended());
                    let unfinished: Vec<_> = unfinished.map(|(id, stands)| (*id, *stands)).collect();
                    prop_assert_eq!(found, unfinished);
                }
                _ => {}
            }
        }
        driven.store.close();
    }
}
