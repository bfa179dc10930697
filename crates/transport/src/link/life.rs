//! The life of a link: which direction still works, and why it ended.
//!
//! ```text
//! New ──connect──▶ Opening ──preface, and the token where one is required──▶ Open
//!  │                  │                                                       │
//!  └──────────────────┴──────────────── the peer sends nothing more ──────────┤
//!                                                                             ▼
//!      any but Broken ──fault──▶ Broken ──send a last word──▶ Ended ◀─────────┘
//! ```
//!
//! `New` has no stream: a send fails there, so that the link of a server ends. `Opening` and `Open` receive; `Ended` only
//! sends; `Broken` does neither. Nothing leads back to receiving. `Ended` and `Broken` remember whether the link was open
//! before.

use crate::error::Fault;

/// Where a link is in its life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// It has no stream yet.
    #[default]
    New,
    /// The peer's preface is awaited, or the token that this end requires.
    Opening,
    /// The peer is admitted.
    Open,
    /// The peer sends nothing more.
    Ended { opened: bool },
    /// Nothing is sent or received any more.
    Broken { opened: bool, fault: Fault },
}

impl Life {
    /// There is a stream.
    pub fn connect(&mut self) {
        if *self == Self::New {
            *self = Self::Opening;
        }
    }

    /// The peer is admitted.
    pub fn open(&mut self) {
        if *self == Self::Opening {
            *self = Self::Open;
        }
    }

    /// The peer sends nothing more.
    pub fn end(&mut self) {
        if !self.is_broken() {
            *self = Self::Ended {
                opened: self.has_opened(),
            };
        }
    }

    /// Nothing works any more; the first fault stays.
    pub fn break_with(&mut self, fault: Fault) {
        if !self.is_broken() {
            *self = Self::Broken {
                opened: self.has_opened(),
                fault,
            };
        }
    }

    /// Send on after a fault, and receive nothing.
    pub fn send_despite_fault(&mut self) {
        if let Self::Broken { opened, .. } = *self {
            *self = Self::Ended { opened };
        }
    }

    /// Whether bytes of the peer are received and decoded.
    #[inline]
    pub fn receives(&self) -> bool {
        matches!(self, Self::Opening | Self::Open)
    }

    /// Whether the peer has still to be admitted.
    #[inline]
    pub fn is_opening(&self) -> bool {
        matches!(self, Self::Opening)
    }

    /// Whether the peer was admitted, and the link is not broken.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open | Self::Ended { opened: true })
    }

    /// Whether the peer was admitted, even if the link broke since.
    pub fn has_opened(&self) -> bool {
        self.is_open() || matches!(self, Self::Broken { opened: true, .. })
    }

    /// Whether the peer sends nothing more and this end may still send.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    #[inline]
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// Why it broke, if it did.
    #[inline]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Broken { fault, .. } => Some(fault),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Cause;

    fn after(steps: &[fn(&mut Life)]) -> Life {
        let mut life = Life::New;
        for step in steps {
            step(&mut life);
        }
        life
    }

    fn close(life: &mut Life) {
        life.break_with(Fault::Closed);
    }

    const EVERY: [fn(&mut Life); 5] = [
        Life::connect,
        Life::open,
        Life::end,
        close,
        Life::send_despite_fault,
    ];

    fn broken(opened: bool) -> Life {
        Life::Broken {
            opened,
            fault: Fault::Closed,
        }
    }

    #[test]
    fn each_event_leads_where_the_diagram_says() {
        use Life::{Ended, New, Open, Opening};
        let (unopened, opened) = (Ended { opened: false }, Ended { opened: true });
        // After connect, open, end, a fault, and a last word.
        let table = [
            (New, [Opening, New, unopened.clone(), broken(false), New]),
            (
                Opening,
                [Opening, Open, unopened.clone(), broken(false), Opening],
            ),
            (Open, [Open, Open, opened.clone(), broken(true), Open]),
            (
                unopened.clone(),
                [
                    unopened.clone(),
                    unopened.clone(),
                    unopened.clone(),
                    broken(false),
                    unopened.clone(),
                ],
            ),
            (
                opened.clone(),
                [
                    opened.clone(),
                    opened.clone(),
                    opened.clone(),
                    broken(true),
                    opened.clone(),
                ],
            ),
            (
                broken(false),
                [
                    broken(false),
                    broken(false),
                    broken(false),
                    broken(false),
                    unopened,
                ],
            ),
            (
                broken(true),
                [
                    broken(true),
                    broken(true),
                    broken(true),
                    broken(true),
                    opened,
                ],
            ),
        ];
        for (before, expected) in table {
            let found = EVERY.map(|event| {
                let mut life = before.clone();
                event(&mut life);
                life
            });
            assert_eq!(found, expected, "from {before:?}");
        }
    }

    #[test]
    fn only_an_opening_or_open_link_receives() {
        let lives = [
            (after(&[]), false),
            (after(&[Life::connect]), true),
            (after(&[Life::connect, Life::open]), true),
            (after(&[Life::connect, Life::end]), false),
            (after(&[Life::connect, Life::open, Life::end]), false),
            (after(&[Life::connect, close]), false),
            (
                after(&[Life::connect, close, Life::send_despite_fault]),
                false,
            ),
        ];
        for (life, receives) in lives {
            assert_eq!(life.receives(), receives, "{life:?}");
        }
    }

    #[test]
    fn the_first_fault_stays_and_whether_it_was_open() {
        let mut life = after(&[Life::connect, Life::open, close]);
        life.break_with(Fault::Broken(Cause::PeerDied));
        assert_eq!(life.fault(), Some(&Fault::Closed));
        assert!(life.is_broken() && life.has_opened() && !life.is_open());
        assert!(!after(&[Life::connect, close]).has_opened());
        assert!(!life.has_ended() && life != Life::default());
    }

    #[test]
    fn an_end_keeps_a_link_open_that_was() {
        let ended = after(&[Life::connect, Life::open, Life::end]);
        assert!(ended.has_ended() && ended.is_open() && ended.fault().is_none());
        let never = after(&[Life::connect, Life::end]);
        assert!(never.has_ended() && !never.is_open() && !never.is_opening());
    }
}
