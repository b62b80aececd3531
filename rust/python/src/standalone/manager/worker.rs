//! Commands for the worker, to run before a step.

use pyo3::prelude::*;

use kvoxide_core::{BlockId, GroupId};

use super::construction::PyManager;
use crate::ffi::{IntoPyResult, count};
use crate::standalone::request::PyRequest;

#[pymethods]
impl PyManager {
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
}
