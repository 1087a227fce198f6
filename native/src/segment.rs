//! A segment of the log as Python sees it: named columns, packed (see `packed`).
//!
//! A byte of version, the number of rows, the rows that were erased, the columns: the name and the values of the rows
//! that are left.

use crate::columns::{Ints, Texts};
use crate::packed::{self, Column, ColumnWriter, Damaged, ROWS_MAX, Read, Source, Value, put_ints, put_number};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFrozenSet, PyInt, PyList, PyString, PyType};

const VERSION: u8 = 1;

static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn decimal(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    DECIMAL.import(py, "decimal", "Decimal")
}

impl From<Damaged> for PyErr {
    fn from(_: Damaged) -> Self {
        PyValueError::new_err("the bytes are not what was written")
    }
}

/// Rows as they lie packed; a value is made when it is asked for.
#[pyclass(module = "laurels._native", frozen)]
pub struct PackedRows {
    rows: usize,
    /// Those that were erased, in order; columns hold the values of the others.
    erased: Vec<usize>,
    names: Vec<String>,
    columns: Vec<Column>,
}

impl PackedRows {
    fn parse(data: &[u8]) -> Read<Self> {
        let mut source = Source(data);
        if source.byte()? != VERSION {
            return Err(Damaged);
        }
        let rows = source.count(ROWS_MAX)?;
        let count = source.count(rows)?;
        let gone = packed::Ints::read(&mut source, count)?;
        let erased = (0..count)
            .map(|at| usize::try_from(gone.get(at)).ok().filter(|&row| row < rows).ok_or(Damaged))
            .collect::<Read<Vec<_>>>()?;
        if !erased.is_sorted_by(|one, next| one < next) {
            return Err(Damaged);
        }
        let left = rows - erased.len();
        let (mut names, mut columns) = (Vec::new(), Vec::new());
        for _ in 0..source.count(source.0.len())? {
            let length = source.count(source.0.len())?;
            names.push(String::from_utf8(source.take(length)?.to_vec()).map_err(|_| Damaged)?);
            columns.push(Column::read(&mut source, left)?);
        }
        source.end()?;
        Ok(Self { rows, erased, names, columns })
    }

    /// Where the values of a row are, None if it was erased.
    fn at(&self, row: usize) -> Option<usize> {
        self.erased.binary_search(&row).err().map(|before| row - before)
    }
}

#[pymethods]
impl PackedRows {
    /// Columns of equal length as bytes.
    #[staticmethod]
    fn pack<'py>(py: Python<'py>, columns: Vec<(String, Bound<'py, PyList>)>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        if rows > ROWS_MAX {
            return Err(PyValueError::new_err(format!("there are at most {ROWS_MAX} rows")));
        }
        let mut packed = Vec::with_capacity(rows);
        for (name, values) in columns {
            let mut column = ColumnWriter::default();
            for value in values.iter() {
                push(&mut column, &value)?;
            }
            if column.rows() != rows {
                return Err(PyValueError::new_err("columns must be of equal length"));
            }
            packed.push((name, column));
        }
        Ok(PyBytes::new(py, &put(rows, &[], &packed)))
    }

    /// What `pack` made. ValueError if these bytes are no such thing.
    #[new]
    fn new(data: &[u8]) -> PyResult<Self> {
        Ok(Self::parse(data)?)
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    #[getter]
    fn erased(&self) -> Vec<usize> {
        self.erased.clone()
    }

    /// The values of one row, a value for each column; None if it was erased.
    fn row<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        if row >= self.rows {
            return Err(PyValueError::new_err(format!("there are {} rows", self.rows)));
        }
        let Some(at) = self.at(row) else { return Ok(None) };
        let mut text = Vec::new();
        let values = self.columns.iter().map(|column| object(py, column.value(at, &mut text)?));
        Ok(Some(PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?))
    }

    /// The columns of the rows from `start` to before `stop`, of which none may be erased.
    fn columns<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Vec<Bound<'py, PyList>>> {
        let first = self.at(start).filter(|_| start < stop && stop <= self.rows);
        let first = first.filter(|first| self.at(stop - 1) == Some(first + stop - 1 - start));
        let first = first.ok_or_else(|| PyValueError::new_err("there are no such rows, or some of them are erased"))?;
        let mut text = Vec::new();
        self.columns
            .iter()
            .map(|column| {
                let values = (first..first + stop - start).map(|at| object(py, column.value(at, &mut text)?));
                PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
            })
            .collect()
    }

    /// The same without some rows, as bytes; the others keep their numbers.
    fn without<'py>(&self, py: Python<'py>, rows: Vec<usize>) -> PyResult<Bound<'py, PyBytes>> {
        let mut erased = self.erased.clone();
        erased.extend(rows.into_iter().filter(|&row| row < self.rows));
        erased.sort_unstable();
        erased.dedup();
        let mut text = Vec::new();
        let mut packed = Vec::with_capacity(self.columns.len());
        for (name, column) in self.names.iter().zip(&self.columns) {
            let mut kept = ColumnWriter::default();
            for row in (0..self.rows).filter(|row| erased.binary_search(row).is_err()) {
                kept.push(column.value(self.at(row).expect("it is left now"), &mut text)?);
            }
            packed.push((name.clone(), kept));
        }
        Ok(PyBytes::new(py, &put(self.rows, &erased, &packed)))
    }
}

