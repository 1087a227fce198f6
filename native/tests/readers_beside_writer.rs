//! Readers beside writers, with locks as `python.rs` has them: players first, then the index of a board.
//!
//! Two boards share their players and each has one writer. Readers see each answer at one moment, and so it must be
//! consistent in itself; afterwards the content is that of a plain map. `make race` runs this under ThreadSanitizer;
//! `LAURELS_RACE_TURNS` says how many batches each writer writes.

use _native::index::{AnyIndex, Policy, Ranking, RowColumns, Spec, Standing, new_index};
use _native::players::PlayerTable;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const ROWS_PER_TURN: usize = 64;
const READERS: u64 = if cfg!(miri) { 1 } else { 3 };
/// Written in one turn and with equal terms each time: who sees some of them changed sees a torn state.
const TEAM: usize = 8;
/// Players who are never removed.
const RESIDENTS: usize = if cfg!(miri) { 6 } else { 120 };
/// Players who come and go, the first time each at some time during the run.
const GUESTS: usize = if cfg!(miri) { 10 } else { 400 };
const BATCH: u64 = if cfg!(miri) { 12 } else { 200 };

/// Small and seeded; how threads meet is up to the system.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Everyone who may ever be on a board: the team, residents, guests.
fn everyone() -> Vec<String> {
    let team = (0..TEAM).map(|n| format!("team-{n}"));
    let residents = (0..RESIDENTS).map(|n| format!("resident-{n}"));
    team.chain(residents).chain((0..GUESTS).map(|n| format!("guest-{n}-{}", "x".repeat(n % 30)))).collect()
}

fn is_resident(at: usize) -> bool {
    (TEAM..TEAM + RESIDENTS).contains(&at)
}

/// Score down, time up, then id.
type Key = (Reverse<i64>, i64, Vec<u8>);

fn key(table: &PlayerTable, player: u32, score: i64, time: i64) -> Key {
    (Reverse(score), time, table.id(player).to_vec())
}

struct Board {
    table: Arc<RwLock<PlayerTable>>,
    index: RwLock<Box<dyn AnyIndex>>,
    policy: Policy,
    ranking: Ranking,
    team: Vec<String>,
}

impl Board {
    fn new(table: &Arc<RwLock<PlayerTable>>, policy: Policy, ranking: Ranking) -> Self {
        let spec = Spec {
            descending: vec![true, false],
            tie_terms: 1,
            player_descending: false,
            policy,
            value_term: 0,
            ranking,
        };
        let index = RwLock::new(new_index(spec).expect("two terms"));
        Self { table: Arc::clone(table), index, policy, ranking, team: everyone()[..TEAM].to_vec() }
    }

    fn numbers(&self, ids: &[&str]) -> Vec<u32> {
        let bytes = ids.iter().map(|id| id.as_bytes());
        let known = self.table.read().find_all(bytes.clone());
        let number = |(known, id): (Option<u32>, &[u8])| {
            known.unwrap_or_else(|| self.table.write().intern(id).expect("room for an id"))
        };
        known.into_iter().zip(bytes).map(number).collect()
    }

    fn apply(&self, ids: &[&str], terms: &[Vec<i64>], places: &[i64]) -> Vec<bool> {
        let mut effects = Vec::new();
        for turn in self.numbers(ids).chunks(ROWS_PER_TURN) {
            let table = self.table.read();
            let mut index = self.index.write();
            index.apply_all(&table, turn, terms, effects.len(), places, &mut effects);
            RwLockWriteGuard::unlock_fair(index);
        }
        effects.iter().map(|effect| effect.counted).collect()
    }

    fn merge(&self, ids: &[&str], terms: &[Vec<i64>], places: &[i64]) -> Vec<bool> {
        let numbers = self.numbers(ids);
        let table = self.table.read();
        let mut index = self.index.write();
        (0..ids.len()).map(|row| index.merge(&table, numbers[row], terms, row, places[row])).collect()
    }

    fn remove(&self, ids: &[&str], place: i64) -> Vec<bool> {
        let table = self.table.read();
        let mut index = self.index.write();
        ids.iter().map(|id| table.find(id.as_bytes()).is_some_and(|n| index.remove(n, place))).collect()
    }

    fn mark_clean(&self, ids: &[&str], places: &[i64]) {
        let table = self.table.read();
        let mut index = self.index.write();
        for (id, &place) in ids.iter().zip(places) {
            if let Some(number) = table.find(id.as_bytes()) {
                index.mark_clean(number, place);
            }
        }
    }

