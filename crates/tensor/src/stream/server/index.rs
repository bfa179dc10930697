//! The shared index of a server, for clients of the same host.
use super::Options;
use super::metrics::Metrics;
use crate::responder::Shard;
use crate::shm::{IndexLocation, SharedIndex};

/// Create the shared index, unless it is disabled or the kernel refuses; the metrics then have the reason.
pub(super) fn publish_index<K>(
    shard: &mut Shard<K>,
    options: &Options,
    incarnation: u64,
    metrics: &Metrics,
) -> Option<IndexLocation> {
    if !options.shared_memory {
        return None;
    }
    let made = SharedIndex::new(options.limits.tensors_max, incarnation).and_then(|index| {
        let location = index.location();
        let attached = shard.attach_index(index);
        attached
            .map(|()| location)
            .map_err(|error| error.to_string())
    });
    made.map_err(|why| metrics.note(why)).ok()
}
