//! Fuzzing of the messages of a connection over verbs.

use super::{Answer, Exposed, Hello, Request, decode_answer, encode_answer};

/// The first byte of an input selects its kind: an introduction, its answer, a request, the end of one, an exposed
/// tensor.
///
/// # Panics
/// If a decoded message changes when it is encoded and decoded again.
pub fn verbs(input: &[u8]) -> bool {
    let (&what, bytes) = input.split_first().unwrap_or((&0, &[]));
    let refused = match what % 5 {
        0 => Hello::read(bytes).map(|hello| assert_eq!(Hello::read(&hello.encode()), Ok(hello))),
        1 => decode_answer(bytes).map(|(hello, inbox)| {
            let again = decode_answer(&encode_answer(&hello, inbox));
            assert_eq!(again, Ok((hello, inbox)));
        }),
        2 => Request::decode(&first(bytes)).map(|request| {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }),
        3 => Answer::decode(u32::from_le_bytes(first(bytes))).map(|answer| {
            assert_eq!(Answer::decode(answer.encode()), Ok(answer));
        }),
        _ => {
            let exposed = Exposed::decode(&first(bytes));
            assert_eq!(Exposed::decode(&exposed.encode()), exposed);
            Ok(())
        }
    };
    refused.is_err()
}

/// The first bytes, padded with zeros.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// One of each kind: the seeds of mutations.
#[cfg(test)]
pub fn seeds() -> Vec<Vec<u8>> {
    use forebay_tensor::Key;

    use super::{Ask, Status};
    use crate::sys::pair::{Address, RemotePart};

    let part = RemotePart {
        address: 1 << 40,
        key: 7,
    };
    let address = Address {
        gid: [9; 16],
        lid: 258,
        number: 77,
        sequence: 5,
        mtu: 5,
    };
    let hello = Hello { address, slots: 16 };
    let request = |ask| Request {
        ask,
        turn: 3,
        tensor: Key {
            id: 3,
            generation: 8,
        },
        into: part,
        room: 4096,
    };
    let answer = Answer {
        status: Status::Stale,
        slot: 5,
        turn: 6,
    };
    let exposed = Exposed {
        part,
        bytes: 1 << 20,
    };
    let input = |what: u8, bytes: &[u8]| [&[what], bytes].concat();
    vec![
        input(0, &hello.encode()),
        input(1, &encode_answer(&hello, part)),
        input(2, &request(Ask::Pull { first: 1, rows: 2 }).encode()),
        input(2, &request(Ask::Expose).encode()),
        input(3, &answer.encode().to_le_bytes()),
        input(4, &exposed.encode()),
    ]
}
