//! What a requester sends: a header, its entries, their indices, the rows of pushes.
use super::{ENTRIES_MAX, ENTRY_BYTES, Operation, REQUEST_BYTES, u16_at, u32_at, u64_at};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rows to the requester.
    Pull,
    /// Rows to the owner.
    Push(Operation),
    /// Look names up; without names it is a liveness probe.
    Names,
    /// Cancel entries of a request.
    Cancel,
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) kind: Kind,
    pub(crate) entries: u16,
    pub(crate) slot: u32,
    /// Bytes after the header.
    pub(crate) bytes: u64,
}

impl RequestHeader {
    pub(crate) fn encode(&self) -> [u8; REQUEST_BYTES] {
        let (kind, flags) = match self.kind {
            Kind::Pull => (1, 0),
            Kind::Push(Operation::Set) => (2, 0),
            Kind::Push(Operation::Add) => (2, 1),
            Kind::Names => (3, 0),
            Kind::Cancel => (4, 0),
        };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = kind;
        bytes[1] = flags;
        bytes[2..4].copy_from_slice(&self.entries.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Decode it from the first bytes of `bytes`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for an error message.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let kind = match (bytes[0], bytes[1]) {
            (1, 0) => Kind::Pull,
            (2, 0) => Kind::Push(Operation::Set),
            (2, 1) => Kind::Push(Operation::Add),
            (3, 0) => Kind::Names,
            (4, 0) => Kind::Cancel,
            (kind, flags) => return Err(format!("a request of kind {kind} with flags {flags}")),
        };
        let entries = u16_at(bytes, 2);
        if usize::from(entries) > ENTRIES_MAX || (entries == 0 && kind != Kind::Names) {
            return Err(format!(
                "a request with {entries} entries, instead of 1 to {ENTRIES_MAX}"
            ));
        }
        Ok(Self {
            kind,
            entries,
            slot: u32_at(bytes, 4),
            bytes: u64_at(bytes, 8),
        })
    }
}

/// Flag in the tensor field of an entry with indices.
const INDICES: u32 = 1 << 31;

/// One pull or push of a request, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tensor: u32,
    pub(crate) indexed: bool,
    pub(crate) generation: u32,
    /// The first row; 0 with indices.
    pub(crate) first: u64,
    pub(crate) rows: u32,
    pub(crate) tag: u32,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let tensor = self.tensor | if self.indexed { INDICES } else { 0 };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&tensor.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.rows.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// Decode it from the first bytes of `bytes`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for an error message.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let tensor = u32_at(bytes, 0);
        let entry = Self {
            tensor: tensor & !INDICES,
            indexed: tensor & INDICES != 0,
            generation: u32_at(bytes, 4),
            first: u64_at(bytes, 8),
            rows: u32_at(bytes, 16),
            tag: u32_at(bytes, 20),
        };
        if entry.rows == 0 {
            return Err(format!("an entry of no rows, with tag {}", entry.tag));
        }
        if entry.indexed && entry.first != 0 {
            return Err(format!(
                "an entry with indices and a first row, {}, with tag {}",
                entry.first, entry.tag
            ));
        }
        Ok(entry)
    }

    /// Bytes of its indices.
    pub(crate) fn index_bytes(&self) -> u64 {
        if self.indexed {
            8 * u64::from(self.rows)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was() {
        let kinds = [
            Kind::Pull,
            Kind::Push(Operation::Set),
            Kind::Push(Operation::Add),
            Kind::Names,
            Kind::Cancel,
        ];
        for kind in kinds {
            let header = RequestHeader {
                kind,
                entries: 256,
                slot: 1023,
                bytes: u64::MAX,
            };
            assert_eq!(RequestHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn a_header_that_cannot_be_is_refused() {
        let header = RequestHeader {
            kind: Kind::Pull,
            entries: 1,
            slot: 0,
            bytes: 24,
        };
        for (at, value) in [(0, 0), (0, 5), (1, 1), (2, 0), (3, 2)] {
            let mut bytes = header.encode();
            bytes[at] = value;
            assert!(RequestHeader::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        for indexed in [false, true] {
            let entry = Entry {
                tensor: INDICES - 1,
                indexed,
                generation: 7,
                first: if indexed { 0 } else { 1 << 40 },
                rows: u32::MAX,
                tag: 3,
            };
            assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }
    }

    #[test]
    fn an_entry_that_cannot_be_is_refused() {
        let none = [0; ENTRY_BYTES];
        assert!(Entry::decode(&none).is_err_and(|what| what.contains("no rows")));
        let mut both = none;
        both[3] = 128;
        both[8] = 1;
        both[16] = 1;
        assert!(Entry::decode(&both).is_err_and(|what| what.contains("first row")));
    }
}
