//! The state of a tier: the core, and what only Python has.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::CacheKey;
use kvoxide_core::host::HostTier;

use super::hash_lengths::HashLengths;
use super::pair::{Pair, Partner};
use crate::ffi::{CheckedState, request_error};
use crate::standalone::EmptyLoads;

/// The state of a tier.
pub(super) struct HostState {
    pub(super) core: HostTier,
    /// The lengths of block hashes, once there was one.
    pub(super) hash_lengths: Option<HashLengths>,
    pub(super) log_stats: bool,
    pub(super) partner: Partner,
}

impl CheckedState for HostState {
    const NAME: &'static str = "host tier";
}

impl HostState {
    /// Returns a key as Python's.
    pub(super) fn packed<'py>(&self, py: Python<'py>, key: &CacheKey) -> Bound<'py, PyBytes> {
        HashLengths::packed(self.hash_lengths, py, key)
    }

    /// Returns the tier, and the manager that decides together with it, for a call of `adaptive`.
    pub(super) fn paired(
        &mut self,
        py: Python<'_>,
        call: &str,
    ) -> PyResult<(&mut HostTier, &mut Pair)> {
        match &mut self.partner {
            Partner::Manager(pair) => Ok((&mut self.core, pair)),
            Partner::Missing => {
                let message = format!("{call} needs a manager; call decide_with first");
                Err(request_error(py, message))
            }
            Partner::Unneeded => Err(not_adaptive(py, call, self.core.policy().name())),
        }
    }

    /// Refuses a call of vLLM's policies in a tier of `adaptive`.
    pub(super) fn check_vllm_call(&self, py: Python<'_>, call: &str) -> PyResult<()> {
        if matches!(self.partner, Partner::Unneeded) {
            return Ok(());
        }
        let message = format!(
            "{call} is for the policies 'lru' and 'arc'. With 'adaptive', use lookup_request, \
             start_load, prepare_step and complete"
        );
        Err(request_error(py, message))
    }

    /// Frees all chunks. Transfers that have not ended are forgotten.
    pub(super) fn reset(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Partner::Manager(pair) = &mut self.partner {
            pair.manager.end_loads(py, "reset", EmptyLoads::lose_all)?;
            pair.horizon.forget_stores();
            pair.transfers.clear();
        }
        self.core.reset();
        Ok(())
    }

    /// Frees all chunks and panics, for tests of the state after a panic.
    pub(super) fn panic_midway(&mut self) -> PyResult<()> {
        self.core.reset();
        panic!("planted by a test");
    }
}

/// Returns the error for a call of `adaptive` under another policy.
pub(super) fn not_adaptive(py: Python<'_>, call: &str, policy: &str) -> PyErr {
    let message = format!("{call} needs the policy 'adaptive'; this tier has '{policy}'");
    request_error(py, message)
}
