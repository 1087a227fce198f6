//! The native kernel of Laurels as Python sees it; `_native.pyi` says what each name means.
//!
//! Batch calls copy their columns, release the interpreter, and take the locks in one order: players, then index. No lock
//! is held while the interpreter is asked for, so a reader that waits for a writer can't stop it.

use crate::answers;
use crate::changes::in_order;
use crate::columns::{Ints, Texts, are_ints, are_submission_ids, are_texts, id_of, int_of};
use crate::ids::{IdRun, SubmissionIds};
use crate::index::{AnyIndex, Effect, PendingColumns, Policy, Ranking, RowColumns, Spec, Standing, new_index};
use crate::packed::ROWS_MAX;
use crate::players::PlayerTable;
use crate::segment::{PackedRows, merge_places};
use parking_lot::{RwLock, RwLockWriteGuard};
use pyo3::exceptions::{PyAssertionError, PyIndexError, PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Rows applied before readers get their turn.
const ROWS_PER_TURN: usize = 64;
/// Up to so many entries are read without letting go of the interpreter.
const LOOK_ENTRIES: usize = 200;

/// Player ids, read from Python once, and the numbers that they have in the first table that asked.
#[pyclass(module = "laurels._native", frozen)]
struct Ids {
    texts: Texts,
    numbers: OnceLock<(Arc<RwLock<PlayerTable>>, Vec<u32>)>,
}

#[pymethods]
impl Ids {
    #[new]
    fn new(texts: Texts) -> Self {
        Self { texts, numbers: OnceLock::new() }
    }

    fn __len__(&self) -> usize {
        self.texts.len()
    }
}

impl Ids {
    /// The numbers of the ids; new ids are interned.
    fn numbers(&self, table: &Arc<RwLock<PlayerTable>>) -> PyResult<Cow<'_, [u32]>> {
        if self.numbers.get().is_none() {
            let _ = self.numbers.set((Arc::clone(table), find_or_intern(table, &self.texts)?));
        }
        match self.numbers.get() {
            Some((known, numbers)) if Arc::ptr_eq(known, table) => Ok(Cow::Borrowed(numbers)),
            _ => find_or_intern(table, &self.texts).map(Cow::Owned),
        }
    }
}

/// Ids as an argument: read before, or now.
enum IdsOrTexts {
    Read(Py<Ids>),
    Now(Ids),
}

