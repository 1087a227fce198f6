//! Comparing sixteen values at once.

/// Which of sixteen bytes are equal to one, as bits.
#[inline(always)]
pub fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2, and sixteen bytes are read where sixteen are.
    unsafe {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    bits(bytes.iter().map(|&other| other == byte))
}

/// Which of sixteen halves (two bytes each, lower first) are equal to one, as bits.
#[inline(always)]
pub fn equal_halves(halves: &[u8; 32], half: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2, and 32 bytes are read where 32 are.
    unsafe {
        use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};
        let wanted = _mm_set1_epi16(half as i16);
        let lower = _mm_cmpeq_epi16(_mm_loadu_si128(halves.as_ptr().cast()), wanted);
        let upper = _mm_cmpeq_epi16(_mm_loadu_si128(halves.as_ptr().add(16).cast()), wanted);
        _mm_movemask_epi8(_mm_packs_epi16(lower, upper)) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    bits(halves.as_chunks::<2>().0.iter().map(|&other| u16::from_le_bytes(other) == half))
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn bits(equal: impl Iterator<Item = bool>) -> u32 {
    equal.enumerate().fold(0, |bits, (at, equal)| bits | u32::from(equal) << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_found() {
        let bytes: [u8; 16] = std::array::from_fn(|at| [7, 255, 0, 128][at * 3 % 4]);
        let halves: [u8; 32] = std::array::from_fn(|at| [1, 255, 1, 0, 0, 128, 255, 127][at * 7 % 8]);
        for wanted in 0..=u8::MAX {
            assert_eq!(equal_bytes(&bytes, wanted), bits(bytes.iter().map(|&byte| byte == wanted)));
        }
        for wanted in (0..=u16::MAX).step_by(if cfg!(miri) { 13 } else { 1 }) {
            let chunks = halves.as_chunks::<2>().0.iter();
            assert_eq!(equal_halves(&halves, wanted), bits(chunks.map(|&half| u16::from_le_bytes(half) == wanted)));
        }
    }
}
