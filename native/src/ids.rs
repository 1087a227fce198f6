//! Submission ids: has this id been seen, and at which place of the log?
//!
//! Exact, for as many ids as the log holds, without a B-tree of random keys. An id becomes a 128-bit key: a UUID in
//! its canonical lower-case text is its own value (so time-ordered UUIDs give ascending keys), any other text is hashed
//! with SHA-256. Keys live in two kinds of places:
//!
//! * `recent`: a hash table in memory, 24 bytes a slot, and another one that is on its way into a run;
//! * runs: sorted columns of (key, place), cut into chunks that the store keeps. Here stays only what tells in which runs
//!   a key may be: least and greatest key, and a Bloom filter of 16 bits a key (8 probes within one 64-byte block, one
//!   cache miss, about 1 in 1,000 false positives).
//!
//! `find` answers from memory and names the runs that must be asked. `freeze` makes the columns of a new run from
//! `recent`, which starts anew; `adopt` makes it a run after the store has committed it, and `merge` joins several runs
//! into a larger one.

use crate::memory::{TOGETHER, prefetch};
use crate::packed::uuid_value;
use parking_lot::{RwLock, RwLockWriteGuard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use sha2::{Digest, Sha256};

/// Keys of one chunk, as the store keeps it.
const CHUNK_KEYS: usize = 4096;
const FILTER_BITS_PER_KEY: usize = 16;
const BLOCK_WORDS: usize = 8;
const PROBES: u32 = 8;

/// A 64-bit hash of a key: one folded multiplication of its halves, each spread by an odd constant.
fn mix(key: u128) -> u64 {
    let low = (key as u64) ^ 0x9e37_79b9_7f4a_7c15;
    let high = ((key >> 64) as u64) ^ 0xd1b5_4a32_d192_ed03;
    let product = u128::from(low.wrapping_mul(0xff51_afd7_ed55_8ccd)) * u128::from(high | 1);
    (product as u64) ^ ((product >> 64) as u64) ^ low.rotate_left(32)
}

/// The key of an id.
fn key_of(id: &str) -> u128 {
    uuid_value(id.as_bytes()).unwrap_or_else(|| {
        let digest = Sha256::digest(id.as_bytes());
        u128::from_be_bytes(digest[..16].try_into().expect("16 bytes"))
    })
}

/// The place of each id, -1 where memory does not know it, and the runs to ask: (row, run).
type Found = (Vec<i64>, Vec<(usize, i64)>);

/// Rows whose id was there before, and the runs to ask about the others: (row, run).
type Repeats = (Vec<(usize, i64)>, Vec<(usize, i64)>);

/// What memory keeps of a run.
struct Run {
    number: i64,
    least: u128,
    greatest: u128,
    filter: Vec<u64>,
}

impl Run {
    fn may_hold(&self, key: u128) -> bool {
        if key < self.least || key > self.greatest {
            return false;
        }
        let (block, mut bits) = probe(key, self.filter.len() / BLOCK_WORDS);
        (0..PROBES).all(|_| {
            let bit = bits & 511;
            bits >>= 7;
            self.filter[block + (bit as usize >> 6)] >> (bit & 63) & 1 == 1
        })
    }
}

/// The first word of a key's filter block, and the bits that choose its probes.
fn probe(key: u128, blocks: usize) -> (usize, u64) {
    let hash = mix(key);
    let block = ((u128::from(hash) * blocks as u128) >> 64) as usize;
    (block * BLOCK_WORDS, hash.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ key as u64)
}

fn filter_of(keys: impl ExactSizeIterator<Item = u128>) -> Vec<u64> {
    let blocks = (keys.len() * FILTER_BITS_PER_KEY).div_ceil(BLOCK_WORDS * 64).max(1);
    let mut filter = vec![0u64; blocks * BLOCK_WORDS];
    for key in keys {
        let (block, mut bits) = probe(key, blocks);
        for _ in 0..PROBES {
            let bit = bits & 511;
            bits >>= 7;
            filter[block + (bit as usize >> 6)] |= 1 << (bit & 63);
        }
    }
    filter
}

/// Keys and their places: open addressing with linear probing, so that the slots of many keys can be fetched together.
#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    key: [u64; 2],
    place: i64,
}