impl IdsOrTexts {
    fn get(&self) -> &Ids {
        match self {
            Self::Read(ids) => ids.get(),
            Self::Now(ids) => ids,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for IdsOrTexts {
    type Error = PyErr;

    fn extract(ids: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match ids.cast::<Ids>() {
            Ok(read) => Ok(Self::Read(read.to_owned().unbind())),
            Err(_) => Ok(Self::Now(Ids::new(ids.extract()?))),
        }
    }
}

#[pyclass(module = "laurels._native", frozen)]
struct Players {
    table: Arc<RwLock<PlayerTable>>,
}

#[pymethods]
impl Players {
    #[new]
    fn new() -> Self {
        Self { table: Arc::default() }
    }

    fn __len__(&self) -> usize {
        self.table.read().len()
    }

    fn memory_bytes(&self) -> usize {
        self.table.read().memory_bytes()
    }

    fn load(&self, py: Python<'_>, ids: Texts, places: Ints) -> PyResult<()> {
        same_length(&ids, &[&places])?;
        py.detach(|| {
            let mut table = self.table.write();
            for (id, &place) in ids.iter().zip(&places.0) {
                let number = table.intern(id).ok_or_else(full)?;
                if !table.is_changed(number) {
                    table.set_last_place(number, place);
                }
            }
            Ok(())
        })
    }

    fn last_places(&self, py: Python<'_>, ids: Texts) -> Vec<i64> {
        py.detach(|| {
            let table = self.table.read();
            ids.iter().map(|id| table.find(id).map_or(-1, |n| table.last_place(n))).collect()
        })
    }

    fn chain(&self, py: Python<'_>, ids: IdsOrTexts, places: Ints) -> PyResult<Vec<i64>> {
        let ids = ids.get();
        same_length(&ids.texts, &[&places])?;
        unheld(py, ids.texts.len(), || {
            let numbers = ids.numbers(&self.table)?;
            Ok(self.table.write().chain_all(&numbers, &places.0))
        })
    }

    fn settle(&self) {
        self.table.write().settle();
    }

    fn unchain(&self) {
        self.table.write().unchain();
    }

    fn changed_place(&self, player_id: &Bound<'_, PyAny>) -> PyResult<i64> {
        let id = id_of(player_id)?;
        let look = |table: &PlayerTable| table.find(id.as_bytes()).map_or(-1, |number| table.changed_place(number));
        Ok(player_id.py().detach(|| look(&self.table.read())))
    }

    fn changes(&self, py: Python<'_>) -> Changes {
        py.detach(|| {
            let changed = self.table.read().changed();
            Changes::new(&self.table, changed)
        })
    }

    /// The next of some changes, as they are now.
    fn take(&self, py: Python<'_>, changes: &Changes, limit: usize) -> (Vec<String>, Vec<i64>) {
        py.detach(|| {
            let table = self.table.read();
            let some = changes.take(limit).iter().filter(|&&number| table.is_changed(number));
            some.map(|&number| (table.text(number).to_owned(), table.last_place(number))).unzip()
        })
    }

    fn mark_clean(&self, py: Python<'_>, ids: Texts, places: Ints) -> PyResult<()> {
        same_length(&ids, &[&places])?;
        py.detach(|| {
            let mut table = self.table.write();
            for (id, &place) in ids.iter().zip(&places.0) {
                if let Some(number) = table.find(id)
                    && table.last_place(number) == place
                {
                    table.set_changed(number, false);
                }
            }
        });
        Ok(())
    }

    fn forget(&self, player_id: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut table = self.table.write();
        if let Some(number) = table.find(id_of(player_id)?.as_bytes()) {
            table.set_last_place(number, -1);
            table.set_changed(number, false);
        }
        Ok(())
    }

    fn forget_places(&self) {
        self.table.write().forget_places();
    }
}

/// Players with changes in order of their ids, and how many of them have been taken.
#[pyclass(module = "laurels._native", frozen)]
struct Changes {
    numbers: Vec<u32>,
    taken: AtomicUsize,
}

impl Changes {
    fn new(table: &RwLock<PlayerTable>, numbers: Vec<u32>) -> Self {
        Self { numbers: in_order(table, numbers), taken: AtomicUsize::new(0) }
    }

    fn take(&self, limit: usize) -> &[u32] {
        let start = self.taken.load(Ordering::Relaxed);
        let end = self.numbers.len().min(start.saturating_add(limit));
        self.taken.store(end, Ordering::Relaxed);
        &self.numbers[start..end]
    }
}

#[pymethods]
impl Changes {
    fn __len__(&self) -> usize {
        self.numbers.len() - self.taken.load(Ordering::Relaxed)
    }
}

#[pyclass(module = "laurels._native", frozen)]
struct Rows {
    #[pyo3(get)]
    first_position: usize,
    ids: Texts,
    ranks: Vec<usize>,
    terms: Vec<Vec<i64>>,
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.ranks.len()
    }
    #[getter]
    fn player_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.ids.to_list(py)
    }
    #[getter]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.ranks)
    }
    #[getter]
    fn terms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.terms)
    }
    fn term<'py>(&self, py: Python<'py>, term: usize) -> PyResult<Bound<'py, PyList>> {
        let column = self.terms.get(term).ok_or_else(|| PyIndexError::new_err(format!("there is no term {term}")))?;
        PyList::new(py, column)
    }
}

impl Rows {
    fn new(table: &PlayerTable, rows: RowColumns) -> Self {
        table.prefetch_ids(&rows.players);
        Self {
            first_position: rows.first_position,
            ids: rows.players.iter().map(|&number| table.text(number)).collect(),
            ranks: rows.ranks,
            terms: rows.terms,
        }
    }
}

