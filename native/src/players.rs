//! The player ids of one game, each kept once: from an id to its number, and back.
//!
//! # Structure
//!
//! * **Ids** (`players/ids.rs`) lie end to end in one arena, sixteen in a block that starts with their lengths.
//! * The **table** finds the number of an id: open addressing over buckets of one cache line, with twelve tags of a byte
//!   and twelve numbers of four. A probe compares an id only where its tag matches.
//!
//! # Costs
//!
//! Finding an id takes three cache misses in a row: the bucket, then (by a start that is mostly in the caches) lengths and
//! id side by side. `find_all` lets those of many ids overlap. Memory: the id, 1 byte of length, half a byte of start,
//! 5.3 bytes a slot at a load of 66 to 88 %, and 8 bytes of place where histories are followed.

mod ids;

use crate::memory::{TOGETHER, column, make_room, prefetch};
use crate::vector::equal_bytes;
use foldhash::fast::RandomState;
use ids::Ids;
use std::hash::{BuildHasher, Hasher};

const EMPTY: u8 = 0;
const SLOTS: usize = 12;
/// The table grows by a third when more than this share of it is in use.
const LOAD_PERCENT_MAX: usize = 88;

/// One cache line. Slots fill from the front, and nothing is ever taken out: a bucket that is not full ends a search.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// The last four belong to no slot and stay empty.
    tags: [u8; 16],
    numbers: [u32; SLOTS],
}

const EMPTY_BUCKET: Bucket = Bucket { tags: [EMPTY; 16], numbers: [0; SLOTS] };

impl Bucket {
    /// The slots with a tag, as bits.
    #[inline(always)]
    fn matches(&self, tag: u8) -> u32 {
        equal_bytes(&self.tags, tag)
    }

    fn is_full(&self) -> bool {
        self.tags[SLOTS - 1] != EMPTY
    }
}

pub struct PlayerTable {
    ids: Ids,
    buckets: Vec<Bucket>,
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
            ids: Ids::default(),
            buckets: vec![EMPTY_BUCKET; 1],
            hashing: RandomState::default(),
            places: Vec::new(),
            unsettled: Vec::new(),
            changed: Vec::new(),
        }
    }
}

