//! Block ids as Python lists and arrays. Ids are small and recur, so their ints are kept.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyList, PySequenceMethods, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks};

/// Ids on a page of ready-made ints.
const PAGE: usize = 1 << 12;
/// Ids beyond these pages get new ints: 40 bytes for each of millions of blocks would be more than
/// the pool itself takes.
const NUM_PAGES: usize = 64;

/// A list this short is made of new ints as fast: theirs is memory that was just in use.
const FEW: usize = 1 << 6;

static PAGES: [PyOnceLock<Vec<Py<PyInt>>>; NUM_PAGES] = [const { PyOnceLock::new() }; NUM_PAGES];

/// Ids of groups as a tuple of lists.
pub(crate) fn id_lists<'py, 'a>(
    py: Python<'py>,
    groups: impl IntoIterator<Item = &'a GroupBlocks>,
) -> PyResult<Bound<'py, PyTuple>> {
    let lists = groups.into_iter().map(|group| id_list(py, group));
    PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
}

/// Ids of groups as a tuple of int32 arrays.
pub(crate) fn id_arrays<'py>(
    py: Python<'py>,
    groups: Vec<&GroupBlocks>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, groups.into_iter().map(|group| group_array(py, group)).collect::<Vec<_>>())
}

/// Ids as an int32 array.
pub(crate) fn id_array(
    py: Python<'_>,
    ids: impl Iterator<Item = BlockId>,
) -> Bound<'_, PyArray1<i32>> {
    ids.map(|id| id as i32).collect::<Vec<_>>().into_pyarray(py)
}

/// Those behind the null head are copied as one piece.
fn group_array<'py>(py: Python<'py>, blocks: &GroupBlocks) -> Bound<'py, PyArray1<i32>> {
    let tail: &[i32] = bytemuck::cast_slice(blocks.tail());
    if blocks.null_head() == 0 {
        return PyArray1::from_slice(py, tail);
    }
    let mut ids = vec![0; blocks.len()];
    ids[blocks.null_head()..].copy_from_slice(tail);
    ids.into_pyarray(py)
}

/// Ids of one group as a list.
fn id_list<'py>(py: Python<'py>, blocks: &GroupBlocks) -> PyResult<Bound<'py, PyList>> {
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
