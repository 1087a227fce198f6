//! The player ids of one game, each kept once.
//!
//! Ids lie end to end in one arena; a player's number says where. The table that finds a number is open addressing with
//! linear probing: a byte of tags and four bytes of number a slot, so that a probe compares ids only where a tag matches.
//! Finding an id costs about four cache misses (tag, number, offset, id); the first two go out together, and `find_all`
//! lets those of many ids overlap. Memory: the id, 4 bytes of offset, 5 bytes a slot at a load of 57 to 85 %, and 8 bytes
//! of place where histories are followed.

use crate::prefetch::{TOGETHER, prefetch};
use foldhash::fast::RandomState;
use std::hash::{BuildHasher, Hasher};

const EMPTY: u8 = 0;
const SLOTS_MIN: usize = 16;
/// The table grows by half when more than 85 % of it is in use.
const LOAD_PERCENT_MAX: usize = 85;
/// Ids end to end must stay below this many bytes.
const ARENA_MAX: usize = u32::MAX as usize;

pub struct PlayerTable {
    arena: Vec<u8>,
    /// Where each id starts, and one more: where the last one ends.
    offsets: Vec<u32>,
    tags: Vec<u8>,
    numbers: Vec<u32>,
    hashing: RandomState,
    /// The place of each player's latest submission, -1 for none; empty until first used.
    places: Vec<i64>,
    /// Players whose place was set since the last `settle`, and the place before.
    unsettled: Vec<(u32, i64)>,
    /// A bit for each player whose place is not yet written.
    changed: Vec<u64>,
}

impl Default for PlayerTable {
    fn default() -> Self {
        Self {
            arena: Vec::new(),
            offsets: vec![0],
            tags: vec![EMPTY; SLOTS_MIN],
            numbers: vec![0; SLOTS_MIN],
            hashing: RandomState::default(),
            places: Vec::new(),
            unsettled: Vec::new(),
            changed: Vec::new(),
        }
    }
}

