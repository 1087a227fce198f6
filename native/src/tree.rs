//! The ordered set behind a rank index: entries (key, player) in order, with counts, so that any position is found and
//! any entry's position is told in O(log n).
//!
//! # Structure
//!
//! * A key is W words of 64 bits that compare as unsigned numbers in board order. Equal keys are ordered by player id.
//! * A **leaf** holds up to 128 entries as parallel arrays: keys, player numbers, and, where the policy needs them, places.
//!   Arrays double at first, so that a board of three players takes three entries' space, and then grow by 16.
//! * A **group** holds up to 128 leaves: for each its number, its count of entries, and its separator, a lower bound
//!   of its entries that is above all entries of the leaf before.
//! * The **root** holds the groups in order with their separators, and a Fenwick tree over their counts.
//! * **Homes** say in which leaf a player's entry is: nothing while there is one leaf, a small hash map while the board has
//!   few of the game's players, an array by player number when it has a good share of them.
//!
//! Three levels of 128, 128 and as many groups as needed: one million entries are some 10,000 leaves in 100 groups, ten
//! million some 1,000 groups. Root and groups stay in the processor's caches; the leaf is what misses. Look-ups of many
//! players go through these steps together, 16 at a time, so that their misses overlap.
//!
//! # Costs (n entries)
//!
//! | | |
//! |---|---|
//! | position of a player | home (1 miss), scan of the leaf's player numbers (512 bytes, vectorised), prefix of counts in the group (256 bytes, vectorised), log(groups) steps of the Fenwick tree |
//! | entry at a position, or position of a key | binary searches in root, group and leaf |
//! | insert, remove | the same, and the shift of half a leaf |
//! | split | one in about 100 inserts; first a neighbour with room takes some |
//!
//! # Invariants (`check` proves them)
//!
//! Entries ascend strictly; a player occurs once; no leaf is empty but the only one; separators bound their leaves; counts,
//! group totals and Fenwick sums add up; homes agree both ways; on dense boards, `starts` count the entries
//! whose tie prefix differs from the entry before.

mod check;
mod fenwick;
mod homes;

use crate::players::PlayerTable;
use crate::prefetch::{TOGETHER, prefetch};
use fenwick::Fenwick;
use homes::Homes;
pub use homes::NumberHasher;
use std::cmp::Ordering;

pub const LEAF_MAX: usize = 128;
const LEAF_STEP: usize = 16;
const LEAF_SHARES: usize = LEAF_MAX * 3 / 4;
const LEAF_MERGES: usize = LEAF_MAX / 4;
const LEAF_LOADED: usize = LEAF_MAX * 9 / 10;
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

struct Leaf<const W: usize> {
    keys: Vec<Key<W>>,
    players: Vec<u32>,
    /// The place that each entry reflects; empty if the tree keeps none.
    places: Vec<i64>,
    /// The group that it is in, and its slot there.
    group: u32,
    slot: u32,
}

impl<const W: usize> Leaf<W> {
    fn with_capacity(capacity: usize, places: bool) -> Self {
        Self {
            keys: Vec::with_capacity(capacity),
            players: Vec::with_capacity(capacity),
            places: Vec::with_capacity(if places { capacity } else { 0 }),
            group: NONE,
            slot: 0,
        }
    }

    fn len(&self) -> usize {
        self.players.len()
    }

    /// Sixteen at a time, which the compiler turns into vector comparisons.
    fn find(&self, player: u32) -> Option<usize> {
        let chunks = self.players.chunks(16).enumerate();
        for (at, chunk) in chunks {
            if chunk.iter().fold(false, |found, &other| found | (other == player)) {
                let inside = chunk.iter().position(|&other| other == player)?;
                return Some(at * 16 + inside);
            }
        }
        None
    }

    /// Give back the space of entries that have left.
    fn shrink(&mut self) {
        let capacity = self.len() + LEAF_STEP;
        self.keys.shrink_to(capacity);
        self.players.shrink_to(capacity);
        self.places.shrink_to(capacity);
    }