const FREE: Slot = Slot { key: [0; 2], place: i64::MIN };
const SLOTS_MIN: usize = 16;

impl Table {
    fn slot(&self, key: u128) -> usize {
        ((u128::from(mix(key)) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot of a key, or the one where it would go. There is a free one.
    fn find(&self, key: u128) -> usize {
        let halves = halves(key);
        let mut slot = self.slot(key);
        while self.slots[slot].place != FREE.place && self.slots[slot].key != halves {
            slot = if slot + 1 == self.slots.len() { 0 } else { slot + 1 };
        }
        slot
    }

    fn get(&self, key: u128) -> Option<i64> {
        let slot = self.slots.get(if self.len == 0 { return None } else { self.find(key) })?;
        (slot.place != FREE.place).then_some(slot.place)
    }

    fn insert(&mut self, key: u128, place: i64) {
        self.make_room(1);
        let slot = self.find(key);
        self.len += usize::from(self.slots[slot].place == FREE.place);
        self.slots[slot] = Slot { key: halves(key), place };
    }

    /// At most three quarters of the slots are taken.
    fn make_room(&mut self, more: usize) {
        if (self.len + more) * 4 > self.slots.len() * 3 {
            let slots = ((self.len + more) * 2).max(SLOTS_MIN);
            let old = std::mem::replace(&mut self.slots, vec![FREE; slots]);
            for slot in old.into_iter().filter(|slot| slot.place != FREE.place) {
                let to = self.find(whole(slot.key));
                self.slots[to] = slot;
            }
        }
    }

    fn prefetch(&self, keys: &[u128]) {
        if self.len > 0 {
            keys.iter().for_each(|&key| prefetch(&self.slots[self.slot(key)]));
        }
    }

    fn entries(&self) -> impl Iterator<Item = (u128, i64)> {
        let taken = self.slots.iter().filter(|slot| slot.place != FREE.place);
        taken.map(|slot| (whole(slot.key), slot.place))
    }
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> 64) as u64, key as u64]
}

fn whole(halves: [u64; 2]) -> u128 {
    u128::from(halves[0]) << 64 | u128::from(halves[1])
}

#[derive(Default)]
struct Inner {
    recent: Table,
    freezing: Table,
    runs: Vec<Run>,
}

impl Inner {
    fn get(&self, key: u128) -> Option<i64> {
        self.recent.get(key).or_else(|| self.freezing.get(key))
    }

    fn runs_that_may_hold(&self, key: u128) -> impl Iterator<Item = i64> {
        self.runs.iter().filter(move |run| run.may_hold(key)).map(|run| run.number)
    }
}

/// The keys of ids with their rows. None is no id.
fn keys_of(ids: &Bound<'_, PyList>) -> PyResult<(Vec<usize>, Vec<u128>)> {
    let ids = ids.iter().enumerate().filter(|(_, id)| !id.is_none());
    ids.map(|(row, id)| Ok((row, key_of(id.cast::<PyString>()?.to_str()?)))).collect()
}

/// A sorted run on its way to the store.
#[pyclass(module = "laurels._native", frozen)]
pub struct IdRun {
    entries: Vec<(u128, i64)>,
    filter: Vec<u64>,
}

impl IdRun {
    fn from_entries(mut entries: Vec<(u128, i64)>) -> Self {
        entries.sort_unstable();
        let filter = filter_of(entries.iter().map(|&(key, _)| key));
        Self { entries, filter }
    }
}

type Chunk<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl IdRun {
    fn __len__(&self) -> usize {
        self.entries.len()
    }

    /// Up to `limit` chunks from one on, as (first key, keys, places), all big-endian bytes.
    fn chunks<'py>(&self, py: Python<'py>, first: usize, limit: usize) -> Vec<Chunk<'py>> {
        self.entries
            .chunks(CHUNK_KEYS)
            .skip(first)
            .take(limit)
            .map(|chunk| {
                let keys: Vec<u8> = chunk.iter().flat_map(|(key, _)| key.to_be_bytes()).collect();
                let places: Vec<u8> = chunk.iter().flat_map(|(_, place)| place.to_be_bytes()).collect();
                (PyBytes::new(py, &keys[..16]), PyBytes::new(py, &keys), PyBytes::new(py, &places))
            })
            .collect()
    }

    #[getter]
    fn least<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.entries.first().map_or(0, |entry| entry.0).to_be_bytes())
    }

    #[getter]
    fn greatest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.entries.last().map_or(0, |entry| entry.0).to_be_bytes())
    }

    #[getter]
    fn filter<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.filter.iter().flat_map(|word| word.to_be_bytes()).collect();
        PyBytes::new(py, &bytes)
    }
}

