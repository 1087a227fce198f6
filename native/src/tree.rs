//! The ordered set behind a rank index: entries (key, player) in order, with counts, so that any position is found and
//! any entry's position is told in O(log n).
//!
//! # Structure
//!
//! * A key is W words of 64 bits that compare as unsigned numbers in board order. Equal keys are ordered by player id.
//! * A **leaf** (`tree/leaf.rs`) packs some 50 to 120 entries into a block of 1 KiB: player numbers, then each word of the
//!   keys as differences of 0 to 8 bytes from a base. Its head says how, and lies in an array of heads. While there is one
//!   leaf, its block is as small as its entries, so that a board of three players takes three entries' space.
//! * A **group** holds up to 128 leaves: for each its number, its count of entries, and its separator, a lower bound
//!   of its entries that is above all entries of the leaf before.
//! * The **root** holds the groups in order with their separators, and a Fenwick tree over their counts.
//! * **Homes** say in which leaf a player's entry is: nothing while there is one leaf, a small hash map while the board has
//!   few of the game's players, an array by player number when it has a good share of them.
//!
//! Three levels: one million entries are some 12,000 leaves in 120 groups, ten million some 1,200 groups. Root, groups and
//! heads stay in the processor's caches; the block is what misses. Blocks lie in slabs of 2 MiB, which may be single pages.
//! In batches, what one row reads is asked for while the rows before it are done, so that their misses overlap.
//!
//! # Costs (n entries)
//!
//! | | |
//! |---|---|
//! | position of a player | home (1 miss), head and scan of the low halves of the leaf's player numbers (some 200 bytes, vectorised), prefix of counts in the group (256 bytes, vectorised), log(groups) steps of the Fenwick tree |
//! | entry at a position, or position of a key | binary searches in root, group and leaf |
//! | insert, remove | the same, and the shift of half a block |
//! | pack anew, share with a neighbour, split | one in some 50 inserts: the entries of a leaf or two are unpacked and packed |
//! | memory | 4 bytes of player number, 4 of home, and what the differences need: with a million players and scores below a billion 3 bytes a word. Leaves are 75 to 90 % full |
//!
//! # Invariants (`check` proves them)
//!
//! Entries ascend strictly; a player occurs once; no leaf is empty but the only one; separators bound their leaves; counts,
//! group totals and Fenwick sums add up; homes agree both ways; on dense boards, `starts` count the entries
//! whose tie prefix differs from the entry before.

mod check;
mod fenwick;
mod homes;
mod leaf;

use crate::memory::{make_room, prefetch};
use crate::players::PlayerTable;
use fenwick::Fenwick;
use homes::Homes;
pub use leaf::Entry;
use leaf::{BLOCK, Blocks, Head, LONE_MAX};
use std::cmp::Ordering;
use std::ops::Range;

/// For how many rows of a batch what they read is asked for beforehand.
pub const AHEAD: usize = 6;
const GROUP_MAX: usize = 128;
const NONE: u32 = u32::MAX;

pub type Key<const W: usize> = [u64; W];

/// How entries with equal keys are ordered: by player id, up or down.
#[derive(Clone, Copy)]
pub struct Ids<'a> {
    pub players: &'a PlayerTable,
    pub descending: bool,
}

impl Ids<'_> {
    /// The order of a player and an id.
    pub fn compare(&self, player: u32, id: &[u8]) -> Ordering {
        let ordering = self.players.id(player).cmp(id);
        if self.descending { ordering.reverse() } else { ordering }
    }

    fn entries<const W: usize>(&self, a: (&Key<W>, u32), b: (&Key<W>, u32)) -> Ordering {
        a.0.cmp(b.0).then_with(|| self.compare(a.1, self.players.id(b.1)))
    }
}

type Separator<const W: usize> = (Key<W>, u32);

/// Separators in order; their first words lie together, since they mostly tell.
#[derive(Default)]
struct Separators<const W: usize> {
    firsts: Vec<u64>,
    whole: Vec<Separator<W>>,
}

impl<const W: usize> Separators<W> {
    fn new(whole: Vec<Separator<W>>) -> Self {
        Self { firsts: whole.iter().map(|(key, _)| key[0]).collect(), whole }
    }

    fn memory_bytes(&self) -> usize {
        self.firsts.capacity() * 8 + self.whole.capacity() * size_of::<Separator<W>>()
    }