    fn insert(&mut self, at: usize, key: Key<W>, player: u32, place: Option<i64>) {
        let more = if self.len() < LEAF_MAX / 2 { self.len().max(4) } else { LEAF_STEP };
        if self.len() == self.keys.capacity() {
            self.keys.reserve_exact(more);
        }
        if self.len() == self.players.capacity() {
            self.players.reserve_exact(more);
        }
        self.keys.insert(at, key);
        self.players.insert(at, player);
        if let Some(place) = place {
            self.places.insert(at, place);
        }
    }

    fn remove(&mut self, at: usize) {
        self.keys.remove(at);
        self.players.remove(at);
        if !self.places.is_empty() {
            self.places.remove(at);
        }
    }

    /// Move the entries from `at` on to the front of `to`.
    fn shift_right(&mut self, at: usize, to: &mut Self) {
        to.keys.splice(0..0, self.keys.drain(at..));
        to.players.splice(0..0, self.players.drain(at..));
        if !self.places.is_empty() {
            to.places.splice(0..0, self.places.drain(at..));
        }
    }

    /// Move the first `count` entries to the end of `to`.
    fn shift_left(&mut self, count: usize, to: &mut Self) {
        to.keys.extend(self.keys.drain(..count));
        to.players.extend(self.players.drain(..count));
        if !self.places.is_empty() {
            to.places.extend(self.places.drain(..count));
        }
    }
}

type Separator<const W: usize> = (Key<W>, u32);

struct Group<const W: usize> {
    leaves: Vec<u32>,
    counts: Vec<u16>,
    /// Of each leaf, how many entries start a new tie group; zeros unless the tree counts them.
    starts: Vec<u16>,
    separators: Vec<Separator<W>>,
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
    leaves: Vec<Leaf<W>>,
    free_leaves: Vec<u32>,
    groups: Vec<Group<W>>,
    root: Vec<u32>,
    root_separators: Vec<Separator<W>>,
    counts: Fenwick,
    starts: Fenwick,
    homes: Homes,
    len: usize,
    keeps_places: bool,
    /// How many leading words decide ties, if starts are counted.
    start_words: Option<usize>,
}

impl<const W: usize> Tree<W> {
    pub fn new(keeps_places: bool, start_words: Option<usize>) -> Self {
        let mut tree = Self {
            leaves: Vec::new(),
            free_leaves: Vec::new(),
            groups: Vec::new(),
            root: Vec::new(),
            root_separators: Vec::new(),
            counts: Fenwick::default(),
            starts: Fenwick::default(),
            homes: Homes::OneLeaf,
            len: 0,
            keeps_places,
            start_words,
        };
        tree.clear();
        tree
    }

