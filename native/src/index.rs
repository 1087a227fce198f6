//! What the entries of a board instance mean: order terms as keys, policies, ranks, and what is not yet written.

use crate::pending::Pending;
use crate::players::PlayerTable;
use crate::tree::{AHEAD, Entry, Ids, Key, Spot, Tree};
use std::cmp::Ordering;
use std::collections::HashMap;

/// What a further submission of a player does to the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Best,
    Last,
    First,
    Sum,
    Count,
    Min,
    Max,
}

impl Policy {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "best" => Self::Best,
            "last" => Self::Last,
            "first" => Self::First,
            "sum" => Self::Sum,
            "count" => Self::Count,
            "min" => Self::Min,
            "max" => Self::Max,
            _ => return None,
        })
    }

    pub fn adds(self) -> bool {
        matches!(self, Self::Sum | Self::Count)
    }

    /// Whether entries keep the place that they reflect, because their key does not tell which of two is newer.
    fn keeps_places(self) -> bool {
        !matches!(self, Self::Best | Self::Min | Self::Max)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranking {
    Competition,
    Dense,
    Ordinal,
}

impl Ranking {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "competition" => Self::Competition,
            "dense" => Self::Dense,
            "ordinal" => Self::Ordinal,
            _ => return None,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub descending: Vec<bool>,
    pub tie_terms: usize,
    pub player_descending: bool,
    pub policy: Policy,
    pub value_term: usize,
    pub ranking: Ranking,
}

impl Spec {
    /// A term as a word that compares unsigned in board order.
    fn word(&self, term: usize, value: i64) -> u64 {
        let word = (value as u64) ^ (1 << 63);
        if self.descending[term] { !word } else { word }
    }

    fn value(&self, term: usize, word: u64) -> i64 {
        let word = if self.descending[term] { !word } else { word };
        (word ^ (1 << 63)) as i64
    }
}

/// Consecutive entries as columns.
#[derive(Default)]
pub struct RowColumns {
    pub first_position: usize,
    pub players: Vec<u32>,
    pub ranks: Vec<usize>,
    pub terms: Vec<Vec<i64>>,
}

/// One entry as others see it; `position` and `rank` are 1-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub value: i64,
    pub rank: usize,
    pub position: usize,
}

/// What one row did.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub counted: bool,
    pub old: Option<Standing>,
    pub new: Option<Standing>,
    pub total: usize,
}

/// Entries that are not yet written, as columns in order of player id.
#[derive(Default)]
pub struct PendingColumns {
    pub players: Vec<u32>,
    pub terms: Vec<Vec<i64>>,
    pub places: Vec<i64>,
    pub removed: Vec<bool>,
}

/// The first row of a player who has one already; `players` numbers are given out.
fn repeated<const W: usize>(entries: &[Entry<W>], players: usize) -> Option<usize> {
    let rows = entries.iter().map(|entry| entry.player);
    if rows.len() < players / 16 {
        let mut rows: Vec<(u32, usize)> = rows.zip(0..).collect();
        rows.sort_unstable();
        return rows.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).min();
    }
    let mut seen = vec![false; players];
    let mut rows = rows;
    rows.position(|player| std::mem::replace(&mut seen[player as usize], true))
}

