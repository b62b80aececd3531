//! The state of a tier: the core, and what only Python has.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::CacheKey;
use kvoxide_core::host::HostTier;

use super::hash_lengths::HashLengths;
use crate::ffi::CheckedState;

/// The state of a tier.
pub(super) struct HostState {
    pub(super) core: HostTier,
    /// The lengths of block hashes, once there was one.
    pub(super) hash_lengths: Option<HashLengths>,
    pub(super) log_stats: bool,
}

impl CheckedState for HostState {
    const NAME: &'static str = "host tier";
}

impl HostState {
    /// Returns a key as Python's.
    pub(super) fn packed<'py>(&self, py: Python<'py>, key: &CacheKey) -> Bound<'py, PyBytes> {
        HashLengths::packed(self.hash_lengths, py, key)
    }

    /// Frees all chunks and panics, for tests of the state after a panic.
    pub(super) fn panic_midway(&mut self) -> PyResult<()> {
        self.core.reset();
        panic!("planted by a test");
    }
}