    fn look<T>(&self, work: impl FnOnce(&PlayerTable, &dyn AnyIndex) -> T) -> T {
        let table = self.table.read();
        let index = self.index.read();
        let team = table.find_all(self.team.iter().map(String::as_bytes));
        let mut team = team.iter().map(|number| number.and_then(|number| index.terms(number)));
        let first = team.next().expect("a team has members");
        assert!(team.all(|terms| terms == first), "a part of a turn was seen");
        work(&table, index.as_ref())
    }

    /// What a writer writes, and what must come of it.
    fn write(&self, seed: u64, turns: usize) -> Model {
        let everyone = everyone();
        let mut random = Random(seed);
        let mut model = Model { policy: self.policy, entries: BTreeMap::new(), pending: BTreeMap::new() };
        for id in &everyone[TEAM..TEAM + RESIDENTS] {
            model.entries.insert(id.clone(), (0, 0));
            model.pending.insert(id.clone(), (0, false));
        }
        let mut place = 0;
        for turn in 0..turns {
            // The team first and whole, or not at all; guests arrive little by little.
            let known = TEAM + RESIDENTS + (GUESTS * (turn + 1)).div_ceil(turns);
            let mut ids: Vec<&str> = Vec::new();
            if random.chance(50) {
                ids.extend(everyone[..TEAM].iter().map(String::as_str));
            }
            let others = &everyone[TEAM..known];
            ids.extend((0..random.below(BATCH)).map(|_| others[random.below(others.len() as u64) as usize].as_str()));
            let action = random.below(100);
            if action >= 90 {
                // As the store does: what it has written is clean, where nothing has changed since.
                let places: Vec<i64> = ids.iter().map(|&id| model.pending.get(id).map_or(0, |one| one.0)).collect();
                self.mark_clean(&ids, &places);
                ids.iter().for_each(|&id| _ = model.pending.remove(id));
                continue;
            }
            if action >= 75 {
                ids.retain(|id| !id.starts_with("resident"));
                place += 1;
                assert_eq!(self.remove(&ids, place), model.remove(&ids, place), "turn {turn}");
                continue;
            }
            let team = (random.below(40) as i64 + 1, random.below(50) as i64);
            let rows: Vec<(i64, i64)> = (ids.iter())
                .map(|id| match id.starts_with("team") {
                    true => team,
                    false => (random.below(40) as i64 + 1, random.below(50) as i64),
                })
                .collect();
            let places: Vec<i64> = (place + 1..).take(rows.len()).collect();
            place += rows.len() as i64;
            let committed = action >= 60;
            let base = |id: &str| if committed && self.policy.adds() { model.score(id) } else { 0 };
            let scores = ids.iter().zip(&rows).map(|(id, row)| base(id) + row.0).collect();
            let terms = [scores, rows.iter().map(|row| row.1).collect()];
            let did = if committed { self.merge(&ids, &terms, &places) } else { self.apply(&ids, &terms, &places) };
            assert_eq!(did, model.take(&ids, &terms, &places, committed), "turn {turn}");
        }
        model
    }