/// An index whatever the width of its keys. Rows of `terms` are columns: terms[term][row].
pub trait AnyIndex: Send + Sync {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn memory_bytes(&self) -> usize;
    fn clear(&mut self);
    /// Take entries, in any order, that `load` will make the contents.
    fn stage(&mut self, players: &[u32], terms: &[Vec<i64>], places: &[i64]);
    /// Let go of what was staged.
    fn unstage(&mut self);
    /// Replace the contents by what was staged; Err with a row of a player who occurs twice, and the contents stay.
    fn load(&mut self, table: &PlayerTable) -> Result<(), usize>;
    fn apply(&mut self, table: &PlayerTable, player: u32, terms: &[Vec<i64>], row: usize, place: i64) -> Effect;
    /// Apply a row for each player, from `row` on. Their cache misses overlap.
    fn apply_all(
        &mut self,
        table: &PlayerTable,
        players: &[u32],
        terms: &[Vec<i64>],
        row: usize,
        places: &[i64],
        effects: &mut Vec<Effect>,
    );
    fn merge(&mut self, table: &PlayerTable, player: u32, terms: &[Vec<i64>], row: usize, place: i64) -> bool;
    fn remove(&mut self, player: u32, place: i64) -> bool;
    /// What each row adds to a sum.
    fn addends(&self, terms: &[Vec<i64>]) -> Vec<i64>;
    /// Whether a submission at a place is newer than what a player's entry reflects.
    fn is_new(&self, player: u32, place: i64) -> bool;
    /// The first row whose value takes a sum beyond 64 bits; rows without a player are passed over.
    fn sum_overflow(&self, players: &[Option<u32>], values: &[i64]) -> Option<usize>;
    fn standing(&self, player: u32) -> Option<Standing>;
    /// By id: what follows from the likely player is asked for while the id is compared.
    fn standing_by_id(&self, table: &PlayerTable, id: &[u8]) -> Option<Standing>;
    /// Of many players at once: their cache misses overlap.
    fn standings(&self, players: &[Option<u32>]) -> Vec<Option<Standing>>;
    /// Standings and terms, a column each, of many players at once; zeros where there is no entry.
    fn entries(&self, players: &[Option<u32>]) -> (Vec<Option<Standing>>, Vec<Vec<i64>>);
    fn terms(&self, player: u32) -> Option<Vec<i64>>;
    fn rows(&self, position: usize, limit: usize) -> RowColumns;
    fn around(&self, player: u32, limit: usize) -> Option<RowColumns>;
    fn after(&self, table: &PlayerTable, terms: &[i64], id: &[u8], limit: usize) -> RowColumns;
    fn before(&self, table: &PlayerTable, terms: &[i64], id: &[u8], limit: usize) -> RowColumns;
    fn count_before(&self, prefix: &[i64]) -> usize;
    fn count_through(&self, prefix: &[i64]) -> usize;
    fn pending_count(&self) -> usize;
    fn pending(&self, table: &PlayerTable, limit: usize) -> PendingColumns;
    /// The players with changes that are not yet written.
    fn pending_players(&self) -> Vec<u32>;
    /// Those of some players that have any.
    fn pending_of(&self, players: &[u32]) -> PendingColumns;
    fn pending_place(&self, player: u32) -> i64;
    fn mark_clean(&mut self, player: u32, place: i64);
    fn check(&self, table: &PlayerTable) -> Result<(), String>;
}

/// An empty index for as many terms as the spec has, 1 to 5.
pub fn new_index(spec: Spec) -> Option<Box<dyn AnyIndex>> {
    Some(match spec.descending.len() {
        1 => Box::new(Index::<1>::new(spec)),
        2 => Box::new(Index::<2>::new(spec)),
        3 => Box::new(Index::<3>::new(spec)),
        4 => Box::new(Index::<4>::new(spec)),
        5 => Box::new(Index::<5>::new(spec)),
        _ => return None,
    })
}

struct Index<const W: usize> {
    spec: Spec,
    tree: Tree<W>,
    /// What the store has not written yet: by player the place, or its complement if the entry was removed.
    pending: Pending,
    /// What is being loaded.
    staged: Vec<Entry<W>>,
}

impl<const W: usize> Index<W> {
    fn new(spec: Spec) -> Self {
        let starts = (spec.ranking == Ranking::Dense).then_some(spec.tie_terms);
        let tree = Tree::new(spec.policy.keeps_places(), starts);
        Self { spec, tree, pending: Pending::default(), staged: Vec::new() }
    }

