//! What a descriptor is ready for at this moment.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::time::timespec;

/// What of `asked` a descriptor is ready for now, an error and a hang-up in any case; it never waits.
///
/// Nothing where poll(2) itself fails, as it does without memory: who asks looks again later.
/// Cost: one system call.
pub fn readiness(descriptor: impl AsFd, asked: PollFlags) -> PollFlags {
    let now = timespec(Duration::ZERO);
    let mut polled = [PollFd::new(&descriptor, asked)];
    match poll(&mut polled, Some(&now)) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use rustix::event::PollFlags;

    use super::readiness;

    #[test]
    fn what_has_come_and_what_has_ended_are_told_apart() {
        let (here, mut there) = UnixStream::pair().unwrap();
        assert_eq!(readiness(&here, PollFlags::IN), PollFlags::empty());
        there.write_all(b"x").unwrap();
        assert_eq!(readiness(&here, PollFlags::IN), PollFlags::IN);
        assert_eq!(readiness(&here, PollFlags::empty()), PollFlags::empty());
        drop(there);
        assert_eq!(readiness(&here, PollFlags::empty()), PollFlags::HUP);
    }
}