    /// One look after the other until the writers are done.
    fn read(&self, seed: u64, step: u64, best: &mut BTreeMap<String, (Reverse<i64>, i64)>) {
        let everyone = everyone();
        let mut random = Random(seed * 1_000_003 + step);
        let id = everyone[random.below(everyone.len() as u64) as usize].as_str();
        let limit = 1 + random.below(60) as usize;
        let at = random.below(everyone.len() as u64) as usize;
        let (score, time) = (random.below(60) as i64, random.below(50) as i64);
        match step % 8 {
            0 => self.look(|table, index| self.check_everyone(table, index, &everyone, best)),
            1 => self.look(|table, index| {
                let rows = index.rows(at, limit);
                assert_eq!(rows.first_position, at + 1);
                self.check_rows(table, index, &rows);
                let least = limit.min(RESIDENTS.saturating_sub(at));
                assert!((least..=limit).contains(&rows.players.len()));
            }),
            2 => self.look(|table, index| {
                let Some(number) = table.find(id.as_bytes()) else { return };
                let around = index.around(number, limit);
                assert_eq!(around.is_some(), index.standing(number).is_some());
                let Some(rows) = around else { return };
                self.check_rows(table, index, &rows);
                assert!(rows.players.contains(&number));
                assert_eq!(rows.players.len(), limit.min(index.len()));
            }),
            3 => self.look(|table, index| {
                let place = (Reverse(score), time, id.as_bytes().to_vec());
                let before = index.before(table, &[score, time], id.as_bytes(), limit);
                let after = index.after(table, &[score, time], id.as_bytes(), limit);
                let last = self.check_rows(table, index, &before).pop();
                let next = self.check_rows(table, index, &after).into_iter().next();
                assert!(last.is_none_or(|last| last < place) && next.is_none_or(|next| place < next));
                let between = after.first_position - before.first_position - before.players.len();
                let there = table.find(id.as_bytes()).and_then(|n| index.terms(n)) == Some(vec![score, time]);
                assert_eq!(between, usize::from(there));
            }),
            4 => self.look(|_, index| {
                let (before, through) = (index.count_before(&[score]), index.count_through(&[score]));
                assert!(before <= through && through <= index.len() && index.count_through(&[]) == index.len());
                let columns = index.rows(before, through - before);
                assert!(columns.terms[0].iter().all(|&other| other == score));
            }),
            5 => self.look(|table, index| {
                let pending = index.pending(table, if random.chance(50) { usize::MAX } else { limit });
                let ids: Vec<&[u8]> = pending.players.iter().map(|&number| table.id(number)).collect();
                assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
                assert!(ids.len() == limit.min(index.pending_count()) || ids.len() == index.pending_count());
                for (row, &number) in pending.players.iter().enumerate() {
                    let terms = index.terms(number);
                    let shown = vec![pending.terms[0][row], pending.terms[1][row]];
                    assert_eq!(terms.is_none(), pending.removed[row]);
                    assert_eq!(terms.unwrap_or_else(|| vec![0, 0]), shown);
                    let place = if pending.removed[row] { -1 } else { pending.places[row] };
                    assert_eq!(index.pending_place(number), place);
                }
            }),
            6 => self.look(|table, index| {
                let standing = index.standing_by_id(table, id.as_bytes());
                assert_eq!(standing, table.find(id.as_bytes()).and_then(|number| index.standing(number)));
                assert!(standing.is_some() || !id.starts_with("resident"));
                assert!(standing.is_none_or(|one| one.rank <= one.position && one.position <= index.len()));
            }),
            _ => self.look(|table, index| index.check(table).expect("every invariant holds")),
        }
    }

    /// The whole board by its players: positions without a gap, and ranks that follow from the terms.
    fn check_everyone(
        &self,
        table: &PlayerTable,
        index: &dyn AnyIndex,
        everyone: &[String],
        best: &mut BTreeMap<String, (Reverse<i64>, i64)>,
    ) {
        let numbers = table.find_all(everyone.iter().map(String::as_bytes));
        let (standings, terms) = index.entries(&numbers);
        assert_eq!(standings, index.standings(&numbers));
        let mut entries: Vec<(Key, Standing)> = Vec::new();
        for (at, standing) in standings.iter().enumerate() {
            let (score, time) = (terms[0][at], terms[1][at]);
            let Some(standing) = standing else {
                assert!((score, time) == (0, 0) && !is_resident(at));
                continue;
            };
            assert_eq!(standing.value, score);
            entries.push((key(table, numbers[at].expect("it has an entry"), score, time), *standing));
            if is_resident(at) {
                // Best replaces by what is better, and only what is positive is added.
                let before = best.insert(everyone[at].clone(), (Reverse(score), time));
                assert!(before.is_none_or(|before| (Reverse(score), time) <= before), "{}", everyone[at]);
            }
        }
        entries.sort_unstable_by_key(|(_, standing)| standing.position);
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "positions are not those of the order");
        assert_eq!(entries.len(), index.len());
        let (mut rank, mut dense) = (0, 0);
        for (at, ((score, ..), standing)) in entries.iter().enumerate() {
            if at == 0 || entries[at - 1].0.0 != *score {
                (rank, dense) = (at + 1, dense + 1);
            }
            let right = if self.ranking == Ranking::Dense { dense } else { rank };
            assert_eq!((standing.rank, standing.position), (right, at + 1));
        }
    }

    /// Rows ascend strictly, and their ranks agree with their terms and with what each player is told.
    fn check_rows(&self, table: &PlayerTable, index: &dyn AnyIndex, rows: &RowColumns) -> Vec<Key> {
        let keys: Vec<Key> = (rows.players.iter().enumerate())
            .map(|(at, &player)| key(table, player, rows.terms[0][at], rows.terms[1][at]))
            .collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for (at, &player) in rows.players.iter().enumerate() {
            let (position, rank, value) = (rows.first_position + at, rows.ranks[at], rows.terms[0][at]);
            assert_eq!(index.standing(player), Some(Standing { value, rank, position }));
            if at > 0 {
                assert_eq!(rows.ranks[at - 1] == rank, rows.terms[0][at - 1] == value);
            }
        }
        keys
    }
}