#[pyclass(module = "laurels._native", frozen)]
struct Outcome {
    effects: Vec<Effect>,
}

#[pymethods]
impl Outcome {
    fn __len__(&self) -> usize {
        self.effects.len()
    }
    #[getter]
    fn counted(&self) -> Vec<bool> {
        self.effects.iter().map(|effect| effect.counted).collect()
    }
    #[getter]
    fn old_values(&self) -> Vec<Option<i64>> {
        self.effects.iter().map(|effect| effect.old.map(|old| old.value)).collect()
    }
    #[getter]
    fn new_values(&self) -> Vec<Option<i64>> {
        self.effects.iter().map(|effect| effect.new.map(|new| new.value)).collect()
    }
    #[getter]
    fn old_ranks(&self) -> Vec<Option<usize>> {
        self.effects.iter().map(|effect| effect.old.map(|old| old.rank)).collect()
    }
    #[getter]
    fn new_ranks(&self) -> Vec<Option<usize>> {
        self.effects.iter().map(|effect| effect.new.map(|new| new.rank)).collect()
    }
    #[getter]
    fn old_positions(&self) -> Vec<Option<usize>> {
        self.effects.iter().map(|effect| effect.old.map(|old| old.position)).collect()
    }
    #[getter]
    fn new_positions(&self) -> Vec<Option<usize>> {
        self.effects.iter().map(|effect| effect.new.map(|new| new.position)).collect()
    }
    #[getter]
    fn totals(&self) -> Vec<usize> {
        self.effects.iter().map(|effect| effect.total).collect()
    }

    fn change(&self, at: usize) -> PyResult<Change> {
        let effect = self.effects.get(at).ok_or_else(|| PyIndexError::new_err(at))?;
        let (old, new) = (effect.old, effect.new);
        Ok((
            effect.counted,
            old.map(|old| old.value),
            new.map(|new| new.value),
            old.map(|old| old.rank),
            new.map(|new| new.rank),
            old.map(|old| old.position),
            new.map(|new| new.position),
            effect.total,
        ))
    }

    fn pack<'py>(&self, py: Python<'py>, rows: Ints) -> PyResult<Bound<'py, PyBytes>> {
        if rows.0.len() != self.effects.len() || rows.0.len() > ROWS_MAX {
            return Err(PyValueError::new_err(format!("there must be a row for each effect, at most {ROWS_MAX}")));
        }
        Ok(PyBytes::new(py, &answers::pack(&rows.0, &self.effects)))
    }

    #[staticmethod]
    fn unpack(data: &[u8]) -> PyResult<(Vec<i64>, Self)> {
        let (rows, effects) = answers::unpack(data)?;
        Ok((rows, Self { effects }))
    }

    fn take(&self, rows: Vec<usize>) -> PyResult<Self> {
        let effect = |at: &usize| self.effects.get(*at).copied().ok_or_else(|| PyIndexError::new_err(*at));
        Ok(Self { effects: rows.iter().map(effect).collect::<PyResult<_>>()? })
    }
}

/// What a row did: counted, old and new value, old and new rank, old and new position, total.
type Change = (bool, Option<i64>, Option<i64>, Option<usize>, Option<usize>, Option<usize>, Option<usize>, usize);

#[pyclass(module = "laurels._native", frozen)]
struct Pending {
    #[pyo3(get)]
    terms: Vec<Vec<i64>>,
    #[pyo3(get)]
    places: Vec<i64>,
    #[pyo3(get)]
    removed: Vec<bool>,
    ids: Texts,
}

#[pymethods]
impl Pending {
    #[getter]
    fn player_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.ids.to_list(py)
    }
    fn __len__(&self) -> usize {
        self.places.len()
    }
}

impl Pending {
    fn new(table: &PlayerTable, columns: PendingColumns) -> Self {
        Self {
            ids: columns.players.iter().map(|&number| table.text(number)).collect(),
            terms: columns.terms,
            places: columns.places,
            removed: columns.removed,
        }
    }
}

