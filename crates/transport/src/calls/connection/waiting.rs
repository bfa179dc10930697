//! How threads wait on a connection: those that call and those that serve.
//!
//! Several threads may have calls in flight on one connection: one of them reads for all
//! ([`forebay_base::waiters`]). Every exit from a wait goes through [`end_wait`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use forebay_base::waiters::Reader;
use forebay_base::wakeup::Wakeup;

use crate::calls::connection::{Guard, release};
use crate::calls::state::ConnectionState;
use crate::drive::blocking::{Woken, sleep, thread_wakeup};
use crate::error::{Error, Result};
use crate::stream::socket::{Watch, Wire};

/// What a turn waits for, besides its deadline.
#[derive(Clone, Copy)]
pub(in crate::calls) struct WaitFor {
    /// The call whose reply is wanted. Without one, no reply can wake the thread: it must lead.
    pub(in crate::calls) id: Option<u64>,
    /// Whether queued bytes are to be written.
    pub(in crate::calls) write: bool,
}

/// One sleep of a thread on one connection.
pub(in crate::calls) struct Turn {
    pub(in crate::calls) watch: Watch,
    pub(in crate::calls) process: Option<Arc<OwnedFd>>,
    /// What marks this thread as the reader, if it is.
    pub(in crate::calls) lead: Option<Reader>,
    /// This thread reads, and the stream holds received bytes, for which the socket does not become readable.
    pub(in crate::calls) buffered: bool,
}

/// Unlock, wait once, lock again by `relock`, then read and write what can be.
///
/// # Errors
/// `Closed` with the `peer`'s name, `Interrupted`, those of `relock`.
pub(super) fn turn<'a>(
    peer: &str,
    mut state: Guard<'a>,
    relock: impl FnOnce() -> Result<Guard<'a>>,
    wait_for: WaitFor,
    deadline: Option<Instant>,
) -> Result<Guard<'a>> {
    let wake = wait_for.id.map(|_| thread_wakeup()).transpose()?;
    let turn = begin_turn(peer, &mut state, wait_for, wake.as_ref())?;
    let mut look = state.sleeping().look();
    let returns = state.lending().returns();
    release(state);
    let watched = (turn.watch.as_fd(), turn.process.as_deref(), wake.as_deref());
    let lead = turn.lead.is_some();
    let woken = if turn.buffered {
        Ok(Woken {
            readable: true,
            writable: wait_for.write,
            peer_died: false,
        })
    } else {
        let tidy = || {
            if let Some(returns) = &returns {
                let _ = returns.restore(); // a failure is retried when the next segment is opened
            }
        };
        sleep(watched, (lead, wait_for.write), deadline, &mut look, tidy)
    };
    let mut state = relock()?;
    if lead {
        state.sleeping().learn(look);
    }
    match woken {
        Ok(woken) => {
            end_turn(&mut state, &turn, woken);
            Ok(state)
        }
        Err(error) => {
            end_turn(&mut state, &turn, Woken::default());
            end_wait(state, wait_for.id);
            Err(error)
        }
    }
}

/// Become the reader if there is none, or follow the current one.
///
/// # Errors
/// `Closed` with the `peer`'s name.
pub(in crate::calls) fn begin_turn(
    peer: &str,
    state: &mut ConnectionState<Wire>,
    wait_for: WaitFor,
    wake: Option<&Arc<Wakeup>>,
) -> Result<Turn> {
    let Some(watch) = state.link.stream().map(Wire::watch) else {
        return Err(Error::Closed {
            peer: peer.to_owned(),
        });
    };
    let leads = state.reader() == Reader::None && state.wants_read();
    let lead = state.waiters().enter(leads, wait_for.id.zip(wake));
    Ok(Turn {
        watch,
        process: state.sleeping().process().cloned(),
        lead,
        buffered: leads && state.link.holds_received(),
    })
}

/// Unlock and leave: this thread no longer waits for call `id`, or at all, and another one becomes the reader.
///
/// Every wait ends here. A follower sleeps on its eventfd alone: if none is promoted when the last leader leaves, it
/// sleeps for ever, and if the peer waits until its output is read, so does the peer.
pub(in crate::calls) fn end_wait(mut state: Guard<'_>, id: Option<u64>) {
    state.waiters().end(id);
    release(state);
}

/// Stop being the reader after a sleep, then read and write what the sleep was for.
pub(in crate::calls) fn end_turn(state: &mut ConnectionState<Wire>, turn: &Turn, woken: Woken) {
    let leads = state.waiters().leave(turn.lead);
    if woken.peer_died {
        state.peer_died();
        return;
    }
    if woken.readable && leads {
        state.receive();
    }
    if woken.writable {
        state.flush();
    }
}
