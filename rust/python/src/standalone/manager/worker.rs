//! Commands for the worker, to run before a step.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::construction::PyManager;
use kvoxide_core::{BlockId, GroupId};

use crate::ffi::{IntoPyResult, count, offloads_by_name};
use crate::standalone::blocks::PyBlock;
use crate::standalone::copies::PyBlockCopy;
use crate::standalone::request::PyRequest;

/// Blocks to copy, and views of these blocks.
type Copies<'py> = (Vec<PyBlockCopy>, Bound<'py, PyList>);

#[pymethods]
impl PyManager {
    fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.cell.take_new_block_ids(py)
    }

    fn record_blocks_for_zeroing(
        &self,
        py: Python<'_>,
        request_id: &str,
        start_token: i64,
    ) -> PyResult<()> {
        let start = count(py, "start_token", start_token)?;
        self.cell.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.request_id(py, request_id)?;
            state.core.record_blocks_for_zeroing(id, start).into_py(py)
        })
    }

    /// Returns source and destination of each copy, and these blocks as views, whose references the
    /// caller releases once the copies are done.
    fn take_kv_cache_block_copies<'py>(&self, py: Python<'py>) -> PyResult<Copies<'py>> {
        self.cell.change(py, "take_kv_cache_block_copies", |state| {
            let copies = state.core.take_block_copies();
            let ends = copies.iter().flat_map(|&(from, to)| [from, to]);
            let ends = self.cell.handed_out(py, PyBlock::list(py, &self.cell, ends))?;
            let copy = |&(src_block_id, dst_block_id): &(BlockId, BlockId)| PyBlockCopy {
                src_block_id,
                dst_block_id,
            };
            Ok((copies.iter().map(copy).collect(), ends))
        })
    }

    fn take_boundary_state_offloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.cell.change(py, "take_boundary_state_offloads", |state| {
            let offloads = state.core.take_offloads();
            let names: HashMap<_, _> = match offloads.is_empty() {
                true => HashMap::new(),
                false => state.names.iter().map(|(name, &id)| (id, name.as_str())).collect(),
            };
            let made = offloads_by_name(py, &offloads, |request| names.get(&request).copied());
            self.cell.handed_out(py, made)
        })
    }

    fn finalize_partial_tail_offloads(
        &self,
        py: Python<'_>,
        request: &PyRequest,
    ) -> PyResult<Vec<(GroupId, BlockId, usize)>> {
        self.cell.change(py, "finalize_partial_tail_offloads", |state| {
            state.held(py, request)?;
            let tails = state.core.finalize_partial_tails(&request.view());
            Ok(tails.iter().map(|tail| (tail.group, tail.block, tail.num_tokens)).collect())
        })
    }

    fn new_step_starts(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.change(py, "new_step_starts", |state| {
            state.core.new_step_starts();
            Ok(())
        })
    }
}
