//! Ids end to end, sixteen in a block: first their lengths, a byte each, then the ids.
//!
//! A block starts at a multiple of 16 bytes, so that four bytes say where, and its lengths lie in one cache line. The
//! lengths before an id, added up, are where it starts. Ids too long for a byte of length are kept apart.

use crate::memory::{make_room, prefetch};
use std::collections::HashMap;

const BLOCK: usize = 16;
/// The length that stands for an id kept apart.
const APART: u8 = u8::MAX;

#[derive(Default)]
pub struct Ids {
    arena: Vec<u8>,
    /// Where each block starts, in units of 16 bytes.
    starts: Vec<u32>,
    apart: HashMap<u32, Box<[u8]>>,
    len: usize,
}

impl Ids {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn memory_bytes(&self) -> usize {
        let apart: usize = self.apart.values().map(|id| id.len() + size_of::<(u32, Box<[u8]>)>()).sum();
        self.arena.capacity() + self.starts.capacity() * 4 + apart
    }

    #[inline]
    fn block(&self, number: u32) -> usize {
        self.starts[number as usize / BLOCK] as usize * BLOCK
    }

    #[inline]
    pub fn get(&self, number: u32) -> &[u8] {
        let block = self.block(number);
        let lengths: [u8; BLOCK] = self.arena[block..block + BLOCK].try_into().expect("sixteen bytes");
        let at = number as usize % BLOCK;
        if lengths[at] == APART {
            return &self.apart[&number];
        }
        let start = block + BLOCK + self.sum_before(lengths, at);
        &self.arena[start..start + lengths[at] as usize]
    }

    #[inline]
    fn sum_before(&self, mut lengths: [u8; BLOCK], at: usize) -> usize {
        if !self.apart.is_empty() {
            for length in &mut lengths {
                *length = if *length == APART { 0 } else { *length }; // it takes no room in the arena
            }
        }
        sum_before(lengths, at)
    }

    /// Whether a number's id is this one.
    #[inline]
    pub fn is(&self, number: u32, id: &[u8]) -> bool {
        self.get(number) == id
    }

    /// Have at hand what `get` reads, where ids of a block are about as long as this one.
    #[inline]
    pub fn prefetch(&self, number: u32, len: usize) {
        let block = self.block(number);
        let likely = block + BLOCK + number as usize % BLOCK * len;
        for at in [block, likely, likely + len] {
            if let Some(byte) = self.arena.get(at) {
                prefetch(byte);
            }
        }
    }

    /// Add an id; its number. None if there is no number or no room left.
    pub fn push(&mut self, id: &[u8]) -> Option<u32> {
        let number = u32::try_from(self.len).ok().filter(|&number| number < u32::MAX)?;
        let at = self.len % BLOCK;
        if at == 0 {
            let start = self.arena.len().next_multiple_of(BLOCK);
            let unit = u32::try_from(start / BLOCK).ok()?;
            let more = start + BLOCK - self.arena.len();
            make_room(&mut self.starts, 1);
            make_room(&mut self.arena, more);
            self.starts.push(unit);
            self.arena.resize(start + BLOCK, 0);
        }
        let length = u8::try_from(id.len()).ok().filter(|&length| length != APART);
        match length {
            Some(_) => {
                make_room(&mut self.arena, id.len());
                self.arena.extend_from_slice(id);
            }
            None => drop(self.apart.insert(number, id.into())),
        }
        let block = self.block(number);
        self.arena[block + at] = length.unwrap_or(APART);
        self.len += 1;
        Some(number)
    }
}

/// The sum of the lengths before one.
#[inline]
fn sum_before(lengths: [u8; BLOCK], at: usize) -> usize {
    if at == 0 {
        return 0;
    }
    const EVEN: u128 = 0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff;
    let before = u128::from_le_bytes(lengths) << (8 * (BLOCK - at));
    let pairs = (before & EVEN) + ((before >> 8) & EVEN);
    let quads = (pairs as u64).wrapping_add((pairs >> 64) as u64);
    // Four sums of up to 1,020 each, added in the highest 16 bits.
    (quads.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_lengths() {
        let lengths: [u8; BLOCK] = std::array::from_fn(|at| if at % 5 == 0 { 254 } else { at as u8 });
        for at in 0..BLOCK {
            assert_eq!(sum_before(lengths, at), lengths[..at].iter().map(|&length| usize::from(length)).sum::<usize>());
            assert_eq!(sum_before([254; BLOCK], at), 254 * at);
        }
    }
}