#[pyclass(module = "laurels._native", frozen)]
struct RankIndex {
    table: Arc<RwLock<PlayerTable>>,
    index: RwLock<Box<dyn AnyIndex>>,
    width: usize,
    adds: bool,
}

impl RankIndex {
    /// A short look: with the interpreter held where both locks are free, else as a batch, which gets its turn between
    /// a writer's.
    fn look<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&PlayerTable, &dyn AnyIndex) -> T + Send) -> T {
        if let Some(table) = self.table.try_read()
            && let Some(index) = self.index.try_read()
        {
            return work(&table, index.as_ref());
        }
        self.batch(py, work)
    }

    fn batch<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&PlayerTable, &dyn AnyIndex) -> T + Send) -> T {
        py.detach(|| work(&self.table.read(), self.index.read().as_ref()))
    }

    /// A look at a few entries, a batch for many.
    fn look_or_batch<T: Send>(
        &self,
        py: Python<'_>,
        entries: usize,
        work: impl FnOnce(&PlayerTable, &dyn AnyIndex) -> T + Send,
    ) -> T {
        if entries <= LOOK_ENTRIES { self.look(py, work) } else { self.batch(py, work) }
    }

    /// Columns of terms, one for each term of the order.
    fn terms(&self, ids: &Texts, terms: Vec<Ints>, places: &Ints) -> PyResult<Vec<Vec<i64>>> {
        if terms.len() != self.width {
            return Err(PyValueError::new_err(format!("there must be {} columns of terms", self.width)));
        }
        same_length(ids, &terms.iter().chain([places]).collect::<Vec<_>>())?;
        not_negative(places)?;
        Ok(terms.into_iter().map(|column| column.0).collect())
    }

    fn prefix(&self, prefix: Ints) -> PyResult<Vec<i64>> {
        if prefix.0.len() > self.width {
            return Err(PyValueError::new_err(format!("there are {} terms", self.width)));
        }
        Ok(prefix.0)
    }

    fn whole(&self, terms: Ints) -> PyResult<Vec<i64>> {
        if terms.0.len() != self.width {
            return Err(PyValueError::new_err(format!("there must be {} terms", self.width)));
        }
        Ok(terms.0)
    }
}

#[pymethods]
impl RankIndex {
    #[new]
    #[pyo3(signature = (players, *, descending, tie_terms, player_descending, policy, value_term, ranking))]
    #[allow(clippy::too_many_arguments)] // they are keywords
    fn new(
        players: &Players,
        descending: Vec<bool>,
        tie_terms: usize,
        player_descending: bool,
        policy: &str,
        value_term: usize,
        ranking: &str,
    ) -> PyResult<Self> {
        let width = descending.len();
        let wrong = |what: &str| PyValueError::new_err(what.to_owned());
        let policy = Policy::parse(policy).ok_or_else(|| wrong("unknown policy"))?;
        let ranking = Ranking::parse(ranking).ok_or_else(|| wrong("unknown ranking"))?;
        if !(1..=width).contains(&tie_terms) || value_term >= width {
            return Err(wrong("tie_terms and value_term must be within the terms"));
        }
        let spec = Spec { descending, tie_terms, player_descending, policy, value_term, ranking };
        let index = new_index(spec).ok_or_else(|| wrong("there must be 1 to 5 terms"))?;
        Ok(Self { table: Arc::clone(&players.table), index: RwLock::new(index), width, adds: policy.adds() })
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.look(py, |_, index| index.len())
    }

    fn memory_bytes(&self, py: Python<'_>) -> usize {
        self.look(py, |_, index| index.memory_bytes())
    }

    // --- writing ------------------------------------------------------------------------------------------

    fn load(&self, py: Python<'_>, ids: Texts, terms: Vec<Ints>, places: Ints) -> PyResult<()> {
        let terms = self.terms(&ids, terms, &places)?;
        py.detach(|| {
            self.stage(&ids, &terms, &places.0)?;
            self.load_staged()
        })
    }

