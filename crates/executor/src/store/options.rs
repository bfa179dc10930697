//! Options as they are stored: a msgpack map of what differs from the defaults.
//!
//! Lane, priority and idempotency key are columns, because listings ask for them.

use crate::id::RequestId;
use crate::message::{Reader, Writer};
use crate::request::{Child, Options};

/// Encode what differs from the defaults; `None` if nothing does.
pub(super) fn encode(options: &Options) -> Option<Vec<u8>> {
    let mut pairs = Pairs::default();
    pairs.put_numbers(options);
    pairs.put_times_and_sizes(options);
    for (name, value) in [
        ("idempotent", options.idempotent),
        ("sealed", options.sealed),
    ] {
        if value {
            pairs.put(name).boolean(true);
        }
    }
    for (name, text) in [
        ("key", &options.key),
        ("by", &options.by),
        ("traceparent", &options.traceparent),
    ] {
        if let Some(text) = text {
            pairs.put(name).text(text);
        }
    }
    if let Some(parent) = options.parent {
        pairs.put("parent").unsigned(parent.0);
    }
    if let Some(child) = options.child {
        pairs.put("call").unsigned(child.call.into());
        pairs.put("depth").unsigned(child.depth.into());
        pairs.put("digest").unsigned(child.digest);
    }
    if !options.after.is_empty() {
        let ids = pairs.put("after").array(options.after.len());
        for id in &options.after {
            ids.unsigned(id.0);
        }
    }
    pairs.into_map()
}

/// The pairs of a map that is being written.
#[derive(Default)]
struct Pairs {
    written: Writer,
    count: usize,
}

impl Pairs {
    /// The next name; its value follows.
    fn put(&mut self, name: &str) -> &mut Writer {
        self.count += 1;
        self.written.text(name)
    }

    fn put_numbers(&mut self, options: &Options) {
        let usual = counts(&Options::default());
        for ((name, value), (_, default)) in counts(options).into_iter().zip(usual) {
            if value != default {
                self.put(name).unsigned(value);
            }
        }
    }

    fn put_times_and_sizes(&mut self, options: &Options) {
        for (name, value) in [
            ("timeout_ms", options.timeout_ms),
            ("memory_bytes", options.memory_bytes),
            ("not_before", options.not_before),
            ("quota", options.quota.map(u64::from)),
        ] {
            if let Some(value) = value {
                self.put(name).unsigned(value);
            }
        }
    }

    /// The map; `None`, which is NULL and takes no room in the row, as for most requests.
    fn into_map(self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let mut map = Writer::default();
        map.map(self.count).raw(&self.written.into_bytes());
        Some(map.into_bytes())
    }
}

