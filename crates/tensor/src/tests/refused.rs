//! What cannot be: refused by name before anything happens, with the keeper.
use std::time::Instant;

use super::world::World;
use crate::{
    Description, Dtype, Error, FileRows, Key, Limits, Number, Operation, Pull, Push, Requester,
    Rows, Shard, ShardLimits, Span, Words,
};

const KEY: Key = Key {
    id: 3,
    generation: 1,
};

/// What a setting was refused for.
fn setting(error: Error) -> (&'static str, u64) {
    match error {
        Error::Config { setting, value, .. } => (setting, value),
        Error::Limit { limit, value, .. } => (limit, value),
        error => panic!("refused otherwise: {error}"),
    }
}

#[test]
fn limits_that_cannot_be_are_refused_by_name() {
    let most = 1 << 40;
    let good = Limits::default();
    let wrong = [
        (Limits { slots: 0, ..good }, ("slots", 0)),
        (
            Limits {
                slots: 1025,
                ..good
            },
            ("slots", 1025),
        ),
        (
            Limits {
                grant_bytes: 0,
                ..good
            },
            ("grant_bytes", 0),
        ),
        (
            Limits {
                grant_bytes: most + 1,
                ..good
            },
            ("grant_bytes", most + 1),
        ),
        (
            Limits {
                entries_max: 0,
                ..good
            },
            ("entries_max", 0),
        ),
        (
            Limits {
                entries_max: 257,
                ..good
            },
            ("entries_max", 257),
        ),
        (
            Limits {
                piece_bytes: 0,
                ..good
            },
            ("piece_bytes", 0),
        ),
        (
            Limits {
                piece_bytes: most + 1,
                ..good
            },
            ("piece_bytes", most + 1),
        ),
    ];
    for (limits, refused) in wrong {
        let error = Requester::<()>::new(limits, Instant::now()).map(drop);
        assert_eq!(error.map_err(setting), Err(refused));
    }
    let largest = Limits {
        slots: 1024,
        grant_bytes: most,
        piece_bytes: most,
        entries_max: 256,
        ..good
    };
    assert!(Requester::<()>::new(largest, Instant::now()).is_ok());
}

#[test]
fn a_server_grants_no_more_and_no_less_than_its_clients_may_ask_for() {
    let most = 1 << 40;
    for (slots, grant_bytes) in [(0, 1), (1025, 1), (1, 0), (1, most + 1)] {
        let limits = ShardLimits {
            slots,
            grant_bytes,
            ..ShardLimits::default()
        };
        assert!(Shard::<()>::new(limits).is_err());
    }
}

/// Four rows of eight bytes each, with a grant of two rows.
struct Asking {
    requester: Requester<u32>,
    memory: [u8; 32],
    words: [u64; 4],
}

impl Asking {
    fn new() -> Self {
        let limits = Limits {
            grant_bytes: 16,
            waiting_max: 2,
            ..Limits::default()
        };
        Self {
            requester: Requester::new(limits, Instant::now()).expect("the limits can be"),
            memory: [0; 32],
            words: [0, 1, 2, 3],
        }
    }

    /// The first of these rows in that order, into so much memory.
    fn slice(&mut self, count: u64, bytes: usize) -> Pull {
        Pull {
            tensor: KEY,
            row_bytes: 8,
            rows_total: 4,
            rows: Rows::Slice { first: 0, count },
            out: Span::of(&mut self.memory[..bytes]),
            places: None,
        }
    }

    fn refusal(&mut self, pull: Pull) -> Error {
        let push = Push {
            tensor: pull.tensor,
            row_bytes: pull.row_bytes,
            rows_total: pull.rows_total,
            rows: pull.rows,
            values: pull.out,
            places: pull.places,
            operation: Operation::Set,
        };
        let refused = self.requester.push(push, 8).expect_err("it cannot be");
        assert_eq!(refused.keeper, 8);
        let pulled = self.requester.pull(pull, 7).expect_err("it cannot be");
        assert_eq!((pulled.keeper, &pulled.error), (7, &refused.error));
        assert_eq!(
            (self.requester.waiting(), self.requester.is_idle()),
            (0, true)
        );
        pulled.error
    }
}

#[test]
fn rows_that_do_not_fit_their_memory_or_their_tensor_are_refused() {
    let mut asking = Asking::new();
    for bytes in [0, 15, 17] {
        let pull = asking.slice(2, bytes);
        let found = setting(asking.refusal(pull));
        assert_eq!(found, ("the size of the memory", bytes as u64));
    }
    let pull = Pull {
        row_bytes: 0,
        ..asking.slice(2, 16)
    };
    assert_eq!(setting(asking.refusal(pull)), ("the size of a row", 0));
    let places = Some(Words::new(Span::of_words(&mut asking.words[..3])));
    let pull = asking.slice(2, 16);
    let found = setting(asking.refusal(Pull { places, ..pull }));
    assert_eq!(found, ("the number of places", 3));
    let pull = asking.slice(3, 16);
    let found = setting(asking.refusal(Pull { places, ..pull }));
    assert_eq!(found, ("the place of a row", 2));
    let wide = Pull {
        row_bytes: 17,
        ..asking.slice(1, 17)
    };
    assert_eq!(setting(asking.refusal(wide)), ("grant_bytes", 17));
}

#[test]
fn rows_that_a_tensor_does_not_have_are_refused_by_their_number() {
    let mut asking = Asking::new();
    let outside = |row| Error::OutOfRange {
        tensor: Some(KEY.id),
        row,
        rows: 4,
    };
    for (first, row) in [(3, 4), (9, 9), (u64::MAX, u64::MAX)] {
        let rows = Rows::Slice { first, count: 2 };
        let pull = asking.slice(2, 16);
        assert_eq!(asking.refusal(Pull { rows, ..pull }), outside(row));
    }
    asking.words = [3, 4, 5, 0];
    let rows = Rows::Indices(Words::new(Span::of_words(&mut asking.words[..2])));
    let pull = asking.slice(2, 16);
    assert_eq!(asking.refusal(Pull { rows, ..pull }), outside(4));
}