    fn load_rows(&self, portions: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Err(error) = self.stage_rows(portions) {
            self.index.write().unstage();
            return Err(error);
        }
        portions.py().detach(|| self.load_staged())
    }

    fn apply(&self, py: Python<'_>, ids: IdsOrTexts, terms: Vec<Ints>, places: Ints) -> PyResult<Outcome> {
        let ids = ids.get();
        let terms = self.terms(&ids.texts, terms, &places)?;
        unheld(py, ids.texts.len(), || {
            let numbers = ids.numbers(&self.table)?;
            if self.adds {
                self.check_sums(&numbers, &terms, &places.0)?;
            }
            let mut effects = Vec::with_capacity(numbers.len());
            for turn in numbers.chunks(ROWS_PER_TURN) {
                let table = self.table.read();
                let mut index = self.index.write();
                index.apply_all(&table, turn, &terms, effects.len(), &places.0, &mut effects);
                RwLockWriteGuard::unlock_fair(index);
            }
            Ok(Outcome { effects })
        })
    }

    fn sum_overflow(&self, py: Python<'_>, ids: Texts, values: Ints) -> PyResult<Option<usize>> {
        same_length(&ids, &[&values])?;
        py.detach(|| {
            let numbers: Vec<_> = find_or_intern(&self.table, &ids)?.into_iter().map(Some).collect();
            Ok(self.index.read().sum_overflow(&numbers, &values.0))
        })
    }

    fn merge(&self, py: Python<'_>, ids: Texts, terms: Vec<Ints>, places: Ints) -> PyResult<Vec<bool>> {
        let terms = self.terms(&ids, terms, &places)?;
        py.detach(|| {
            let numbers = find_or_intern(&self.table, &ids)?;
            let table = self.table.read();
            let mut index = self.index.write();
            Ok((0..numbers.len()).map(|row| index.merge(&table, numbers[row], &terms, row, places.0[row])).collect())
        })
    }