    pub fn clear(&mut self) {
        let mut leaf = Leaf::with_capacity(0, self.keeps_places);
        leaf.group = 0;
        self.leaves = vec![leaf];
        self.free_leaves = Vec::new();
        self.groups = vec![Group {
            leaves: vec![0],
            counts: vec![0],
            starts: vec![0],
            separators: vec![([0; W], NONE)],
            order: 0,
        }];
        self.root = vec![0];
        self.root_separators = vec![([0; W], NONE)];
        self.homes = Homes::OneLeaf;
        self.len = 0;
        self.sum_groups();
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> usize {
        let leaves: usize = self
            .leaves
            .iter()
            .map(|leaf| {
                size_of::<Leaf<W>>()
                    + leaf.keys.capacity() * W * 8
                    + leaf.players.capacity() * 4
                    + leaf.places.capacity() * 8
            })
            .sum();
        let groups: usize = self
            .groups
            .iter()
            .map(|group| {
                size_of::<Group<W>>()
                    + group.leaves.capacity() * 4
                    + (group.counts.capacity() + group.starts.capacity()) * 2
                    + group.separators.capacity() * size_of::<Separator<W>>()
            })
            .sum();
        leaves + groups + self.homes.memory_bytes() + self.root.capacity() * (4 + size_of::<Separator<W>>() + 16)
    }

    // --- finding ------------------------------------------------------------------------------------------

    /// Where a player's entry is.
    pub fn find(&self, player: u32) -> Option<Spot> {
        let only = self.groups[self.root[0] as usize].leaves[0];
        let leaf = self.homes.get(player, only)?;
        self.leaves[leaf as usize].find(player).map(|at| Spot { leaf, at })
    }

    /// Where many players' entries are. Their cache misses overlap.
    pub fn find_all(&self, players: &[Option<u32>]) -> Vec<Option<Spot>> {
        let mut found = Vec::with_capacity(players.len());
        for some in players.chunks(TOGETHER) {
            self.prefetch_entries(some.iter().flatten().copied());
            let from = found.len();
            found.extend(some.iter().map(|player| player.and_then(|player| self.find(player))));
            for spot in found[from..].iter().flatten() {
                prefetch(&self.leaves[spot.leaf as usize].keys[spot.at]);
            }
        }
        found
    }

    /// Have at hand what finding these players reads.
    pub fn prefetch_entries(&self, players: impl Iterator<Item = u32> + Clone) {
        let leaves = self.homes.prefetched(players).map(|leaf| &self.leaves[leaf as usize]);
        for leaf in leaves.clone() {
            prefetch(leaf);
        }
        for leaf in leaves {
            for line in leaf.players.iter().step_by(16) {
                prefetch(line);
            }
        }
    }

    pub fn key(&self, spot: Spot) -> &Key<W> {
        &self.leaves[spot.leaf as usize].keys[spot.at]
    }

    /// The place that an entry reflects, of a tree that keeps them.
    pub fn place(&self, spot: Spot) -> i64 {
        self.leaves[spot.leaf as usize].places[spot.at]
    }

    pub fn set_place(&mut self, spot: Spot, place: i64) {
        self.leaves[spot.leaf as usize].places[spot.at] = place;
    }

    /// How many entries stand before one.
    pub fn position(&self, spot: Spot) -> usize {
        self.entries_before(spot.leaf) + spot.at
    }

    fn entries_before(&self, leaf: u32) -> usize {
        let leaf = &self.leaves[leaf as usize];
        let group = &self.groups[leaf.group as usize];
        self.counts.prefix(group.order as usize) as usize + sum(&group.counts[..leaf.slot as usize])
    }

    /// How many entries satisfy a condition that holds for all before some point of the order and for none after it, and
    /// where that point is.
    pub fn partition(&self, holds: impl Fn(&Key<W>, u32) -> bool) -> (usize, Spot) {
        let group = self.root_separators[1..].partition_point(|(key, player)| holds(key, *player));
        let group = &self.groups[self.root[group] as usize];
        let slot = group.separators[1..].partition_point(|(key, player)| holds(key, *player));
        let leaf = &self.leaves[group.leaves[slot] as usize];
        let mut low = 0;
        let mut high = leaf.len();
        while low < high {
            let middle = (low + high) / 2;
            if holds(&leaf.keys[middle], leaf.players[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let before = sum(&group.counts[..slot]);
        let count = self.counts.prefix(group.order as usize) as usize + before + low;
        (count, Spot { leaf: group.leaves[slot], at: low })
    }

    /// How many entries stand before one, and how many before all those that share its first `words` words.
    pub fn position_and_tie(&self, spot: Spot, words: usize) -> (usize, usize) {
        let leaf = &self.leaves[spot.leaf as usize];
        let before = self.entries_before(spot.leaf);
        let prefix = &leaf.keys[spot.at][..words];
        // Most entries share theirs with nobody: look at the one before first.
        if spot.at > 0 && leaf.keys[spot.at - 1][..words] != *prefix {
            return (before + spot.at, before + spot.at);
        }
        let first = leaf.keys[..spot.at].partition_point(|key| key[..words] < *prefix);
        if first > 0 || self.ends_before(spot.leaf, prefix) {
            return (before + spot.at, before + first);
        }
        (before + spot.at, self.partition(|key, _| key[..words] < *prefix).0)
    }

    /// Whether the leaf before one, if any, ends with another prefix.
    fn ends_before(&self, leaf: u32, prefix: &[u64]) -> bool {
        self.leaf_before(leaf).is_none_or(|before| {
            let keys = &self.leaves[before as usize].keys;
            keys[keys.len() - 1][..prefix.len()] != *prefix
        })
    }

    /// How many different tie prefixes there are up to and with an entry; of a tree that counts them.
    pub fn ties_through(&self, spot: Spot) -> usize {
        let words = self.start_words.expect("a dense board counts starts");
        let leaf = &self.leaves[spot.leaf as usize];
        let group = &self.groups[leaf.group as usize];
        let before = sum(&group.starts[..leaf.slot as usize]);
        let inside = (0..=spot.at).filter(|&at| self.is_start(spot.leaf, at, words)).count();
        self.starts.prefix(group.order as usize) as usize + before + inside
    }

    /// Visit up to `limit` entries from a position on.
    pub fn visit(&self, position: usize, limit: usize, mut visit: impl FnMut(Spot, &Key<W>, u32)) {
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
                let leaf = group.leaves[slot];
                let entries = &self.leaves[leaf as usize];
                for at in skip..count.min(skip + left) {
                    visit(Spot { leaf, at }, &entries.keys[at], entries.players[at]);
                    left -= 1;
                }
                skip = 0;
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
        let id = ids.players.id(player);
        let (_, spot) =
            self.partition(|other, number| other.cmp(&key).then_with(|| ids.compare(number, id)) == Ordering::Less);
        self.insert_at(spot, key, player, place);
        if self.leaves[spot.leaf as usize].len() > LEAF_MAX {
            self.make_room(spot.leaf, ids);
            return self.find(player).expect("it has just been added");
        }
        spot
    }

    fn insert_at(&mut self, spot: Spot, key: Key<W>, player: u32, place: i64) {
        let kept = self.keeps_places.then_some(place);
        self.leaves[spot.leaf as usize].insert(spot.at, key, player, kept);
        self.len += 1;
        self.set_home(player, spot.leaf);
        self.count(spot.leaf, 1);
        self.count_starts_around(spot.leaf);
    }

    /// Change the key of an entry; where it is now.
    pub fn change(&mut self, spot: Spot, key: Key<W>, place: i64, ids: Ids) -> Spot {
        let leaf = &self.leaves[spot.leaf as usize];
        let player = leaf.players[spot.at];
        let entry = (&key, player);
        // Most changes of a score move an entry far; one that stays between its neighbours is written in place.
        let after_previous =
            spot.at > 0 && ids.entries((&leaf.keys[spot.at - 1], leaf.players[spot.at - 1]), entry) == Ordering::Less;
        let before_next = spot.at + 1 < leaf.len()
            && ids.entries(entry, (&leaf.keys[spot.at + 1], leaf.players[spot.at + 1])) == Ordering::Less;
        if after_previous && before_next {
            let leaf = &mut self.leaves[spot.leaf as usize];
            leaf.keys[spot.at] = key;
            if self.keeps_places {
                leaf.places[spot.at] = place;
            }
            self.count_starts_around(spot.leaf);
            return spot;
        }
        self.remove(spot);
        self.insert(key, player, place, ids)
    }

    pub fn remove(&mut self, spot: Spot) {
        let player = self.leaves[spot.leaf as usize].players[spot.at];
        self.leaves[spot.leaf as usize].remove(spot.at);
        self.len -= 1;
        self.count(spot.leaf, -1);
        self.homes.remove(player);
        if self.leaves[spot.leaf as usize].len() < LEAF_MERGES && self.merge(spot.leaf) {
            return;
        }
        self.count_starts_around(spot.leaf);
    }

    /// Fill an empty tree with entries that are in order.
    pub fn fill(&mut self, entries: impl ExactSizeIterator<Item = (Key<W>, u32, i64)>, players: usize) {
        self.clear();
        let total = entries.len();
        if total == 0 {
            return;
        }
        let leaves = total.div_ceil(LEAF_LOADED);
        let mut entries = entries;
        self.leaves = (0..leaves)
            .map(|n| {
                let size = total * (n + 1) / leaves - total * n / leaves;
                let mut leaf = Leaf::with_capacity(size, self.keeps_places);
                for (key, player, place) in entries.by_ref().take(size) {
                    leaf.insert(leaf.len(), key, player, self.keeps_places.then_some(place));
                }
                leaf
            })
            .collect();
        self.len = total;
        let per_group = GROUP_MAX * 3 / 4;
        self.groups = (0..leaves)
            .step_by(per_group)
            .enumerate()
            .map(|(order, first)| {
                let numbers: Vec<u32> = (first..leaves.min(first + per_group)).map(|n| n as u32).collect();
                let mut group = Group {
                    counts: numbers.iter().map(|&n| self.leaves[n as usize].len() as u16).collect(),
                    starts: vec![0; numbers.len()],
                    separators: numbers
                        .iter()
                        .map(|&n| {
                            let leaf = &self.leaves[n as usize];
                            (leaf.keys[0], leaf.players[0])
                        })
                        .collect(),
                    leaves: numbers,
                    order: order as u32,
                };
                group.separators.shrink_to_fit();
                group
            })
            .collect();
        for (number, group) in self.groups.iter().enumerate() {
            for (slot, &leaf) in group.leaves.iter().enumerate() {
                self.leaves[leaf as usize].group = number as u32;
                self.leaves[leaf as usize].slot = slot as u32;
            }
        }
        self.root = (0..self.groups.len() as u32).collect();
        self.root_separators = self.groups.iter().map(|group| group.separators[0]).collect();
        self.settle_homes(players);
        if self.start_words.is_some() {
            for leaf in 0..leaves as u32 {
                let starts = self.starts_of(leaf);
                let (group, slot) = (self.leaves[leaf as usize].group, self.leaves[leaf as usize].slot);
                self.groups[group as usize].starts[slot as usize] = starts;
            }
        }
        self.sum_groups();
    }

    /// Choose how homes are kept, for a game of so many players, and write them down.
    fn settle_homes(&mut self, players: usize) {
        if self.root.len() == 1 && self.groups[self.root[0] as usize].leaves.len() == 1 {
            self.homes = Homes::OneLeaf;
            return;
        }
        self.homes = Homes::new(self.len, players);
        for &number in &self.root.clone() {
            for leaf in self.groups[number as usize].leaves.clone() {
                for at in 0..self.leaves[leaf as usize].len() {
                    self.set_home(self.leaves[leaf as usize].players[at], leaf);
                }
            }
        }
    }

    fn set_home(&mut self, player: u32, leaf: u32) {
        self.homes.set(player, leaf, self.len);
    }

    /// A leaf has one entry too many: hand some to a neighbour in its group, or split it.
    fn make_room(&mut self, leaf: u32, ids: Ids) {
        let number = self.leaves[leaf as usize].group;
        let group = &self.groups[number as usize];
        let slot = self.leaves[leaf as usize].slot as usize;
        let right = group.leaves.get(slot + 1).copied();
        let left = slot.checked_sub(1).map(|slot| group.leaves[slot]);
        if let Some(right) = right.filter(|&n| self.leaves[n as usize].len() <= LEAF_SHARES) {
            let (from, to) = pair(&mut self.leaves, leaf, right);
            let moved = (from.len() - to.len()) / 2;
            from.shift_right(from.len() - moved, to);
            self.rehome(right, 0..moved);
            self.recount(number, slot);
            self.recount(number, slot + 1);
            self.separate(number, slot + 1);
        } else if let Some(left) = left.filter(|&n| self.leaves[n as usize].len() <= LEAF_SHARES) {
            let (from, to) = pair(&mut self.leaves, leaf, left);
            let moved = (from.len() - to.len()) / 2;
            let end = to.len();
            from.shift_left(moved, to);
            self.rehome(left, end..end + moved);
            self.recount(number, slot - 1);
            self.recount(number, slot);
            self.separate(number, slot);
        } else {
            self.split(leaf, number, slot, ids.players.len());
        }
        self.count_starts_around(leaf);
        if let Some(left) = left {
            self.count_starts_around(left);
        }
    }

    fn split(&mut self, leaf: u32, number: u32, slot: usize, players: usize) {
        let fresh = self.free_leaves.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::with_capacity(0, self.keeps_places));
            self.leaves.len() as u32 - 1
        });
        self.leaves[fresh as usize] = Leaf::with_capacity(LEAF_MAX / 2 + LEAF_STEP, self.keeps_places);
        let (from, to) = pair(&mut self.leaves, leaf, fresh);
        from.shift_right(from.len() / 2, to);
        from.shrink();
        to.group = number;
        let moved = to.len();
        let group = &mut self.groups[number as usize];
        group.leaves.insert(slot + 1, fresh);
        group.counts.insert(slot + 1, 0);
        group.starts.insert(slot + 1, 0);
        group.separators.insert(slot + 1, ([0; W], NONE));
        self.renumber(number, slot + 1);
        self.recount(number, slot);
        self.recount(number, slot + 1);
        self.separate(number, slot + 1);
        if self.homes.are_outgrown(self.len, players) {
            self.settle_homes(players);
        } else {
            self.rehome(fresh, 0..moved);
        }
        self.count_starts_around(fresh);
        if self.groups[number as usize].leaves.len() > GROUP_MAX {
            self.split_group(number);
        }
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
            self.leaves[leaf as usize].group = fresh;
            self.leaves[leaf as usize].slot = slot as u32;
        }
        self.root.insert(order + 1, fresh);
        self.root_separators.insert(order + 1, upper.separators[0]);
        self.groups.push(upper);
        self.reorder();
    }

