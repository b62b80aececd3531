//! Block ids as Python lists and arrays.

use std::ops::Range;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySequenceMethods, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks, Manager, NULL_BLOCK, RequestBlocks};

use super::int_cache;

/// Returns the ids of groups as a tuple of lists.
pub(crate) fn id_lists<'py, 'a>(
    py: Python<'py>,
    groups: impl IntoIterator<Item = &'a GroupBlocks>,
) -> PyResult<Bound<'py, PyTuple>> {
    let lists = groups.into_iter().map(|group| id_list(py, group, usize::MAX));
    PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
}

/// Returns the ids of a request's blocks up to a number of tokens as a tuple of lists. If a group's
/// blocks do not lie at the positions of tokens, all of their ids are returned.
pub(crate) fn computed_id_lists<'py>(
    py: Python<'py>,
    core: &Manager,
    held: &RequestBlocks,
    num_computed_tokens: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let lists = held.groups.iter().zip(core.groups()).map(|(held, group)| {
        let num_blocks = num_computed_tokens.div_ceil(group.spec.block_size);
        id_list(py, &held.blocks, if group.covers_tokens { num_blocks } else { usize::MAX })
    });
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

/// Returns the ids of one group as an int32 array. The ids after the leading null blocks are copied
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

/// Returns the first ids of one group as a list, at most `num`.
fn id_list<'py>(py: Python<'py>, blocks: &GroupBlocks, num: usize) -> PyResult<Bound<'py, PyList>> {
    let num_nulls = blocks.null_head().min(num);
    let ids = blocks.ids();
    let tail = int_cache::list_of(py, &ids[..ids.len().min(num - num_nulls)])?;
    if num_nulls == 0 {
        return Ok(tail);
    }
    let nulls = PyList::new(py, [0])?.as_sequence().repeat(num_nulls)?;
    Ok(nulls.in_place_concat(tail.as_sequence())?.cast_into::<PyList>()?)
}

/// Calls `visit` with the positions and ids in a list, except for null blocks, until it returns
/// false.
pub(crate) fn each_block(
    block_ids: &Bound<'_, PyList>,
    places: Range<usize>,
    mut visit: impl FnMut(usize, BlockId) -> PyResult<bool>,
) -> PyResult<()> {
    let py = block_ids.py();
    // Most entries of a window's table are one object, the null block's view.
    let null = NULL_BLOCK.into_pyobject(py)?;
    let mut nulls = None;
    let end = places.end.min(block_ids.len());
    let (mut at, mut no_row_before) = (places.start, places.start);
    while at < end {
        let id = block_ids.get_item(at)?;
        if !id.is(&null) {
            let id = id.extract()?;
            if id != NULL_BLOCK && !visit(at, id)? {
                break;
            }
        } else if at >= no_row_before && at + NULL_ROW <= end {
            let nulls = match &nulls {
                Some(nulls) => nulls,
                None => nulls.insert(PyList::new(py, [NULL_BLOCK; NULL_ROW])?),
            };
            no_row_before = at + NULL_ROW;
            if block_ids.get_slice(at, no_row_before).eq(nulls)? {
                at = no_row_before;
                continue;
            }
        }
        at += 1;
    }
    Ok(())
}

/// The number of null blocks that are skipped at once. Python compares them faster than it reads
/// each of them.
const NULL_ROW: usize = 128;
