//! Adding rows to rows, element by element, at any alignment.
use std::ptr;

use super::span::Span;
use crate::dtype::Number;

/// Add `count` elements of `values` to those of `memory`.
///
/// # Safety
///
/// Both have room for `count` elements of `T`, of which any bytes are one.
unsafe fn add_each<T: Copy>(
    memory: *mut u8,
    values: *const u8,
    count: usize,
    add: impl Fn(T, T) -> T,
) {
    let memory = memory.cast::<T>();
    let values = values.cast::<T>();
    for at in 0..count {
        // SAFETY: in range as promised; at any alignment, and by value, so no reference is made.
        unsafe {
            let place = memory.add(at);
            ptr::write_unaligned(
                place,
                add(place.read_unaligned(), values.add(at).read_unaligned()),
            );
        }
    }
}

/// Whether elements of this kind and size can be added.
pub(crate) fn can_add(number: Number, item_bytes: u32) -> bool {
    match number {
        Number::Opaque => false,
        Number::Signed | Number::Unsigned => matches!(item_bytes, 1 | 2 | 4 | 8),
        Number::Float => matches!(item_bytes, 2 | 4 | 8),
        Number::Complex => matches!(item_bytes, 8 | 16),
    }
}

/// Add the elements of `values` to those of `memory`. Integers wrap round.
///
/// # Panics
///
/// Where the sizes differ, or elements of this kind cannot be added.
pub(crate) fn add(memory: Span, values: Span, number: Number, item_bytes: u32) {
    assert_eq!(memory.bytes(), values.bytes(), "as many values as elements");
    let (to, from) = (
        memory.address().as_ptr(),
        values.address().as_ptr().cast_const(),
    );
    // Of a complex number both halves are added, each as a number of half the size.
    let (number, item_bytes) = match number {
        Number::Complex => (Number::Float, item_bytes / 2),
        other => (other, item_bytes),
    };
    let count = memory.bytes() / item_bytes as usize;
    // SAFETY: both are readable, and `memory` writable, as their makers promised, with room for `count` elements.
    unsafe {
        match (number, item_bytes) {
            // Adding is the same with and without a sign.
            (Number::Signed | Number::Unsigned, 1) => add_each(to, from, count, u8::wrapping_add),
            (Number::Signed | Number::Unsigned, 2) => add_each(to, from, count, u16::wrapping_add),
            (Number::Signed | Number::Unsigned, 4) => add_each(to, from, count, u32::wrapping_add),
            (Number::Signed | Number::Unsigned, 8) => add_each(to, from, count, u64::wrapping_add),
            (Number::Float, 2) => add_each(to, from, count, add_half),
            (Number::Float, 4) => add_each(to, from, count, |a: f32, b: f32| a + b),
            (Number::Float, 8) => add_each(to, from, count, |a: f64, b: f64| a + b),
            _ => unreachable!("checked with can_add"),
        }
    }
}

/// The sum of two numbers of 16 bits, rounded once.
fn add_half(a: u16, b: u16) -> u16 {
    // Exact: a sum of two has at most 42 significant bits.
    to_half(from_half(a) + from_half(b))
}

fn from_half(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(half >> 10 & 0x1f);
    let fraction = f64::from(half & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// The nearest number of 16 bits; of two equally near the even one.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded by the branches
fn to_half(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    if value.is_nan() {
        return 0x7e00;
    }
    // Half a step above the largest number.
    if size >= 65_520.0 {
        return sign | 0x7c00;
    }
    // The exponent of the step: one for all numbers below the normal ones.
    let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(-14);
    let steps = (size * 2f64.powi(10 - exponent)).round_ties_even() as u32;
    // A number that was rounded up to the next exponent carries into it by itself.
    let biased = (exponent + 14) as u32;
    sign | ((biased << 10) + steps) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum<const N: usize>(
        memory: &[u8; N],
        values: &[u8; N],
        number: Number,
        item: u32,
    ) -> [u8; N] {
        // One byte in front, so that nothing is aligned.
        let mut buffer = vec![0; N + 1];
        buffer[1..].copy_from_slice(memory);
        add(
            Span::of(&mut buffer[1..]),
            Span::sending(values),
            number,
            item,
        );
        buffer[1..].try_into().expect("as long as before")
    }

    #[test]
    fn integers_of_every_size_wrap_round() {
        assert_eq!(sum(&[255, 1], &[2, 2], Number::Unsigned, 1), [1, 3]);
        let near = i16::MAX.to_le_bytes();
        assert_eq!(
            sum(&near, &1i16.to_le_bytes(), Number::Signed, 2),
            i16::MIN.to_le_bytes()
        );
        assert_eq!(
            sum(
                &(-5i32).to_le_bytes(),
                &3i32.to_le_bytes(),
                Number::Signed,
                4
            ),
            (-2i32).to_le_bytes()
        );
        assert_eq!(
            sum(
                &u64::MAX.to_le_bytes(),
                &1u64.to_le_bytes(),
                Number::Unsigned,
                8
            ),
            [0; 8]
        );
    }

    #[test]
    fn floats_and_complex_numbers_are_added() {
        assert_eq!(
            sum(
                &1.5f32.to_le_bytes(),
                &0.25f32.to_le_bytes(),
                Number::Float,
                4
            ),
            1.75f32.to_le_bytes()
        );
        assert_eq!(
            sum(
                &1e300f64.to_le_bytes(),
                &1e300f64.to_le_bytes(),
                Number::Float,
                8
            ),
            2e300f64.to_le_bytes()
        );
        let pair = |a: f32, b: f32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&a.to_le_bytes());
            bytes[4..].copy_from_slice(&b.to_le_bytes());
            bytes
        };
        assert_eq!(
            sum(&pair(1.0, 2.0), &pair(0.5, -1.0), Number::Complex, 8),
            pair(1.5, 1.0)
        );
    }

    #[test]
    fn every_half_comes_back_as_it_was() {
        for half in 0..=u16::MAX {
            let value = from_half(half);
            if value.is_nan() {
                assert!(from_half(to_half(value)).is_nan());
            } else {
                assert_eq!(to_half(value), half, "{value}");
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_the_nearest_even() {
        assert_eq!(to_half(2049.0), to_half(2048.0));
        assert_eq!(to_half(2051.0), to_half(2052.0));
        assert_eq!(to_half(65_519.0), 0x7bff);
        assert_eq!(to_half(65_520.0), 0x7c00);
        assert_eq!(to_half(2f64.powi(-25)), 0);
        assert_eq!(to_half(2f64.powi(-25) * 1.5), 1);
        assert_eq!(add_half(to_half(1.0), to_half(2.0)), to_half(3.0));
    }
}