    /// Join a small leaf with a neighbour in its group, if both fit well into one. Whether it is gone.
    fn merge(&mut self, leaf: u32) -> bool {
        let number = self.leaves[leaf as usize].group;
        let group = &self.groups[number as usize];
        let slot = self.leaves[leaf as usize].slot as usize;
        let fits = |other: u32| {
            let (small, large) = (&self.leaves[leaf as usize], &self.leaves[other as usize]);
            small.len() == 0 || small.len() + large.len() <= LEAF_SHARES
        };
        let left = slot.checked_sub(1).map(|slot| group.leaves[slot]).filter(|&n| fits(n));
        let right = group.leaves.get(slot + 1).copied().filter(|&n| fits(n));
        if let Some(left) = left {
            self.join(left, leaf, number, slot);
            self.count_starts_around(left);
        } else if let Some(right) = right {
            self.join(leaf, right, number, slot + 1);
            self.count_starts_around(leaf);
        } else if self.leaves[leaf as usize].len() == 0 && self.root.len() > 1 {
            // The only leaf of its group (a neighbour would have taken it): the group goes.
            let order = group.order as usize;
            let before = self.leaf_before(leaf);
            self.free_leaves.push(leaf);
            let group = &mut self.groups[number as usize];
            (group.leaves, group.counts) = (Vec::new(), Vec::new());
            (group.starts, group.separators) = (Vec::new(), Vec::new());
            self.root.remove(order);
            self.root_separators.remove(order);
            self.drop_group(number);
            self.reorder();
            let near = before.unwrap_or_else(|| self.groups[self.root[0] as usize].leaves[0]);
            self.count_starts_around(near);
        } else {
            return false;
        }
        true
    }

