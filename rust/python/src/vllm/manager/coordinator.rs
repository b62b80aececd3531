//! Calls of vLLM's coordinator of groups.

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::SlotDemand;

use super::construction::VllmManager;
use crate::vllm::blocks::{VllmBlocks, lists_of};
use crate::vllm::errors::IntoVllmResult;
use crate::vllm::request::PyHashes;

#[pymethods]
impl VllmManager {
    #[pyo3(signature = (request_id, num_tokens, new_computed_blocks, num_encoder_tokens,
        total_computed_tokens, num_local_computed_tokens, num_tokens_main_model,
        apply_admission_cap=false, prefill_end=0))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn get_num_blocks_to_allocate(
        &self,
        py: Python<'_>,
        request_id: &str,
        num_tokens: usize,
        new_computed_blocks: &Bound<'_, PyAny>,
        num_encoder_tokens: usize,
        total_computed_tokens: usize,
        num_local_computed_tokens: usize,
        num_tokens_main_model: usize,
        apply_admission_cap: bool,
        prefill_end: usize,
    ) -> PyResult<isize> {
        let hit = lists_of(new_computed_blocks, &self.engine)?;
        let demand = SlotDemand {
            num_tokens,
            new_computed_blocks: &hit,
            total_computed_tokens,
            num_local_computed_tokens,
            num_tokens_main_model,
            num_encoder_tokens,
            prefill_end,
            apply_admission_cap,
            ..SlotDemand::default()
        };
        self.engine.cell.change(py, "get_num_blocks_to_allocate", |state| {
            let id = state.requests.get(request_id).map_or(0, |known| known.id);
            state.note(request_id, id);
            state.core.get_num_blocks_to_allocate(id, &demand).into_vllm(py)
        })
    }

    /// Returns the hit of a list of hashes: its blocks, its length, and the number of tokens that a
    /// group has cached beyond it.
    fn find_longest_cache_hit(
        &self,
        py: Python<'_>,
        hashes: &Bound<'_, PyAny>,
        max_cache_hit_length: usize,
    ) -> PyResult<(VllmBlocks, usize, usize)> {
        self.engine.cell.read(py, |state| {
            let hashes = PyHashes::new(hashes, state.hash_len)?;
            let found = state.core.find_longest_hit(&hashes, max_cache_hit_length);
            let found = hashes.or_python_error(py, found)?;
            let uncached = found.shared_prefix_boundary.saturating_sub(found.length);
            Ok((self.wrap(found.blocks), found.length, uncached))
        })
    }

    /// Returns the separate hit of each group: its blocks and its length.
    fn find_longest_cache_hit_per_group(
        &self,
        py: Python<'_>,
        hashes: &Bound<'_, PyAny>,
        max_cache_hit_length: usize,
    ) -> PyResult<(VllmBlocks, Vec<usize>)> {
        self.engine.cell.read(py, |state| {
            let hashes = PyHashes::new(hashes, state.hash_len)?;
            let found = state.core.find_longest_hit_per_group(&hashes, max_cache_hit_length);
            let (blocks, lengths) = hashes.or_python_error(py, found)?;
            Ok((self.wrap(blocks), lengths))
        })
    }

    /// Returns the ids of requests that have blocks, or that were looked up and not freed.
    fn request_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.engine.cell.read(py, |state| {
            let known = state.requests.iter().filter(|(_, known)| state.core.knows(known.id));
            PyList::new(py, known.map(|(name, _)| name).collect::<Vec<_>>())
        })
    }

    fn set_retention_interval(&self, py: Python<'_>, interval: Option<usize>) -> PyResult<()> {
        self.engine.cell.edit(py, "set_retention_interval", |state| {
            state.core.set_retention_interval(interval).into_vllm(py)
        })
    }
}
