//! Checks the arguments of one submission.

use std::fmt::Write;

use super::Described;
use crate::error::{Error, Refusal};
use crate::hash;
use crate::message::{Reader, Value};
use crate::nearest::nearest;
use crate::schema::{Mismatch, Schemas, Set, find, shown};

/// What stands in the place of a secret value.
const SECRET: &str = "<secret>";
/// Longer keys are cut, behind what tells them apart.
const KEY_BYTES_MAX: usize = 200;

pub fn check(schemas: &Schemas, request: &Described, encoded: &[u8]) -> Result<(), Refusal> {
    let unreadable = |error: Error| refuse(request, "", "arguments in msgpack", &error.to_string());
    let mut reader = Reader::new(encoded);
    let value = reader.value().map_err(unreadable)?;
    let Value::Map(count) = value else {
        return Err(refuse(request, "", "arguments by name", &shown(&value)));
    };
    let mut seen = Set::default();
    for guess in 0..count {
        let key = reader.value().map_err(unreadable)?;
        let Value::Str(name) = key else {
            return Err(refuse(request, "", "arguments by name", &shown(&key)));
        };
        let Some(number) = find(&request.parameters, name, guess) else {
            return Err(unknown(request, name));
        };
        if !seen.add(number) {
            return Err(refuse(request, name, "one value", "two"));
        }
        let checked = schemas.check(request.parameters[number].schema, &mut reader);
        checked.map_err(|wrong| {
            if request.secrets.contains(number) {
                refuse(request, name, wrong.expected(), SECRET)
            } else {
                mismatch(request, name, &wrong)
            }
        })?;
    }
    reader.end().map_err(unreadable)?;
    match request.required.first_beyond(&seen) {
        Some(missing) => Err(missing_one(request, missing)),
        None => Ok(()),
    }
}

fn refuse(request: &Described, path: &str, expected: &str, value: &str) -> Refusal {
    let object = if path.is_empty() {
        request.name.to_string()
    } else {
        format!("{}: parameter {path}", request.name)
    };
    Refusal::invalid(&object, expected, value, usage(request))
}

fn mismatch(request: &Described, parameter: &str, wrong: &Mismatch) -> Refusal {
    let path = format!("{parameter}{}", wrong.path());
    let mut refusal = refuse(request, &path, wrong.expected(), wrong.value());
    if let Some(near) = wrong.nearest() {
        refusal.next = format!("did you mean {near:?}?");
    }
    refusal
}

fn unknown(request: &Described, name: &str) -> Refusal {
    let names = request.parameters.iter().map(|parameter| &*parameter.name);
    let near = nearest(name, names);
    let shown = shown(&Value::Str(name));
    Refusal {
        code: "invalid",
        message: format!("{}: there is no parameter {shown}", request.name),
        object: request.name.to_string(),
        limit: String::new(),
        value: shown,
        next: near.map_or_else(|| usage(request), |near| format!("did you mean {near:?}?")),
    }
}

fn missing_one(request: &Described, number: usize) -> Refusal {
    let name = &request.parameters[number].name;
    Refusal {
        code: "invalid",
        message: format!("{}: parameter {name} is missing", request.name),
        object: format!("{}: parameter {name}", request.name),
        limit: "required".into(),
        value: String::new(),
        next: usage(request),
    }
}

/// Which parameters there are.
fn usage(request: &Described) -> String {
    if request.parameters.is_empty() {
        return "it takes no arguments".into();
    }
    let names = request.parameters.iter().map(|parameter| &*parameter.name);
    format!(
        "its parameters are {}",
        names.collect::<Vec<_>>().join(", ")
    )
}

/// The text of a parameter's value, the same for equal ones; that of its default where it was not passed.
pub fn key(request: &Described, number: usize, encoded: &[u8]) -> String {
    let wanted = &request.parameters[number].name;
    let text =
        argument(wanted, encoded).map_or_else(|| request.defaults[number].clone(), value_text);
    let mut key = format!("{}: {wanted}={text}", request.name);
    if key.len() > KEY_BYTES_MAX {
        let told_apart = fnv(key.as_bytes());
        let cut = (0..=KEY_BYTES_MAX)
            .rev()
            .find(|&at| key.is_char_boundary(at));
        key.truncate(cut.unwrap_or(0));
        let _ = write!(key, "...{told_apart:016x}");
    }
    key
}

/// The hash of the name and of the arguments that are not secret.
pub fn digest_without_secrets(request: &Described, encoded: &[u8]) -> u64 {
    let mut parts = vec![request.name.as_bytes()];
    let mut reader = Reader::new(encoded);
    for _ in 0..reader.map_or_nil().ok().flatten().unwrap_or(0) {
        let (Ok(name), Ok(value)) = (reader.text(), reader.skip()) else {
            break;
        };
        if !request.is_secret(name) {
            parts.extend([name.as_bytes(), value]);
        }
    }
    hash::digest(parts)
}

/// The bytes of an argument; `None` where it was not passed.
fn argument<'a>(wanted: &str, encoded: &'a [u8]) -> Option<&'a [u8]> {
    let mut reader = Reader::new(encoded);
    for _ in 0..reader.map_or_nil().ok()?? {
        let is_it = reader.text().ok()? == wanted;
        let value = reader.skip().ok()?;
        if is_it {
            return Some(value);
        }
    }
    None
}

/// A scalar as JSON has it, so that it equals its default; anything else as its bytes.
fn value_text(encoded: &[u8]) -> String {
    match Reader::new(encoded).value() {
        Ok(Value::Str(text)) => serde_json::Value::from(text).to_string(),
        Ok(Value::Float(value)) => serde_json::Value::from(value).to_string(),
        Ok(value @ (Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Large(_))) => {
            shown(&value)
        }
        _ => encoded.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// FNV-1a: distinguishes long keys; it does not withstand an adversary who wants a collision.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