    /// Free the space of a group that is not in the root any more: the last group takes its number.
    fn drop_group(&mut self, number: u32) {
        self.groups.swap_remove(number as usize);
        let moved = self.groups.len() as u32;
        if number != moved {
            for &leaf in &self.groups[number as usize].leaves {
                self.leaves[leaf as usize].group = number;
            }
            for known in &mut self.root {
                if *known == moved {
                    *known = number;
                }
            }
        }
    }

    /// Move the entries of `gone`, in slot `slot`, to the end of the leaf before it.
    fn join(&mut self, kept: u32, gone: u32, number: u32, slot: usize) {
        let (from, to) = pair(&mut self.leaves, gone, kept);
        let end = to.len();
        let moved = from.len();
        from.shift_left(moved, to);
        self.leaves[gone as usize] = Leaf::with_capacity(0, self.keeps_places);
        self.free_leaves.push(gone);
        let group = &mut self.groups[number as usize];
        let starts = group.starts.remove(slot);
        group.starts[slot - 1] += starts; // settled by the caller; the group's sum stays what it was
        let count = group.counts.remove(slot);
        group.counts[slot - 1] += count;
        group.leaves.remove(slot);
        group.separators.remove(slot);
        self.renumber(number, slot);
        self.rehome(kept, end..end + moved);
    }

