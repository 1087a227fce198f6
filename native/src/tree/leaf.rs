//! A leaf: entries in order as columns, packed into one block of bytes.
//!
//! A block holds, for as many entries as it has room for: the low halves of the player numbers, each word of the keys,
//! places where the tree keeps them, and the high halves of the player numbers. A word or place is kept as its difference from the least that the
//! leaf may hold, in as few bytes (0 to 8) as the leaf needs. Finding a player who is known to be there reads the low halves
//! only, and a rank needs the first word as well. What a leaf needs
//! to be read is in its head, which lies apart from the block, so that both are asked for at once.

use super::{Key, NONE, point};
pub use crate::memory::BLOCK;
use crate::memory::{Slab, prefetch};
use crate::vector::equal_halves;
use std::cmp::Ordering;
use std::ops::Range;

/// A tree of one leaf may fill a block of its own, that grows with it, up to this size.
pub const LONE_MAX: usize = 2 * BLOCK;
/// A value is read as eight bytes, whatever its width; player numbers are searched sixteen at a time.
const SPARE: usize = 32;
const LINE: usize = 64;
const NOT_FOUND: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<const W: usize> {
    pub key: Key<W>,
    pub player: u32,
    pub place: i64,
}

/// How the values of a column are kept: as differences from a base, of so many bytes each.
#[derive(Clone, Copy)]
struct Packing {
    base: u64,
    width: u8,
}

impl Packing {
    /// What holds all values between two, with about as much to spare on either side.
    fn between(least: u64, greatest: u64) -> Self {
        let range = greatest - least;
        let width = (64 - range.leading_zeros()).div_ceil(8) as u8;
        let spare = mask(width) - range;
        Self { base: least.saturating_sub(spare / 2).min(u64::MAX - mask(width)), width }
    }

    fn holds(self, value: u64) -> bool {
        value.wrapping_sub(self.base) <= mask(self.width)
    }

    #[inline(always)]
    fn read(self, block: &[u8], column: usize, at: usize) -> u64 {
        let start = column + at * usize::from(self.width);
        let word: [u8; 8] = block[start..start + 8].try_into().expect("eight bytes");
        self.base.wrapping_add(u64::from_le_bytes(word) & mask(self.width))
    }

    #[inline(always)]
    fn write(self, block: &mut [u8], column: usize, at: usize, value: u64) {
        let width = usize::from(self.width);
        let start = column + at * width;
        let bytes = value.wrapping_sub(self.base).to_le_bytes();
        // Fixed widths are single stores, and these are the usual ones.
        match width {
            0 => {}
            2 => block[start..start + 2].copy_from_slice(&bytes[..2]),
            4 => block[start..start + 4].copy_from_slice(&bytes[..4]),
            8 => block[start..start + 8].copy_from_slice(&bytes),
            _ => (0..width).for_each(|byte| block[start + byte] = bytes[byte]),
        }
    }
}

fn mask(width: u8) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - 8 * u32::from(width)) }
}

/// One cache line: how a leaf is packed, and where it is.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Head<const W: usize> {
    bases: [u64; W],
    places_base: u64,
    /// The group that the leaf is in, and its slot there.
    pub group: u32,
    pub slot: u16,
    len: u16,
    /// How many entries the block has room for, packed like this.
    room: u16,
    widths: [u8; W],
    places_width: u8,
}

impl<const W: usize> Head<W> {
    /// Of an empty leaf.
    pub const fn new(group: u32, slot: u16) -> Self {
        Self { bases: [0; W], places_base: 0, group, slot, len: 0, room: 0, widths: [0; W], places_width: 0 }
    }

    /// The same in another place of the tree.
    pub fn placed(self, group: u32, slot: u16) -> Self {
        Self { group, slot, ..self }
    }

    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether no other entry fits, packed like this.
    pub fn is_full(&self) -> bool {
        self.len == self.room
    }

    /// Whether a share of the block, in eighths, would do for the entries.
    pub fn fits_eighths(&self, eighths: usize) -> bool {
        self.len() * 8 <= usize::from(self.room) * eighths
    }

    fn room(&self) -> usize {
        usize::from(self.room)
    }

    #[inline(always)]
    fn word(&self, word: usize) -> Packing {
        Packing { base: self.bases[word], width: self.widths[word] }
    }

    fn places(&self) -> Packing {
        Packing { base: self.places_base, width: self.places_width }
    }

    /// Where the first column of words starts.
    #[inline(always)]
    fn keys(&self) -> usize {
        2 * self.room()
    }

    /// Where the high halves of the player numbers start.
    fn highs(&self) -> usize {
        (self.entry_bytes() - 2) * self.room()
    }

    #[inline(always)]
    pub fn key(&self, block: &[u8], at: usize) -> Key<W> {
        let mut column = self.keys();
        let mut key = [0; W];
        for (word, value) in key.iter_mut().enumerate() {
            *value = self.word(word).read(block, column, at);
            column += usize::from(self.widths[word]) * self.room();
        }
        key
    }

