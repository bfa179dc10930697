//! Memory that tests lend to machines, and bytes that go from one to another.
use std::ptr::NonNull;

use forebay_tensor::Span;

/// Memory that is lent to machines for the length of a test.
pub struct Loan(Box<[u8]>);

impl Loan {
    #[allow(dead_code)] // of tests that fill memory themselves
    pub fn new(bytes: usize) -> Self {
        Self((0..=250).cycle().take(bytes).collect())
    }

    /// All of it.
    pub fn span(&mut self) -> Span {
        let start = NonNull::from(&mut *self.0).cast();
        // SAFETY: the test keeps it until the machines are gone, and looks at it between their steps only.
        unsafe { Span::new(start, self.0.len()) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Loan {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

/// Move what `from` names to where `to` says, as a socket does; returns how many bytes went.
pub fn carry(from: &[Span], to: &[Span]) -> usize {
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (Span::EMPTY, Span::EMPTY);
    let mut moved = 0;
    loop {
        while source.bytes() == 0 {
            let Some(next) = from.next() else {
                return moved;
            };
            source = next;
        }
        while target.bytes() == 0 {
            let Some(next) = to.next() else {
                return moved;
            };
            target = next;
        }
        let count = source.bytes().min(target.bytes());
        // SAFETY: machines give memory that is valid until they are changed; two of them share none.
        unsafe {
            target
                .address()
                .as_ptr()
                .copy_from_nonoverlapping(source.address().as_ptr(), count);
        }
        (source, target) = (source.after(count), target.after(count));
        moved += count;
    }
}
