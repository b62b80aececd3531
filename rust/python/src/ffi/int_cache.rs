//! Lists of block ids. Ids recur, so their Python ints are created once and kept.
//!
//! Blocks that are allocated together usually form runs of consecutive ids. Python copies a part of
//! a list several times as fast as it builds a list from single ints.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyListMethods, PySequenceMethods, PySlice};

use kvoxide_core::{Part, Parts};

/// The length of the first range of kept ints. Each further range is twice as long.
const FIRST_RANGE: usize = 1 << 12;
/// The number of ranges. Larger numbers get new ints: 48 bytes for each of millions of blocks would
/// be almost as large as the pool itself.
const NUM_RANGES: usize = 7;

/// Below this length, new ints are as fast, because the allocator returns memory that is still in
/// the CPU's cache.
const FEW: usize = 1 << 6;

/// The length of the shortest run that is copied as a part of a list.
const LONG_ROW: usize = 1 << 6;

static RANGES: [PyOnceLock<Range>; NUM_RANGES] = [const { PyOnceLock::new() }; NUM_RANGES];

/// The kept ints, from 0 on.
struct Range {
    list: Py<PyList>,
    ints: Vec<Py<PyAny>>,
}

/// Returns the numbers as a list.
pub(super) fn list_of<'py>(py: Python<'py>, numbers: &[u32]) -> PyResult<Bound<'py, PyList>> {
    if numbers.len() < FEW {
        return PyList::new(py, numbers);
    }
    let pieces: Vec<_> = Parts::of(numbers, LONG_ROW).collect();
    let largest = pieces.iter().map(largest_of).max().unwrap_or(0) as usize;
    let range = (largest / FIRST_RANGE + 1).next_power_of_two().ilog2() as usize;
    if range >= NUM_RANGES {
        return PyList::new(py, numbers);
    }
    let range = Range::get(py, range)?;
    let mut parts = pieces.into_iter().map(|piece| range.part(py, piece));
    let Some(first) = parts.next() else { return Ok(PyList::empty(py)) };
    parts.try_fold(first?, |list, part| append(list, &part?))
}

fn largest_of(piece: &Part<'_>) -> u32 {
    match *piece {
        Part::Run(run) => run[0].max(run[run.len() - 1]),
        Part::Scattered(some) => some.iter().copied().max().unwrap_or(0),
    }
}

impl Range {
    fn get(py: Python<'_>, index: usize) -> PyResult<&'static Self> {
        RANGES[index].get_or_try_init(py, || Self::new(py, index))
    }

    /// Returns a range with the ints of the previous range, and the same number of further ints.
    fn new(py: Python<'_>, index: usize) -> PyResult<Self> {
        let list = match index.checked_sub(1) {
            None => PyList::new(py, 0..FIRST_RANGE)?,
            Some(before) => {
                let len = FIRST_RANGE << before;
                let list = Self::get(py, before)?.list.bind(py).get_slice(0, len);
                append(list, &PyList::new(py, len..2 * len)?)?
            }
        };
        let ints = list.iter().map(Bound::unbind).collect();
        Ok(Self { list: list.unbind(), ints })
    }

    fn part<'py>(&self, py: Python<'py>, piece: Part<'_>) -> PyResult<Bound<'py, PyList>> {
        match piece {
            Part::Run(run) => self.run(py, run),
            Part::Scattered(some) => {
                PyList::new(py, some.iter().map(|&n| self.ints[n as usize].bind(py)))
            }
        }
    }

    /// Returns a run of numbers as a list.
    fn run<'py>(&self, py: Python<'py>, run: &[u32]) -> PyResult<Bound<'py, PyList>> {
        let list = self.list.bind(py);
        match *run {
            [first, .., last] if last < first => {
                // A slice that goes down to 0 ends before the start of the list.
                let stop = if last == 0 { -(list.len() as isize) - 1 } else { last as isize - 1 };
                let part = list.as_any().get_item(PySlice::new(py, first as isize, stop, -1))?;
                Ok(part.cast_into()?)
            }
            [first, ..] => Ok(list.get_slice(first as usize, first as usize + run.len())),
            [] => Ok(PyList::empty(py)),
        }
    }
}

fn append<'py>(
    list: Bound<'py, PyList>,
    more: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyList>> {
    Ok(list.as_sequence().in_place_concat(more.as_sequence())?.cast_into()?)
}
