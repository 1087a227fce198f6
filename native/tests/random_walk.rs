//! Random steps on an index beside a sorted set of the standard library; every answer and invariant is compared.

use _native::index::{Policy, Ranking, Spec, Standing, new_index};
use _native::players::PlayerTable;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Small and seeded, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// Score down, time up, then id: the default order.
type Entry = (Reverse<i64>, i64, String);

struct Model {
    entries: BTreeSet<Entry>,
    of: HashMap<String, (i64, i64)>,
}

impl Model {
    fn best(&mut self, id: &str, score: i64, time: i64) -> bool {
        let old = self.of.get(id).copied();
        if old.is_some_and(|(s, t)| (Reverse(s), t) <= (Reverse(score), time)) {
            return false;
        }
        if let Some((s, t)) = old {
            self.entries.remove(&(Reverse(s), t, id.to_owned()));
        }
        self.entries.insert((Reverse(score), time, id.to_owned()));
        self.of.insert(id.to_owned(), (score, time));
        true
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some((s, t)) = self.of.remove(id) else { return false };
        self.entries.remove(&(Reverse(s), t, id.to_owned()))
    }
}

fn spec(ranking: Ranking) -> Spec {
    Spec {
        descending: vec![true, false],
        tie_terms: 1,
        player_descending: false,
        policy: Policy::Best,
        value_term: 0,
        ranking,
    }
}

fn walk(seed: u64, steps: usize, players: u64, scores: u64, ranking: Ranking, check_every: usize) {
    let mut random = Random(seed);
    let mut table = PlayerTable::default();
    let mut index = new_index(spec(ranking)).expect("two terms");
    let mut model = Model { entries: BTreeSet::new(), of: HashMap::new() };
    for step in 0..steps {
        // Waves of growing and shrinking, so that leaves and groups come and go.
        let shrinking = (step / (steps / 8).max(1)) % 4 == 3;
        let id = format!("p{}", random.below(players));
        let number = table.intern(id.as_bytes()).expect("room");
        if random.below(100) < if shrinking { 70 } else { 5 } {
            assert_eq!(index.remove(number, step as i64), model.remove(&id), "step {step}");
        } else {
            let (score, time) = (random.below(scores) as i64 - 50, random.below(1000) as i64);
            let effect = index.apply(&table, number, &[vec![score], vec![time]], 0, step as i64);
            assert_eq!(effect.counted, model.best(&id, score, time), "step {step}");
            assert_eq!(effect.total, model.of.len());
            assert_eq!(effect.new.map(|new| new.value), model.of.get(&id).map(|&(s, _)| s));
        }
        if step % check_every == 0 || step + 1 == steps {
            index.check(&table).unwrap_or_else(|wrong| panic!("step {step}: {wrong}"));
            compare(&*index, &table, &model, ranking);
        }
    }
}

fn compare(index: &dyn _native::index::AnyIndex, table: &PlayerTable, model: &Model, ranking: Ranking) {
    assert_eq!(index.len(), model.entries.len());
    let rows = index.rows(0, usize::MAX);
    let (mut rank, mut dense, mut previous) = (0, 0, None);
    for (at, (Reverse(score), time, id)) in model.entries.iter().enumerate() {
        if previous != Some(*score) {
            (rank, dense, previous) = (at + 1, dense + 1, Some(*score));
        }
        let right = match ranking {
            Ranking::Competition => rank,
            Ranking::Dense => dense,
            Ranking::Ordinal => at + 1,
        };
        assert_eq!(table.text(rows.players[at]), id);
        assert_eq!((rows.terms[0][at], rows.terms[1][at], rows.ranks[at]), (*score, *time, right));
        let standing = Standing { value: *score, rank: right, position: at + 1 };
        assert_eq!(index.standing(rows.players[at]), Some(standing));
    }
}

#[test]
fn small_boards_with_many_ties() {
    for (seed, ranking) in [Ranking::Competition, Ranking::Dense, Ranking::Ordinal].into_iter().enumerate() {
        walk(seed as u64 + 1, 20_000, 700, 20, ranking, 97);
    }
}

#[test]
fn large_boards_split_and_merge() {
    for (seed, ranking) in [Ranking::Competition, Ranking::Dense].into_iter().enumerate() {
        walk(seed as u64 + 11, 400_000, 120_000, 100_000, ranking, 49_999);
    }
}

/// `make soak` runs it: a minute or two.
#[test]
#[ignore = "long"]
fn ten_million_random_steps() {
    walk(99, 6_000_000, 300_000, 50_000, Ranking::Competition, 250_000);
    walk(98, 4_000_000, 40_000, 300, Ranking::Dense, 100_000);
}