    /// In which of the parts that they separate a point of the order lies; the first one bounds nothing.
    #[inline]
    fn find(&self, first: u64, holds: impl Fn(&Key<W>, u32) -> bool) -> usize {
        let less = self.firsts[1..].partition_point(|&word| word < first);
        if self.firsts.get(less + 1) != Some(&first) {
            return less;
        }
        less + self.whole[less + 1..].partition_point(|(key, player)| holds(key, *player))
    }

    fn insert(&mut self, at: usize, separator: Separator<W>) {
        self.firsts.insert(at, separator.0[0]);
        self.whole.insert(at, separator);
    }

    fn set(&mut self, at: usize, separator: Separator<W>) {
        self.firsts[at] = separator.0[0];
        self.whole[at] = separator;
    }

    fn remove(&mut self, at: usize) {
        self.firsts.remove(at);
        self.whole.remove(at);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self { firsts: self.firsts.split_off(at), whole: self.whole.split_off(at) }
    }
}

struct Group<const W: usize> {
    leaves: Vec<u32>,
    counts: Vec<u16>,
    /// Of each leaf, how many entries start a new tie group; zeros unless the tree counts them.
    starts: Vec<u16>,
    separators: Separators<W>,
    /// Where the group stands in the root.
    order: u32,
}

/// Where an entry is: the leaf, and the index in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    leaf: u32,
    at: usize,
}

pub struct Tree<const W: usize> {
    heads: Vec<Head<W>>,
    blocks: Blocks,
    free_leaves: Vec<u32>,
    groups: Vec<Group<W>>,
    root: Vec<u32>,
    root_separators: Separators<W>,
    counts: Fenwick,
    starts: Fenwick,
    homes: Homes,
    len: usize,
    keeps_places: bool,
    /// How many leading words decide ties, if starts are counted.
    start_words: Option<usize>,
    /// Entries that are being packed anew.
    unpacked: Vec<Entry<W>>,
}

impl<const W: usize> Tree<W> {
    pub fn new(keeps_places: bool, start_words: Option<usize>) -> Self {
        let mut tree = Self {
            heads: Vec::new(),
            blocks: Blocks::default(),
            free_leaves: Vec::new(),
            groups: Vec::new(),
            root: Vec::new(),
            root_separators: Separators::default(),
            counts: Fenwick::default(),
            starts: Fenwick::default(),
            homes: Homes::OneLeaf,
            len: 0,
            keeps_places,
            start_words,
            unpacked: Vec::new(),
        };
        tree.clear();
        tree
    }