/// What is right: entries in plain maps.
struct Model {
    policy: Policy,
    entries: BTreeMap<String, (i64, i64)>,
    /// The place, and whether it was removed.
    pending: BTreeMap<String, (i64, bool)>,
}

impl Model {
    fn score(&self, id: &str) -> i64 {
        self.entries.get(id).map_or(0, |&(score, _)| score)
    }

    /// Places grow from row to row: a sum counts every row, and a merged row always is the newer one.
    fn take(&mut self, ids: &[&str], terms: &[Vec<i64>], places: &[i64], committed: bool) -> Vec<bool> {
        let mut took = Vec::new();
        for (row, &id) in ids.iter().enumerate() {
            let (mut score, time) = (terms[0][row], terms[1][row]);
            let better = self.entries.get(id).is_none_or(|&(s, t)| (Reverse(score), time) < (Reverse(s), t));
            took.push(self.policy.adds() || better);
            if !took[row] {
                continue;
            }
            if self.policy.adds() && !committed {
                score += self.score(id);
            }
            self.entries.insert(id.to_owned(), (score, time));
            if committed {
                self.pending.remove(id);
            } else {
                self.pending.insert(id.to_owned(), (places[row], false));
            }
        }
        took
    }

    fn remove(&mut self, ids: &[&str], place: i64) -> Vec<bool> {
        let mut removed = Vec::new();
        for &id in ids {
            removed.push(self.entries.remove(id).is_some());
            if removed.last() == Some(&true) {
                self.pending.insert(id.to_owned(), (place, true));
            }
        }
        removed
    }
}

fn race(turns: usize) {
    let table = Arc::default();
    let boards =
        [Board::new(&table, Policy::Best, Ranking::Competition), Board::new(&table, Policy::Sum, Ranking::Dense)];
    // Residents are there before anybody looks.
    let everyone = everyone();
    let residents: Vec<&str> = everyone[TEAM..TEAM + RESIDENTS].iter().map(String::as_str).collect();
    let zeros = vec![0; RESIDENTS];
    boards.iter().for_each(|board| drop(board.apply(&residents, &[zeros.clone(), zeros.clone()], &zeros)));

    let writing = AtomicUsize::new(boards.len());
    let models: Vec<Model> = thread::scope(|scope| {
        let (boards, writing) = (&boards, &writing);
        for seed in 1..=READERS {
            scope.spawn(move || {
                let mut best = [BTreeMap::new(), BTreeMap::new()];
                for step in 0.. {
                    for (board, best) in boards.iter().zip(&mut best) {
                        board.read(seed, step, best);
                    }
                    if writing.load(Ordering::Acquire) == 0 && step >= 8 {
                        break;
                    }
                }
            });
        }
        let writers: Vec<_> = (boards.iter().zip(7..))
            .map(|(board, seed)| {
                scope.spawn(move || {
                    let _done = Done(writing);
                    board.write(seed, turns)
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("the writer is right")).collect()
    });

    for (board, model) in boards.iter().zip(models) {
        let (table, index) = (board.table.read(), board.index.read());
        index.check(&table).expect("every invariant holds");
        let rows = index.rows(0, usize::MAX);
        board.check_rows(&table, index.as_ref(), &rows);
        let entries: BTreeMap<String, (i64, i64)> = (rows.players.iter().enumerate())
            .map(|(at, &player)| (table.text(player).to_owned(), (rows.terms[0][at], rows.terms[1][at])))
            .collect();
        assert_eq!(entries, model.entries);
        let pending = index.pending(&table, usize::MAX);
        let changed: BTreeMap<String, (i64, bool)> = (pending.players.iter().zip(&pending.places))
            .zip(&pending.removed)
            .map(|((&player, &place), &removed)| (table.text(player).to_owned(), (place, removed)))
            .collect();
        assert_eq!(changed, model.pending);
    }
}

/// Readers stop too when a writer fails.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[test]
fn each_answer_is_of_one_moment() {
    let turns = std::env::var("LAURELS_RACE_TURNS").map(|turns| turns.parse().expect("a number of turns"));
    race(turns.unwrap_or(if cfg!(miri) { 3 } else { 300 }));
}

/// `make soak` runs it: a minute or so.
#[test]
#[ignore = "long"]
fn each_answer_is_of_one_moment_for_a_long_time() {
    race(30_000);
}
