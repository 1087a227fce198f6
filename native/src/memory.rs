//! Memory for what is large and read at random: grown in small steps, and on large pages where the system has them.
//!
//! A look-up that misses the caches also misses the table of pages, unless the pages are large: then a few dozen entries
//! of that table cover a board of a million players.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// How many look-ups go together: about as many misses as a core can have under way.
pub const TOGETHER: usize = 16;

/// A large page, and from which size on memory asks for some.
const LARGE_PAGE: usize = 2 << 20;

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

/// An empty column with room for `capacity` values.
pub fn column<T>(capacity: usize) -> Vec<T> {
    let mut column: Vec<T> = Vec::new();
    column.reserve_exact(capacity);
    // SAFETY: this is what it has allocated.
    unsafe { advise_large_pages(column.as_mut_ptr().cast(), capacity * size_of::<T>()) };
    column
}

/// A column of equal values.
pub fn filled<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut filled = column(len);
    filled.resize(len, value);
    filled
}

/// Make room for more values: a long column grows by a sixteenth instead of doubling.
pub fn make_room<T: Copy>(values: &mut Vec<T>, more: usize) {
    let needed = values.len() + more;
    if needed <= values.capacity() || needed <= 4096 {
        return;
    }
    let capacity = needed.max(values.len() + values.len() / 16);
    if capacity * size_of::<T>() < LARGE_PAGE {
        values.reserve_exact(capacity - values.len());
    } else {
        // Not reallocated: pages that the system moves elsewhere are large no more.
        let mut grown = column(capacity);
        grown.extend_from_slice(values);
        *values = grown;
    }
}

/// Before it is first written to: what is there already stays on the pages that it has.
///
/// # Safety
/// So many bytes from there must be one allocation.
unsafe fn advise_large_pages(start: *mut u8, bytes: usize) {
    if bytes < LARGE_PAGE {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the range lies within the allocation, and the advice changes nothing that is in it.
    unsafe {
        const PAGE: usize = 4096;
        let first = (start as usize).next_multiple_of(PAGE);
        let end = (start as usize + bytes) & !(PAGE - 1);
        libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = start;
}

/// Bytes of a block.
pub const BLOCK: usize = 1024;

/// Aligned, so that it takes no more cache lines than it must.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Block(pub [u8; BLOCK]);

/// Blocks side by side, zeros at first. A full slab is one large page.
pub struct Slab {
    blocks: NonNull<Block>,
    len: usize,
}

impl Slab {
    pub const FULL: usize = LARGE_PAGE / BLOCK;

    /// At least one block, at most a full slab.
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty, and the memory is written to the end before it is used.
        unsafe {
            let memory = alloc(layout);
            if memory.is_null() {
                handle_alloc_error(layout);
            }
            advise_large_pages(memory, layout.size());
            memory.write_bytes(0, layout.size());
            Self { blocks: NonNull::new_unchecked(memory.cast()), len }
        }
    }

    fn layout(len: usize) -> Layout {
        assert!((1..=Self::FULL).contains(&len), "a slab of {len} blocks");
        let align = if len == Self::FULL { LARGE_PAGE } else { align_of::<Block>() };
        Layout::from_size_align(len * BLOCK, align).expect("a slab is small")
    }
}

impl Deref for Slab {
    type Target = [Block];
    #[inline(always)]
    fn deref(&self) -> &[Block] {
        // SAFETY: so many blocks were allocated and written.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr(), self.len) }
    }
}

impl DerefMut for Slab {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Block] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_ptr(), self.len) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.blocks.as_ptr().cast(), Self::layout(self.len)) };
    }
}

// SAFETY: a slab owns its blocks, which are bytes.
unsafe impl Send for Slab {}
// SAFETY: shared, they are only read.
unsafe impl Sync for Slab {}
