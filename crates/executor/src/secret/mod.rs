//! Secret arguments: sealed before they are stored, and opened for the worker alone.
//!
//! The value of a parameter that the application marks becomes a msgpack extension of the kind [`SEALED`]: a
//! version, the name of the key, a salt, and AES-256-GCM over the value's own msgpack. It stays so in memory, in the
//! database and in every answer.
//!
//! Each value has a key of its own, the HMAC-SHA256 of its salt under the key of the file, so that no nonce can be used
//! twice under one key: random nonces of 96 bits under one key would end after 2^32 values. The request's name and the
//! parameter's are authenticated with it, so that a value which is moved to another place is refused there.
//!
//! The cipher is `ring`'s, which the transport's TLS uses already: no other code is added.

mod key;

use std::path::PathBuf;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::error::{Error, Result};
use crate::message::{Reader, Value, Writer};

pub use key::SecretKey;

/// The kind of the extension.
pub const SEALED: i8 = 9;

const VERSION: u8 = 1;
const KEY_NAME_LEN: usize = 4;
const SALT_LEN: usize = 16;
const HEAD_LEN: usize = 1 + KEY_NAME_LEN + SALT_LEN;

/// The key of a server, which is read, or made, when it is needed first.
#[derive(Debug, Default)]
pub struct Secrets {
    state: Option<PathBuf>,
    key: Option<SecretKey>,
}

impl Secrets {
    /// Those of a state directory; without one there are none.
    pub fn new(state: Option<PathBuf>) -> Self {
        Self { state, key: None }
    }

    /// The key, if it was loaded.
    pub fn key(&self) -> Option<&SecretKey> {
        self.key.as_ref()
    }

    /// The key; `None` without a state directory.
    ///
    /// # Errors
    /// Those of [`SecretKey::of_directory`].
    pub fn load(&mut self) -> Result<Option<&SecretKey>> {
        if let (None, Some(state)) = (&self.key, &self.state) {
            self.key = Some(SecretKey::of_directory(state)?);
        }
        Ok(self.key.as_ref())
    }
}

/// Arguments, a map in msgpack, with the values of these parameters sealed.
///
/// # Errors
/// `System` where the machine has no random bytes, `Malformed`.
pub fn seal(
    key: &SecretKey,
    request: &str,
    encoded: &[u8],
    is_secret: impl Fn(&str) -> bool,
) -> Result<Vec<u8>> {
    each(encoded, |name, value, writer| {
        if is_secret(name) {
            writer.ext(SEALED, &sealed(key, &place(request, name), value)?);
        } else {
            writer.raw(value);
        }
        Ok(())
    })
}

/// The arguments as they were before [`seal`].
///
/// # Errors
/// `Config`: the key is another one, or the value was changed or moved; `Malformed`.
pub fn open(key: &SecretKey, request: &str, encoded: &[u8]) -> Result<Vec<u8>> {
    each(encoded, |name, value, writer| {
        match Reader::new(value).value()? {
            Value::Ext(SEALED, bytes) => {
                let place = place(request, name);
                let value = opened(key, &place, bytes).map_err(|why| unopened(&place, why))?;
                writer.raw(&value);
            }
            _ => drop(writer.raw(value)),
        }
        Ok(())
    })
}

/// A map with each value written anew.
fn each(
    encoded: &[u8],
    mut write: impl FnMut(&str, &[u8], &mut Writer) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut reader = Reader::new(encoded);
    let count = reader.map_or_nil()?.unwrap_or(0);
    let mut writer = Writer::with_room(encoded.len() + 64 * count);
    writer.map(count);
    for _ in 0..count {
        let name = reader.text()?;
        let value = reader.skip()?;
        writer.text(name);
        write(name, value, &mut writer)?;
    }
    reader.end()?;
    Ok(writer.into_bytes())
}

/// Where a value belongs. A name has no colon.
fn place(request: &str, parameter: &str) -> String {
    format!("{request}:{parameter}")
}

