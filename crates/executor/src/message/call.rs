//! The calls of clients that Rust answers.

use super::{Reader, Value, blob, opened};
use crate::error::Result;
use crate::id::RequestId;

/// A submission as received; nothing of it is copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Submit<'a> {
    pub name: &'a str,
    pub arguments: &'a [u8],
    /// A map in msgpack, or nil; see [`super::options`].
    pub options: &'a [u8],
    /// Names this submission within its connection.
    pub token: Option<u64>,
}

/// A client's call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call<'a> {
    /// The client's first words: the protocol that it speaks; what else a later one says is passed over.
    Hello {
        protocol: u64,
    },
    Submit(Submit<'a>),
    /// Submit, and answer with its end.
    Run(Submit<'a>),
    /// The id of the submission with this submission token, once committed.
    Accepted {
        token: u64,
    },
    Wait {
        id: RequestId,
        /// With its result, also if that is in a file.
        whole: bool,
    },
    /// The client has read the result of this request from its file.
    Taken {
        id: RequestId,
    },
    Cancel {
        id: RequestId,
    },
    Logs {
        id: RequestId,
        offset: u64,
        follow: bool,
    },
    Events {
        id: RequestId,
        /// The number of the last event that the client had.
        cursor: Option<u64>,
    },
    /// What a generator yields.
    Items {
        id: RequestId,
        /// That which the client knows.
        epoch: Option<u64>,
        /// The number of the last one that it had.
        after: u64,
        follow: bool,
    },
    /// The events of the server.
    Feed {
        /// A map in msgpack, or nil; see [`super::filter`].
        filter: &'a [u8],
        /// The number of the last event that the client had.
        cursor: Option<u64>,
    },
    /// A call for the server's main thread; the arguments are a msgpack array.
    Other {
        method: &'a str,
        arguments: &'a [u8],
    },
}

impl<'a> Call<'a> {
    /// Read the head of a call, with the blob in its segment if it has one.
    ///
    /// # Errors
    /// `Malformed`, with the offset.
    pub fn read(head: &'a [u8], segment: Option<&'a [u8]>) -> Result<Self> {
        Self::read_for(head, segment).map(|(call, _)| call)
    }

    /// The same, with whom the caller says that it acts for: `{"by": name}` in place of the last nil.
    ///
    /// # Errors
    /// `Malformed`, with the offset.
    pub fn read_for(head: &'a [u8], segment: Option<&'a [u8]>) -> Result<(Self, Option<&'a str>)> {
        let (method, count, mut reader) = opened(head)?;
        let call = match (method, count) {
            ("submit", 2..=4) => Self::Submit(submit(&mut reader, count, segment)?),
            ("run", 2..=4) => Self::Run(submit(&mut reader, count, segment)?),
            ("hello", 1..) => hello(&mut reader, count)?,
            ("accepted", 1) => Self::Accepted {
                token: reader.unsigned()?,
            },
            ("wait", 1..=2) => Self::Wait {
                id: id(&mut reader)?,
                whole: count > 1 && reader.boolean()?,
            },
            ("taken", 1) => Self::Taken {
                id: id(&mut reader)?,
            },
            ("cancel", 1) => Self::Cancel {
                id: id(&mut reader)?,
            },
            ("logs", 1..=3) => logs(&mut reader, count)?,
            ("items", 1..=4) => items(&mut reader, count)?,
            ("events", 1..=2) => Self::Events {
                id: id(&mut reader)?,
                cursor: if count > 1 {
                    reader.unsigned_or_nil()?
                } else {
                    None
                },
            },
            ("feed", 0..=2) => Self::Feed {
                filter: if count > 0 { reader.skip()? } else { &[0xc0] },
                cursor: if count > 1 {
                    reader.unsigned_or_nil()?
                } else {
                    None
                },
            },
            (
                "hello" | "submit" | "run" | "accepted" | "wait" | "taken" | "cancel" | "logs"
                | "events" | "feed" | "items",
                _,
            ) => {
                return Err(reader.malformed("another number of arguments than the method has"));
            }
            _ => return other(head, method),
        };
        let by = by(&mut reader)?;
        reader.end()?;
        Ok((call, by))
    }
}

/// A call to forward: its arguments stay as they are.
fn other<'a>(head: &'a [u8], method: &'a str) -> Result<(Call<'a>, Option<&'a str>)> {
    let mut reader = Reader::new(head);
    reader.array()?;
    reader.skip()?;
    let arguments = reader.skip()?;
    let by = by(&mut reader)?;
    reader.end()?;
    Ok((Call::Other { method, arguments }, by))
}

