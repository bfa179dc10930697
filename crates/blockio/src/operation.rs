//! One operation of a batch, as 24 bytes that numpy can write.

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Read from the file into the buffer.
    Read = 0,
    /// Write from the buffer to the file.
    Write = 1,
    /// Write the file's data and metadata to the device, after the batch's operations before it.
    Fsync = 2,
    /// As `Fsync`, but only the metadata that reading needs.
    Fdatasync = 3,
}

impl Kind {
    /// The kind of a number, if it is one.
    pub fn of(number: u8) -> Option<Self> {
        [Self::Read, Self::Write, Self::Fsync, Self::Fdatasync]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Whether bytes move.
    pub fn moves_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// One operation. The layout is that of `forebay.blockio.OPERATION`, a structured dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Operation {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Where in the batch's buffer, in bytes.
    pub buffer_offset: u64,
    /// How many bytes.
    pub length: u32,
    /// Which of the batch's files.
    pub file: u16,
    /// A [`Kind`] as a number.
    pub kind: u8,
    /// Zero; other values are refused.
    pub flags: u8,
}

/// An operation that may be handed to the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) kind: Kind,
    pub(crate) file: u16,
    pub(crate) length: u32,
    pub(crate) offset: u64,
    /// Of the first byte, in this process.
    pub(crate) address: u64,
}

#[cfg(test)]
mod tests {
    use super::{Kind, Operation};
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn the_layout_is_the_one_that_numpy_writes() {
        assert_eq!((size_of::<Operation>(), align_of::<Operation>()), (24, 8));
        assert_eq!(offset_of!(Operation, offset), 0);
        assert_eq!(offset_of!(Operation, buffer_offset), 8);
        assert_eq!(offset_of!(Operation, length), 16);
        assert_eq!(offset_of!(Operation, file), 20);
        assert_eq!(offset_of!(Operation, kind), 22);
        assert_eq!(offset_of!(Operation, flags), 23);
    }

    #[test]
    fn a_number_beyond_the_kinds_is_none() {
        assert_eq!(Kind::of(1), Some(Kind::Write));
        assert_eq!(Kind::of(4), None);
    }
}