fn sealed(key: &SecretKey, place: &str, value: &[u8]) -> Result<Vec<u8>> {
    let salt = key::random::<SALT_LEN>()?;
    let mut bytes = Vec::with_capacity(HEAD_LEN + value.len() + AES_256_GCM.tag_len());
    bytes.push(VERSION);
    bytes.extend(key.name());
    bytes.extend(salt);
    let mut text = value.to_vec();
    cipher(key, &salt)
        .and_then(|cipher| {
            cipher
                .seal_in_place_append_tag(nonce(), aad(place), &mut text)
                .ok()
        })
        .ok_or_else(|| Error::Config(format!("{place} is too long to be sealed")))?;
    bytes.extend(text);
    Ok(bytes)
}

fn opened(
    key: &SecretKey,
    place: &str,
    bytes: &[u8],
) -> std::result::Result<Vec<u8>, &'static str> {
    let (head, text) = bytes.split_at_checked(HEAD_LEN).ok_or("it is too short")?;
    if head[0] != VERSION {
        return Err("it is of another version of forebay");
    }
    let (name, salt) = head[1..].split_at(KEY_NAME_LEN);
    if name != key.name() {
        return Err("it was sealed with another key");
    }
    let mut text = text.to_vec();
    let cipher = cipher(key, salt).ok_or("it has no key")?;
    let value = cipher.open_in_place(nonce(), aad(place), &mut text);
    let length = value.map_err(|_| "it was changed or moved")?.len();
    text.truncate(length);
    Ok(text)
}

fn unopened(place: &str, why: &str) -> Error {
    Error::Config(format!(
        "the secret argument {place} cannot be opened: {why}; restore secret.key, or submit it again"
    ))
}

/// The cipher of one value.
fn cipher(key: &SecretKey, salt: &[u8]) -> Option<LessSafeKey> {
    let derived = key.derive(salt);
    UnboundKey::new(&AES_256_GCM, derived.as_ref())
        .ok()
        .map(LessSafeKey::new)
}

/// The only one under a key that is used once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn aad(place: &str) -> Aad<&[u8]> {
    Aad::from(place.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Vec<u8> {
        let mut writer = Writer::default();
        writer.map(3).text("user").text("ann");
        writer
            .text("password")
            .text("hunter2")
            .text("days")
            .unsigned(7);
        writer.into_bytes()
    }

    fn sealed_arguments(key: &SecretKey) -> Vec<u8> {
        seal(key, "login", &arguments(), |name| name == "password").expect("sealed")
    }

    #[test]
    fn what_is_sealed_is_opened_and_shows_nothing() {
        let key = SecretKey::of(&[7; 32]);
        let sealed = sealed_arguments(&key);
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        assert!(sealed.windows(3).any(|part| part == b"ann"));
        assert_eq!(open(&key, "login", &sealed).expect("opened"), arguments());
        assert_ne!(sealed, sealed_arguments(&key), "equal values look equal");
    }

    #[test]
    fn another_key_and_another_place_open_nothing() {
        let key = SecretKey::of(&[7; 32]);
        let sealed = sealed_arguments(&key);
        let refused = |key: &SecretKey, request, sealed: &[u8]| {
            open(key, request, sealed).expect_err("opened").to_string()
        };
        let other = refused(&SecretKey::of(&[8; 32]), "login", &sealed);
        assert!(other.contains("another key"), "{other}");
        let moved = refused(&key, "show", &sealed);
        assert!(moved.contains("changed or moved"), "{moved}");
        let at = sealed
            .windows(8)
            .position(|part| part == b"password")
            .expect("its name");
        let mut renamed = sealed.clone();
        renamed[at..at + 8].copy_from_slice(b"username");
        let moved = refused(&key, "login", &renamed);
        assert!(moved.contains("changed or moved"), "{moved}");
        assert!(!moved.contains("hunter2"));
    }

    #[test]
    fn a_byte_that_was_changed_is_noticed() {
        let key = SecretKey::of(&[7; 32]);
        let value = super::sealed(&key, "a:b", b"\xa1x").expect("sealed");
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert!(opened(&key, "a:b", &changed).is_err(), "byte {at}");
            assert!(opened(&key, "a:b", &value[..at]).is_err(), "{at} bytes");
        }
        assert_eq!(opened(&key, "a:b", &value), Ok(b"\xa1x".to_vec()));
    }
}
