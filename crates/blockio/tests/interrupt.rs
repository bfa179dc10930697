//! A blocking call that a signal interrupts.
mod engine;
mod sys;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};

use engine::{Engine, Folder, await_until, pattern, read};
use forebay_blockio::{Error, Files, GivingUp, Keeper};
use sys::{Loan, handle_signal, signal};

/// Gives up at the second signal.
struct AtSecond {
    loan: Loan,
    seen: Arc<AtomicU32>,
}

impl GivingUp for AtSecond {
    fn interrupted(&mut self) -> bool {
        self.seen.fetch_add(1, Ordering::SeqCst) == 1
    }

    fn keeper(&mut self) -> Keeper {
        self.loan.keeper()
    }
}

/// Signal a thread until it has seen `count` of them: the first may come before it waits.
fn signal_until<T>(thread: &JoinHandle<T>, seen: &AtomicU32, count: u32) {
    await_until("the call was not interrupted", || {
        let saw = seen.load(Ordering::SeqCst);
        if saw < count && !thread.is_finished() {
            signal(thread);
        }
        saw >= count
    });
}

/// Give a read from a pipe up, and look at its memory; returns whether the read was in flight by then.
fn give_up(engine: &Arc<Engine>) -> bool {
    let folder = Folder::new();
    let pipe = folder.pipe();
    let loan = Loan::new(&[read(0, 0, 4)], 4);
    let seen = Arc::new(AtomicU32::new(0));
    let mut giving_up = AtSecond {
        loan: loan.clone(),
        seen: Arc::clone(&seen),
    };
    let batch = loan.batch(Files::One(pipe.file.clone()), false);
    let inside = Arc::clone(engine);
    let caller = Builder::new().spawn(move || inside.queue.run(batch, &mut giving_up));
    let caller = caller.expect("there is a thread");
    signal_until(&caller, &seen, 2);
    let outcome = caller.join().expect("it does not panic");
    assert_eq!(
        seen.load(Ordering::SeqCst),
        2,
        "the first was waited through"
    );
    let Err(Error::Interrupted { left }) = outcome else {
        panic!("{outcome:?}");
    };
    if left > 0 && !engine.queue.availability().ring {
        assert_eq!(loan.owners(), 2, "the read may still be carried out");
        assert_eq!(engine.queue.stats().quarantined_batches, 1);
        pipe.write(b"late");
    }
    // A ring has ended with its thread, which cancelled the read.
    await_until("the memory was not given back", || loan.owners() == 1);
    assert_eq!(engine.queue.stats().quarantined_batches, 0);
    left > 0
}

/// Whoever presses Ctrl-C gets the prompt back, and the memory is kept from others until the read has ended.
fn a_call_that_waits_can_be_given_up(engine: Engine) {
    handle_signal();
    let engine = Arc::new(engine);
    // The signals may come before the read.
    await_until("the read was never in flight", || give_up(&engine));
}

/// Gives up as soon as it is asked, without a signal.
struct AtOnce(Loan);

impl GivingUp for AtOnce {
    fn interrupted(&mut self) -> bool {
        true
    }

    fn keeper(&mut self) -> Keeper {
        self.0.keeper()
    }
}

/// Ctrl-C must not wait for the end of a list of millions of blocks, which are cached and so never waited for.
fn a_long_list_can_be_given_up_before_its_end(engine: &Engine) {
    let folder = Folder::new();
    let file = folder.file(&pattern(4096), false);
    let loan = Loan::new(&vec![read(0, 0, 1); 200_000], 1);
    let batch = loan.batch(Files::One(file), false);
    let outcome = engine.queue.run(batch, &mut AtOnce(loan.clone()));
    assert!(
        matches!(outcome, Err(Error::Interrupted { .. })),
        "{outcome:?}"
    );
    let results = loan.results();
    assert_eq!(
        (results[0], results[199_999]),
        (1, -i64::from(libc::ECANCELED))
    );
    engine.queue.close();
    assert_eq!(loan.owners(), 1);
}

#[test]
fn a_long_list_of_a_ring_can_be_given_up_before_its_end() {
    a_long_list_can_be_given_up_before_its_end(&Engine::ring());
}

#[test]
fn a_long_list_of_threads_can_be_given_up_before_its_end() {
    a_long_list_can_be_given_up_before_its_end(&Engine::threads());
}

#[test]
fn a_call_that_waits_for_threads_can_be_given_up() {
    a_call_that_waits_can_be_given_up(Engine::threads());
}

#[test]
fn a_call_that_waits_for_its_ring_can_be_given_up() {
    a_call_that_waits_can_be_given_up(Engine::ring());
}