impl PlayerTable {
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.arena.capacity()
            + self.offsets.capacity() * 4
            + self.tags.capacity()
            + self.numbers.capacity() * 4
            + self.places.capacity() * 8
            + self.changed.capacity() * 8
    }

    /// The id of a number that was given out.
    pub fn id(&self, number: u32) -> &[u8] {
        let at = number as usize;
        &self.arena[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }

    /// The id as text; ids come in as text only.
    pub fn text(&self, number: u32) -> &str {
        // SAFETY: `intern` is given the bytes of a str each time, and the arena is only ever appended to.
        unsafe { std::str::from_utf8_unchecked(self.id(number)) }
    }

    fn hash(&self, id: &[u8]) -> u64 {
        let mut hasher = self.hashing.build_hasher();
        hasher.write(id);
        hasher.finish()
    }

    /// The number of an id, if it is known.
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        self.find_hashed(id, self.hash(id)).ok()
    }

    /// The numbers of ids, as far as they are known. The cache misses of several ids overlap.
    pub fn find_all<'a>(&self, ids: impl Iterator<Item = &'a [u8]>) -> Vec<Option<u32>> {
        let mut found = Vec::with_capacity(ids.size_hint().0);
        let mut ids = ids.peekable();
        let mut some: Vec<(&[u8], u64)> = Vec::with_capacity(TOGETHER);
        while ids.peek().is_some() {
            some.clear();
            for id in ids.by_ref().take(TOGETHER) {
                let hash = self.hash(id);
                let slot = self.slot(hash);
                prefetch(&self.tags[slot]);
                prefetch(&self.numbers[slot]);
                some.push((id, hash));
            }
            let mut likely = [u32::MAX; TOGETHER];
            for (at, &(_, hash)) in some.iter().enumerate() {
                if let Some(number) = self.first_with_tag(hash) {
                    likely[at] = number;
                    prefetch(&self.offsets[number as usize]);
                }
            }
            for &number in likely.iter().filter(|&&number| number != u32::MAX) {
                self.prefetch_id(number);
            }
            found.extend(some.iter().map(|&(id, hash)| self.find_hashed(id, hash).ok()));
        }
        found
    }

    /// Have the ids of numbers at hand: their cache misses overlap.
    pub fn prefetch_ids(&self, numbers: &[u32]) {
        for &number in numbers {
            prefetch(&self.offsets[number as usize]);
        }
        for &number in numbers {
            self.prefetch_id(number);
        }
    }

    /// An empty id at the end of the arena has no byte to fetch.
    fn prefetch_id(&self, number: u32) {
        if let Some(byte) = self.arena.get(self.offsets[number as usize] as usize) {
            prefetch(byte);
        }
    }

    fn slot(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.tags.len() as u128) >> 64) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.tags.len() { 0 } else { slot + 1 }
    }

    fn first_with_tag(&self, hash: u64) -> Option<u32> {
        let tag = tag_of(hash);
        let mut slot = self.slot(hash);
        loop {
            let seen = self.tags[slot];
            if seen == tag {
                return Some(self.numbers[slot]);
            }
            if seen == EMPTY {
                return None;
            }
            slot = self.next(slot);
        }
    }

    /// The number of an id, or the slot where it would go.
    fn find_hashed(&self, id: &[u8], hash: u64) -> Result<u32, usize> {
        let tag = tag_of(hash);
        let mut slot = self.slot(hash);
        loop {
            let seen = self.tags[slot];
            if seen == tag {
                let number = self.numbers[slot];
                if self.id(number) == id {
                    return Ok(number);
                }
            } else if seen == EMPTY {
                return Err(slot);
            }
            slot = self.next(slot);
        }
    }

    /// The number of an id, which is given one if it has none. None if the arena is full.
    pub fn intern(&mut self, id: &[u8]) -> Option<u32> {
        let hash = self.hash(id);
        match self.find_hashed(id, hash) {
            Ok(number) => Some(number),
            Err(slot) => {
                if self.arena.len() + id.len() > ARENA_MAX {
                    return None;
                }
                let number = self.len() as u32;
                make_room(&mut self.arena, id.len());
                make_room(&mut self.offsets, 1);
                self.arena.extend_from_slice(id);
                self.offsets.push(self.arena.len() as u32);
                self.tags[slot] = tag_of(hash);
                self.numbers[slot] = number;
                if self.len() * 100 > self.tags.len() * LOAD_PERCENT_MAX {
                    self.grow();
                }
                Some(number)
            }
        }
    }

    fn grow(&mut self) {
        let slots = self.tags.len() * 3 / 2;
        self.tags = vec![EMPTY; slots];
        self.numbers = vec![0; slots];
        for number in 0..self.len() as u32 {
            let hash = self.hash(self.id(number));
            let mut slot = self.slot(hash);
            while self.tags[slot] != EMPTY {
                slot = self.next(slot);
            }
            self.tags[slot] = tag_of(hash);
            self.numbers[slot] = number;
        }
    }

    pub fn last_place(&self, number: u32) -> i64 {
        self.places.get(number as usize).copied().unwrap_or(-1)
    }

    /// Set the place of a player's latest submission; what it was.
    pub fn set_last_place(&mut self, number: u32, place: i64) -> i64 {
        let at = number as usize;
        if at >= self.places.len() {
            self.places.resize(self.len().max(at + 1), -1);
        }
        std::mem::replace(&mut self.places[at], place)
    }

    /// Set the place of a player's latest submission, for now; what it was.
    pub fn chain(&mut self, number: u32, place: i64) -> i64 {
        let previous = self.set_last_place(number, place);
        self.unsettled.push((number, previous));
        previous
    }

    /// Places that were set stay; they are to be written.
    pub fn settle(&mut self) {
        for (number, _) in std::mem::take(&mut self.unsettled) {
            self.set_changed(number, true);
        }
    }

    /// Places that were set since the last `settle` are what they were before.
    pub fn unchain(&mut self) {
        while let Some((number, previous)) = self.unsettled.pop() {
            self.set_last_place(number, previous);
        }
    }

    /// The settled place of a player, -1 if it is written.
    pub fn changed_place(&self, number: u32) -> i64 {
        if !self.is_changed(number) {
            return -1;
        }
        let unsettled = self.unsettled.iter().find(|&&(player, _)| player == number);
        unsettled.map_or_else(|| self.last_place(number), |&(_, previous)| previous)
    }

    pub fn is_changed(&self, number: u32) -> bool {
        self.changed.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub fn set_changed(&mut self, number: u32, changed: bool) {
        let at = number as usize / 64;
        if at >= self.changed.len() {
            self.changed.resize(self.len().div_ceil(64).max(at + 1), 0);
        }
        let bit = 1 << (number % 64);
        if changed { self.changed[at] |= bit } else { self.changed[at] &= !bit }
    }

    /// The players whose place is not yet written.
    pub fn changed(&self) -> Vec<u32> {
        let words = self.changed.iter().enumerate().filter(|(_, word)| **word != 0);
        let numbers = words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        });
        numbers.collect()
    }

    /// No player has a place any more.
    pub fn forget_places(&mut self) {
        self.places = Vec::new();
        self.unsettled = Vec::new();
        self.changed = Vec::new();
    }
}

