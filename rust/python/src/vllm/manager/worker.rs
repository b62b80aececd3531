//! Commands for the worker, to run before a step.

use pyo3::prelude::*;

use kvoxide_core::{BlockId, Error, GroupId, HashWindow, RequestView};

use super::construction::VllmManager;
use crate::vllm::errors::IntoVllmResult;
use crate::vllm::request::RequestSnapshot;

#[pymethods]
impl VllmManager {
    /// Returns blocks that represent all computed tokens of a request that ends now.
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

    /// Returns, for each group, how many leading blocks of a request all requests hold.
    fn num_common_prefix_blocks(&self, py: Python<'_>, request_id: &str) -> PyResult<Vec<usize>> {
        self.engine.cell.read(py, |state| {
            let id = state.id_of(request_id).unwrap_or(0);
            Ok(state.core.num_common_prefix_blocks(id))
        })
    }

    fn record_blocks_for_zeroing(
        &self,
        py: Python<'_>,
        request_id: &str,
        start_token: usize,
    ) -> PyResult<()> {
        // No request has the id 0. The start is checked even for a request without blocks.
        self.engine.cell.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.id_of(request_id).unwrap_or(0);
            match state.core.record_blocks_for_zeroing(id, start_token) {
                Err(Error::UnknownRequest(_)) => Ok(()),
                recorded => recorded.into_vllm(py),
            }
        })
    }
}
