//! The rank of one id, beside a hash map's get of the same ids in the same order: what a call by id can't go below.
//!
//!     cargo bench --no-default-features --bench rank_floor -- 1000000
//!
//! One look-up after the other, ids in random order, both sides in turn. JSON on the last line.

use _native::index::{Policy, Ranking, Spec, new_index};
use _native::players::PlayerTable;
use hashbrown::HashMap;
use std::hint::black_box;
use std::time::Instant;

const IDS: usize = 20_000;
const REPEATS: usize = 31;

/// Small and seeded, so that a run can be made again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn id(player: u64) -> String {
    format!("player-{player:08}")
}

fn ns_per_id(ids: &[String], mut look_up: impl FnMut(&str) -> usize) -> f64 {
    let start = Instant::now();
    for id in ids {
        black_box(look_up(id));
    }
    start.elapsed().as_nanos() as f64 / ids.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // cargo adds --bench.
    let players = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut table = PlayerTable::default();
    let spec = Spec {
        descending: vec![true, false],
        tie_terms: 1,
        player_descending: false,
        policy: Policy::Best,
        value_term: 0,
        ranking: Ranking::Competition,
    };
    let mut index = new_index(spec).expect("two terms");
    let mut map = HashMap::new();
    for player in 0..players {
        let id = id(player);
        let number = table.intern(id.as_bytes()).expect("room for an id");
        let terms = [vec![random.below(1_000_000_000) as i64], vec![1_796_000_000_000_000 + player as i64]];
        index.apply(&table, number, &terms, 0, player as i64);
        index.mark_clean(number, player as i64);
        map.insert(id.into_boxed_str(), player as usize);
    }
    let (mut ranks, mut gets) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let ids: Vec<String> = (0..IDS).map(|_| id(random.below(players))).collect();
        let rank = |id: &str| index.standing_by_id(&table, id.as_bytes()).expect("a player").rank;
        ranks.push(ns_per_id(&ids, rank));
        gets.push(ns_per_id(&ids, |id| map[id]));
    }
    let ratios = ranks.iter().zip(&gets).map(|(rank, get)| rank / get).collect();
    let (rank, get, ratio) = (median(ranks), median(gets), median(ratios));
    println!(r#"{{"native_rank_ns": {rank:.0}, "hash_get_ns": {get:.0}, "rank_vs_hash_floor": {ratio:.2}}}"#);
}