    fn remove(&self, py: Python<'_>, ids: Texts, places: Ints) -> PyResult<Vec<bool>> {
        same_length(&ids, &[&places])?;
        not_negative(&places)?;
        py.detach(|| {
            let table = self.table.read();
            let mut index = self.index.write();
            let removed = ids.iter().zip(&places.0);
            Ok(removed.map(|(id, &place)| table.find(id).is_some_and(|n| index.remove(n, place))).collect())
        })
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.index.write().clear());
    }

    // --- written behind -----------------------------------------------------------------------------------

    fn pending_count(&self, py: Python<'_>) -> usize {
        self.look(py, |_, index| index.pending_count())
    }

    #[pyo3(signature = (limit=None))]
    fn pending(&self, py: Python<'_>, limit: Option<usize>) -> Pending {
        self.batch(py, |table, index| Pending::new(table, index.pending(table, limit.unwrap_or(usize::MAX))))
    }

    fn changes(&self, py: Python<'_>) -> Changes {
        py.detach(|| {
            let players = self.index.read().pending_players();
            Changes::new(&self.table, players)
        })
    }

    /// The next of some changes, as they are now.
    fn take(&self, py: Python<'_>, changes: &Changes, limit: usize) -> Pending {
        self.batch(py, |table, index| Pending::new(table, index.pending_of(changes.take(limit))))
    }

    fn pending_places(&self, py: Python<'_>, ids: Texts) -> Vec<i64> {
        self.batch(py, |table, index| {
            ids.iter().map(|id| table.find(id).map_or(-1, |n| index.pending_place(n))).collect()
        })
    }

    fn mark_clean(&self, py: Python<'_>, ids: Texts, places: Ints) -> PyResult<()> {
        same_length(&ids, &[&places])?;
        not_negative(&places)?;
        py.detach(|| {
            let table = self.table.read();
            let mut index = self.index.write();
            for (id, &place) in ids.iter().zip(&places.0) {
                if let Some(number) = table.find(id) {
                    index.mark_clean(number, place);
                }
            }
        });
        Ok(())
    }

    // --- reading ------------------------------------------------------------------------------------------

    fn rank(&self, player_id: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
        let id = id_of(player_id)?;
        let standing = self.look(player_id.py(), |table, index| index.standing_by_id(table, id.as_bytes()));
        Ok(standing.map(|standing| (standing.rank, standing.position)))
    }

    fn entry<'py>(&self, player_id: &Bound<'py, PyAny>) -> PyResult<Option<(usize, usize, Bound<'py, PyTuple>)>> {
        let id = id_of(player_id)?;
        let found = self.look(player_id.py(), |table, index| {
            table.find(id.as_bytes()).and_then(|n| Some((index.standing(n)?, index.terms(n)?)))
        });
        found
            .map(|(standing, terms)| {
                let terms = PyTuple::new(player_id.py(), terms)?;
                Ok((standing.rank, standing.position, terms))
            })
            .transpose()
    }

    fn ranks(&self, py: Python<'_>, ids: Texts) -> (Vec<usize>, Vec<usize>) {
        self.batch(py, |table, index| numbered(index.standings(&table.find_all(ids.iter()))))
    }

    fn entries(&self, py: Python<'_>, ids: Texts) -> (Vec<usize>, Vec<usize>, Vec<Vec<i64>>) {
        self.batch(py, |table, index| {
            let (standings, columns) = index.entries(&table.find_all(ids.iter()));
            let (ranks, positions) = numbered(standings);
            (ranks, positions, columns)
        })
    }

    fn rows(&self, py: Python<'_>, first_position: usize, limit: usize) -> PyResult<Rows> {
        if first_position == 0 {
            return Err(PyValueError::new_err("positions start at 1"));
        }
        Ok(self.look_or_batch(py, limit, |table, index| Rows::new(table, index.rows(first_position - 1, limit))))
    }

    fn around(&self, player_id: &Bound<'_, PyAny>, limit: usize) -> PyResult<Option<Rows>> {
        let id = id_of(player_id)?;
        Ok(self.look_or_batch(player_id.py(), limit, |table, index| {
            let number = table.find(id.as_bytes())?;
            Some(Rows::new(table, index.around(number, limit)?))
        }))
    }

    fn after(&self, terms: Ints, player_id: &Bound<'_, PyAny>, limit: usize) -> PyResult<Rows> {
        let (terms, id) = (self.whole(terms)?, id_of(player_id)?);
        Ok(self.look_or_batch(player_id.py(), limit, |table, index| {
            Rows::new(table, index.after(table, &terms, id.as_bytes(), limit))
        }))
    }

    fn before(&self, terms: Ints, player_id: &Bound<'_, PyAny>, limit: usize) -> PyResult<Rows> {
        let (terms, id) = (self.whole(terms)?, id_of(player_id)?);
        Ok(self.look_or_batch(player_id.py(), limit, |table, index| {
            Rows::new(table, index.before(table, &terms, id.as_bytes(), limit))
        }))
    }

    fn count_before(&self, py: Python<'_>, prefix: Ints) -> PyResult<usize> {
        let prefix = self.prefix(prefix)?;
        Ok(self.look(py, |_, index| index.count_before(&prefix)))
    }

    fn count_through(&self, py: Python<'_>, prefix: Ints) -> PyResult<usize> {
        let prefix = self.prefix(prefix)?;
        Ok(self.look(py, |_, index| index.count_through(&prefix)))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.batch(py, |table, index| index.check(table)).map_err(PyAssertionError::new_err)
    }
}

impl RankIndex {
    fn stage_rows(&self, portions: &Bound<'_, PyAny>) -> PyResult<()> {
        for portion in portions.try_iter()? {
            let portion = portion?;
            let rows = portion.cast::<PyList>().map_err(|_| PyTypeError::new_err("rows must come in lists"))?;
            let mut ids = Texts::default();
            let mut columns = vec![Vec::with_capacity(rows.len()); self.width + 1];
            for row in rows.iter() {
                let row = row.cast::<PyTuple>().map_err(|_| PyTypeError::new_err("a row must be a tuple"))?;
                if row.len() != self.width + 2 {
                    return Err(PyValueError::new_err(format!("a row must have {} values", self.width + 2)));
                }
                ids.push(id_of(&row.get_item(0)?)?);
                for (at, column) in columns.iter_mut().enumerate() {
                    column.push(int_of(&row.get_item(at + 1)?)?);
                }
            }
            let places = Ints(columns.remove(0));
            not_negative(&places)?;
            portions.py().detach(|| self.stage(&ids, &columns, &places.0))?;
        }
        Ok(())
    }

