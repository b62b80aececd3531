//! Block ids as Python lists and arrays.

use std::ops::Range;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySequenceMethods, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks, NULL_BLOCK};

use super::int_cache;

/// Returns the ids of groups as a tuple of lists.
pub(crate) fn id_lists<'py, 'a>(
    py: Python<'py>,
    groups: impl IntoIterator<Item = &'a GroupBlocks>,
) -> PyResult<Bound<'py, PyTuple>> {
    let lists = groups.into_iter().map(|group| id_list(py, group));
    PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
}

/// Returns the ids of groups as a tuple of int32 arrays.
pub(crate) fn id_arrays<'py>(
    py: Python<'py>,
    groups: Vec<&GroupBlocks>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, groups.into_iter().map(|group| group_array(py, group)).collect::<Vec<_>>())
}

/// Returns ids as an int32 array.
pub(crate) fn id_array(
    py: Python<'_>,
    ids: impl Iterator<Item = BlockId>,
) -> Bound<'_, PyArray1<i32>> {
    ids.map(|id| id as i32).collect::<Vec<_>>().into_pyarray(py)
}

/// Returns the ids of one group as an int32 array; those behind the leading null blocks are copied
/// at once.
fn group_array<'py>(py: Python<'py>, blocks: &GroupBlocks) -> Bound<'py, PyArray1<i32>> {
    let tail: &[i32] = bytemuck::cast_slice(blocks.ids());
    if blocks.null_head() == 0 {
        return PyArray1::from_slice(py, tail);
    }
    let mut ids = vec![0; blocks.len()];
    ids[blocks.null_head()..].copy_from_slice(tail);
    ids.into_pyarray(py)
}

/// Returns the ids of one group as a list.
fn id_list<'py>(py: Python<'py>, blocks: &GroupBlocks) -> PyResult<Bound<'py, PyList>> {
    let tail = int_cache::list_of(py, blocks.ids())?;
    if blocks.null_head() == 0 {
        return Ok(tail);
    }
    let nulls = PyList::new(py, [0])?.as_sequence().repeat(blocks.null_head())?;
    Ok(nulls.in_place_concat(tail.as_sequence())?.cast_into::<PyList>()?)
}

/// Calls `visit` with the places and ids of a list that are not the null block's, until it returns
/// false.
pub(crate) fn each_block(
    block_ids: &Bound<'_, PyList>,
    places: Range<usize>,
    mut visit: impl FnMut(usize, BlockId) -> PyResult<bool>,
) -> PyResult<()> {
    // Most of a window's table is one object, that of the null block.
    let null = NULL_BLOCK.into_pyobject(block_ids.py())?;
    for at in places.start..places.end.min(block_ids.len()) {
        let id = block_ids.get_item(at)?;
        if id.is(&null) {
            continue;
        }
        let id = id.extract()?;
        if id != NULL_BLOCK && !visit(at, id)? {
            break;
        }
    }
    Ok(())
}
