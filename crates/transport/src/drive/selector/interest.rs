//! The interest in a descriptor, and its readiness.

use rustix::event::epoll::EventFlags;

/// Reading, writing, both or none; the numbers are those of Python's `selectors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const BOTH: Self = Self(3);

    /// From 0 to 3; `None` for any other number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= Self::BOTH.0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    pub const fn bits(self) -> u8 {
        self.0
    }

    pub(super) fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.0 & Self::READ.0 != 0);
        flags.set(EventFlags::OUT, self.0 & Self::WRITE.0 != 0);
        flags
    }

    /// The part of this interest that is ready. Errors and hang-ups make everything ready, so that the
    /// waiting side finds them by trying.
    pub(super) fn ready(self, flags: EventFlags) -> Self {
        let mut bits = 0;
        if flags.intersects(!EventFlags::OUT) {
            bits |= Self::READ.0;
        }
        if flags.intersects(!EventFlags::IN) {
            bits |= Self::WRITE.0;
        }
        Self(bits & self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_make_ready_for_what_is_wanted() {
        let both = Interest::BOTH;
        assert_eq!(both.ready(EventFlags::IN), Interest::READ);
        assert_eq!(both.ready(EventFlags::OUT), Interest::WRITE);
        assert_eq!(both.ready(EventFlags::HUP), both);
        assert_eq!(
            Interest::WRITE.ready(EventFlags::IN | EventFlags::ERR),
            Interest::WRITE
        );
        assert_eq!(Interest::NONE.ready(EventFlags::HUP), Interest::NONE);
    }

    #[test]
    fn only_two_bits_are_known() {
        assert_eq!(Interest::from_bits(3), Some(Interest::BOTH));
        assert_eq!(Interest::from_bits(4), None);
    }
}