/// The low bits: the high ones choose the slot.
fn tag_of(hash: u64) -> u8 {
    hash as u8 | 0x80
}

/// Grow a long column by an eighth instead of doubling it.
pub fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.len() + more > column.capacity() && column.len() > 4096 {
        column.reserve_exact(more.max(column.len() / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_keeps_its_number() {
        let mut table = PlayerTable::default();
        let ids: Vec<String> = (0..10_000).map(|n| format!("player-{n}")).collect();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(table.find(id.as_bytes()), None);
            assert_eq!(table.intern(id.as_bytes()), Some(n as u32));
        }
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(table.intern(id.as_bytes()), Some(n as u32));
            assert_eq!(table.text(n as u32), id);
        }
        assert_eq!(table.len(), ids.len());
    }

    #[test]
    fn an_empty_id_is_an_id() {
        let mut table = PlayerTable::default();
        let amy = table.intern(b"amy");
        let empty = table.intern(b"");
        assert_eq!(table.find_all([&b""[..], b"amy", b"bob"].into_iter()), [empty, amy, None]);
        table.prefetch_ids(&[empty.unwrap()]);
    }

    #[test]
    fn places_start_at_none() {
        let mut table = PlayerTable::default();
        let number = table.intern(b"amy").unwrap();
        assert_eq!(table.last_place(number), -1);
        assert_eq!(table.set_last_place(number, 7), -1);
        assert_eq!(table.set_last_place(number, 9), 7);
        assert_eq!(table.last_place(number), 9);
    }

    #[test]
    fn others_see_places_once_they_are_settled() {
        let mut table = PlayerTable::default();
        let numbers: Vec<u32> = (0..200).map(|n| table.intern(format!("p{n}").as_bytes()).unwrap()).collect();
        assert_eq!([table.chain(7, 1), table.chain(7, 2), table.chain(130, 3)], [-1, 1, -1]);
        assert_eq!((table.changed_place(7), table.changed()), (-1, vec![]));
        table.settle();
        assert_eq!((table.changed_place(7), table.changed()), (2, vec![7, 130]));
        assert_eq!([table.chain(7, 4), table.chain(7, 5), table.chain(8, 6)], [2, 4, -1]);
        assert_eq!((table.changed_place(7), table.last_place(7)), (2, 5));
        table.unchain();
        assert_eq!((table.changed_place(7), table.last_place(7), table.last_place(8)), (2, 2, -1));
        table.set_changed(7, false);
        assert_eq!((table.changed_place(7), table.last_place(7), table.changed()), (-1, 2, vec![130]));
        table.forget_places();
        assert!(numbers.iter().all(|&number| table.last_place(number) == -1 && !table.is_changed(number)));
    }
}