#[test]
fn no_more_jobs_wait_than_may() {
    let mut asking = Asking::new();
    for keeper in 0..2 {
        let pull = asking.slice(2, 16);
        asking.requester.pull(pull, keeper).expect("it may wait");
    }
    let pull = asking.slice(2, 16);
    let refused = asking.requester.pull(pull, 2).expect_err("too many wait");
    assert_eq!(
        (setting(refused.error), refused.keeper),
        (("max_waiting", 3), 2)
    );
    let refused = asking.requester.look_up(&["a"], 3);
    assert_eq!(refused.expect_err("too many wait").keeper, 3);
    assert_eq!(asking.requester.waiting(), 2);
}

#[test]
fn names_that_cannot_be_are_refused_with_their_keeper() {
    let mut asking = Asking::new();
    let many = vec!["a"; 257];
    for names in [&[][..], &many] {
        let refused = asking.requester.look_up(names, 5).expect_err("too many");
        let found = ("the number of names", names.len() as u64);
        assert_eq!((setting(refused.error), refused.keeper), (found, 5));
    }
    let long = "a".repeat(256);
    for name in ["", &long] {
        let refused = asking.requester.look_up(&["a", name], 5);
        let error = refused.expect_err("it is no name").error;
        assert!(matches!(error, Error::Name { name: found, .. } if found == name));
    }
    asking.requester.look_up(&many[1..], 5).expect("256 may be");
    asking
        .requester
        .look_up(&[&long[1..]], 5)
        .expect("255 bytes may be");
}

/// What the owner itself cannot write, and how each is refused.
#[test]
fn a_write_that_cannot_be_changes_nothing_and_says_why() {
    let mut world = World::new(3, Limits::default());
    world.publish("a", 4, 2);
    let key = world.models[0].key;
    let values = [1_u8; 32];
    let slice = |first, count| Rows::Slice { first, count };
    let mut write = |key, rows, operation, bytes: usize| {
        let values = Span::sending(&values[..bytes]);
        world.shard.write(key, rows, operation, values)
    };
    let set = Operation::Set;
    let never = Key { id: 9, ..key };
    let refused = write(never, slice(0, 1), set, 8);
    assert!(matches!(
        refused,
        Err(Error::Stale {
            tensor: 9,
            current: 0,
            ..
        })
    ));
    let refused = write(key, slice(3, 2), set, 16);
    assert!(matches!(
        refused,
        Err(Error::OutOfRange {
            row: 4,
            rows: 4,
            ..
        })
    ));
    for bytes in [7, 9] {
        let refused = write(key, slice(0, 1), set, bytes).map_err(setting);
        assert_eq!(refused, Err(("the size of the values", bytes as u64)));
    }
    assert_eq!(write(key, slice(4, 0), set, 0), Ok(0), "no row changes");
    assert_eq!(write(key, slice(0, 4), Operation::Add, 32), Ok(1));
    world.publish("a", 4, 2);
    let refused = world
        .shard
        .write(key, slice(0, 1), set, Span::sending(&values[..8]));
    let current = world.models[1].key.generation;
    let stale = Error::Stale {
        tensor: key.id,
        held: key.generation,
        current,
    };
    assert_eq!(refused, Err(stale));
}

#[test]
fn what_is_no_number_is_not_added_to_and_a_file_is_not_written() {
    let mut shard = Shard::new(ShardLimits::default()).expect("the limits can be");
    let description = Description {
        dtype: Dtype {
            number: Number::Opaque,
            item_bytes: 4,
            text: "V4".into(),
        },
        shape: vec![2],
    };
    let mut memory = [0; 8];
    let opaque = shard.publish("opaque", description.clone(), Span::of(&mut memory), ());
    let opaque = opaque.expect("it can be published");
    let rows = FileRows {
        offset: 0,
        stride_bytes: 4,
        first: 0,
        checksums: false,
    };
    let file = shard.publish_file("file", description, rows, 1);
    let file = file.expect("it can be published");
    let rows = Rows::Slice { first: 0, count: 1 };
    let value = Span::sending(&[9; 4]);
    let refused = shard.write(opaque, rows, Operation::Add, value);
    let found = refused.map_err(setting);
    assert_eq!(found, Err(("the operation \"add\" on tensor", 0)));
    assert_eq!(shard.write(opaque, rows, Operation::Set, value), Ok(1));
    let refused = shard.write(file, rows, Operation::Set, value);
    assert_eq!(refused, Err(Error::ReadOnly { tensor: file.id }));
    assert_eq!(memory, [9, 9, 9, 9, 0, 0, 0, 0]);
}

#[test]
fn a_description_that_no_message_carries_is_refused() {
    let refused = |text: &str, shape| {
        let dtype = Dtype {
            number: Number::Float,
            item_bytes: 4,
            text: text.into(),
        };
        Description { dtype, shape }.check().map_err(setting)
    };
    assert_eq!(refused("<f4", vec![3, 2]), Ok(24));
    let long = "x".repeat(1025);
    assert_eq!(refused(&long, vec![1]), Err(("the text of a dtype", 1025)));
    assert_eq!(refused("<f4", vec![]), Err(("the number of dimensions", 0)));
    let found = refused("<f4", vec![1; 65]);
    assert_eq!(found, Err(("the number of dimensions", 65)));
}
