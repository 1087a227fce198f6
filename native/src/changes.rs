//! Players in order of their ids, to be written slice by slice: pages of the store are then visited one after another.
//!
//! Sorting millions of ids takes its time, and the ids lie behind a lock that whoever applies submissions needs. So it
//! is held for some thousands of ids at a time, and what is sorted are numbers: eight bytes of each id, after those that
//! all begin with. Only ids that agree in these are looked at again.

use crate::players::PlayerTable;
use parking_lot::{RwLock, RwLockReadGuard};

const IDS_PER_TURN: usize = 4096;
/// So few are compared by their ids at once.
const FEW: usize = 256;

/// Players' numbers in order of their ids (by bytes).
pub fn in_order(table: &RwLock<PlayerTable>, mut numbers: Vec<u32>) -> Vec<u32> {
    order(table, &mut numbers, 0);
    numbers
}

/// The same for ids that agree in their first `agreed` bytes.
fn order(table: &RwLock<PlayerTable>, numbers: &mut [u32], agreed: usize) {
    if numbers.len() <= FEW {
        let table = table.read();
        return numbers.sort_unstable_by(|&one, &other| table.id(one).cmp(table.id(other)));
    }
    let mut agreed_by_all = usize::MAX;
    in_turns(table, numbers, |table, some| {
        let first = &table.id(numbers[0])[agreed..];
        for &number in some {
            let id = &table.id(number)[agreed..];
            agreed_by_all = first.iter().zip(id).take(agreed_by_all).take_while(|(one, other)| one == other).count();
        }
    });
    let agreed = agreed + agreed_by_all;
    let mut keys: Vec<(u64, u32)> = Vec::with_capacity(numbers.len());
    in_turns(table, numbers, |table, some| {
        keys.extend(some.iter().map(|&number| (key(&table.id(number)[agreed..]), number)));
    });
    keys.sort_unstable();
    numbers.iter_mut().zip(&keys).for_each(|(number, key)| *number = key.1);
    let mut start = 0;
    for run in keys.chunk_by(|one, next| one.0 == next.0) {
        let alike = &mut numbers[start..start + run.len()];
        start += run.len();
        if run.len() == 1 {
            continue;
        }
        // An id that ends within the eight bytes looks as if it went on with zeros.
        if alike.len() <= FEW || alike.iter().any(|&number| table.read().id(number).len() < agreed + 8) {
            let table = table.read();
            alike.sort_unstable_by(|&one, &other| table.id(one).cmp(table.id(other)));
        } else {
            order(table, alike, agreed + 8);
        }
    }
}

/// Look at players some at a time; in between whoever waits has a turn.
fn in_turns(table: &RwLock<PlayerTable>, numbers: &[u32], mut look: impl FnMut(&PlayerTable, &[u32])) {
    for some in numbers.chunks(IDS_PER_TURN) {
        let table = table.read();
        table.prefetch_ids(some);
        look(&table, some);
        RwLockReadGuard::unlock_fair(table);
    }
}

/// The first eight bytes as a number that compares like them.
fn key(id: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = id.len().min(8);
    word[..length].copy_from_slice(&id[..length]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(ids: &[String]) {
        let mut table = PlayerTable::default();
        let numbers: Vec<u32> = ids.iter().map(|id| table.intern(id.as_bytes()).unwrap()).collect();
        let table = RwLock::new(table);
        let found: Vec<String> =
            in_order(&table, numbers).into_iter().map(|number| table.read().text(number).to_owned()).collect();
        let mut right = ids.to_vec();
        right.sort();
        assert_eq!(found, right);
    }

    #[test]
    fn ids_are_in_order() {
        let numbered = |count: usize, name: &str| -> Vec<String> {
            (0..if cfg!(miri) { count / 200 } else { count })
                .map(|n| format!("{name}{:08}", n * 7919 % 1_000_003))
                .collect()
        };
        ordered(&[]);
        ordered(&numbered(10, "p"));
        ordered(&numbered(20_000, "player-"));
        ordered(&[numbered(3_000, "player-of-"), numbered(3_000, ""), vec!["x".to_owned()]].concat());
        ordered(
            &[numbered(3_000, "eight-by"), numbered(300, "eight-by12345678"), vec!["eight-by".to_owned()]].concat(),
        );
    }

    #[test]
    fn ids_that_end_are_before_those_that_go_on_with_zeros() {
        let zeros = (0..if cfg!(miri) { 60 } else { 600 }).map(|count| format!("a{}", "\0".repeat(count)));
        ordered(&zeros.rev().collect::<Vec<_>>());
        ordered(
            &(0..if cfg!(miri) { 100 } else { 2_000 })
                .map(|n| format!("a{}b{n}", "\0".repeat(n % 20)))
                .collect::<Vec<_>>(),
        );
    }
}
