//! The one message each way that sets a connection up.
use crate::error::{Class, Error};
use crate::shm::IndexLocation;
use crate::wire::{u32_at, u64_at};

const MAGIC: [u8; 4] = *b"FBTN";
const VERSION: u16 = 1;
const HELLO_BYTES: usize = 16;
const WELCOME_BYTES: usize = 32;
/// Bytes of the shared index's location.
const INDEX_LOCATION_BYTES: usize = 16;
/// Slots that a client may have.
const SLOTS_MAX: u32 = 1024;
/// Longest note of a server, so that the welcome goes out at once.
const NOTE_BYTES_MAX: usize = 64 << 10;

/// A client's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Requests that it wants to have in flight, 1 to 1024.
    pub slots: u32,
    /// Flags: the fabrics that it supports beside the stream ([`Hello::SHARED_MEMORY`], [`Hello::VERBS`]), or the
    /// purpose of the connection ([`Hello::LIFELINE`]). Unknown flags are ignored.
    pub fabrics: u32,
}

impl Hello {
    /// Of `fabrics`: it can map the owner's memory.
    pub const SHARED_MEMORY: u32 = 1;
    /// Of `fabrics`: it has an RDMA device.
    pub const VERBS: u32 = 2;
    /// Of `fabrics`: this is the lifeline of a verbs connection, and an introduction of its queue pair follows.
    pub const LIFELINE: u32 = 4;

    /// The encoded hello of a lifeline: `introduction` is passed to
    /// [`Provider::accept`](crate::fabric::Provider::accept) at the server.
    pub fn of_lifeline(slots: u32, introduction: &[u8]) -> Vec<u8> {
        let fabrics = Self::LIFELINE;
        let mut bytes = Self { slots, fabrics }.encode();
        bytes.extend_from_slice(introduction);
        bytes
    }

    /// The introduction that follows a lifeline's hello; `None` for other connections.
    pub(crate) fn introduction(self, message: &[u8]) -> Option<&[u8]> {
        let follows = message.get(HELLO_BYTES..).unwrap_or_default();
        (self.fabrics & Self::LIFELINE != 0).then_some(follows)
    }

    /// The encoded message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.slots.to_le_bytes());
        bytes.extend_from_slice(&self.fabrics.to_le_bytes());
        bytes
    }

    /// Decode it.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for anything but a hello of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        check(bytes, HELLO_BYTES, "hello")?;
        let hello = Self {
            slots: u32_at(bytes, 8),
            fabrics: u32_at(bytes, 12),
        };
        if (1..=SLOTS_MAX).contains(&hello.slots) {
            Ok(hello)
        } else {
            Err(protocol(format!(
                "it requests {} slots; use 1 to {SLOTS_MAX}",
                hello.slots
            )))
        }
    }
}

/// The server's answer to a hello that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Requests that the client may have in flight.
    pub slots: u32,
    /// Bytes of responses that it may have outstanding.
    pub grant_bytes: u64,
    /// Which run of the server this is: ids and generations mean nothing to another one.
    pub incarnation: u64,
    /// Where its shared index is, for clients of the same host that asked for it.
    pub shared_index: Option<IndexLocation>,
    /// Empty without verbs; one byte if the server offers them; on a lifeline the answer to its introduction.
    pub verbs: Vec<u8>,
    /// A note of the server's owner to its clients, at most 64 KiB.
    pub note: Vec<u8>,
}

impl Welcome {
    /// The encoded message.
    pub fn encode(&self) -> Vec<u8> {
        let grants = (self.slots, self.grant_bytes, self.incarnation);
        let mut fabrics = self.shared_index.map(encode_index).unwrap_or_default();
        if !self.verbs.is_empty() {
            fabrics.resize(INDEX_LOCATION_BYTES, 0); // process 0 means "no location"
            fabrics.extend_from_slice(&self.verbs);
        }
        message(0, grants, &fabrics, &self.note)
    }

    /// The server's answer to a hello that it refuses.
    pub fn refusal(error: &Error) -> Vec<u8> {
        let reason = match error.class() {
            Class::Config => 1,
            Class::Limit => 2,
            Class::Protocol => 3,
            _ => 4,
        };
        let text = match error {
            Error::Refused { text, .. } => text.clone(), // the client adds "the owner refused" itself
            other => other.to_string(),
        };
        message(reason, (0, 0, 0), &[], text.as_bytes())
    }

    /// Decode it.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for anything but a welcome of this version; [`Error::Refused`] with the server's message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        check(bytes, WELCOME_BYTES, "welcome")?;
        let rest = &bytes[WELCOME_BYTES..];
        let reason = u16::from_le_bytes([bytes[6], bytes[7]]);
        if reason != 0 {
            return Err(Error::Refused {
                class: match reason {
                    1 => Class::Config,
                    2 => Class::Limit,
                    3 => Class::Protocol,
                    _ => Class::Broken,
                },
                text: String::from_utf8_lossy(rest).into_owned(),
            });
        }
        let fabrics_bytes = u32_at(bytes, 12) as usize;
        if fabrics_bytes > rest.len() {
            return Err(protocol(format!(
                "its welcome is shorter than the {fabrics_bytes} bytes of its fabrics"
            )));
        }
        let welcome = Self {
            slots: u32_at(bytes, 8),
            grant_bytes: u64_at(bytes, 16),
            incarnation: u64_at(bytes, 24),
            shared_index: (fabrics_bytes >= INDEX_LOCATION_BYTES)
                .then(|| decode_index(rest))
                .filter(|location| location.process != 0),
            verbs: rest[..fabrics_bytes]
                .get(INDEX_LOCATION_BYTES..)
                .unwrap_or_default()
                .to_vec(),
            note: rest[fabrics_bytes..].to_vec(),
        };
        if (1..=SLOTS_MAX).contains(&welcome.slots) && welcome.grant_bytes > 0 {
            Ok(welcome)
        } else {
            Err(protocol(format!(
                "it grants {} slots and {} bytes",
                welcome.slots, welcome.grant_bytes
            )))
        }
    }

    /// Check a server's note.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] above 64 KiB.
    pub fn check_note(note: &[u8]) -> Result<(), Error> {
        if note.len() <= NOTE_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Limit {
            limit: "note_bytes_max",
            value: note.len() as u64,
            maximum: NOTE_BYTES_MAX as u64,
            advice: "publish long notes as a tensor",
        })
    }
}

