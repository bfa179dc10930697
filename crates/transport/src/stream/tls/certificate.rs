//! A certificate's names and dates, as Python's `ssl.SSLSocket.getpeercert` gives them.
//!
//! It is read for people and for programs that print it; webpki has validated it before. So unknown
//! parts are left out, and a damaged certificate is `None`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::der::{
    CONTEXT, INTEGER, LONG_TIME, OBJECT, OCTETS, Reader, SEQUENCE, SET, UTC_TIME, WIDE_TEXT,
};

/// One name of a subject or an issuer, for example ("commonName", "localhost").
pub type NameAttribute = (String, String);

/// What a certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    pub version: u8,
    /// In upper-case hexadecimal.
    pub serial: String,
    pub subject: Vec<Vec<NameAttribute>>,
    pub issuer: Vec<Vec<NameAttribute>>,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    /// For example ("DNS", "localhost").
    pub alternative_names: Vec<(&'static str, String)>,
}

impl Certificate {
    /// Read one in DER; `None` if that is not what it is.
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut outer = Reader(der);
        let mut signed = Reader(Reader(outer.expect(SEQUENCE)?).expect(SEQUENCE)?);
        let mut found = Self {
            version: 1,
            ..Self::default()
        };
        if let Some(version) = signed.optional(CONTEXT) {
            found.version = Reader(version).expect(INTEGER)?.last()?.checked_add(1)?;
        }
        found.serial = hexadecimal(signed.expect(INTEGER)?);
        signed.expect(SEQUENCE)?; // the algorithm
        found.issuer = names(signed.expect(SEQUENCE)?)?;
        let mut dates = Reader(signed.expect(SEQUENCE)?);
        found.not_before = time(&mut dates)?;
        found.not_after = time(&mut dates)?;
        found.subject = names(signed.expect(SEQUENCE)?)?;
        signed.expect(SEQUENCE)?; // the key
        while let Some((tag, value)) = signed.next() {
            if tag == CONTEXT | 3 {
                found.alternative_names = alternative_names(value).unwrap_or_default();
            }
        }
        Some(found)
    }
}

/// The subject's alternative names, 2.5.29.17.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

fn names(sequence: &[u8]) -> Option<Vec<Vec<NameAttribute>>> {
    let mut found = Vec::new();
    let mut sets = Reader(sequence);
    while !sets.is_empty() {
        let mut set = Reader(sets.expect(SET)?);
        let mut together = Vec::new();
        while !set.is_empty() {
            let mut pair = Reader(set.expect(SEQUENCE)?);
            let object = pair.expect(OBJECT)?;
            let (tag, value) = pair.next()?;
            together.push((attribute(object), text(tag, value)));
        }
        found.push(together);
    }
    Some(found)
}

/// The long name that OpenSSL has for an attribute, else its number.
fn attribute(object: &[u8]) -> String {
    let known = match object {
        [0x55, 4, 3] => "commonName",
        [0x55, 4, 4] => "surname",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "countryName",
        [0x55, 4, 7] => "localityName",
        [0x55, 4, 8] => "stateOrProvinceName",
        [0x55, 4, 9] => "streetAddress",
        [0x55, 4, 10] => "organizationName",
        [0x55, 4, 11] => "organizationalUnitName",
        [0x55, 4, 12] => "title",
        [0x55, 4, 42] => "givenName",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "domainComponent",
        other => return dotted(other),
    };
    known.to_owned()
}

fn dotted(object: &[u8]) -> String {
    let Some((&first, rest)) = object.split_first() else {
        return String::new();
    };
    let top = (first / 40).min(2);
    let mut out = format!("{top}.{}", first - top * 40);
    let mut number = 0u64;
    for byte in rest {
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            out.push('.');
            out.push_str(&number.to_string());
            number = 0;
        }
    }
    out
}

fn text(tag: u8, value: &[u8]) -> String {
    if tag == WIDE_TEXT {
        let units = value.chunks_exact(2);
        let units: Vec<u16> = units
            .map(|two| u16::from_be_bytes([two[0], two[1]]))
            .collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value).into_owned()
}

fn hexadecimal(bytes: &[u8]) -> String {
    let bytes = match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        bytes => bytes,
    };
    let digits = |byte: &u8| [byte >> 4, byte & 15];
    let digit = |digit| char::from_digit(u32::from(digit), 16).unwrap_or('0');
    let text = bytes.iter().flat_map(digits).map(digit);
    text.map(|digit| digit.to_ascii_uppercase()).collect()
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, RFC 5280 4.1.2.5.
fn time(dates: &mut Reader<'_>) -> Option<i64> {
    let (tag, value) = dates.next()?;
    let digits = value.strip_suffix(b"Z")?;
    let number = |part: &[u8]| -> Option<i64> { std::str::from_utf8(part).ok()?.parse().ok() };
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2])?;
            (year + if year < 50 { 2000 } else { 1900 }, &digits[2..])
        }
        (LONG_TIME, 14) => (number(&digits[..4])?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| number(&rest[at..at + 2]);
    let days = days_before(year, part(0)?) + part(2)? - 1;
    Some(((days * 24 + part(4)?) * 60 + part(6)?) * 60 + part(8)?)
}

/// Days from 1970 to the first of a month: years begin in March, so that a leap day is the last.
fn days_before(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 - 719_468
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<(&'static str, String)>> {
    let mut extensions = Reader(Reader(extensions).expect(SEQUENCE)?);
    while !extensions.is_empty() {
        let mut extension = Reader(extensions.expect(SEQUENCE)?);
        if extension.expect(OBJECT)? != ALTERNATIVE_NAMES {
            continue;
        }
        let mut value = extension.next()?;
        if value.0 != OCTETS {
            value = extension.next()?; // the first one said whether it is critical
        }
        let mut names = Reader(Reader(value.1).expect(SEQUENCE)?);
        let mut found = Vec::new();
        while let Some((tag, name)) = names.next() {
            found.extend(alternative_name(tag, name));
        }
        return Some(found);
    }
    Some(Vec::new())
}

fn alternative_name(tag: u8, name: &[u8]) -> Option<(&'static str, String)> {
    let lossy = || String::from_utf8_lossy(name).into_owned();
    Some(match tag {
        0x81 => ("email", lossy()),
        0x82 => ("DNS", lossy()),
        0x86 => ("URI", lossy()),
        0x87 => {
            let address = if let Ok(four) = <[u8; 4]>::try_from(name) {
                Ipv4Addr::from(four).to_string()
            } else {
                Ipv6Addr::from(<[u8; 16]>::try_from(name).ok()?).to_string()
            };
            ("IP Address", address)
        }
        _ => return None,
    })
}
