//! Asking for memory before it is needed, so that the waits of several look-ups overlap.

/// How many look-ups go together: about as many misses as a core can have under way.
pub const TOGETHER: usize = 16;

/// A hint that a value will be read soon.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, and the address is that of a value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(std::ptr::from_ref(value).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