fn message(
    reason: u16,
    (slots, grant_bytes, incarnation): (u32, u64, u64),
    fabrics: &[u8],
    rest: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(WELCOME_BYTES + fabrics.len() + rest.len());
    let fabrics_bytes = u32::try_from(fabrics.len()).unwrap_or(0); // below 100
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&reason.to_le_bytes());
    bytes.extend_from_slice(&slots.to_le_bytes());
    bytes.extend_from_slice(&fabrics_bytes.to_le_bytes());
    bytes.extend_from_slice(&grant_bytes.to_le_bytes());
    bytes.extend_from_slice(&incarnation.to_le_bytes());
    bytes.extend_from_slice(fabrics);
    bytes.extend_from_slice(rest);
    bytes
}

fn encode_index(location: IndexLocation) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(INDEX_LOCATION_BYTES);
    bytes.extend_from_slice(&location.process.to_le_bytes());
    bytes.extend_from_slice(&location.descriptor.to_le_bytes());
    bytes.extend_from_slice(&location.inode.to_le_bytes());
    bytes
}

/// Decode at least 16 bytes; later versions may append fields.
fn decode_index(bytes: &[u8]) -> IndexLocation {
    IndexLocation {
        process: u32_at(bytes, 0),
        descriptor: u32_at(bytes, 4),
        inode: u64_at(bytes, 8),
    }
}

fn check(bytes: &[u8], least: usize, what: &str) -> Result<(), Error> {
    if bytes.len() < least || bytes[..4] != MAGIC {
        return Err(protocol(format!(
            "{} bytes that are no {what} of tensors; something else answers there",
            bytes.len()
        )));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version == VERSION {
        return Ok(());
    }
    Err(protocol(format!(
        "its {what} is of version {version} and ours is {VERSION}; install the same forebay at both ends"
    )))
}

fn protocol(what: String) -> Error {
    Error::Protocol { what, offset: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_messages_survive_the_wire() {
        let hello = Hello {
            slots: 16,
            fabrics: 3,
        };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let welcome = Welcome {
            slots: 7,
            grant_bytes: 1 << 40,
            incarnation: u64::MAX,
            shared_index: None,
            verbs: Vec::new(),
            note: b"anything".to_vec(),
        };
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome.clone()));
        let near = Welcome {
            shared_index: Some(IndexLocation {
                process: 4_000_000,
                descriptor: 17,
                inode: 1 << 40,
            }),
            ..welcome.clone()
        };
        let encoded = near.encode();
        assert_eq!(Welcome::decode(&encoded), Ok(near.clone()));
        for verbs in [vec![1], vec![7; 60]] {
            let verbs = [welcome.clone(), near.clone()].map(|from| Welcome {
                verbs: verbs.clone(),
                ..from
            });
            for welcome in verbs {
                assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
            }
        }
        assert!(Welcome::decode(&encoded[..WELCOME_BYTES + 8]).is_err());
    }

    #[test]
    fn a_lifeline_is_told_by_its_hello() {
        let message = Hello::of_lifeline(3, b"who we are");
        let hello = Hello::decode(&message).expect("a hello");
        assert_eq!(hello.slots, 3);
        assert_eq!(hello.introduction(&message), Some(&b"who we are"[..]));
        let other = Hello {
            slots: 3,
            fabrics: Hello::VERBS,
        };
        assert_eq!(other.introduction(&message), None);
    }

    #[test]
    fn a_refusal_keeps_its_kind_and_words() {
        let full = Error::Limit {
            limit: "max_peers",
            value: 5,
            maximum: 4,
            advice: "close one",
        };
        let refused = Welcome::decode(&Welcome::refusal(&full)).expect_err("refused");
        assert_eq!(refused.class(), Class::Limit);
        assert!(refused.to_string().contains("max_peers"), "{refused}");
    }

    #[test]
    fn other_protocols_versions_and_numbers_are_refused() {
        let good = Hello {
            slots: 1,
            fabrics: 0,
        }
        .encode();
        for (at, value) in [(0, b'X'), (4, 9), (8, 0), (10, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let refused = Hello::decode(&bytes).expect_err("not this one");
            assert_eq!(refused.class(), Class::Protocol);
        }
        for cut in 0..good.len() {
            assert!(Hello::decode(&good[..cut]).is_err());
            assert!(Welcome::decode(&good[..cut]).is_err());
        }
        let none = Welcome {
            slots: 1,
            grant_bytes: 0,
            incarnation: 1,
            shared_index: None,
            verbs: Vec::new(),
            note: Vec::new(),
        };
        assert!(Welcome::decode(&none.encode()).is_err());
    }
}