    /// One word of a key: the others may lie in cache lines that nobody needs.
    #[inline(always)]
    pub fn word_at(&self, block: &[u8], word: usize, at: usize) -> u64 {
        self.word(word).read(block, self.column(word), at)
    }

    #[inline(always)]
    fn column(&self, word: usize) -> usize {
        let before: usize = self.widths[..word].iter().map(|&width| usize::from(width)).sum();
        self.keys() + before * self.room()
    }

    /// One word of the keys of several entries.
    #[inline]
    pub fn words<'a>(
        &self,
        block: &'a [u8],
        word: usize,
        range: Range<usize>,
    ) -> impl Iterator<Item = u64> + use<'a, W> {
        let column = self.column(word);
        let packing = self.word(word);
        range.map(move |at| packing.read(block, column, at))
    }

    /// The order of an entry's key and another one: most are told by the first word.
    #[inline(always)]
    pub fn compare(&self, block: &[u8], at: usize, key: &Key<W>) -> Ordering {
        match self.word_at(block, 0, at).cmp(&key[0]) {
            Ordering::Equal => self.key(block, at).cmp(key),
            ordering => ordering,
        }
    }

    /// How many entries a condition holds for, that holds for all whose first word is less than one and for none whose
    /// first word is greater.
    #[inline(always)]
    pub fn point(&self, block: &[u8], first: u64, holds: impl Fn(&Key<W>, u32) -> bool) -> usize {
        let less = point(0, self.len(), |at| self.word_at(block, 0, at) < first);
        if less == self.len() || self.word_at(block, 0, less) > first {
            return less;
        }
        point(less, self.len(), |at| holds(&self.key(block, at), self.player(block, at)))
    }

    /// Whether two entries share the first words of their keys.
    #[inline(always)]
    pub fn share_prefix(&self, block: &[u8], a: usize, b: usize, words: usize) -> bool {
        (0..words).all(|word| self.word_at(block, word, a) == self.word_at(block, word, b))
    }

    #[inline(always)]
    pub fn player(&self, block: &[u8], at: usize) -> u32 {
        let half = |start: usize| u32::from(u16::from_le_bytes([block[start], block[start + 1]]));
        half(2 * at) | half(self.highs() + 2 * at) << 16
    }

    pub fn place(&self, block: &[u8], at: usize) -> i64 {
        self.places().read(block, self.places_column(), at) as i64
    }

    fn places_column(&self) -> usize {
        self.highs() - usize::from(self.places_width) * self.room()
    }

    pub fn entry(&self, block: &[u8], at: usize) -> Entry<W> {
        Entry { key: self.key(block, at), player: self.player(block, at), place: self.place(block, at) }
    }

    pub fn entries(&self, block: &[u8], into: &mut Vec<Entry<W>>) {
        into.extend((0..self.len()).map(|at| self.entry(block, at)));
    }

    /// The index of a player's entry. Of one who is known to be here, the low half mostly tells.
    #[inline]
    pub fn find(&self, block: &[u8], player: u32, is_here: bool) -> Option<usize> {
        let mut found = NOT_FOUND;
        let mut first = 0;
        while first < self.len() {
            // The last sixteen may reach beyond the entries, but not beyond the block.
            let halves = block[2 * first..].first_chunk::<32>()?;
            let mut matches = equal_halves(halves, player as u16);
            if self.len() - first < 16 {
                matches &= (1 << (self.len() - first)) - 1;
            }
            if matches != 0 {
                if found != NOT_FOUND || !matches.is_power_of_two() {
                    return self.find_high(block, player);
                }
                found = first + matches.trailing_zeros() as usize;
            }
            first += 16;
        }
        (found != NOT_FOUND && (is_here || self.player(block, found) == player)).then_some(found)
    }

    #[cold]
    fn find_high(&self, block: &[u8], player: u32) -> Option<usize> {
        (0..self.len()).find(|&at| self.player(block, at) == player)
    }

    /// Whether an entry can be written without packing the leaf anew.
    pub fn holds(&self, entry: &Entry<W>) -> bool {
        entry.key.iter().enumerate().all(|(word, &value)| self.word(word).holds(value))
            && self.places().holds(entry.place as u64)
    }

    pub fn write(&self, block: &mut [u8], at: usize, entry: &Entry<W>) {
        let (low, high) = (entry.player as u16, (entry.player >> 16) as u16);
        block[2 * at..2 * at + 2].copy_from_slice(&low.to_le_bytes());
        let start = self.highs() + 2 * at;
        block[start..start + 2].copy_from_slice(&high.to_le_bytes());
        let mut column = self.keys();
        for (word, &value) in entry.key.iter().enumerate() {
            self.word(word).write(block, column, at, value);
            column += usize::from(self.widths[word]) * self.room();
        }
        self.places().write(block, column, at, entry.place as u64);
    }

    /// Into a leaf that is not full and holds the entry's values.
    pub fn insert(&mut self, block: &mut [u8], at: usize, entry: &Entry<W>) {
        self.shift(block, at, at + 1);
        self.len += 1;
        self.write(block, at, entry);
    }

    pub fn remove(&mut self, block: &mut [u8], at: usize) {
        self.shift(block, at + 1, at);
        self.len -= 1;
    }

    /// Move the entries from one index on to another.
    fn shift(&self, block: &mut [u8], from: usize, to: usize) {
        let mut column = 0;
        for width in [2].into_iter().chain(self.widths).chain([self.places_width, 2]).map(usize::from) {
            let (start, end) = (column + from * width, column + self.len() * width);
            block.copy_within(start..end, column + to * width);
            column += width * self.room();
        }
    }

    /// How these entries would be packed into a block of so many bytes; None if they do not fit.
    pub fn packed(entries: &[Entry<W>], bytes: usize) -> Option<Self> {
        let mut head = Self::new(NONE, 0);
        if let Some(first) = entries.first() {
            let bounds = entries.iter().fold((first.key, first.key, first.place, first.place), |bounds, entry| {
                let (mut least, mut greatest, low, high) = bounds;
                for word in 0..W {
                    least[word] = least[word].min(entry.key[word]);
                    greatest[word] = greatest[word].max(entry.key[word]);
                }
                (least, greatest, low.min(entry.place), high.max(entry.place))
            });
            for word in 0..W {
                let packing = Packing::between(bounds.0[word], bounds.1[word]);
                (head.bases[word], head.widths[word]) = (packing.base, packing.width);
            }
            let packing = Packing::between(bounds.2 as u64, bounds.3 as u64);
            (head.places_base, head.places_width) = (packing.base, packing.width);
        }
        head.len = entries.len() as u16;
        head.room = ((bytes - SPARE) / head.entry_bytes()) as u16;
        (entries.len() <= head.room()).then_some(head)
    }

    /// The size of the least block for entries that may go into a lone one; None if there are too many to ask.
    pub fn bytes_if_few(entries: &[Entry<W>]) -> Option<usize> {
        let few = entries.len() <= LONE_MAX / 4;
        few.then(|| Self::packed(entries, usize::from(u16::MAX)))?
            .map(|head| entries.len() * head.entry_bytes() + SPARE)
    }

    fn entry_bytes(&self) -> usize {
        4 + self.widths.iter().chain([&self.places_width]).map(|&width| usize::from(width)).sum::<usize>()
    }

    pub fn check(&self, block: &[u8]) -> Result<(), String> {
        if self.len() > self.room() || (self.len > 0 && self.room() * self.entry_bytes() + SPARE > block.len()) {
            return Err("a leaf's entries leave its block".to_owned());
        }
        Ok(())
    }

    /// Ask for what finding a player, and reading the first word of the key, reads.
    pub fn prefetch_first_words(block: &[u8]) {
        block.iter().step_by(LINE).take(10).for_each(prefetch);
    }

    /// Ask for the whole block, to change it.
    pub fn prefetch_all(block: &[u8]) {
        block.iter().step_by(LINE).for_each(prefetch);
    }
}