fn put(rows: usize, erased: &[usize], columns: &[(String, ColumnWriter)]) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_number(&mut out, rows as u64);
    put_number(&mut out, erased.len() as u64);
    put_ints(&mut out, &erased.iter().map(|&row| row as i64).collect::<Vec<_>>());
    put_number(&mut out, columns.len() as u64);
    for (name, column) in columns {
        put_number(&mut out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        column.put(&mut out);
    }
    out
}

fn push(column: &mut ColumnWriter, value: &Bound<'_, PyAny>) -> PyResult<()> {
    // What most values are is told by their exact type, which takes no call.
    column.push(if value.is_exact_instance_of::<PyString>() {
        Value::Text(value.cast::<PyString>()?.to_str()?)
    } else if value.is_none() {
        Value::None
    } else if value.is_exact_instance_of::<PyInt>() {
        Value::Int(value.extract()?)
    } else if let Ok(text) = value.cast::<PyString>() {
        Value::Text(text.to_str()?)
    } else if let Ok(bool) = value.cast::<PyBool>() {
        Value::Bool(bool.is_true())
    } else if value.is_instance_of::<PyInt>() {
        Value::Int(value.extract()?)
    } else if let Ok(set) = value.cast::<PyFrozenSet>() {
        let mut items: Vec<String> = set.iter().map(|item| item.extract()).collect::<PyResult<_>>()?;
        items.sort_unstable();
        Value::Set(items)
    } else if value.is_instance(decimal(value.py())?)? {
        return push_decimal(column, value);
    } else {
        return Err(PyTypeError::new_err("a value must be text, int, bool, Decimal, a frozenset of text or None"));
    });
    Ok(())
}

fn push_decimal(column: &mut ColumnWriter, value: &Bound<'_, PyAny>) -> PyResult<()> {
    column.push(Value::Decimal(value.str()?.to_str()?));
    Ok(())
}

fn object<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Bool(bool) => PyBool::new(py, bool).to_owned().into_any(),
        Value::Int(int) => int.into_pyobject(py)?.into_any(),
        Value::Text(text) => PyString::new(py, text).into_any(),
        // Text that is no number is damage as well, of which Python has an error of its own.
        Value::Decimal(text) => decimal(py)?.call1((text,)).map_err(|_| Damaged)?,
        Value::Set(items) => PyFrozenSet::new(py, items)?.into_any(),
    })
}

/// Players of one chunk, at most.
const PLACES_MAX: usize = 256;

/// A chunk of the places of players' latest submissions, in order of their ids, once some have changed (-1: is gone): as
/// one chunk or several, each with its first id. A chunk has the columns player_id and place.
#[pyfunction]
pub fn merge_places<'py>(
    py: Python<'py>,
    chunk: Option<&[u8]>,
    ids: Texts,
    places: Ints,
) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyBytes>)>> {
    if ids.len() != places.0.len() || !ids.iter().is_sorted_by(|one, next| one < next) {
        return Err(PyValueError::new_err("there must be a place for each id, and the ids must be in order"));
    }
    let merged = merged(chunk, &ids, &places.0)?;
    let chunks = merged.1.len().div_ceil(PLACES_MAX).max(1);
    let rows = merged.1.len().div_ceil(chunks);
    let packed = (0..chunks).map(|chunk| {
        let (mut names, mut numbers) = (ColumnWriter::default(), ColumnWriter::default());
        let part = chunk * rows..merged.1.len().min((chunk + 1) * rows);
        let first = if part.is_empty() { "" } else { std::str::from_utf8(merged.0.get(part.start))? };
        for row in part {
            names.push(Value::Text(std::str::from_utf8(merged.0.get(row))?));
            numbers.push(Value::Int(merged.1[row]));
        }
        let columns = [("player_id".to_owned(), names), ("place".to_owned(), numbers)];
        Ok((PyString::new(py, first), PyBytes::new(py, &put(columns[0].1.rows(), &[], &columns))))
    });
    packed.collect()
}

fn merged(chunk: Option<&[u8]>, ids: &Texts, places: &[i64]) -> Read<(Texts, Vec<i64>)> {
    let (mut merged, mut merged_places) = (Texts::default(), Vec::with_capacity(ids.len() + PLACES_MAX));
    let mut add = |id: &[u8], place: i64| {
        if place >= 0 {
            merged.push_bytes(id);
            merged_places.push(place);
        }
    };
    let mut at = 0;
    if let Some(chunk) = chunk {
        let packed = PackedRows::parse(chunk)?;
        let [names, numbers] = packed.columns.as_slice() else { return Err(Damaged) };
        let mut text = Vec::new();
        for row in 0..packed.rows - packed.erased.len() {
            let Value::Int(place) = numbers.value(row, &mut text)? else { return Err(Damaged) };
            let Value::Text(id) = names.value(row, &mut text)? else { return Err(Damaged) };
            while at < ids.len() && ids.get(at) < id.as_bytes() {
                add(ids.get(at), places[at]);
                at += 1;
            }
            if at == ids.len() || ids.get(at) != id.as_bytes() {
                add(id.as_bytes(), place);
            }
        }
    }
    (at..ids.len()).for_each(|at| add(ids.get(at), places[at]));
    Ok((merged, merged_places))
}
