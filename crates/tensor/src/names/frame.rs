//! Look-ups on the wire: the names of a request, and the answer about each.
use super::{Meaning, Unknown};
use crate::dtype::{Dtype, Number};
use crate::limit::{DESCRIPTION_TEXT_BYTES_MAX, DIMENSIONS_MAX};
use crate::table::{Description, Key};
use crate::wire::{u16_at, u32_at, u64_at};

/// Longest name of a tensor.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Bytes of a record before its text and its shape.
const RECORD_BYTES: usize = 26;
/// Longest record.
pub(crate) const RECORD_BYTES_MAX: usize =
    RECORD_BYTES + DESCRIPTION_TEXT_BYTES_MAX + 8 * DIMENSIONS_MAX;
/// Bytes of the tag in front of the names.
pub(crate) const TAG_BYTES: usize = 4;
/// Longest list of names with its tag.
pub(crate) const LIST_BYTES_MAX: usize = TAG_BYTES + 256 * (2 + NAME_BYTES_MAX);

/// Bytes of a grant that the answer about `names` takes: both sides count its largest size.
pub(crate) fn answers_cost(names: u16, grant_bytes: u64) -> u64 {
    (u64::from(names) * RECORD_BYTES_MAX as u64).min(grant_bytes)
}

/// Append a name with its length.
///
/// # Panics
///
/// If it is longer than a name may be.
pub(crate) fn encode_name(name: &str, into: &mut Vec<u8>) {
    let bytes = u16::try_from(name.len()).expect("checked by the caller");
    into.extend_from_slice(&bytes.to_le_bytes());
    into.extend_from_slice(name.as_bytes());
}

/// The names of a list without its tag.
///
/// # Errors
///
/// What is wrong with it, for an error message.
pub(crate) fn decode_names(mut bytes: &[u8], count: u16) -> Result<Vec<&str>, String> {
    let mut names = Vec::with_capacity(usize::from(count));
    for at in 0..count {
        let length = usize::from(take(&mut bytes, 2).map_or(0, |bytes| u16_at(bytes, 0)));
        let name = take(&mut bytes, length)
            .filter(|_| (1..=NAME_BYTES_MAX).contains(&length))
            .and_then(|name| std::str::from_utf8(name).ok());
        names.push(name.ok_or_else(|| format!("invalid name {at} in a list"))?);
    }
    if !bytes.is_empty() {
        return Err(format!(
            "a list of {count} names with {} bytes too many",
            bytes.len()
        ));
    }
    Ok(names)
}

/// Append the answer about a name: its tensor, or similar names.
pub(crate) fn encode_answer(answer: &Result<Meaning, Unknown>, into: &mut Vec<u8>) {
    let empty = Meaning {
        key: Key {
            id: 0,
            generation: 0,
        },
        description: Description {
            dtype: Dtype {
                number: Number::Opaque,
                item_bytes: 0,
                text: String::new(),
            },
            shape: Vec::new(),
        },
        version: 0,
    };
    let (status, meaning, text) = match answer {
        Ok(meaning) => (0_u16, meaning, meaning.description.dtype.text.clone()),
        Err(unknown) => (1, &empty, unknown.nearest.join("\n")),
    };
    let Description { dtype, shape } = &meaning.description;
    let text_bytes = u16::try_from(text.len()).expect("both kinds of text are short");
    into.extend_from_slice(&status.to_le_bytes());
    into.extend_from_slice(&text_bytes.to_le_bytes());
    into.push(u8::try_from(shape.len()).expect("checked when it was published"));
    into.push(dtype.number as u8);
    into.extend_from_slice(&meaning.key.id.to_le_bytes());
    into.extend_from_slice(&meaning.key.generation.to_le_bytes());
    into.extend_from_slice(&dtype.item_bytes.to_le_bytes());
    into.extend_from_slice(&meaning.version.to_le_bytes());
    into.extend_from_slice(text.as_bytes());
    for size in shape {
        into.extend_from_slice(&size.to_le_bytes());
    }
}

