//! What a batch did, packed for whoever submits it again: a byte of version, the rows, then what each did.
//!
//! A row that did not count left the entry as it was, so nothing is said of it twice. Positions are near their ranks.

use crate::index::{Effect, Standing};
use crate::packed::{Damaged, Ints, ROWS_MAX, Read, Source, put_bits, put_ints, put_number, read_bits};

const VERSION: u8 = 1;

/// The effects of rows, given their numbers in the segment.
pub fn pack(rows: &[i64], effects: &[Effect]) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_number(&mut out, effects.len() as u64);
    // Rows that follow each other have the same distance from their number here: it takes no room.
    put_ints(&mut out, &rows.iter().enumerate().map(|(at, &row)| row - at as i64).collect::<Vec<_>>());
    put_bits(&mut out, effects.iter().map(|effect| effect.counted));
    put_bits(&mut out, effects.iter().map(|effect| effect.old.is_some()));
    put_bits(&mut out, effects.iter().map(|effect| effect.new != effect.old));
    put_standings(&mut out, effects.iter().filter_map(|effect| effect.old));
    put_standings(&mut out, effects.iter().filter(|effect| effect.new != effect.old).filter_map(|effect| effect.new));
    put_ints(&mut out, &effects.iter().map(|effect| effect.total as i64).collect::<Vec<_>>());
    out
}

/// What `pack` was given.
pub fn unpack(data: &[u8]) -> Read<(Vec<i64>, Vec<Effect>)> {
    let mut source = Source(data);
    if source.byte()? != VERSION {
        return Err(Damaged);
    }
    let count = source.count(ROWS_MAX)?;
    let rows = Ints::read(&mut source, count)?;
    let rows = (0..count).map(|at| rows.get(at).wrapping_add(at as i64)).collect();
    let counted = read_bits(&mut source, count)?;
    let had = read_bits(&mut source, count)?;
    let changed = read_bits(&mut source, count)?;
    let mut old = read_standings(&mut source, had.iter().filter(|&&had| had).count())?.into_iter();
    let mut new = read_standings(&mut source, changed.iter().filter(|&&changed| changed).count())?.into_iter();
    let totals = Ints::read(&mut source, count)?;
    source.end()?;
    let effects = (0..count)
        .map(|at| {
            let old = if had[at] { old.next() } else { None };
            let new = if changed[at] { new.next() } else { old };
            Effect { counted: counted[at], old, new, total: totals.get(at) as usize }
        })
        .collect();
    Ok((rows, effects))
}

fn put_standings(out: &mut Vec<u8>, standings: impl Iterator<Item = Standing> + Clone) {
    put_ints(out, &standings.clone().map(|standing| standing.value).collect::<Vec<_>>());
    put_ints(out, &standings.clone().map(|standing| standing.rank as i64).collect::<Vec<_>>());
    put_ints(out, &standings.map(|standing| standing.position as i64 - standing.rank as i64).collect::<Vec<_>>());
}

fn read_standings(source: &mut Source<'_>, count: usize) -> Read<Vec<Standing>> {
    let values = Ints::read(source, count)?;
    let ranks = Ints::read(source, count)?;
    let distances = Ints::read(source, count)?;
    Ok((0..count)
        .map(|at| {
            let rank = ranks.get(at);
            let position = rank.wrapping_add(distances.get(at)) as usize;
            Standing { value: values.get(at), rank: rank as usize, position }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects() -> Vec<Effect> {
        let standing = |value, rank, position| Some(Standing { value, rank, position });
        vec![
            Effect { counted: true, old: None, new: standing(i64::MIN, 1, 1), total: 1 },
            Effect { counted: false, old: standing(7, 3, 5), new: standing(7, 3, 5), total: 1 },
            Effect { counted: true, old: standing(7, 3, 5), new: standing(i64::MAX, 70_000, 70_001), total: 900_000 },
        ]
    }

    #[test]
    fn effects_come_back() {
        for count in 0..=3 {
            let (rows, all) = ([0, 5, 1023], effects());
            let (unpacked_rows, unpacked) = unpack(&pack(&rows[..count], &all[..count])).unwrap();
            assert_eq!(unpacked_rows, rows[..count]);
            assert_eq!(format!("{unpacked:?}"), format!("{:?}", &all[..count]));
        }
    }

    #[test]
    fn whatever_the_bytes_nothing_panics() {
        let bytes = pack(&[0, 5, 1023], &effects());
        for at in 0..bytes.len() {
            assert!(unpack(&bytes[..at]).is_err());
            for byte in (0..=255).step_by(if cfg!(miri) { 85 } else { 1 }) {
                let mut changed = bytes.clone();
                changed[at] = byte;
                let _ = unpack(&changed);
            }
        }
    }
}
