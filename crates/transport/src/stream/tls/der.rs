//! Reading DER: values with a tag and a length, of which a length above four bytes is refused. Source: X.690.

pub const INTEGER: u8 = 0x02;
pub const OCTETS: u8 = 0x04;
pub const OBJECT: u8 = 0x06;
pub const UTC_TIME: u8 = 0x17;
pub const LONG_TIME: u8 = 0x18;
pub const WIDE_TEXT: u8 = 0x1e;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;
/// A constructed value with a tag of its own, from 0 on.
pub const CONTEXT: u8 = 0xa0;

/// Values in DER, one after the other.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The tag of the next value, and the value.
    pub fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&short, rest) = rest.split_first()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                let join = |sum: usize, byte: &u8| (sum << 8) | usize::from(*byte);
                (bytes.iter().fold(0, join), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The next value, if it has this tag.
    pub fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(tag, _)| *tag == wanted)
            .map(|(_, value)| value)
    }

    /// The same, where another one stays for the next look.
    pub fn optional(&mut self, wanted: u8) -> Option<&'a [u8]> {
        (*self.0.first()? == wanted).then(|| self.expect(wanted))?
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
