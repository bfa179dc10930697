//! What a server lets clients of the same host read by themselves.
use super::Options;
use super::tally::Tally;
use crate::responder::Shard;
use crate::shm::{Announced, Stand};

/// Show what there is to clients of the same host, if that can be.
pub(super) fn show<K>(
    shard: &mut Shard<K>,
    options: &Options,
    incarnation: u64,
    tally: &Tally,
) -> Option<Announced> {
    if !options.shared_memory {
        return None;
    }
    let shown = Stand::new(options.limits.tensors_max, incarnation).and_then(|stand| {
        let announced = stand.announced();
        let attached = shard.attach_stand(stand);
        attached
            .map(|()| announced)
            .map_err(|error| error.to_string())
    });
    shown.map_err(|why| tally.note(why)).ok()
}
