//! Room for the events of an epoll set.

use rustix::event::epoll::Event;

/// Events whose data are numbers.
#[derive(Default)]
pub struct Events(Vec<Event>);

// SAFETY: an event is not `Send` because its data may be a pointer. Here they are what was given
// to the kernel, and `selector::Set`, which alone fills this, gives it numbers.
unsafe impl Send for Events {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Events {}

impl Events {
    /// Have room for at least `count` of them.
    pub fn reserve(&mut self, count: usize) {
        self.0.clear();
        self.0.reserve(count);
    }

    /// Whether a wait brought nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a wait brought.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.0.iter()
    }

    /// The memory, for a wait to fill.
    pub(crate) fn room(&mut self) -> &mut Vec<Event> {
        self.0.clear();
        &mut self.0
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