    pub fn clear(&mut self) {
        self.heads = vec![Head::new(0, 0)];
        self.blocks = Blocks::default();
        self.free_leaves = Vec::new();
        self.groups = vec![Group {
            leaves: vec![0],
            counts: vec![0],
            starts: vec![0],
            separators: Separators::new(vec![([0; W], NONE)]),
            order: 0,
        }];
        self.root = vec![0];
        self.root_separators = Separators::new(vec![([0; W], NONE)]);
        self.homes = Homes::OneLeaf;
        self.len = 0;
        self.unpacked = Vec::new();
        self.sum_groups();
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> usize {
        let groups: usize = self
            .groups
            .iter()
            .map(|group| {
                size_of::<Group<W>>()
                    + group.leaves.capacity() * 4
                    + (group.counts.capacity() + group.starts.capacity()) * 2
                    + group.separators.memory_bytes()
            })
            .sum();
        self.blocks.memory_bytes()
            + self.heads.capacity() * size_of::<Head<W>>()
            + self.unpacked.capacity() * size_of::<Entry<W>>()
            + self.free_leaves.capacity() * 4
            + self.root.capacity() * (4 + 16)
            + self.root_separators.memory_bytes()
            + self.homes.memory_bytes()
            + groups
    }

    #[inline(always)]
    fn leaf(&self, leaf: u32) -> (&Head<W>, &[u8]) {
        (&self.heads[leaf as usize], self.blocks.get(leaf))
    }

    #[inline(always)]
    fn leaf_mut(&mut self, leaf: u32) -> (&mut Head<W>, &mut [u8]) {
        (&mut self.heads[leaf as usize], self.blocks.get_mut(leaf))
    }

    // --- finding ------------------------------------------------------------------------------------------

    /// Where a player's entry is.
    #[inline]
    pub fn find(&self, player: u32) -> Option<Spot> {
        let leaf = self.homes.get(player)?;
        let (head, block) = self.leaf(leaf);
        head.find(block, player, !self.blocks.is_lone()).map(|at| Spot { leaf, at })
    }

    /// Where many players' entries are, one after another. What one reads is asked for while those before it are visited:
    /// first where the entry is, then the entry.
    pub fn find_all(&self, players: &[Option<u32>], mut visit: impl FnMut(Option<Spot>)) {
        for player in players.iter().take(2 * AHEAD).flatten() {
            self.prefetch_home(*player);
        }
        for player in players.iter().take(AHEAD).flatten() {
            self.prefetch_entry(*player);
        }
        for (at, player) in players.iter().enumerate() {
            if let Some(&Some(player)) = players.get(at + 2 * AHEAD) {
                self.prefetch_home(player);
            }
            if let Some(&Some(player)) = players.get(at + AHEAD) {
                self.prefetch_entry(player);
            }
            visit(player.and_then(|player| self.find(player)));
        }
    }

    /// Have at hand what finding this player, and telling the position, reads.
    #[inline]
    pub fn prefetch_entry(&self, player: u32) {
        if let Some(leaf) = self.homes.get(player) {
            prefetch(&self.heads[leaf as usize]);
            Head::<W>::prefetch_first_words(self.blocks.get(leaf));
        }
    }

    /// Have at hand where a player's entry is.
    pub fn prefetch_home(&self, player: u32) {
        self.homes.prefetch(player);
    }

    /// Have at hand what changing a player's entry to this key reads.
    pub fn prefetch_change(&self, player: u32, key: &Key<W>) {
        if let Some(leaf) = self.homes.get(player) {
            prefetch(&self.heads[leaf as usize]);
            Head::<W>::prefetch_all(self.blocks.get(leaf));
        }
        let (group, slot) = self.leaf_for(key[0], |other, _| other < key);
        let leaf = self.groups[group as usize].leaves[slot];
        prefetch(&self.heads[leaf as usize]);
        Head::<W>::prefetch_all(self.blocks.get(leaf));
    }

    pub fn key(&self, spot: Spot) -> Key<W> {
        let (head, block) = self.leaf(spot.leaf);
        head.key(block, spot.at)
    }

    #[inline]
    pub fn word(&self, spot: Spot, word: usize) -> u64 {
        let (head, block) = self.leaf(spot.leaf);
        head.word_at(block, word, spot.at)
    }

    /// The place that an entry reflects, of a tree that keeps them.
    pub fn place(&self, spot: Spot) -> i64 {
        let (head, block) = self.leaf(spot.leaf);
        head.place(block, spot.at)
    }

    /// How many entries stand before one.
    pub fn position(&self, spot: Spot) -> usize {
        self.entries_before(spot.leaf) + spot.at
    }

    #[inline]
    fn entries_before(&self, leaf: u32) -> usize {
        let head = &self.heads[leaf as usize];
        let group = &self.groups[head.group as usize];
        self.counts.prefix(group.order as usize) as usize + sum(&group.counts[..usize::from(head.slot)])
    }

    /// The group and the slot of the leaf where a point of the order lies.
    #[inline]
    fn leaf_for(&self, first: u64, holds: impl Fn(&Key<W>, u32) -> bool) -> (u32, usize) {
        let number = self.root[self.root_separators.find(first, &holds)];
        (number, self.groups[number as usize].separators.find(first, holds))
    }

    /// How many entries satisfy a condition that holds for all before some point of the order and for none after it, and
    /// where that point is. Keys before it start with a word up to `first`, keys after it with that one or a greater one.
    pub fn partition(&self, first: u64, holds: impl Fn(&Key<W>, u32) -> bool) -> (usize, Spot) {
        let (group, slot) = self.leaf_for(first, &holds);
        let group = &self.groups[group as usize];
        let leaf = group.leaves[slot];
        let (head, block) = self.leaf(leaf);
        let at = head.point(block, first, holds);
        let before = sum(&group.counts[..slot]);
        (self.counts.prefix(group.order as usize) as usize + before + at, Spot { leaf, at })
    }

    /// How many entries stand before one, and how many before all those that share its first `words` words.
    #[inline]
    pub fn position_and_tie(&self, spot: Spot, words: usize) -> (usize, usize) {
        let (head, block) = self.leaf(spot.leaf);
        let before = self.entries_before(spot.leaf);
        // Most entries share theirs with nobody: look at the one before first.
        if spot.at > 0 && !head.share_prefix(block, spot.at, spot.at - 1, words) {
            return (before + spot.at, before + spot.at);
        }
        let first = self.tie_start(spot, words);
        (
            before + spot.at,
            first.map_or_else(
                |prefix| self.partition(prefix[0], |key, _| key[..words] < prefix[..words]).0,
                |first| before + first,
            ),
        )
    }

    /// The first entry of the leaf that shares an entry's first words; Err with its key if others may stand before it.
    fn tie_start(&self, spot: Spot, words: usize) -> Result<usize, Key<W>> {
        let (head, block) = self.leaf(spot.leaf);
        let key = head.key(block, spot.at);
        let first = point(0, spot.at, |at| head.key(block, at)[..words] < key[..words]);
        if first > 0 || self.ends_before(spot.leaf, &key[..words]) { Ok(first) } else { Err(key) }
    }

    /// Whether the leaf before one, if any, ends with another prefix.
    fn ends_before(&self, leaf: u32, prefix: &[u64]) -> bool {
        self.leaf_before(leaf).is_none_or(|before| {
            let (head, block) = self.leaf(before);
            head.key(block, head.len() - 1)[..prefix.len()] != *prefix
        })
    }

    /// How many different tie prefixes there are up to and with an entry; of a tree that counts them.
    pub fn ties_through(&self, spot: Spot) -> usize {
        let words = self.start_words.expect("a dense board counts starts");
        let head = &self.heads[spot.leaf as usize];
        let group = &self.groups[head.group as usize];
        let before = sum(&group.starts[..usize::from(head.slot)]);
        let inside = (0..=spot.at).filter(|&at| self.is_start(spot.leaf, at, words)).count();
        self.starts.prefix(group.order as usize) as usize + before + inside
    }

    /// Visit up to `limit` entries from a position on, leaf by leaf.
    pub fn visit(&self, position: usize, limit: usize, mut visit: impl FnMut(&Head<W>, &[u8], Range<usize>)) {
        if position >= self.len || limit == 0 {
            return;
        }
        let (mut order, before) = self.counts.find(position as u64);
        let mut skip = position - before as usize;
        let mut left = limit.min(self.len - position);
        while left > 0 {
            let group = &self.groups[self.root[order] as usize];
            for (slot, &count) in group.counts.iter().enumerate() {
                let count = count as usize;
                if skip >= count {
                    skip -= count;
                    continue;
                }
                let (head, block) = self.leaf(group.leaves[slot]);
                let range = skip..count.min(skip + left);
                left -= range.len();
                skip = 0;
                visit(head, block, range);
                if left == 0 {
                    return;
                }
            }
            order += 1;
        }
    }

    // --- changing -----------------------------------------------------------------------------------------

    /// Add an entry of a player who has none; where it is now.
    pub fn insert(&mut self, key: Key<W>, player: u32, place: i64, ids: Ids) -> Spot {
        let before = |other: &Key<W>, number| ids.entries((other, number), (&key, player)) == Ordering::Less;
        let (_, spot) = self.partition(key[0], before);
        let entry = Entry { key, player, place: if self.keeps_places { place } else { 0 } };
        self.len += 1;
        let (head, block) = self.leaf_mut(spot.leaf);
        if head.is_full() || !head.holds(&entry) {
            self.homes.set(player, spot.leaf, self.len);
            self.unpack(spot.leaf);
            self.unpacked.insert(spot.at, entry);
            self.repack(spot.leaf, ids.players.len());
            return self.find(player).expect("it has just been added");
        }
        head.insert(block, spot.at, &entry);
        self.homes.set(player, spot.leaf, self.len);
        self.recount(spot.leaf);
        self.count_starts_around(spot.leaf);
        spot
    }

    /// Change the key of an entry; where it is now.
    pub fn change(&mut self, spot: Spot, key: Key<W>, place: i64, ids: Ids) -> Spot {
        let (head, block) = self.leaf(spot.leaf);
        let player = head.player(block, spot.at);
        let before = |at: usize| {
            let id = |player| ids.players.id(player);
            head.compare(block, at, &key).then_with(|| ids.compare(head.player(block, at), id(player)))
        };
        // Most changes of a score move an entry far; one that stays between its neighbours is written in place.
        let follows = spot.at > 0 && before(spot.at - 1) == Ordering::Less;
        if !follows || spot.at + 1 == head.len() || before(spot.at + 1) != Ordering::Greater {
            self.remove(spot);
            return self.insert(key, player, place, ids);
        }
        let entry = Entry { key, player, place: if self.keeps_places { place } else { 0 } };
        let (head, block) = self.leaf_mut(spot.leaf);
        if head.holds(&entry) {
            head.write(block, spot.at, &entry);
            self.count_starts_around(spot.leaf);
            return spot;
        }
        self.unpack(spot.leaf);
        self.unpacked[spot.at] = entry;
        self.repack(spot.leaf, ids.players.len());
        self.find(player).expect("it is still there")
    }

    pub fn remove(&mut self, spot: Spot) {
        let (head, block) = self.leaf_mut(spot.leaf);
        let player = head.player(block, spot.at);
        head.remove(block, spot.at);
        self.len -= 1;
        if self.len == 0 {
            self.clear();
            return;
        }
        self.homes.remove(player);
        self.recount(spot.leaf);
        if !self.blocks.is_lone() && self.heads[spot.leaf as usize].fits_eighths(2) && self.merge(spot.leaf) {
            return;
        }
        self.count_starts_around(spot.leaf);
    }

    /// Fill an empty tree with entries that are in order, in a game of so many players.
    pub fn fill(&mut self, entries: &[Entry<W>], players: usize) {
        self.clear();
        self.len = entries.len();
        if Head::bytes_if_few(entries).is_some_and(|bytes| bytes <= LONE_MAX) {
            self.pack_lone(entries);
            return;
        }
        self.heads.clear();
        let mut separators = Vec::new();
        let mut left = entries;
        let mut size = 64;
        while !left.is_empty() {
            // As many as fill nine tenths of a block; the leaf before tells about how many that is.
            size = (size + size / 4 + 1).min(left.len());
            let head = loop {
                match Head::packed(&left[..size], BLOCK * 9 / 10).and_then(|_| Head::packed(&left[..size], BLOCK)) {
                    Some(head) => break head,
                    None => size -= size.div_ceil(16),
                }
            };
            let leaf = self.blocks.push();
            let block = self.blocks.get_mut(leaf);
            for (at, entry) in left[..size].iter().enumerate() {
                head.write(block, at, entry);
            }
            self.heads.push(head);
            separators.push((left[0].key, left[0].player));
            left = &left[size..];
        }
        let leaves = self.heads.len();
        let per_group = GROUP_MAX * 3 / 4;
        self.groups = (0..leaves)
            .step_by(per_group)
            .enumerate()
            .map(|(order, first)| {
                let some = first..leaves.min(first + per_group);
                Group {
                    counts: self.heads[some.clone()].iter().map(|head| head.len() as u16).collect(),
                    starts: vec![0; some.len()],
                    separators: Separators::new(separators[some.clone()].to_vec()),
                    leaves: some.map(|leaf| leaf as u32).collect(),
                    order: order as u32,
                }
            })
            .collect();
        for (leaf, head) in self.heads.iter_mut().enumerate() {
            head.group = (leaf / per_group) as u32;
            head.slot = (leaf % per_group) as u16;
        }
        self.root = (0..self.groups.len() as u32).collect();
        self.root_separators = Separators::new(self.groups.iter().map(|group| group.separators.whole[0]).collect());
        self.settle_homes(players);
        if self.start_words.is_some() {
            for leaf in 0..leaves as u32 {
                let starts = self.starts_of(leaf);
                let head = &self.heads[leaf as usize];
                self.groups[head.group as usize].starts[usize::from(head.slot)] = starts;
            }
        }
        self.sum_groups();
    }

    /// Choose how homes are kept, for a game of so many players, and write them down.
    fn settle_homes(&mut self, players: usize) {
        self.homes = Homes::new(self.len, players);
        for number in self.root.clone() {
            for leaf in self.groups[number as usize].leaves.clone() {
                self.rehome(leaf);
            }
        }
    }

    fn rehome(&mut self, leaf: u32) {
        let (head, block) = (&self.heads[leaf as usize], self.blocks.get(leaf));
        for at in 0..head.len() {
            self.homes.set(head.player(block, at), leaf, self.len);
        }
    }

    fn set_homes(&mut self, entries: &[Entry<W>], leaf: u32) {
        for entry in entries {
            self.homes.set(entry.player, leaf, self.len);
        }
    }

    // --- packing anew -------------------------------------------------------------------------------------

    fn unpack(&mut self, leaf: u32) {
        let mut entries = std::mem::take(&mut self.unpacked);
        entries.clear();
        let (head, block) = self.leaf(leaf);
        head.entries(block, &mut entries);
        self.unpacked = entries;
    }

    /// The unpacked entries are those of this leaf now: pack them there if they fit, or with a neighbour, or split it.
    fn repack(&mut self, leaf: u32, players: usize) {
        let mut entries = std::mem::take(&mut self.unpacked);
        if self.blocks.is_lone() {
            if Head::bytes_if_few(&entries).is_some_and(|bytes| bytes <= LONE_MAX) {
                self.pack_lone(&entries);
                entries = Vec::new();
            } else {
                self.fill(&entries, players);
            }
        } else if let Some(head) = Head::packed(&entries, BLOCK) {
            self.pack(leaf, head, &entries);
            self.count_starts_around(leaf);
        } else if !self.share(leaf, &mut entries) {
            let mut packed = Vec::new();
            self.spread(leaf, &entries, &mut packed);
            if self.homes.are_outgrown(self.len, players) {
                self.settle_homes(players);
            } else {
                packed[1..].iter().for_each(|&leaf| self.rehome(leaf));
            }
            for leaf in packed {
                self.count_starts_around(leaf);
            }
        }
        self.unpacked = entries;
    }

    fn pack(&mut self, leaf: u32, packed: Head<W>, entries: &[Entry<W>]) {
        let (head, block) = (&mut self.heads[leaf as usize], self.blocks.get_mut(leaf));
        *head = packed.placed(head.group, head.slot);
        for (at, entry) in entries.iter().enumerate() {
            head.write(block, at, entry);
        }
        self.recount(leaf);
    }

    fn pack_lone(&mut self, entries: &[Entry<W>]) {
        let needed = Head::bytes_if_few(entries).expect("the caller has asked");
        let bytes = if entries.len() < 8 { needed } else { needed + needed / 8 }.min(LONE_MAX);
        self.blocks.set_lone(bytes);
        let head = Head::packed(entries, bytes).expect("as many bytes as they need");
        self.pack(0, head, entries);
        self.count_starts_around(0);
    }

    /// Hand some of a leaf's entries to a neighbour in its group that has room. Whether one has.
    fn share(&mut self, leaf: u32, entries: &mut Vec<Entry<W>>) -> bool {
        let head = &self.heads[leaf as usize];
        let slot = usize::from(head.slot);
        let group = &self.groups[head.group as usize];
        let has_room = |other: &u32| self.heads[*other as usize].fits_eighths(6);
        let right = group.leaves.get(slot + 1).copied().filter(has_room);
        let left = slot.checked_sub(1).map(|slot| group.leaves[slot]).filter(has_room);
        let own = entries.len();
        let (lower, upper) = if let Some(right) = right {
            let (head, block) = self.leaf(right);
            head.entries(block, entries);
            (leaf, right)
        } else if let Some(left) = left {
            let (head, block) = self.leaf(left);
            head.entries(block, entries);
            entries.rotate_left(own);
            (left, leaf)
        } else {
            return false;
        };
        let half = entries.len() / 2;
        let heads = (Head::packed(&entries[..half], BLOCK), Head::packed(&entries[half..], BLOCK));
        let (Some(first), Some(second)) = heads else {
            if upper == leaf {
                entries.rotate_right(own);
            }
            entries.truncate(own);
            return false;
        };
        self.pack(lower, first, &entries[..half]);
        self.pack(upper, second, &entries[half..]);
        let bound = if lower == leaf { own } else { entries.len() - own };
        if half < bound {
            self.set_homes(&entries[half..bound], upper);
        } else {
            self.set_homes(&entries[bound..half], lower);
        }
        let head = &self.heads[upper as usize];
        self.groups[head.group as usize]
            .separators
            .set(usize::from(head.slot), (entries[half].key, entries[half].player));
        self.count_starts_around(lower);
        self.count_starts_around(upper);
        true
    }

    /// Pack entries into a leaf and as many new ones after it as they need.
    fn spread(&mut self, leaf: u32, entries: &[Entry<W>], packed: &mut Vec<u32>) {
        if let Some(head) = Head::packed(entries, BLOCK) {
            self.pack(leaf, head, entries);
            packed.push(leaf);
            return;
        }
        let (lower, upper) = entries.split_at(entries.len() / 2);
        let fresh = self.add_leaf_after(leaf, (upper[0].key, upper[0].player));
        self.spread(leaf, lower, packed);
        self.spread(fresh, upper, packed);
    }

    fn add_leaf_after(&mut self, leaf: u32, separator: Separator<W>) -> u32 {
        let fresh = self.free_leaves.pop().unwrap_or_else(|| {
            make_room(&mut self.heads, 1);
            self.heads.push(Head::new(NONE, 0));
            self.blocks.push()
        });
        let Head { group: number, slot, .. } = self.heads[leaf as usize];
        let slot = usize::from(slot) + 1;
        let group = &mut self.groups[number as usize];
        group.leaves.insert(slot, fresh);
        group.counts.insert(slot, 0);
        group.starts.insert(slot, 0);
        group.separators.insert(slot, separator);
        self.heads[fresh as usize] = Head::new(number, 0);
        self.renumber(number, slot);
        if self.groups[number as usize].leaves.len() > GROUP_MAX {
            self.split_group(number);
        }
        fresh
    }

    fn split_group(&mut self, number: u32) {
        let fresh = self.groups.len() as u32;
        let group = &mut self.groups[number as usize];
        let half = group.leaves.len() / 2;
        let order = group.order as usize;
        let upper = Group {
            leaves: group.leaves.split_off(half),
            counts: group.counts.split_off(half),
            starts: group.starts.split_off(half),
            separators: group.separators.split_off(half),
            order: 0,
        };
        for (slot, &leaf) in upper.leaves.iter().enumerate() {
            self.heads[leaf as usize].group = fresh;
            self.heads[leaf as usize].slot = slot as u16;
        }
        self.root.insert(order + 1, fresh);
        self.root_separators.insert(order + 1, upper.separators.whole[0]);
        self.groups.push(upper);
        self.reorder();
    }

    /// Join a small leaf with a neighbour in its group, if both fit well into one. Whether it is gone.
    fn merge(&mut self, leaf: u32) -> bool {
        let Head { group: number, slot, .. } = self.heads[leaf as usize];
        let slot = usize::from(slot);
        let group = &self.groups[number as usize];
        let is_empty = self.heads[leaf as usize].len() == 0;
        let fits = |other: &u32| is_empty || self.heads[*other as usize].fits_eighths(4);
        let left = slot.checked_sub(1).map(|slot| group.leaves[slot]).filter(fits);
        let right = group.leaves.get(slot + 1).copied().filter(fits);
        let joined = if let Some(left) = left {
            self.join(left, leaf)
        } else if let Some(right) = right {
            self.join(leaf, right)
        } else {
            false
        };
        if !joined && is_empty {
            self.drop_only_leaf(leaf);
        }
        joined || is_empty
    }

    /// Move the entries of a leaf to the end of the one before it, if they fit well.
    fn join(&mut self, kept: u32, gone: u32) -> bool {
        self.unpack(kept);
        let mut entries = std::mem::take(&mut self.unpacked);
        let own = entries.len();
        let (head, block) = self.leaf(gone);
        let Head { group: number, slot, .. } = *head;
        head.entries(block, &mut entries);
        let packed = Head::packed(&entries, BLOCK * 3 / 4).and_then(|_| Head::packed(&entries, BLOCK));
        // One of them may be empty: then the other's packing is as good as any.
        let packed = packed.or_else(|| Head::packed(&entries, BLOCK).filter(|_| self.one_is_empty(kept, gone)));
        if let Some(packed) = packed {
            self.set_count(gone, 0);
            self.set_starts(gone, 0);
            self.pack(kept, packed, &entries);
            self.set_homes(&entries[own..], kept);
            let slot = usize::from(slot);
            let group = &mut self.groups[number as usize];
            group.leaves.remove(slot);
            group.counts.remove(slot);
            group.starts.remove(slot);
            group.separators.remove(slot);
            self.renumber(number, slot);
            self.free(gone);
            self.count_starts_around(kept);
        }
        self.unpacked = entries;
        packed.is_some()
    }

    fn one_is_empty(&self, a: u32, b: u32) -> bool {
        [a, b].iter().any(|&leaf| self.heads[leaf as usize].len() == 0)
    }

    fn free(&mut self, leaf: u32) {
        self.heads[leaf as usize] = Head::new(NONE, 0);
        self.free_leaves.push(leaf);
    }

    /// An empty leaf that is the only one of its group (a neighbour would have taken it): the group goes.
    fn drop_only_leaf(&mut self, leaf: u32) {
        let before = self.leaf_before(leaf);
        let number = self.heads[leaf as usize].group;
        let order = self.groups[number as usize].order as usize;
        self.free(leaf);
        self.root.remove(order);
        self.root_separators.remove(order);
        self.groups.swap_remove(number as usize);
        // The last group has taken its number.
        let moved = self.groups.len() as u32;
        if number != moved {
            for &leaf in &self.groups[number as usize].leaves {
                self.heads[leaf as usize].group = number;
            }
            for known in &mut self.root {
                if *known == moved {
                    *known = number;
                }
            }
        }
        self.reorder();
        let near = before.unwrap_or_else(|| self.groups[self.root[0] as usize].leaves[0]);
        self.count_starts_around(near);
    }

    // --- counting -----------------------------------------------------------------------------------------

    /// A leaf has more or fewer entries than before.
    fn recount(&mut self, leaf: u32) {
        self.set_count(leaf, self.heads[leaf as usize].len() as u16);
    }

    fn set_count(&mut self, leaf: u32, count: u16) {
        let head = &self.heads[leaf as usize];
        let group = &mut self.groups[head.group as usize];
        let before = std::mem::replace(&mut group.counts[usize::from(head.slot)], count);
        self.counts.add(group.order as usize, i64::from(count) - i64::from(before));
    }

    /// Leaves from a slot on have moved in their group.
    fn renumber(&mut self, group: u32, from: usize) {
        for (slot, &leaf) in self.groups[group as usize].leaves.iter().enumerate().skip(from) {
            self.heads[leaf as usize].slot = slot as u16;
        }
    }

    /// Groups were added or removed.
    fn reorder(&mut self) {
        for (order, &number) in self.root.iter().enumerate() {
            self.groups[number as usize].order = order as u32;
        }
        self.sum_groups();
    }

    fn sum_groups(&mut self) {
        let groups = || self.root.iter().map(|&number| &self.groups[number as usize]);
        self.counts = Fenwick::build(groups().map(|group| sum(&group.counts) as u64));
        if self.start_words.is_some() {
            self.starts = Fenwick::build(groups().map(|group| sum(&group.starts) as u64));
        }
    }

    /// A leaf has changed: count its starts again, and those of the leaf after, whose first entry may have become one.
    fn count_starts_around(&mut self, leaf: u32) {
        if self.start_words.is_some() {
            self.set_starts(leaf, self.starts_of(leaf));
            if let Some(after) = self.leaf_after(leaf) {
                self.set_starts(after, self.starts_of(after));
            }
        }
    }

    fn set_starts(&mut self, leaf: u32, starts: u16) {
        let head = &self.heads[leaf as usize];
        let group = &mut self.groups[head.group as usize];
        let before = std::mem::replace(&mut group.starts[usize::from(head.slot)], starts);
        self.starts.add(group.order as usize, i64::from(starts) - i64::from(before));
    }

    fn starts_of(&self, leaf: u32) -> u16 {
        let words = self.start_words.expect("a dense board counts starts");
        (0..self.heads[leaf as usize].len()).filter(|&at| self.is_start(leaf, at, words)).count() as u16
    }

    fn is_start(&self, leaf: u32, at: usize, words: usize) -> bool {
        let (head, block) = self.leaf(leaf);
        if at > 0 {
            !head.share_prefix(block, at, at - 1, words)
        } else {
            self.ends_before(leaf, &head.key(block, at)[..words])
        }
    }

    fn leaf_before(&self, leaf: u32) -> Option<u32> {
        let head = &self.heads[leaf as usize];
        let group = &self.groups[head.group as usize];
        match head.slot {
            0 => {
                let order = group.order.checked_sub(1)?;
                self.groups[self.root[order as usize] as usize].leaves.last().copied()
            }
            slot => Some(group.leaves[usize::from(slot) - 1]),
        }
    }

    fn leaf_after(&self, leaf: u32) -> Option<u32> {
        let head = &self.heads[leaf as usize];
        let group = &self.groups[head.group as usize];
        group.leaves.get(usize::from(head.slot) + 1).copied().or_else(|| {
            let next = *self.root.get(group.order as usize + 1)?;
            self.groups[next as usize].leaves.first().copied()
        })
    }
}

fn sum(values: &[u16]) -> usize {
    values.iter().map(|&value| u32::from(value)).sum::<u32>() as usize
}

/// The first of some numbers for which a condition does not hold that holds for all before it.
#[inline(always)]
fn point(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
