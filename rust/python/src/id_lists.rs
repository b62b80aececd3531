//! Block ids as Python lists. Ids are small and recur, so their ints are kept.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyList, PySequenceMethods};

use kvoxide_core::{BlockId, GroupBlocks};

/// Ids on a page of ready-made ints.
const PAGE: usize = 1 << 12;
/// Ids beyond these pages get new ints: 40 bytes for each of millions of blocks would be more than
/// the pool itself takes.
const NUM_PAGES: usize = 64;

/// A list this short is made of new ints as fast: theirs is memory that was just in use.
const FEW: usize = 1 << 6;

static PAGES: [PyOnceLock<Vec<Py<PyInt>>>; NUM_PAGES] = [const { PyOnceLock::new() }; NUM_PAGES];

/// Ids of one group as a list.
pub fn id_list<'py>(py: Python<'py>, blocks: &GroupBlocks) -> PyResult<Bound<'py, PyList>> {
    let tail = list_of(py, blocks.tail())?;
    if blocks.null_head() == 0 {
        return Ok(tail);
    }
    let nulls = PyList::new(py, [0])?.as_sequence().repeat(blocks.null_head())?;
    Ok(nulls.in_place_concat(tail.as_sequence())?.cast_into::<PyList>()?)
}

fn list_of<'py>(py: Python<'py>, ids: &[BlockId]) -> PyResult<Bound<'py, PyList>> {
    let largest = ids.iter().copied().max().unwrap_or(0) as usize;
    let num_pages = largest / PAGE + 1;
    if num_pages > NUM_PAGES || ids.len() < FEW {
        return PyList::new(py, ids);
    }
    let pages: Vec<_> = (0..num_pages).map(|page| page_of_ints(py, page)).collect();
    PyList::new(py, ids.iter().map(|&id| pages[id as usize / PAGE][id as usize % PAGE].bind(py)))
}

fn page_of_ints(py: Python<'_>, page: usize) -> &'static [Py<PyInt>] {
    let ids = page * PAGE..(page + 1) * PAGE;
    PAGES[page].get_or_init(py, || ids.map(|id| PyInt::new(py, id).unbind()).collect())
}