#[pyclass(module = "laurels._native", frozen)]
pub struct SubmissionIds {
    inner: RwLock<Inner>,
}

#[pymethods]
impl SubmissionIds {
    #[new]
    fn new() -> Self {
        Self { inner: RwLock::default() }
    }

    /// Ids in memory, not yet in a run.
    #[getter]
    fn recent_count(&self) -> usize {
        let inner = self.inner.read();
        inner.recent.len + inner.freezing.len
    }

    fn memory_bytes(&self) -> usize {
        let inner = self.inner.read();
        (inner.recent.slots.capacity() + inner.freezing.slots.capacity()) * size_of::<Slot>()
            + inner.runs.iter().map(|run| run.filter.len() * 8).sum::<usize>()
    }

    /// The key of an id: 16 bytes.
    #[staticmethod]
    fn key<'py>(py: Python<'py>, id: &str) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &key_of(id).to_be_bytes())
    }

    /// The place of a key in one chunk of a run, -1 if it isn't there.
    #[staticmethod]
    fn search(keys: &[u8], places: &[u8], key: [u8; 16]) -> PyResult<i64> {
        let (keys, places) = chunk_columns(keys, places)?;
        Ok(keys.binary_search(&key).map_or(-1, |at| i64::from_be_bytes(places[at])))
    }

    /// For each id its place, -1 if memory doesn't know it; and (row, run) for each run that may hold it.
    /// None is no id.
    fn find(&self, ids: &Bound<'_, PyList>) -> PyResult<Found> {
        let inner = self.inner.read();
        let mut places = vec![-1; ids.len()];
        let mut candidates = Vec::new();
        let (rows, keys) = keys_of(ids)?;
        for (row, key) in rows.into_iter().zip(keys) {
            match inner.get(key) {
                Some(place) => places[row] = place,
                None => candidates.extend(inner.runs_that_may_hold(key).map(|run| (row, run))),
            }
        }
        Ok((places, candidates))
    }

    /// Which rows have an id that was there before: (row, place) where memory knows it, (row, complement of the row) where
    /// an earlier row has it; and (row, run) for each run that may hold it. None is no id.
    fn repeats(&self, ids: &Bound<'_, PyList>) -> PyResult<Repeats> {
        let (rows, keys) = keys_of(ids)?;
        let inner = self.inner.read();
        let mut here = Table::default();
        here.make_room(keys.len());
        let (mut known, mut candidates) = (Vec::new(), Vec::new());
        for (rows, keys) in rows.chunks(TOGETHER).zip(keys.chunks(TOGETHER)) {
            inner.recent.prefetch(keys);
            inner.freezing.prefetch(keys);
            for (&row, &key) in rows.iter().zip(keys) {
                if let Some(place) = inner.get(key) {
                    known.push((row, place));
                } else if let Some(first) = here.get(key) {
                    known.push((row, !first));
                } else {
                    here.insert(key, row as i64);
                    candidates.extend(inner.runs_that_may_hold(key).map(|run| (row, run)));
                }
            }
        }
        Ok((known, candidates))
    }

    /// Remember ids; row i has place `first_place` + i. None is no id.
    fn insert(&self, ids: &Bound<'_, PyList>, first_place: i64) -> PyResult<()> {
        let (rows, keys) = keys_of(ids)?;
        let mut inner = self.inner.write();
        inner.recent.make_room(keys.len());
        for (rows, keys) in rows.chunks(TOGETHER).zip(keys.chunks(TOGETHER)) {
            inner.recent.prefetch(keys);
            for (&row, &key) in rows.iter().zip(keys) {
                inner.recent.insert(key, first_place + row as i64);
            }
        }
        Ok(())
    }

    /// The recent ids as a run for the store to keep; those of an earlier time that it did not keep as well.
    fn freeze(&self, py: Python<'_>) -> IdRun {
        py.detach(|| {
            let mut inner = self.inner.write();
            let mut recent = std::mem::take(&mut inner.recent);
            for (key, place) in inner.freezing.entries() {
                recent.insert(key, place);
            }
            inner.freezing = recent;
            let inner = RwLockWriteGuard::downgrade(inner);
            let entries = inner.freezing.entries().collect();
            drop(inner);
            IdRun::from_entries(entries)
        })
    }

    /// The store has committed a run; it stands for the ids that were frozen last, or for the runs that it replaces.
    fn adopt(&self, number: i64, run: &IdRun, replaced: Vec<i64>) {
        let mut inner = self.inner.write();
        if replaced.is_empty() {
            inner.freezing = Table::default();
        }
        inner.runs.retain(|known| !replaced.contains(&known.number));
        if let (Some(first), Some(last)) = (run.entries.first(), run.entries.last()) {
            let (least, greatest) = (first.0, last.0);
            inner.runs.push(Run { number, least, greatest, filter: run.filter.clone() });
        }
    }

    /// Take up a run that the store has kept.
    fn add_run(&self, number: i64, least: [u8; 16], greatest: [u8; 16], filter: &[u8]) -> PyResult<()> {
        let (words, rest) = filter.as_chunks::<8>();
        if !rest.is_empty() || words.is_empty() || words.len() % BLOCK_WORDS != 0 {
            return Err(PyValueError::new_err("a filter has whole blocks of 64 bytes"));
        }
        self.inner.write().runs.push(Run {
            number,
            least: u128::from_be_bytes(least),
            greatest: u128::from_be_bytes(greatest),
            filter: words.iter().map(|word| u64::from_be_bytes(*word)).collect(),
        });
        Ok(())
    }

    /// Remember the keys of a chunk of a run, to look many ids up in memory.
    fn absorb(&self, keys: &[u8], places: &[u8]) -> PyResult<()> {
        let mut inner = self.inner.write();
        for (key, place) in chunk_entries(keys, places)? {
            inner.recent.insert(key, place);
        }
        Ok(())
    }

    /// One run from the chunks (keys, places) of several.
    #[staticmethod]
    fn merge(py: Python<'_>, chunks: &Bound<'_, PyAny>) -> PyResult<IdRun> {
        let mut entries = Vec::new();
        for chunk in chunks.try_iter()? {
            let (keys, places): (Bound<'_, PyBytes>, Bound<'_, PyBytes>) = chunk?.extract()?;
            entries.extend(chunk_entries(keys.as_bytes(), places.as_bytes())?);
        }
        Ok(py.detach(|| IdRun::from_entries(entries)))
    }
}

/// The keys and places of a chunk.
fn chunk_entries<'a>(keys: &'a [u8], places: &'a [u8]) -> PyResult<impl Iterator<Item = (u128, i64)> + 'a> {
    let (keys, places) = chunk_columns(keys, places)?;
    Ok(keys.iter().zip(places).map(|(k, p)| (u128::from_be_bytes(*k), i64::from_be_bytes(*p))))
}

type ChunkColumns<'a> = (&'a [[u8; 16]], &'a [[u8; 8]]);

fn chunk_columns<'a>(keys: &'a [u8], places: &'a [u8]) -> PyResult<ChunkColumns<'a>> {
    let (keys, rest) = keys.as_chunks::<16>();
    let (places, more) = places.as_chunks::<8>();
    if !rest.is_empty() || !more.is_empty() || keys.len() != places.len() {
        return Err(PyValueError::new_err("a chunk has 16 bytes a key and 8 bytes a place"));
    }
    Ok((keys, places))
}
