//! Reads msgpack in place, without allocating.
//!
//! Everything here may come from a hostile peer: each length is checked against the bytes that are there, and skipping
//! counts values instead of recursing, so that no depth can exhaust the stack. Source: the `MessagePack` specification.

use crate::error::{Error, Result};

/// One value, or the head of one that holds others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Nil,
    Bool(bool),
    /// Any integer that fits.
    Int(i64),
    /// An integer above `i64::MAX`.
    Large(u64),
    Float(f64),
    Str(&'a str),
    Bin(&'a [u8]),
    /// This many values follow.
    Array(usize),
    /// This many pairs of values follow.
    Map(usize),
    Ext(i8, &'a [u8]),
}

impl Value<'_> {
    /// The kind of a value, for a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Large(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::Bin(_) => "bytes",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Ext(..) => "an extension",
        }
    }
}

/// A position in msgpack bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes that were read.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What was read since `start`, an earlier offset of this reader.
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start.min(self.at)..self.at]
    }

    /// An error at this position.
    pub fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed {
            what,
            offset: self.at,
        }
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            _ => Err(self.malformed("more bytes than the message has values")),
        }
    }

    /// The next value; for one that holds others, its head.
    pub fn value(&mut self) -> Result<Value<'a>> {
        let head = self.head()?;
        Ok(match head {
            Head::Done(value) => value,
            Head::Text(length) => {
                let text = self.take(length)?;
                let text = std::str::from_utf8(text);
                Value::Str(text.map_err(|_| self.malformed("a string that is not UTF-8"))?)
            }
            Head::Bytes(length) => Value::Bin(self.take(length)?),
            Head::Ext(length) => {
                let kind = self.take(1)?[0].cast_signed();
                Value::Ext(kind, self.take(length)?)
            }
            Head::Values(count) => Value::Array(self.holds(count, 1)?),
            Head::Pairs(count) => Value::Map(self.holds(count, 2)?),
        })
    }

    /// Skip the next value with everything in it; returns its bytes.
    pub fn skip(&mut self) -> Result<&'a [u8]> {
        let start = self.at;
        let mut pending = 1_usize;
        while pending > 0 {
            pending -= 1;
            match self.head()? {
                Head::Done(_) => {}
                Head::Text(length) | Head::Bytes(length) => self.pass(length)?,
                Head::Ext(length) => self.pass(length.saturating_add(1))?,
                Head::Values(count) => pending = pending.saturating_add(self.holds(count, 1)?),
                Head::Pairs(count) => pending = pending.saturating_add(2 * self.holds(count, 2)?),
            }
            if pending > self.remaining() {
                return Err(self.malformed("fewer bytes than the message has values"));
            }
        }
        Ok(self.since(start))
    }

    /// An array's length.
    pub fn array(&mut self) -> Result<usize> {
        match self.value()? {
            Value::Array(count) => Ok(count),
            _ => Err(self.malformed("an array was expected")),
        }
    }

    /// A map's length, or `None` for nil.
    pub fn map_or_nil(&mut self) -> Result<Option<usize>> {
        match self.value()? {
            Value::Map(count) => Ok(Some(count)),
            Value::Nil => Ok(None),
            _ => Err(self.malformed("a map was expected")),
        }
    }

    pub fn text(&mut self) -> Result<&'a str> {
        match self.value()? {
            Value::Str(text) => Ok(text),
            _ => Err(self.malformed("a string was expected")),
        }
    }

    pub fn unsigned(&mut self) -> Result<u64> {
        self.unsigned_or_nil()?
            .ok_or_else(|| self.malformed("a number was expected"))
    }

    pub fn unsigned_or_nil(&mut self) -> Result<Option<u64>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Large(value) => Ok(Some(value)),
            Value::Int(value) => u64::try_from(value)
                .map(Some)
                .map_err(|_| self.malformed("a number that is not negative was expected")),
            _ => Err(self.malformed("a number was expected")),
        }
    }

    pub fn boolean(&mut self) -> Result<bool> {
        match self.value()? {
            Value::Bool(value) => Ok(value),
            _ => Err(self.malformed("a boolean was expected")),
        }
    }

    /// Check that this many values of `each` parts can still follow.
    fn holds(&self, count: usize, each: usize) -> Result<usize> {
        if count > self.remaining() / each {
            return Err(self.malformed("an array or a map longer than the message"));
        }
        Ok(count)
    }

    fn pass(&mut self, length: usize) -> Result<()> {
        self.take(length).map(|_| ())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..length) else {
            return Err(self.malformed("the message ends within a value"));
        };
        self.at += length;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut number = [0; N];
        number.copy_from_slice(self.take(N)?);
        Ok(number)
    }

    fn length(&mut self, size: u8) -> Result<usize> {
        Ok(match size {
            0 => usize::from(self.number::<1>()?[0]),
            1 => usize::from(u16::from_be_bytes(self.number()?)),
            _ => u32::from_be_bytes(self.number()?) as usize,
        })
    }

    fn head(&mut self) -> Result<Head<'a>> {
        let tag = self.take(1)?[0];
        Ok(match tag {
            0x00..=0x7f => Head::Done(Value::Int(i64::from(tag))),
            0x80..=0x8f => Head::Pairs(usize::from(tag & 0x0f)),
            0x90..=0x9f => Head::Values(usize::from(tag & 0x0f)),
            0xa0..=0xbf => Head::Text(usize::from(tag & 0x1f)),
            0xc0 => Head::Done(Value::Nil),
            0xc1 => return Err(self.malformed("the tag c1, which msgpack does not use")),
            0xc2 | 0xc3 => Head::Done(Value::Bool(tag == 0xc3)),
            0xc4..=0xc6 => Head::Bytes(self.length(tag - 0xc4)?),
            0xc7..=0xc9 => Head::Ext(self.length(tag - 0xc7)?),
            0xca..=0xd3 => Head::Done(self.numeric(tag)?),
            0xd4..=0xd8 => Head::Ext(1 << (tag - 0xd4)),
            0xd9..=0xdb => Head::Text(self.length(tag - 0xd9)?),
            0xdc | 0xdd => Head::Values(self.length(tag - 0xdc + 1)?),
            0xde | 0xdf => Head::Pairs(self.length(tag - 0xde + 1)?),
            0xe0..=0xff => Head::Done(Value::Int(i64::from(tag.cast_signed()))),
        })
    }

    fn numeric(&mut self, tag: u8) -> Result<Value<'a>> {
        Ok(match tag {
            0xca => Value::Float(f64::from(f32::from_be_bytes(self.number()?))),
            0xcb => Value::Float(f64::from_be_bytes(self.number()?)),
            0xcc => Value::Int(i64::from(self.number::<1>()?[0])),
            0xcd => Value::Int(i64::from(u16::from_be_bytes(self.number()?))),
            0xce => Value::Int(i64::from(u32::from_be_bytes(self.number()?))),
            0xcf => {
                let value = u64::from_be_bytes(self.number()?);
                i64::try_from(value).map_or(Value::Large(value), Value::Int)
            }
            0xd0 => Value::Int(i64::from(i8::from_be_bytes(self.number()?))),
            0xd1 => Value::Int(i64::from(i16::from_be_bytes(self.number()?))),
            0xd2 => Value::Int(i64::from(i32::from_be_bytes(self.number()?))),
            _ => Value::Int(i64::from_be_bytes(self.number()?)),
        })
    }
}

/// A tag with its length, whose bytes or values follow.
enum Head<'a> {
    Done(Value<'a>),
    Text(usize),
    Bytes(usize),
    Ext(usize),
    Values(usize),
    Pairs(usize),
}