/// Options that every request has.
fn counts(options: &Options) -> [(&'static str, u64); 6] {
    [
        ("retries", u64::from(options.retries)),
        ("backoff_ms", options.backoff_ms),
        ("backoff_max_ms", options.backoff_max_ms),
        ("key_at_once", u64::from(options.key_at_once)),
        ("cpu_milli", u64::from(options.cpu_milli)),
        ("ahead", u64::from(options.ahead)),
    ]
}

/// Apply stored options. A name of a later version is ignored.
pub(super) fn decode(stored: &[u8], options: &mut Options) -> crate::error::Result<()> {
    let mut reader = Reader::new(stored);
    for _ in 0..reader.map_or_nil()?.unwrap_or(0) {
        let name = reader.text()?;
        match name {
            "retries" => options.retries = small(&mut reader)?,
            "backoff_ms" => options.backoff_ms = reader.unsigned()?,
            "backoff_max_ms" => options.backoff_max_ms = reader.unsigned()?,
            "key_at_once" => options.key_at_once = small(&mut reader)?,
            "cpu_milli" => options.cpu_milli = small(&mut reader)?,
            "ahead" => options.ahead = small(&mut reader)?,
            "timeout_ms" => options.timeout_ms = Some(reader.unsigned()?),
            "memory_bytes" => options.memory_bytes = Some(reader.unsigned()?),
            "not_before" => options.not_before = Some(reader.unsigned()?),
            "quota" => options.quota = Some(small(&mut reader)?),
            "idempotent" => options.idempotent = reader.boolean()?,
            "sealed" => options.sealed = reader.boolean()?,
            "key" => options.key = Some(reader.text()?.into()),
            "traceparent" => options.traceparent = Some(reader.text()?.into()),
            "parent" => options.parent = Some(RequestId(reader.unsigned()?)),
            "call" => child(options).call = small(&mut reader)?,
            "depth" => child(options).depth = small(&mut reader)?,
            "digest" => child(options).digest = reader.unsigned()?,
            "by" => options.by = Some(reader.text()?.into()),
            "after" => {
                for _ in 0..reader.array()? {
                    options.after.push(RequestId(reader.unsigned()?));
                }
            }
            _ => {
                reader.skip()?;
            }
        }
    }
    reader.end()
}

/// What says that it is a child, made with the first of its parts.
fn child(options: &mut Options) -> &mut Child {
    options.child.get_or_insert_default()
}

/// The request that submitted one with these stored options; `None` for none, and for options that cannot be read.
pub(super) fn parent(stored: Option<&[u8]>) -> Option<RequestId> {
    let mut reader = Reader::new(stored?);
    for _ in 0..reader.map_or_nil().ok()?? {
        if reader.text().ok()? == "parent" {
            return reader.unsigned().ok().map(RequestId);
        }
        reader.skip().ok()?;
    }
    None
}

/// Stored options with one more text, which replaces one of the same name.
pub(super) fn with_text(
    stored: Option<&[u8]>,
    name: &str,
    text: &str,
) -> crate::error::Result<Vec<u8>> {
    let mut reader = Reader::new(stored.unwrap_or(&[0xc0]));
    let mut pairs = Writer::default();
    let mut count = 1;
    for _ in 0..reader.map_or_nil()?.unwrap_or(0) {
        let key = reader.text()?;
        let value = reader.skip()?;
        if key != name {
            pairs.text(key).raw(value);
            count += 1;
        }
    }
    reader.end()?;
    pairs.text(name).text(text);
    let mut map = Writer::default();
    map.map(count).raw(&pairs.into_bytes());
    Ok(map.into_bytes())
}

fn small(reader: &mut Reader<'_>) -> crate::error::Result<u32> {
    let value = reader.unsigned()?;
    u32::try_from(value).map_err(|_| reader.malformed("a number above 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_take_no_bytes() {
        assert_eq!(encode(&Options::default()), None);
    }

    #[test]
    fn every_option_comes_back() {
        let options = Options {
            timeout_ms: Some(1_500),
            retries: 3,
            backoff_ms: 7,
            backoff_max_ms: 70_000,
            idempotent: true,
            key: Some("user:7".into()),
            by: Some("ann".into()),
            sealed: true,
            key_at_once: 2,
            memory_bytes: Some(300_000_000),
            cpu_milli: 500,
            ahead: 8,
            after: vec![RequestId(1), RequestId(u64::MAX)],
            not_before: Some(1_800_000_000_000),
            traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
            parent: Some(RequestId(1 << 59)),
            child: Some(Child {
                call: 0,
                depth: 3,
                digest: u64::MAX,
                ..Child::default()
            }),
            quota: Some(40),
            ..Options::default()
        };
        let mut back = Options::default();
        let stored = encode(&options).unwrap();
        decode(&stored, &mut back).unwrap();
        assert_eq!(back, options);
        assert_eq!(parent(Some(&stored)), options.parent);
    }

    #[test]
    fn a_request_without_a_parent_has_none() {
        let options = Options {
            retries: 1,
            ..Options::default()
        };
        assert_eq!(parent(encode(&options).as_deref()), None);
        assert_eq!(parent(None), None);
        assert_eq!(parent(Some(&[0x81])), None, "cut off");
    }

    #[test]
    fn who_acted_is_added_to_what_is_stored() {
        let stored = Options {
            retries: 2,
            ..Options::default()
        };
        let one = with_text(encode(&stored).as_deref(), "cancelled_by", "ann").unwrap();
        let two = with_text(Some(&one), "retried_by", "bob").unwrap();
        let three = with_text(Some(&two), "cancelled_by", "eve").unwrap();
        let mut back = Options::default();
        decode(&three, &mut back).unwrap();
        assert_eq!(back, stored);
        let mut reader = Reader::new(&three);
        assert_eq!(reader.map_or_nil().unwrap(), Some(3));
        assert_eq!(reader.text().unwrap(), "retries");
        reader.skip().unwrap();
        let texts: Vec<_> = (0..4).map(|_| reader.text().unwrap()).collect();
        assert_eq!(texts, ["retried_by", "bob", "cancelled_by", "eve"]);
        assert!(with_text(None, "retried_by", "bob").is_ok());
        assert!(with_text(Some(&[0x81]), "retried_by", "bob").is_err());
    }

    #[test]
    fn what_a_later_version_added_is_passed_over() {
        let mut map = Writer::default();
        map.map(2).text("colour").array(1).text("red");
        map.text("retries").unsigned(2);
        let mut options = Options::default();
        decode(&map.into_bytes(), &mut options).unwrap();
        assert_eq!(options.retries, 2);
    }
}
