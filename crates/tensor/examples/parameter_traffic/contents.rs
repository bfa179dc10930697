//! What a tensor holds, so that both sides know it: each word tells its server, its tensor and its place.

/// The bytes of a tensor.
pub fn of(server: usize, tensor: usize, bytes: usize) -> Vec<u8> {
    let name = (server as u64) << 48 | (tensor as u64) << 32;
    (0..bytes as u64 / 8)
        .flat_map(|word| (name | word).to_le_bytes())
        .collect()
}
