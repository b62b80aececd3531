//! Lists of small numbers, whose ints are made once and kept: block ids recur.
//!
//! Blocks that are taken one after another mostly have ids in a row, up or down. Python copies such
//! a part of a list several times as fast as it can be put together from single ints.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyListMethods, PySequenceMethods, PySlice};

/// Numbers of the first, and smallest, range of ready-made ints; each further one has twice as many.
const FIRST_RANGE: usize = 1 << 12;
/// Numbers beyond the last range get new ints: 48 bytes for each of millions of blocks would be
/// nearly what the pool itself takes.
const NUM_RANGES: usize = 7;

/// A list this short is made of new ints as fast: theirs is memory that was just in use.
const FEW: usize = 1 << 6;

/// The numbers in a row, on average, from which a list is put together from parts.
const LONG_RUN: usize = 1 << 5;

static RANGES: [PyOnceLock<Range>; NUM_RANGES] = [const { PyOnceLock::new() }; NUM_RANGES];

/// The ints from 0 on.
struct Range {
    list: Py<PyList>,
    ints: Vec<Py<PyAny>>,
}

/// Numbers as a list.
pub(super) fn list_of<'py>(py: Python<'py>, numbers: &[u32]) -> PyResult<Bound<'py, PyList>> {
    let largest = numbers.iter().copied().max().unwrap_or(0) as usize;
    let range = (largest / FIRST_RANGE + 1).next_power_of_two().ilog2() as usize;
    if range >= NUM_RANGES || numbers.len() < FEW {
        return PyList::new(py, numbers);
    }
    let range = Range::get(py, range)?;
    match Runs(numbers).at_most(numbers.len() / LONG_RUN) {
        Some(runs) => range.joined(py, &runs),
        None => PyList::new(py, numbers.iter().map(|&n| range.ints[n as usize].bind(py))),
    }
}

impl Range {
    fn get(py: Python<'_>, index: usize) -> PyResult<&'static Self> {
        RANGES[index].get_or_try_init(py, || Self::new(py, index))
    }

    /// A range with the ints of the one before, and as many more.
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

    fn joined<'py>(&self, py: Python<'py>, runs: &[&[u32]]) -> PyResult<Bound<'py, PyList>> {
        let Some((first, further)) = runs.split_first() else { return Ok(PyList::empty(py)) };
        further
            .iter()
            .try_fold(self.part(py, first)?, |list, run| append(list, &self.part(py, run)?))
    }

    /// Numbers in a row as a list.
    fn part<'py>(&self, py: Python<'py>, run: &[u32]) -> PyResult<Bound<'py, PyList>> {
        let list = self.list.bind(py);
        match *run {
            [first, .., last] if last < first => {
                // The end of a slice that goes down to 0 lies before the start of the list.
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

/// Numbers in pieces of which each goes up or down by one from number to number.
struct Runs<'a>(&'a [u32]);

impl<'a> Runs<'a> {
    /// All of them, if there are at most so many.
    fn at_most(self, most: usize) -> Option<Vec<&'a [u32]>> {
        let mut runs = Vec::new();
        for run in self {
            if runs.len() == most {
                return None;
            }
            runs.push(run);
        }
        Some(runs)
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = &'a [u32];

    fn next(&mut self) -> Option<&'a [u32]> {
        let num_steps = match *self.0 {
            [first, second, ..] if first.abs_diff(second) == 1 => {
                num_steps(self.0, second.wrapping_sub(first))
            }
            _ => 0,
        };
        let (run, rest) = self.0.split_at_checked(num_steps + 1)?;
        self.0 = rest;
        Some(run)
    }
}

/// How often one step in a row leads from number to number.
fn num_steps(numbers: &[u32], step: u32) -> usize {
    // Compared side by side, which is several times as fast as one by one.
    const BATCH: usize = 64;
    let is_step = |(a, b): (&u32, &u32)| b.wrapping_sub(*a) == step;
    let pairs =
        |from: &'_ [u32]| from.iter().zip(&from[1..]).take_while(|&pair| is_step(pair)).count();
    let batches = numbers.windows(BATCH + 1).step_by(BATCH);
    let whole =
        |batch: &&[u32]| batch.iter().zip(&batch[1..]).fold(true, |all, pair| all & is_step(pair));
    let num_whole = batches.take_while(whole).count() * BATCH;
    num_whole + pairs(&numbers[num_whole..])
}
