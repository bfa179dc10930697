//! Writes msgpack, each value in its shortest form.

/// Msgpack that is being written.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Room for `bytes` without growing.
    pub fn with_room(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// How many bytes were written.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub fn nil(&mut self) -> &mut Self {
        self.0.push(0xc0);
        self
    }

    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.0.push(if value { 0xc3 } else { 0xc2 });
        self
    }

    pub fn unsigned(&mut self, value: u64) -> &mut Self {
        if let Ok(value) = u8::try_from(value) {
            if value >= 0x80 {
                self.0.push(0xcc);
            }
            self.0.push(value);
        } else if let Ok(value) = u16::try_from(value) {
            self.tagged(0xcd, &value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.tagged(0xce, &value.to_be_bytes());
        } else {
            self.tagged(0xcf, &value.to_be_bytes());
        }
        self
    }

    pub fn integer(&mut self, value: i64) -> &mut Self {
        if let Ok(value) = u64::try_from(value) {
            return self.unsigned(value);
        }
        if let Ok(value) = i8::try_from(value) {
            if value < -32 {
                self.0.push(0xd0);
            }
            self.0.push(value.cast_unsigned());
        } else if let Ok(value) = i16::try_from(value) {
            self.tagged(0xd1, &value.to_be_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.tagged(0xd2, &value.to_be_bytes());
        } else {
            self.tagged(0xd3, &value.to_be_bytes());
        }
        self
    }

    pub fn float(&mut self, value: f64) -> &mut Self {
        self.tagged(0xcb, &value.to_be_bytes());
        self
    }

    /// Text, at most 4 GiB.
    pub fn text(&mut self, text: &str) -> &mut Self {
        match u8::try_from(text.len()) {
            Ok(length @ ..=31) => self.0.push(0xa0 | length),
            Ok(length) => self.0.extend([0xd9, length]),
            Err(_) => self.length(0xda, text.len()),
        }
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Bytes, at most 4 GiB: a blob above 64 KiB goes as a segment.
    pub fn binary(&mut self, bytes: &[u8]) -> &mut Self {
        match u8::try_from(bytes.len()) {
            Ok(length) => self.0.extend([0xc4, length]),
            Err(_) => self.length(0xc5, bytes.len()),
        }
        self.0.extend_from_slice(bytes);
        self
    }

    /// An array's head; its values follow.
    pub fn array(&mut self, count: usize) -> &mut Self {
        match u8::try_from(count) {
            Ok(count @ ..=15) => self.0.push(0x90 | count),
            _ => self.length(0xdc, count),
        }
        self
    }

    /// A map's head; its pairs follow.
    pub fn map(&mut self, count: usize) -> &mut Self {
        match u8::try_from(count) {
            Ok(count @ ..=15) => self.0.push(0x80 | count),
            _ => self.length(0xde, count),
        }
        self
    }

    pub fn ext(&mut self, kind: i8, bytes: &[u8]) -> &mut Self {
        match u8::try_from(bytes.len()) {
            Ok(length) => self.0.extend([0xc7, length]),
            Err(_) => self.length(0xc8, bytes.len()),
        }
        self.0.push(kind.cast_unsigned());
        self.0.extend_from_slice(bytes);
        self
    }

    /// A value that is msgpack already.
    pub fn raw(&mut self, encoded: &[u8]) -> &mut Self {
        self.0.extend_from_slice(encoded);
        self
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
    }

    /// A length of 16 bits behind `tag`, of 32 behind the next one.
    fn length(&mut self, tag: u8, length: usize) {
        debug_assert!(u32::try_from(length).is_ok(), "msgpack ends at 4 GiB");
        match u16::try_from(length) {
            Ok(length) => self.tagged(tag, &length.to_be_bytes()),
            #[allow(clippy::cast_possible_truncation)] // asserted above
            Err(_) => self.tagged(tag + 1, &(length as u32).to_be_bytes()),
        }
    }
}