/// The blocks of a tree: one that grows while there is one leaf, then slabs of equal ones.
#[derive(Default)]
pub struct Blocks {
    lone: Vec<u8>,
    slabs: Vec<Slab>,
    len: usize,
}

impl Blocks {
    #[inline(always)]
    pub fn get(&self, leaf: u32) -> &[u8] {
        let leaf = leaf as usize;
        if self.slabs.is_empty() { &self.lone } else { &self.slabs[leaf / Slab::FULL][leaf % Slab::FULL].0 }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, leaf: u32) -> &mut [u8] {
        let leaf = leaf as usize;
        if self.slabs.is_empty() { &mut self.lone } else { &mut self.slabs[leaf / Slab::FULL][leaf % Slab::FULL].0 }
    }

    pub fn is_lone(&self) -> bool {
        self.slabs.is_empty()
    }

    /// A block of its own for the only leaf.
    pub fn set_lone(&mut self, bytes: usize) {
        *self = Self { lone: vec![0; bytes], ..Self::default() };
    }

    /// Add a block; its number. The first one ends the time of the lone leaf.
    pub fn push(&mut self) -> u32 {
        self.lone = Vec::new();
        let used = self.len - self.slabs.len().saturating_sub(1) * Slab::FULL;
        match self.slabs.last_mut() {
            None => self.slabs.push(Slab::new(2)),
            Some(last) if used < last.len() => {}
            Some(last) if used < Slab::FULL => {
                // The last slab grows until it is full, so that a tree takes little more than it needs.
                let mut grown = Slab::new((used * 5 / 4 + 1).min(Slab::FULL));
                grown[..used].copy_from_slice(last);
                *last = grown;
            }
            Some(_) => self.slabs.push(Slab::new(Slab::FULL / 16)),
        }
        self.len += 1;
        self.len as u32 - 1
    }

    /// How many leaves have a block.
    pub fn len(&self) -> usize {
        self.len.max(1)
    }

    pub fn memory_bytes(&self) -> usize {
        self.lone.capacity() + self.slabs.iter().map(|slab| slab.len() * BLOCK + size_of::<Slab>()).sum::<usize>()
    }
}