impl PlayerTable {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.ids.memory_bytes()
            + self.buckets.capacity() * size_of::<Bucket>()
            + self.places.capacity() * 8
            + self.changed.capacity() * 8
    }

    /// The id of a number that was given out.
    #[inline]
    pub fn id(&self, number: u32) -> &[u8] {
        self.ids.get(number)
    }

    /// The id as text; ids come in as text only.
    pub fn text(&self, number: u32) -> &str {
        // SAFETY: `intern` is given the bytes of a str each time, and they are kept as they are.
        unsafe { std::str::from_utf8_unchecked(self.id(number)) }
    }

    fn hash(&self, id: &[u8]) -> u64 {
        let mut hasher = self.hashing.build_hasher();
        hasher.write(id);
        hasher.finish()
    }

    /// The number of an id, if it is known.
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        self.find_ahead(id, |_| ())
    }

    /// The same; `ahead` is given what most likely is the number, so that what follows is asked for already.
    #[inline]
    pub fn find_ahead(&self, id: &[u8], ahead: impl FnOnce(u32)) -> Option<u32> {
        let hash = self.hash(id);
        if let Some(number) = self.first_with_tag(hash) {
            self.ids.prefetch(number, id.len());
            ahead(number);
        }
        self.find_hashed(id, hash).ok()
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
                prefetch(&self.buckets[self.bucket(hash)]);
                some.push((id, hash));
            }
            for &(id, hash) in &some {
                if let Some(number) = self.first_with_tag(hash) {
                    self.ids.prefetch(number, id.len());
                }
            }
            found.extend(some.iter().map(|&(id, hash)| self.find_hashed(id, hash).ok()));
        }
        found
    }

    /// Have the ids of numbers at hand: their cache misses overlap.
    pub fn prefetch_ids(&self, numbers: &[u32]) {
        for &number in numbers {
            self.ids.prefetch(number, 16);
        }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// What most likely is the number of an id, by its first bucket.
    #[inline]
    fn first_with_tag(&self, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[self.bucket(hash)];
        let matches = bucket.matches(tag_of(hash));
        (matches != 0).then(|| bucket.numbers[matches.trailing_zeros() as usize])
    }

    /// The number of an id, or the bucket where it would go.
    #[inline]
    fn find_hashed(&self, id: &[u8], hash: u64) -> Result<u32, usize> {
        let tag = tag_of(hash);
        let mut at = self.bucket(hash);
        loop {
            let bucket = &self.buckets[at];
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let number = bucket.numbers[matches.trailing_zeros() as usize];
                if self.ids.is(number, id) {
                    return Ok(number);
                }
                matches &= matches - 1;
            }
            if !bucket.is_full() {
                return Err(at);
            }
            at = self.next(at);
        }
    }

    /// The number of an id, which is given one if it has none. None if there is no number left.
    pub fn intern(&mut self, id: &[u8]) -> Option<u32> {
        let hash = self.hash(id);
        match self.find_hashed(id, hash) {
            Ok(number) => Some(number),
            Err(bucket) => {
                let number = self.ids.push(id)?;
                put(&mut self.buckets[bucket], hash, number);
                if self.len() * 100 > self.buckets.len() * SLOTS * LOAD_PERCENT_MAX {
                    self.grow((self.buckets.len() * 4).div_ceil(3));
                }
                Some(number)
            }
        }
    }

    fn grow(&mut self, buckets: usize) {
        self.buckets = column(buckets);
        self.buckets.resize(buckets, EMPTY_BUCKET);
        let mut hashes = [0; TOGETHER];
        for first in (0..self.len()).step_by(TOGETHER) {
            let some = first as u32..self.len().min(first + TOGETHER) as u32;
            for (hash, number) in hashes.iter_mut().zip(some.clone()) {
                *hash = self.hash(self.id(number));
                prefetch(&self.buckets[self.bucket(*hash)]);
            }
            for (&hash, number) in hashes.iter().zip(some) {
                let mut bucket = self.bucket(hash);
                while self.buckets[bucket].is_full() {
                    bucket = self.next(bucket);
                }
                put(&mut self.buckets[bucket], hash, number);
            }
        }
    }

    pub fn last_place(&self, number: u32) -> i64 {
        self.places.get(number as usize).copied().unwrap_or(-1)
    }

    /// Set the place of a player's latest submission; what it was.
    pub fn set_last_place(&mut self, number: u32, place: i64) -> i64 {
        let at = number as usize;
        if at >= self.places.len() {
            let len = self.len().max(at + 1);
            make_room(&mut self.places, len - at);
            self.places.resize(len, -1);
        }
        std::mem::replace(&mut self.places[at], place)
    }

    /// Set the places of players' latest submissions in turn, for now; what each was.
    pub fn chain_all(&mut self, numbers: &[u32], places: &[i64]) -> Vec<i64> {
        self.unsettled.reserve(numbers.len());
        let pairs = numbers.iter().zip(places).enumerate();
        pairs
            .map(|(at, (&number, &place))| {
                let ahead = numbers.get(at + TOGETHER).and_then(|&number| self.places.get(number as usize));
                ahead.into_iter().for_each(prefetch);
                self.chain(number, place)
            })
            .collect()
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

/// Into a bucket that has room.
fn put(bucket: &mut Bucket, hash: u64, number: u32) {
    let slot = bucket.matches(EMPTY).trailing_zeros() as usize;
    bucket.tags[slot] = tag_of(hash);
    bucket.numbers[slot] = number;
}

/// The low bits: the high ones choose the bucket.
#[inline]
fn tag_of(hash: u64) -> u8 {
    hash as u8 | 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_keeps_its_number() {
        let mut table = PlayerTable::default();
        let ids: Vec<String> = (0..if cfg!(miri) { 300 } else { 10_000 }).map(|n| format!("player-{n}")).collect();
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
    fn ids_of_any_length_keep_their_numbers() {
        let mut table = PlayerTable::default();
        let count = if cfg!(miri) { 60 } else { 600 };
        let ids: Vec<String> = (0..count).map(|n| "é".repeat(n / 2) + &n.to_string()).collect();
        let numbers: Vec<_> = ids.iter().chain(&ids).map(|id| table.intern(id.as_bytes())).collect();
        assert_eq!(numbers[..count], numbers[count..]);
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(table.find(id.as_bytes()), Some(n as u32));
            assert_eq!(table.text(n as u32), id);
        }
        assert_eq!(table.find("é".repeat(299).as_bytes()), None);
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
