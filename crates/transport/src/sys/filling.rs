//! A borrowed slice that is filled from the front.

use std::mem::MaybeUninit;

/// Borrowed memory of which the first `len` bytes are initialised.
pub struct Filling<'a> {
    into: &'a mut [MaybeUninit<u8>],
    len: usize,
}

impl<'a> Filling<'a> {
    /// Nothing of it is initialised yet.
    pub fn new(into: &'a mut [MaybeUninit<u8>]) -> Self {
        Self { into, len: 0 }
    }

    /// Initialised bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that may still be appended.
    pub fn room(&self) -> usize {
        self.into.len() - self.len
    }

    /// Append as much of `bytes` as there is room for; returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        let start = self.into[self.len..].as_mut_ptr().cast::<u8>();
        // SAFETY: `count` bytes are readable in `bytes` and writable from `start`, and an exclusively
        // borrowed slice cannot overlap a shared one.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), count) };
        self.len += count;
        count
    }

    /// Let `receive` write into the next `limit` free bytes, and append what it returns as initialised.
    ///
    /// # Errors
    /// Those of `receive`.
    ///
    /// # Panics
    /// If `receive` returns a slice that is not a prefix of the one it got.
    pub fn receive_with<E>(
        &mut self,
        limit: usize,
        receive: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> Result<&'b mut [u8], E>,
    ) -> Result<usize, E> {
        let limit = limit.min(self.room());
        let spare = &mut self.into[self.len..self.len + limit];
        let start = spare.as_ptr().cast::<u8>();
        let filled = receive(spare)?;
        let count = filled.len();
        assert!(
            count == 0 || (filled.as_ptr() == start && count <= limit),
            "not a prefix"
        );
        self.len += count;
        Ok(count)
    }

    /// The initialised bytes.
    pub fn finish(self) -> &'a mut [u8] {
        let filled = &mut self.into[..self.len];
        // SAFETY: `append` and `receive_with` have initialised the first `len` bytes, and
        // MaybeUninit<u8> has the layout of u8.
        unsafe { &mut *(std::ptr::from_mut(filled) as *mut [u8]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_and_received_bytes_come_out_in_order_up_to_the_room() {
        let mut memory = [MaybeUninit::new(9u8); 8];
        let mut filling = Filling::new(&mut memory);
        assert_eq!(filling.append(b"abc"), 3);
        let received = filling.receive_with(2, |spare| {
            assert_eq!(spare.len(), 2);
            let mut inner = Filling::new(spare);
            inner.append(b"de");
            Ok::<_, ()>(inner.finish())
        });
        assert_eq!((received, filling.room()), (Ok(2), 3));
        assert_eq!(filling.append(b"fghij"), 3);
        assert_eq!(filling.finish(), b"abcdefgh");
    }
}
