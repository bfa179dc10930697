//! Copying memory where the processor's own copy instruction is slow.

use std::ptr;

/// A target so little behind its source, counted within pages of 4 KiB, is slow for `rep movsb`.
const SLOW_BYTES: usize = 32;

/// Above this the C library copies by `rep movsb`.
const STRING_BYTES: usize = 2048;

/// Copy `bytes` from `source` to `target`; overlapping memory is copied as by `memmove`.
///
/// glibc copies 2 KiB to 1 MiB by `rep movsb`, which AMD's processors from Zen 3 on do at a tenth of their speed where
/// the target's address within its page is up to 31 bytes above the source's (glibc bug 30994; it knows of that from
/// 2.40 on). It is the usual case here: a tensor lies at the beginning of a page, and numpy's memory 16 bytes behind
/// one. 64 KiB then take 45 us by `memcpy`, and 4.6 us so.
///
/// # Safety
/// `bytes` must be readable at `source` and writable at `target`, for as long as this runs.
#[inline]
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    if bytes > STRING_BYTES && is_slow(source.addr(), target.addr(), bytes) {
        // SAFETY: as the caller promises, and the ranges were found to be apart.
        unsafe { copy_by_words(source, target, bytes) };
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { ptr::copy(source, target, bytes) };
}

/// Whether `rep movsb` is slow from here to there; never where the ranges overlap.
fn is_slow(source: usize, target: usize, bytes: usize) -> bool {
    let behind = target.wrapping_sub(source);
    let apart = behind >= bytes && source.wrapping_sub(target) >= bytes;
    (1..SLOW_BYTES).contains(&(behind % 4096)) && apart
}

/// Copy 64 bytes a round by plain loads and stores.
///
/// The compiler must make no `memcpy` of the loop: apart from its callers it cannot know that the ranges do not overlap.
#[inline(never)]
unsafe fn copy_by_words(source: *const u8, target: *mut u8, bytes: usize) {
    const ROUND: usize = 64;
    let whole = bytes - bytes % ROUND;
    for at in (0..whole).step_by(ROUND) {
        // SAFETY: the round lies within `bytes`, and an array of bytes may be at any address.
        unsafe {
            let words = source.add(at).cast::<[u8; ROUND]>().read();
            target.add(at).cast::<[u8; ROUND]>().write(words);
        }
    }
    // SAFETY: the rest lies within `bytes` too; the ranges are apart.
    unsafe { ptr::copy_nonoverlapping(source.add(whole), target.add(whole), bytes - whole) };
}

#[cfg(test)]
mod tests {
    use super::copy;

    const PAGE: usize = 4096;

    /// Bytes that begin at a page, of which the last two pages are room.
    fn pages(bytes: usize) -> (Vec<u8>, usize) {
        let memory = vec![0; bytes + 3 * PAGE];
        let first = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        (memory, first)
    }

    fn fill(memory: &mut [u8]) {
        let numbers = (1..=251).cycle();
        memory
            .iter_mut()
            .zip(numbers)
            .for_each(|(byte, number)| *byte = number);
    }

    #[test]
    fn every_byte_comes_and_none_beside_it_changes() {
        let sizes = if cfg!(miri) {
            &[2_049, 4_000][..]
        } else {
            &[1, 2_048, 2_049, 2_112, 4_095, 65_536, 1 << 20]
        };
        for &bytes in sizes {
            let (mut source, from) = pages(bytes);
            let (mut target, to) = pages(bytes);
            fill(&mut source);
            for apart in [0, 1, 16, 31, 32, 100, 4_080] {
                target.fill(0);
                let slices = (&source[from..from + bytes], &mut target[to + apart..]);
                // SAFETY: the target is long enough for the largest of these distances.
                unsafe { copy(slices.0.as_ptr(), slices.1.as_mut_ptr(), bytes) };
                let (before, rest) = target.split_at(to + apart);
                let (copied, after) = rest.split_at(bytes);
                assert_eq!(
                    copied,
                    &source[from..from + bytes],
                    "{bytes} bytes, {apart} apart"
                );
                assert!(before.iter().chain(after).all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn memory_that_overlaps_is_moved() {
        let (mut memory, first) = pages(2 * PAGE);
        fill(&mut memory);
        for (from, to) in [(0, 16), (16, 0), (0, PAGE + 16), (PAGE + 16, 0)] {
            let expected = memory[first + from..][..2 * PAGE].to_vec();
            let start = memory[first..].as_mut_ptr();
            // SAFETY: both ranges lie within the memory, which has three pages beyond two.
            unsafe { copy(start.add(from), start.add(to), 2 * PAGE) };
            assert_eq!(&memory[first + to..][..2 * PAGE], &expected[..]);
        }
    }
}