/// The answers about `count` names.
///
/// # Errors
///
/// What is wrong with it, for an error message.
pub(crate) fn decode_answers(
    mut bytes: &[u8],
    count: u16,
) -> Result<Vec<Result<Meaning, Unknown>>, String> {
    let wrong = |at: u16| move || format!("invalid answer about name {at} of a list");
    let mut answers = Vec::with_capacity(usize::from(count));
    for at in 0..count {
        answers.push(decode_answer(&mut bytes).ok_or_else(wrong(at))?);
    }
    if !bytes.is_empty() {
        return Err(format!(
            "an answer about {count} names with {} bytes too many",
            bytes.len()
        ));
    }
    Ok(answers)
}

fn decode_answer(bytes: &mut &[u8]) -> Option<Result<Meaning, Unknown>> {
    let fixed = take(bytes, RECORD_BYTES)?;
    let text = std::str::from_utf8(take(bytes, usize::from(u16_at(fixed, 2)))?).ok()?;
    let sizes = take(bytes, 8 * usize::from(fixed[4]))?;
    match u16_at(fixed, 0) {
        0 => {}
        1 => {
            let nearest = text.lines().map(str::to_owned).collect();
            return Some(Err(Unknown { nearest }));
        }
        _ => return None,
    }
    let description = Description {
        dtype: Dtype {
            number: Number::decode(fixed[5])?,
            item_bytes: u32_at(fixed, 14),
            text: text.to_owned(),
        },
        shape: sizes.chunks_exact(8).map(|size| u64_at(size, 0)).collect(),
    };
    description.check().ok()?;
    Some(Ok(Meaning {
        key: Key {
            id: u32_at(fixed, 6),
            generation: u32_at(fixed, 10),
        },
        description,
        version: u64_at(fixed, 18),
    }))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning() -> Meaning {
        Meaning {
            key: Key {
                id: 3,
                generation: 9,
            },
            description: Description {
                dtype: Dtype {
                    number: Number::Float,
                    item_bytes: 4,
                    text: "<f4".into(),
                },
                shape: vec![1000, 16],
            },
            version: 77,
        }
    }

    #[test]
    fn names_come_back_as_they_were() {
        let names = ["emb/0", "ä", &"x".repeat(NAME_BYTES_MAX)];
        let mut bytes = Vec::new();
        for name in names {
            encode_name(name, &mut bytes);
        }
        assert_eq!(decode_names(&bytes, 3).expect("a list"), names);
        assert!(decode_names(&bytes, 2).is_err());
        assert!(decode_names(&bytes, 4).is_err());
        assert!(decode_names(&[0, 0], 1).is_err(), "a name of no bytes");
        assert!(decode_names(&[1, 0, 255], 1).is_err(), "no text");
    }

    #[test]
    fn answers_come_back_as_they_were() {
        let unknown = Unknown {
            nearest: vec!["emb/1".into(), "emb/2".into()],
        };
        let answers = vec![
            Ok(meaning()),
            Err(unknown),
            Err(Unknown {
                nearest: Vec::new(),
            }),
        ];
        let mut bytes = Vec::new();
        for answer in &answers {
            encode_answer(answer, &mut bytes);
        }
        assert_eq!(decode_answers(&bytes, 3), Ok(answers));
        for cut in 0..bytes.len() {
            assert!(decode_answers(&bytes[..cut], 3).is_err(), "cut at {cut}");
        }
    }

    /// Sizes from a malicious server must not reach arithmetic.
    #[test]
    fn an_answer_whose_size_no_memory_has_is_refused() {
        let mut lie = meaning();
        lie.description.shape = vec![u64::MAX, 16];
        let mut bytes = Vec::new();
        encode_answer(&Ok(lie), &mut bytes);
        assert!(decode_answers(&bytes, 1).is_err());
    }
}