    fn stage(&self, ids: &Texts, terms: &[Vec<i64>], places: &[i64]) -> PyResult<()> {
        let numbers = find_or_intern(&self.table, ids)?;
        self.index.write().stage(&numbers, terms, places);
        Ok(())
    }

    fn load_staged(&self) -> PyResult<()> {
        let table = self.table.read();
        let loaded = self.index.write().load(&table);
        loaded.map_err(|row| PyValueError::new_err(format!("row {row}: its id occurs twice")))
    }

    /// Rows that are applied for the first time must not take a sum beyond 64 bits.
    fn check_sums(&self, numbers: &[u32], terms: &[Vec<i64>], places: &[i64]) -> PyResult<()> {
        let index = self.index.read();
        let players: Vec<_> =
            numbers.iter().zip(places).map(|(&number, &place)| index.is_new(number, place).then_some(number)).collect();
        match index.sum_overflow(&players, &index.addends(terms)) {
            None => Ok(()),
            Some(row) => Err(PyOverflowError::new_err(format!("row {row}: the sum leaves 64 bits"))),
        }
    }
}

/// Do work on many rows without the interpreter's lock. For a few rows, getting the lock back can take far longer than
/// they do, when another thread keeps it busy.
fn unheld<T: Send>(py: Python<'_>, rows: usize, work: impl FnOnce() -> T + Send) -> T {
    if rows <= LOOK_ENTRIES { work() } else { py.detach(work) }
}

/// Ranks and positions, 0 where there is no entry.
fn numbered(standings: Vec<Option<Standing>>) -> (Vec<usize>, Vec<usize>) {
    standings.into_iter().map(|standing| standing.map_or((0, 0), |one| (one.rank, one.position))).unzip()
}

/// The numbers of ids; new ids are interned.
fn find_or_intern(table: &RwLock<PlayerTable>, ids: &Texts) -> PyResult<Vec<u32>> {
    let known = table.read().find_all(ids.iter());
    if known.contains(&None) {
        let mut table = table.write();
        let numbers = known.iter().zip(ids.iter()).map(|(number, id)| number.or_else(|| table.intern(id)));
        return numbers.collect::<Option<_>>().ok_or_else(full);
    }
    Ok(known.into_iter().flatten().collect())
}

fn full() -> PyErr {
    PyMemoryError::new_err("one game has no room for more player ids")
}

fn same_length(ids: &Texts, columns: &[&Ints]) -> PyResult<()> {
    if columns.iter().any(|column| column.0.len() != ids.len()) {
        return Err(PyValueError::new_err("columns must be of equal length"));
    }
    Ok(())
}

fn not_negative(places: &Ints) -> PyResult<()> {
    match places.0.iter().find(|&&place| place < 0) {
        None => Ok(()),
        Some(place) => Err(PyValueError::new_err(format!("a place must not be negative: {place}"))),
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(are_texts, module)?)?;
    module.add_function(wrap_pyfunction!(are_submission_ids, module)?)?;
    module.add_function(wrap_pyfunction!(are_ints, module)?)?;
    module.add_class::<Ids>()?;
    module.add_class::<Players>()?;
    module.add_class::<Rows>()?;
    module.add_class::<Outcome>()?;
    module.add_class::<Pending>()?;
    module.add_class::<Changes>()?;
    module.add_class::<RankIndex>()?;
    module.add_class::<PackedRows>()?;
    module.add_function(wrap_pyfunction!(merge_places, module)?)?;
    module.add_class::<IdRun>()?;
    module.add_class::<SubmissionIds>()
}