    fn ids<'a>(&self, table: &'a PlayerTable) -> Ids<'a> {
        Ids { players: table, descending: self.spec.player_descending }
    }

    fn key(&self, terms: &[Vec<i64>], row: usize) -> Key<W> {
        std::array::from_fn(|term| self.spec.word(term, terms[term][row]))
    }

    fn value_of(&self, key: &Key<W>) -> i64 {
        self.spec.value(self.spec.value_term, key[self.spec.value_term])
    }

    #[inline]
    fn standing_at(&self, spot: Spot) -> Standing {
        let term = self.spec.value_term;
        let value = self.spec.value(term, self.tree.word(spot, term));
        let (rank, position) = match self.spec.ranking {
            Ranking::Competition => {
                let (position, tie) = self.tree.position_and_tie(spot, self.spec.tie_terms);
                (tie + 1, position)
            }
            Ranking::Dense => (self.tree.ties_through(spot), self.tree.position(spot)),
            Ranking::Ordinal => {
                let position = self.tree.position(spot);
                (position + 1, position)
            }
        };
        Standing { value, rank, position: position + 1 }
    }

    fn effect(&self, counted: bool, old: Option<Standing>, new: Option<Standing>) -> Effect {
        Effect { counted, old, new, total: self.tree.len() }
    }

    /// What the policy makes of an entry's key and a submission's; None if the submission does not count.
    fn succeed(&self, old: &Key<W>, old_place: i64, mut new: Key<W>, place: i64) -> Option<Key<W>> {
        let at = self.spec.value_term;
        let counts = match self.spec.policy {
            Policy::Best => new < *old,
            Policy::First => false,
            Policy::Last | Policy::Sum | Policy::Count => place > old_place,
            Policy::Min => self.value_of(&new) < self.value_of(old),
            Policy::Max => self.value_of(&new) > self.value_of(old),
        };
        if counts && self.spec.policy.adds() {
            // `sum_overflow` was asked first; should a caller have left it out, the sum stops at the end of the range.
            new[at] = self.spec.word(at, self.value_of(old).saturating_add(self.value_of(&new)));
        }
        counts.then_some(new)
    }

    fn place_at(&self, spot: Spot) -> i64 {
        if self.spec.policy.keeps_places() { self.tree.place(spot) } else { -1 }
    }

    fn columns(&self, position: usize, limit: usize) -> RowColumns {
        let count = limit.min(self.tree.len().saturating_sub(position));
        let mut rows = RowColumns {
            first_position: position + 1,
            players: Vec::with_capacity(count),
            ranks: Vec::with_capacity(count),
            terms: vec![Vec::with_capacity(count); W],
        };
        self.tree.visit(position, limit, |head, block, range| {
            rows.players.extend(range.clone().map(|at| head.player(block, at)));
            for (term, column) in rows.terms.iter_mut().enumerate() {
                column.extend(head.words(block, term, range.clone()).map(|word| self.spec.value(term, word)));
            }
        });
        let mut rank = rows.players.first().map_or(0, |&player| self.standing(player).expect("it has an entry").rank);
        let ties = &rows.terms[..self.spec.tie_terms];
        for row in 0..rows.players.len() {
            if row > 0 {
                match self.spec.ranking {
                    Ranking::Ordinal => rank += 1,
                    _ if ties.iter().all(|column| column[row] == column[row - 1]) => {}
                    Ranking::Competition => rank = position + row + 1,
                    Ranking::Dense => rank += 1,
                }
            }
            rows.ranks.push(rank);
        }
        rows
    }

    /// How many entries stand before a place in the order, and whether that place's own entry counts.
    fn count_to(&self, table: &PlayerTable, terms: &[i64], id: &[u8], through: bool) -> usize {
        let key: Key<W> = std::array::from_fn(|term| self.spec.word(term, terms[term]));
        let ids = self.ids(table);
        self.tree
            .partition(key[0], |other, player| match other.cmp(&key).then_with(|| ids.compare(player, id)) {
                Ordering::Less => true,
                Ordering::Equal => through,
                Ordering::Greater => false,
            })
            .0
    }

    fn pending_columns(&self, changed: &[(u32, i64)]) -> PendingColumns {
        let mut columns = PendingColumns { terms: vec![Vec::with_capacity(changed.len()); W], ..Default::default() };
        for &(player, place) in changed {
            let removed = place < 0;
            let key = (!removed).then(|| self.tree.key(self.tree.find(player).expect("a changed entry is there")));
            for (term, column) in columns.terms.iter_mut().enumerate() {
                column.push(key.map_or(0, |key| self.spec.value(term, key[term])));
            }
            columns.players.push(player);
            columns.places.push(if removed { !place } else { place });
            columns.removed.push(removed);
        }
        columns
    }

    fn prefix(&self, prefix: &[i64]) -> Vec<u64> {
        prefix.iter().enumerate().map(|(term, &value)| self.spec.word(term, value)).collect()
    }
}

impl<const W: usize> AnyIndex for Index<W> {
    fn len(&self) -> usize {
        self.tree.len()
    }

    fn memory_bytes(&self) -> usize {
        self.tree.memory_bytes() + self.pending.memory_bytes()
    }

    fn clear(&mut self) {
        self.tree.clear();
        self.pending = Pending::default();
    }

    fn stage(&mut self, players: &[u32], terms: &[Vec<i64>], places: &[i64]) {
        let keeps_places = self.spec.policy.keeps_places();
        for (row, &player) in players.iter().enumerate() {
            let place = if keeps_places { places[row] } else { 0 };
            self.staged.push(Entry { key: self.key(terms, row), player, place });
        }
    }

    fn unstage(&mut self) {
        self.staged = Vec::new();
    }

    fn load(&mut self, table: &PlayerTable) -> Result<(), usize> {
        let mut entries = std::mem::take(&mut self.staged);
        if let Some(row) = repeated(&entries, table.len()) {
            return Err(row);
        }
        let ids = self.ids(table);
        let order =
            |a: &Entry<W>, b: &Entry<W>| a.key.cmp(&b.key).then_with(|| ids.compare(a.player, table.id(b.player)));
        if !entries.is_sorted_by(|a, b| order(a, b) == Ordering::Less) {
            entries.sort_unstable_by(order);
        }
        self.pending = Pending::default();
        self.tree.fill(&entries, table.len());
        Ok(())
    }

