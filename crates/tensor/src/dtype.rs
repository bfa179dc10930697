//! The type of a tensor's elements.

/// Which numbers the elements are, by numpy's kind: this decides how they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Number {
    /// Not a number: it can be set, but not added to.
    Opaque = 0,
    /// `i1` to `i8`.
    Signed = 1,
    /// `u1` to `u8`.
    Unsigned = 2,
    /// `f2`, `f4`, `f8`.
    Float = 3,
    /// `c8`, `c16`.
    Complex = 4,
}

impl Number {
    /// The kind with this code on the wire.
    pub(crate) fn decode(number: u8) -> Option<Self> {
        let all = [
            Self::Opaque,
            Self::Signed,
            Self::Unsigned,
            Self::Float,
            Self::Complex,
        ];
        all.get(usize::from(number)).copied()
    }
}

/// The type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// The kind of number.
    pub number: Number,
    /// Bytes of an element.
    pub item_bytes: u32,
    /// The publisher's notation, such as `<f4`; at most 1024 bytes. It is passed on without being interpreted.
    pub text: String,
}