    fn rehome(&mut self, leaf: u32, entries: std::ops::Range<usize>) {
        for at in entries {
            self.set_home(self.leaves[leaf as usize].players[at], leaf);
        }
    }

    // --- counting -----------------------------------------------------------------------------------------

    fn count(&mut self, leaf: u32, difference: i16) {
        let leaf = &self.leaves[leaf as usize];
        let group = &mut self.groups[leaf.group as usize];
        let count = &mut group.counts[leaf.slot as usize];
        *count = count.wrapping_add_signed(difference);
        self.counts.add(group.order as usize, i64::from(difference));
    }

    /// Entries moved within a group: its total stays.
    fn recount(&mut self, group: u32, slot: usize) {
        let group = &mut self.groups[group as usize];
        group.counts[slot] = self.leaves[group.leaves[slot] as usize].len() as u16;
    }

    /// Leaves from a slot on have moved in their group.
    fn renumber(&mut self, group: u32, from: usize) {
        for (slot, &leaf) in self.groups[group as usize].leaves.iter().enumerate().skip(from) {
            self.leaves[leaf as usize].slot = slot as u32;
        }
    }

    fn separate(&mut self, group: u32, slot: usize) {
        let group = &mut self.groups[group as usize];
        let leaf = &self.leaves[group.leaves[slot] as usize];
        group.separators[slot] = (leaf.keys[0], leaf.players[0]);
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
            self.count_starts(leaf);
            if let Some(after) = self.leaf_after(leaf) {
                self.count_starts(after);
            }
        }
    }

    fn count_starts(&mut self, leaf: u32) {
        let starts = self.starts_of(leaf);
        let (group, slot) = (self.leaves[leaf as usize].group, self.leaves[leaf as usize].slot as usize);
        let group = &mut self.groups[group as usize];
        let difference = i64::from(starts) - i64::from(group.starts[slot]);
        group.starts[slot] = starts;
        self.starts.add(group.order as usize, difference);
    }

    fn starts_of(&self, leaf: u32) -> u16 {
        let words = self.start_words.expect("a dense board counts starts");
        (0..self.leaves[leaf as usize].len()).filter(|&at| self.is_start(leaf, at, words)).count() as u16
    }

    fn is_start(&self, leaf: u32, at: usize, words: usize) -> bool {
        let keys = &self.leaves[leaf as usize].keys;
        let prefix = &keys[at][..words];
        if at > 0 { keys[at - 1][..words] != *prefix } else { self.ends_before(leaf, prefix) }
    }

    fn leaf_before(&self, leaf: u32) -> Option<u32> {
        let group = &self.groups[self.leaves[leaf as usize].group as usize];
        match self.leaves[leaf as usize].slot as usize {
            0 => {
                let order = group.order.checked_sub(1)?;
                self.groups[self.root[order as usize] as usize].leaves.last().copied()
            }
            slot => Some(group.leaves[slot - 1]),
        }
    }

    fn leaf_after(&self, leaf: u32) -> Option<u32> {
        let group = &self.groups[self.leaves[leaf as usize].group as usize];
        let slot = self.leaves[leaf as usize].slot as usize;
        group.leaves.get(slot + 1).copied().or_else(|| {
            let next = *self.root.get(group.order as usize + 1)?;
            self.groups[next as usize].leaves.first().copied()
        })
    }
}

fn sum(values: &[u16]) -> usize {
    values.iter().map(|&value| u32::from(value)).sum::<u32>() as usize
}

/// Two different leaves, both to change.
fn pair<const W: usize>(leaves: &mut [Leaf<W>], a: u32, b: u32) -> (&mut Leaf<W>, &mut Leaf<W>) {
    let [a, b] = leaves.get_disjoint_mut([a as usize, b as usize]).expect("two different leaves");
    (a, b)
}