    fn apply(&mut self, table: &PlayerTable, player: u32, terms: &[Vec<i64>], row: usize, place: i64) -> Effect {
        let mut key = self.key(terms, row);
        if self.spec.policy == Policy::Count {
            key[self.spec.value_term] = self.spec.word(self.spec.value_term, 1);
        }
        let ids = self.ids(table);
        let Some(spot) = self.tree.find(player) else {
            let spot = self.tree.insert(key, player, place, ids);
            self.pending.insert(player, place);
            return self.effect(true, None, Some(self.standing_at(spot)));
        };
        let old_key = self.tree.key(spot);
        let old = self.standing_at(spot);
        match self.succeed(&old_key, self.place_at(spot), key, place) {
            None => self.effect(false, Some(old), Some(old)),
            Some(key) => {
                let spot = self.tree.change(spot, key, place, ids);
                self.pending.insert(player, place);
                self.effect(true, Some(old), Some(self.standing_at(spot)))
            }
        }
    }

    fn apply_all(
        &mut self,
        table: &PlayerTable,
        players: &[u32],
        terms: &[Vec<i64>],
        row: usize,
        places: &[i64],
        effects: &mut Vec<Effect>,
    ) {
        // What one row reads is asked for while the rows before it are applied: first where the entry is, then the entry.
        for &player in players.iter().take(2 * AHEAD) {
            self.pending.prefetch(player);
            self.tree.prefetch_home(player);
        }
        for (&player, row) in players.iter().take(AHEAD).zip(row..) {
            self.tree.prefetch_change(player, &self.key(terms, row));
        }
        for (at, &player) in players.iter().enumerate() {
            if let Some(&player) = players.get(at + 2 * AHEAD) {
                self.pending.prefetch(player);
                self.tree.prefetch_home(player);
            }
            if let Some(&player) = players.get(at + AHEAD) {
                self.tree.prefetch_change(player, &self.key(terms, row + at + AHEAD));
            }
            effects.push(self.apply(table, player, terms, row + at, places[row + at]));
        }
    }

    fn merge(&mut self, table: &PlayerTable, player: u32, terms: &[Vec<i64>], row: usize, place: i64) -> bool {
        let key = self.key(terms, row);
        let ids = self.ids(table);
        let Some(spot) = self.tree.find(player) else {
            self.tree.insert(key, player, place, ids);
            self.pending.remove(player); // that the entry was removed is overtaken
            return true;
        };
        let old = &self.tree.key(spot);
        let wins = match self.spec.policy {
            Policy::Best => key < *old,
            Policy::First => place < self.tree.place(spot),
            Policy::Last | Policy::Sum | Policy::Count => place > self.tree.place(spot),
            // Of two equal values the one that stands better in the order, so that every order of merging agrees.
            Policy::Min => (self.value_of(&key), &key) < (self.value_of(old), old),
            Policy::Max => {
                (self.value_of(old), &key) < (self.value_of(&key), old) || self.value_of(&key) > self.value_of(old)
            }
        };
        if wins {
            self.tree.change(spot, key, place, ids);
            self.pending.remove(player); // what stands now is committed
        }
        wins
    }

    fn remove(&mut self, player: u32, place: i64) -> bool {
        let Some(spot) = self.tree.find(player) else { return false };
        self.tree.remove(spot);
        self.pending.insert(player, !place);
        true
    }

    fn addends(&self, terms: &[Vec<i64>]) -> Vec<i64> {
        let values = &terms[self.spec.value_term];
        if self.spec.policy == Policy::Count { vec![1; values.len()] } else { values.clone() }
    }

    fn is_new(&self, player: u32, place: i64) -> bool {
        self.tree.find(player).is_none_or(|spot| place > self.place_at(spot))
    }

    fn sum_overflow(&self, players: &[Option<u32>], values: &[i64]) -> Option<usize> {
        let mut sums: HashMap<u32, i64, foldhash::fast::RandomState> = HashMap::default();
        for (row, (&player, &value)) in players.iter().zip(values).enumerate() {
            let Some(player) = player else { continue };
            let sum = sums
                .entry(player)
                .or_insert_with(|| self.tree.find(player).map_or(0, |spot| self.value_of(&self.tree.key(spot))));
            match sum.checked_add(value) {
                Some(next) => *sum = next,
                None => return Some(row),
            }
        }
        None
    }

