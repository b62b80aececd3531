//! Commands for the worker, to run before a step.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use kvoxide_core::{BlockId, Error, GroupId, HashWindow, RequestView};

use super::construction::VllmManager;
use crate::ffi::offloads_by_name;
use crate::vllm::blocks::block_list;
use crate::vllm::errors::IntoVllmResult;
use crate::vllm::request::RequestSnapshot;

/// Blocks to copy, from and to, and views of these blocks.
type Copies<'py> = (Vec<(BlockId, BlockId)>, Bound<'py, PyList>);

#[pymethods]
impl VllmManager {
    fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.engine.cell.take_new_block_ids(py)
    }

    /// Returns source and destination of each copy, and these blocks as views, whose references the
    /// caller releases once the copies are done.
    fn take_kv_cache_block_copies<'py>(&self, py: Python<'py>) -> PyResult<Copies<'py>> {
        self.engine.cell.change(py, "take_kv_cache_block_copies", |state| {
            let copies = state.core.take_block_copies();
            let ends = copies.iter().flat_map(|&(from, to)| [from, to]);
            let ends = self.engine.cell.handed_out(py, block_list(py, &self.engine, ends))?;
            Ok((copies, ends))
        })
    }

    /// Returns, for each request, the blocks that a connector may read: `(group, block,
    /// num_tokens)`.
    fn take_boundary_state_offloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.engine.cell.change(py, "take_boundary_state_offloads", |state| {
            let offloads = state.core.take_offloads();
            let names = state.names_of(offloads.iter().map(|offload| offload.request));
            let made = offloads_by_name(py, &offloads, |request| names.get(&request).copied());
            self.engine.cell.handed_out(py, made)
        })
    }

    /// Returns blocks that stand for all computed tokens of a request that ends now.
    fn finalize_partial_tail_offloads(
        &self,
        request: &Bound<'_, PyAny>,
        request_id: &str,
    ) -> PyResult<Vec<(GroupId, BlockId, usize)>> {
        let py = request.py();
        self.engine.cell.change(py, "finalize_partial_tail_offloads", |state| {
            let Some(id) = state.id_of(request_id) else { return Ok(Vec::new()) };
            let snapshot = RequestSnapshot::read(&state.reading.reader(request)?, &[])?;
            let view = RequestView {
                num_computed_tokens: snapshot.num_computed_tokens,
                num_in_flight_tokens: snapshot.num_in_flight_tokens,
                ..RequestView::new(id, HashWindow::new(0, &[]), snapshot.num_tokens)
            };
            let tails = state.core.finalize_partial_tails(&view);
            Ok(tails.iter().map(|tail| (tail.group, tail.block, tail.num_tokens)).collect())
        })
    }

    fn new_step_starts(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.cell.change(py, "new_step_starts", |state| {
            state.core.new_step_starts();
            Ok(())
        })
    }

    fn record_blocks_for_zeroing(
        &self,
        py: Python<'_>,
        request_id: &str,
        start_token: usize,
    ) -> PyResult<()> {
        // No request has the id 0: the start is checked even for a request that holds nothing.
        self.engine.cell.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.id_of(request_id).unwrap_or(0);
            match state.core.record_blocks_for_zeroing(id, start_token) {
                Err(Error::UnknownRequest(_)) => Ok(()),
                recorded => recorded.into_vllm(py),
            }
        })
    }
}
