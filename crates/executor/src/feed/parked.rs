//! The newest progress of requests whose place in the ring was dropped: who comes then sees how far they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hash::ByNumber;
use crate::id::RequestId;

/// What a record costs beside its bytes: its entries in both maps.
const RECORD_BYTES: usize = 128;

/// One record for each request that has one. It is counted with the ring, and forgets the oldest first.
#[derive(Debug, Default)]
pub(super) struct ParkedProgress {
    records: ByNumber<RequestId, (u64, Arc<[u8]>)>,
    /// The requests by the numbers of their records.
    ids: BTreeMap<u64, RequestId>,
    bytes: usize,
}

impl ParkedProgress {
    /// Keep the record of a progress with this number, the newest of its request.
    pub(super) fn keep(&mut self, id: RequestId, number: u64, record: Arc<[u8]>) {
        self.forget(id);
        self.bytes += RECORD_BYTES + record.len();
        self.ids.insert(number, id);
        self.records.insert(id, (number, record));
    }

    /// Forget that of a request.
    pub(super) fn forget(&mut self, id: RequestId) {
        if let Some((number, record)) = self.records.remove(&id) {
            self.bytes -= RECORD_BYTES + record.len();
            self.ids.remove(&number);
        }
    }

    pub(super) fn forget_oldest(&mut self) {
        if let Some(id) = self.ids.first_key_value().map(|(_, id)| *id) {
            self.forget(id);
        }
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Arc<[u8]>> {
        self.records.get(&id).map(|(_, record)| record)
    }

    /// What all of them cost.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