    fn standing(&self, player: u32) -> Option<Standing> {
        self.tree.find(player).map(|spot| self.standing_at(spot))
    }

    fn standing_by_id(&self, table: &PlayerTable, id: &[u8]) -> Option<Standing> {
        self.standing(table.find_ahead(id, |player| self.tree.prefetch_entry(player))?)
    }

    fn standings(&self, players: &[Option<u32>]) -> Vec<Option<Standing>> {
        let mut standings = Vec::with_capacity(players.len());
        self.tree.find_all(players, |spot| standings.push(spot.map(|spot| self.standing_at(spot))));
        standings
    }

    fn entries(&self, players: &[Option<u32>]) -> (Vec<Option<Standing>>, Vec<Vec<i64>>) {
        let mut standings = Vec::with_capacity(players.len());
        let mut columns = vec![Vec::with_capacity(players.len()); W];
        self.tree.find_all(players, |spot| {
            let key = spot.map(|spot| self.tree.key(spot));
            for (term, column) in columns.iter_mut().enumerate() {
                column.push(key.map_or(0, |key| self.spec.value(term, key[term])));
            }
            standings.push(spot.map(|spot| self.standing_at(spot)));
        });
        (standings, columns)
    }

    fn terms(&self, player: u32) -> Option<Vec<i64>> {
        let key = self.tree.key(self.tree.find(player)?);
        Some(key.iter().enumerate().map(|(term, &word)| self.spec.value(term, word)).collect())
    }

    fn rows(&self, position: usize, limit: usize) -> RowColumns {
        self.columns(position, limit)
    }

    fn around(&self, player: u32, limit: usize) -> Option<RowColumns> {
        let position = self.tree.position(self.tree.find(player)?);
        let wanted = limit.min(self.tree.len());
        let above = limit.saturating_sub(1) / 2;
        let first = position.saturating_sub(above).min(self.tree.len() - wanted);
        Some(self.columns(first, wanted))
    }

    fn after(&self, table: &PlayerTable, terms: &[i64], id: &[u8], limit: usize) -> RowColumns {
        self.columns(self.count_to(table, terms, id, true), limit)
    }

    fn before(&self, table: &PlayerTable, terms: &[i64], id: &[u8], limit: usize) -> RowColumns {
        let count = self.count_to(table, terms, id, false);
        let limit = limit.min(count);
        self.columns(count - limit, limit)
    }

    fn count_before(&self, prefix: &[i64]) -> usize {
        let prefix = self.prefix(prefix);
        let Some(&first) = prefix.first() else { return 0 };
        self.tree.partition(first, |key, _| key[..prefix.len()] < prefix[..]).0
    }

    fn count_through(&self, prefix: &[i64]) -> usize {
        let prefix = self.prefix(prefix);
        let Some(&first) = prefix.first() else { return self.tree.len() };
        self.tree.partition(first, |key, _| key[..prefix.len()] <= prefix[..]).0
    }

    fn pending_count(&self) -> usize {
        self.pending.len()
    }

    fn pending(&self, table: &PlayerTable, limit: usize) -> PendingColumns {
        let mut changed: Vec<(u32, i64)> = self.pending.iter().collect();
        let by_id = |a: &(u32, i64), b: &(u32, i64)| table.id(a.0).cmp(table.id(b.0));
        if limit < changed.len() {
            changed.select_nth_unstable_by(limit, by_id);
            changed.truncate(limit);
        }
        changed.sort_unstable_by(by_id);
        self.pending_columns(&changed)
    }

    fn pending_players(&self) -> Vec<u32> {
        self.pending.iter().map(|(player, _)| player).collect()
    }

    fn pending_of(&self, players: &[u32]) -> PendingColumns {
        let changed: Vec<(u32, i64)> = players.iter().filter_map(|&n| Some((n, self.pending.get(n)?))).collect();
        self.pending_columns(&changed)
    }

    fn pending_place(&self, player: u32) -> i64 {
        self.pending.get(player).map_or(-1, |place| place.max(-1))
    }

    fn mark_clean(&mut self, player: u32, place: i64) {
        if self.pending.get(player).is_some_and(|pending| pending == place || pending == !place) {
            self.pending.remove(player);
        }
    }

    fn check(&self, table: &PlayerTable) -> Result<(), String> {
        self.tree.check(self.ids(table))?;
        for (player, pending) in self.pending.iter() {
            if self.tree.find(player).is_some() == (pending < 0) {
                return Err("a pending change disagrees with the entries".to_owned());
            }
        }
        Ok(())
    }
}
