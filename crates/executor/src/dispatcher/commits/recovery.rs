//! Recovery at the start: hands what the last server left to the machine.

use std::collections::{HashMap, HashSet};

use crate::dispatcher::commits::arguments::Arguments;
use crate::dispatcher::commits::pending_writes::PendingWrites;
use crate::error::Result;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::op::Restored;
use crate::request::{Millis, Status};
use crate::store::{DatabaseReader, Store, StoreConfig};

/// Open the store, and hand its contents to the machine. Comes with the time behind which the feed's numbers begin.
///
/// # Errors
/// `Store`: the directory is in use, of a later version, or cannot be read.
pub fn open(
    config: StoreConfig,
    machine: &mut Machine,
    now: Millis,
) -> Result<(PendingWrites, Millis)> {
    let directory = config.directory.clone();
    let config = StoreConfig {
        awaits_ages: true, // the manifest has them
        ..config
    };
    let (store, recovery) = Store::open(config)?;
    let reader = DatabaseReader::open(&directory)?;
    // Before the restore, which fails requests whose predecessor did not succeed.
    for (id, status) in before(&reader, &recovery.restored)? {
        machine.remember(id, status);
    }
    let orphans = orphans(&reader, &recovery.restored)?;
    let held = recovery.restored.iter();
    let held = held.map(|one| (one.request.id, one.request.submission.arguments.len()));
    let held = held.collect();
    machine.restore(
        now,
        recovery.restored,
        &recovery.learnt,
        &recovery.fired,
        recovery.last,
    );
    machine.restore_children(now, &recovery.children, orphans);
    for name in recovery.paused {
        machine.remember_paused(name);
    }
    for (name, at) in recovery.resumed {
        machine.remember_resumed(name, at);
    }
    for (key, id, name) in &recovery.known {
        machine.remember_idempotency(key.clone(), *id, name);
    }
    let queue_bytes_max = usize::try_from(store.config().queue_bytes_max).unwrap_or(usize::MAX);
    let arguments = Arguments::new(queue_bytes_max, held, recovery.on_disk);
    let pending = PendingWrites::new(store, arguments, &recovery.known);
    Ok((pending, recovery.feed_begins))
}

/// Children whose parent has ended without success, and whose cancel the last server has not written. What an operator
/// has queued again since is wanted.
fn orphans(reader: &DatabaseReader, restored: &[Restored]) -> Result<Vec<RequestId>> {
    let children = || {
        let wanted = restored.iter().filter(|one| !one.retried);
        wanted.filter_map(|one| {
            let parent = one.request.submission.options.parent_of_child()?;
            Some((one.request.id, parent))
        })
    };
    let ended = ended(reader, restored, children().map(|(_, parent)| parent))?;
    let has_failed = |parent| {
        let status = ended.get(&parent);
        status.is_some_and(|status| *status != Status::Succeeded)
    };
    let orphans = children().filter(|(_, parent)| has_failed(*parent));
    Ok(orphans.map(|(id, _)| id).collect())
}

/// How the predecessors of unfinished requests ended.
fn before(reader: &DatabaseReader, restored: &[Restored]) -> Result<HashMap<RequestId, Status>> {
    let named = restored
        .iter()
        .flat_map(|one| &one.request.submission.options.after);
    ended(reader, restored, named.copied())
}

/// How those of some requests ended that have; each is asked for once.
fn ended(
    reader: &DatabaseReader,
    restored: &[Restored],
    wanted: impl Iterator<Item = RequestId>,
) -> Result<HashMap<RequestId, Status>> {
    let unfinished: HashSet<_> = restored.iter().map(|one| one.request.id).collect();
    let wanted: HashSet<_> = wanted.filter(|id| !unfinished.contains(id)).collect();
    let mut ended = HashMap::new();
    for id in wanted {
        let status = reader.status(id)?;
        let status = status.filter(|status| status.has_ended());
        ended.extend(status.map(|status| (id, status)));
    }
    Ok(ended)
}
