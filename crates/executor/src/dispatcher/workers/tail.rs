//! The last output of a worker, which is reported with its death.

use crate::dispatcher::limit::LAST_OUTPUT_BYTES;

/// The last bytes of a stream.
#[derive(Clone, Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    pub fn add(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(LAST_OUTPUT_BYTES)..];
        let over = (self.0.len() + bytes.len()).saturating_sub(LAST_OUTPUT_BYTES);
        self.0.drain(..over);
        self.0.extend_from_slice(bytes);
    }

    /// Forget it: a new run begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// As text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_bytes_stay() {
        let mut tail = Tail::default();
        tail.add(b"first");
        tail.add(&vec![b'x'; LAST_OUTPUT_BYTES - 1]);
        assert!(tail.text().starts_with("tx") && tail.text().len() == LAST_OUTPUT_BYTES);
        tail.add(&vec![b'y'; 2 * LAST_OUTPUT_BYTES]);
        assert_eq!(tail.text(), "y".repeat(LAST_OUTPUT_BYTES));
        tail.clear();
        assert_eq!(tail.text(), "");
    }
}