/// Whom a caller acts for.
fn by<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>> {
    match reader.map_or_nil()? {
        None | Some(0) => Ok(None),
        Some(1) if reader.text()? == "by" => reader.text().map(Some),
        Some(_) => Err(reader.malformed("the method takes no arguments by name but \"by\"")),
    }
}

fn hello<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Call<'a>> {
    let protocol = reader.unsigned()?;
    for _ in 1..count {
        reader.skip()?;
    }
    Ok(Call::Hello { protocol })
}

fn submit<'a>(
    reader: &mut Reader<'a>,
    count: usize,
    segment: Option<&'a [u8]>,
) -> Result<Submit<'a>> {
    Ok(Submit {
        name: reader.text()?,
        arguments: blob(reader, segment)?,
        options: if count > 2 { reader.skip()? } else { &[0xc0] },
        token: if count > 3 {
            reader.unsigned_or_nil()?
        } else {
            None
        },
    })
}

fn logs<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Call<'a>> {
    Ok(Call::Logs {
        id: id(reader)?,
        offset: if count > 1 { reader.unsigned()? } else { 0 },
        follow: count > 2 && reader.boolean()?,
    })
}

fn items<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Call<'a>> {
    Ok(Call::Items {
        id: id(reader)?,
        epoch: if count > 1 {
            reader.unsigned_or_nil()?
        } else {
            None
        },
        after: if count > 2 { reader.unsigned()? } else { 0 },
        follow: count > 3 && reader.boolean()?,
    })
}

