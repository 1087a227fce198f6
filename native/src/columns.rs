//! Columns from Python: texts and 64-bit integers, copied so that the interpreter can go on meanwhile.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyRange, PyRangeMethods, PySequence, PyString};

pub const ID_BYTES_MAX: usize = 65_536;

/// Texts end to end.
#[derive(Default)]
pub struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|row| self.get(row))
    }

    pub fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // SAFETY: every text was pushed as a str.
        PyList::new(py, (0..self.len()).map(|row| unsafe { std::str::from_utf8_unchecked(self.get(row)) }))
    }

    pub fn push(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    pub fn push_bytes(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }
}

impl<'a> FromIterator<&'a str> for Texts {
    fn from_iter<T: IntoIterator<Item = &'a str>>(texts: T) -> Self {
        let texts = texts.into_iter();
        let (rows, _) = texts.size_hint();
        let mut all = Self { bytes: Vec::with_capacity(rows * 24), ends: Vec::with_capacity(rows) };
        texts.for_each(|text| all.push(text));
        all
    }
}

/// A player id, checked.
pub fn id_of<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let text = value
        .cast::<PyString>()
        .map_err(|_| PyTypeError::new_err("an id must be text"))?
        .to_str()
        .map_err(|_| PyValueError::new_err("an id must be valid Unicode, without surrogates"))?;
    if text.len() > ID_BYTES_MAX {
        return Err(PyValueError::new_err(format!("an id has at most {ID_BYTES_MAX} bytes")));
    }
    Ok(text)
}

impl<'a, 'py> FromPyObject<'a, 'py> for Texts {
    type Error = PyErr;

    fn extract(column: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let mut texts = Self::default();
        if let Ok(list) = column.cast::<PyList>() {
            texts.ends.reserve(list.len());
            for value in list.iter() {
                texts.push(id_of(&value)?);
            }
        } else if column.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("ids must be a list of texts, not one text"));
        } else {
            let sequence =
                column.cast::<PySequence>().map_err(|_| PyTypeError::new_err("ids must be a list of texts"))?;
            for value in sequence.try_iter()? {
                texts.push(id_of(&value?)?);
            }
        }
        Ok(texts)
    }
}

/// Signed 64-bit integers: a list of int, or a buffer of them.
pub struct Ints(pub Vec<i64>);

impl<'a, 'py> FromPyObject<'a, 'py> for Ints {
    type Error = PyErr;

    fn extract(column: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = column.cast::<PyList>() {
            return list.iter().map(|value| int_of(&value)).collect::<PyResult<_>>().map(Self);
        }
        if let Ok(range) = column.cast::<PyRange>()
            && range.step()? == 1
        {
            let ends = range.start()?..range.stop()?;
            return Ok(Self(ends.map(|value| value as i64).collect()));
        }
        if let Ok(buffer) = PyBuffer::<i64>::get(&column) {
            if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
                return Err(PyValueError::new_err("a column must be one-dimensional and contiguous"));
            }
            return buffer.to_vec(column.py()).map(Self);
        }
        let refused = || PyTypeError::new_err("a column must be a list of int or a buffer of signed 64-bit integers");
        // Bytes and arrays of other types are sequences of int as well, but hardly a column of terms.
        // SAFETY: the object is borrowed, and the interpreter is held.
        if unsafe { pyo3::ffi::PyObject_CheckBuffer(column.as_ptr()) } != 0 {
            return Err(refused());
        }
        let sequence = column.cast::<PySequence>().map_err(|_| refused())?;
        sequence.try_iter()?.map(|value| int_of(&value?)).collect::<PyResult<_>>().map(Self)
    }
}

/// A signed 64-bit integer, checked.
pub fn int_of(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a column of integers must hold int"));
    }
    value.extract()
}

/// Whether all values are plain text of `least` to `most` bytes in UTF-8.
#[pyfunction]
pub fn are_texts(values: &Bound<'_, PyList>, least: usize, most: usize) -> bool {
    values.iter().all(|value| plain_text(&value).is_some_and(|text| (least..=most).contains(&text.len())))
}

/// Whether each value is None or an id that a client may give: plain text of 1 to `most` bytes, not of the server's kind.
#[pyfunction]
pub fn are_submission_ids(values: &Bound<'_, PyList>, most: usize) -> bool {
    values.iter().all(|value| {
        let is_id = |text: &str| (1..=most).contains(&text.len()) && !text.starts_with('@');
        value.is_none() || plain_text(&value).is_some_and(is_id)
    })
}

/// Whether all values are plain integers of 64 bits.
#[pyfunction]
pub fn are_ints(values: &Bound<'_, PyList>) -> bool {
    values.iter().all(|value| value.is_exact_instance_of::<PyInt>() && value.extract::<i64>().is_ok())
}

fn plain_text<'a>(value: &'a Bound<'_, PyAny>) -> Option<&'a str> {
    if value.is_exact_instance_of::<PyString>() { value.cast::<PyString>().ok()?.to_str().ok() } else { None }
}