/// An id, as text or as its number.
pub(super) fn id(reader: &mut Reader<'_>) -> Result<RequestId> {
    match reader.value()? {
        Value::Str(text) => text
            .parse()
            .map_err(|_| reader.malformed("an id of 12 characters was expected")),
        Value::Int(number) => u64::try_from(number)
            .map(RequestId)
            .map_err(|_| reader.malformed("an id was expected")),
        _ => Err(reader.malformed("an id was expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Writer;

    fn head(
        method: &str,
        arguments: impl FnOnce(&mut Writer) -> &mut Writer,
        count: usize,
    ) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.array(3).text(method).array(count);
        arguments(&mut writer);
        writer.nil();
        writer.into_bytes()
    }

    #[test]
    fn a_submission_is_read_where_it_lies() {
        let head = head(
            "submit",
            |w| {
                w.text("classify").binary(b"\x80").map(1).text("priority");
                w.integer(3).unsigned(7)
            },
            4,
        );
        let Call::Submit(submit) = Call::read(&head, None).expect("read") else {
            panic!("no submission");
        };
        assert_eq!((submit.name, submit.token), ("classify", Some(7)));
        assert_eq!(submit.arguments, b"\x80");
        assert_eq!(submit.options, b"\x81\xa8priority\x03");
    }

    #[test]
    fn a_large_blob_comes_as_the_segment() {
        let head = head("run", |w| w.text("f").nil(), 2);
        let segment = vec![7; 70_000];
        let Call::Run(submit) = Call::read(&head, Some(&segment)).expect("read") else {
            panic!("no run");
        };
        assert_eq!(submit.arguments, segment);
        assert_eq!(submit.options, [0xc0]);
        assert!(Call::read(&head, None).is_err());
    }

    #[test]
    fn ids_come_as_text_or_as_numbers() {
        let id = RequestId(0x123_4567_89ab);
        let text = head("wait", |w| w.text(&id.to_string()), 1);
        let number = head("wait", |w| w.unsigned(id.0), 1);
        for head in [text, number] {
            let wait = Call::Wait { id, whole: false };
            assert_eq!(Call::read(&head, None).expect("read"), wait);
        }
        let whole = head("wait", |w| w.unsigned(id.0).boolean(true), 2);
        let wait = Call::Wait { id, whole: true };
        assert_eq!(Call::read(&whole, None).expect("read"), wait);
        let wrong = head("wait", |w| w.text("nobody"), 1);
        assert!(Call::read(&wrong, None).is_err());
    }

    #[test]
    fn a_reader_of_the_feed_says_what_it_wants_and_what_it_had() {
        let everything = Call::Feed {
            filter: &[0xc0],
            cursor: None,
        };
        assert_eq!(
            Call::read(&head("feed", |w| w, 0), None).expect("read"),
            everything
        );
        let head = head(
            "feed",
            |w| w.map(1).text("names").nil().unsigned(1 << 60),
            2,
        );
        let from = Call::Feed {
            filter: b"\x81\xa5names\xc0",
            cursor: Some(1 << 60),
        };
        assert_eq!(Call::read(&head, None).expect("read"), from);
    }

    #[test]
    fn a_follower_of_one_request_may_say_what_it_had() {
        let id = RequestId(7);
        let plain = head("events", |w| w.unsigned(7), 1);
        let cursor = None;
        assert_eq!(
            Call::read(&plain, None).expect("read"),
            Call::Events { id, cursor }
        );
        let behind = head("events", |w| w.unsigned(7).unsigned(1 << 60), 2);
        let cursor = Some(1 << 60);
        assert_eq!(
            Call::read(&behind, None).expect("read"),
            Call::Events { id, cursor }
        );
    }

    #[test]
    fn a_reader_of_items_names_the_last_one_that_it_had() {
        let id = RequestId(7);
        let plain = head("items", |w| w.unsigned(7), 1);
        let (epoch, after, follow) = (None, 0, false);
        let expected = Call::Items {
            id,
            epoch,
            after,
            follow,
        };
        assert_eq!(Call::read(&plain, None).expect("read"), expected);
        let behind = head(
            "items",
            |w| w.unsigned(7).unsigned(2).unsigned(300).boolean(true),
            4,
        );
        let (epoch, after, follow) = (Some(2), 300, true);
        let expected = Call::Items {
            id,
            epoch,
            after,
            follow,
        };
        assert_eq!(Call::read(&behind, None).expect("read"), expected);
    }

    #[test]
    fn a_hello_of_a_later_version_may_say_more() {
        for (count, more) in [(1, false), (2, true)] {
            let head = head(
                "hello",
                |w| {
                    w.unsigned(7);
                    if more {
                        w.map(1).text("colour").text("red")
                    } else {
                        w
                    }
                },
                count,
            );
            let expected = Call::Hello { protocol: 7 };
            assert_eq!(Call::read(&head, None).expect("read"), expected);
        }
    }

    #[test]
    fn what_is_not_known_here_is_handed_on() {
        let head = head("list", |w| w.map(0).unsigned(20), 2);
        let expected = Call::Other {
            method: "list",
            arguments: b"\x92\x80\x14",
        };
        assert_eq!(Call::read(&head, None).expect("read"), expected);
    }

    #[test]
    fn a_call_says_whom_its_caller_acts_for() {
        for (method, count) in [("cancel", 1), ("retry", 1)] {
            let mut writer = Writer::default();
            writer.array(3).text(method).array(count).unsigned(7);
            writer.map(1).text("by").text("ann");
            let head = writer.into_bytes();
            let (_, by) = Call::read_for(&head, None).expect("read");
            assert_eq!(by, Some("ann"), "{method}");
        }
        let plain = head("cancel", |w| w.unsigned(7), 1);
        assert_eq!(Call::read_for(&plain, None).expect("read").1, None);
        let mut writer = Writer::default();
        writer.array(3).text("cancel").array(1).unsigned(7);
        writer.map(1).text("colour").text("red");
        assert!(Call::read(&writer.into_bytes(), None).is_err());
    }

    #[test]
    fn a_number_of_arguments_that_a_method_does_not_have_is_an_error() {
        for (method, count) in [
            ("hello", 0),
            ("accepted", 0),
            ("submit", 1),
            ("wait", 3),
            ("feed", 3),
            ("events", 3),
            ("items", 5),
        ] {
            let head = head(method, |w| (0..count).fold(w, |w, _| w.unsigned(1)), count);
            assert!(Call::read(&head, None).is_err(), "{method}");
        }
    }
}
