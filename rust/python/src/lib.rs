//! The compiled module of kvoxide: converts arguments, calls the core, converts results.

mod blocks;
mod checks;
mod config;
mod errors;
mod events;
mod gate;
mod hasher;
mod id_lists;
mod manager;
mod panics;
mod pool;
mod replay;
mod request;
mod state;
mod stats;
mod tokens;
mod vllm;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Everything that Rust hands to Python.
#[pymodule(gil_used = true)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::blocks::{PyBlock, PyBlocks};
    #[pymodule_export]
    use super::config::{PyConfig, PyGroupSpec, PyPolicy};
    #[pymodule_export]
    use super::events::{AllBlocksCleared, BlockRemoved, BlockStored};
    #[pymodule_export]
    use super::hasher::PyBlockHasher;
    #[pymodule_export]
    use super::manager::PyManager;
    #[pymodule_export]
    use super::pool::PyBlockPool;
    #[pymodule_export]
    use super::replay::{PySimulation, PyTrace, SimulationResult};
    #[pymodule_export]
    use super::request::{PyRequest, RequestStatus};
    #[pymodule_export]
    use super::stats::PrefixCacheStats;

    #[pymodule_export]
    use super::vllm::hasher::VllmBlockHasher;
    #[pymodule_export]
    use super::vllm::manager::VllmManager;
    #[pymodule_export]
    use super::vllm::views::{VllmBlock, VllmBlocks};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        require_gil(module.py())?;
        panics::keep_reports();
        errors::Exceptions::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("DEFAULT_PIN_MIN_DROP_SIZE", kvoxide_core::Policy::DEFAULT_PIN_MIN_DROP_SIZE)
    }
}

/// Objects of this module are used by one thread at a time, which is what the GIL is for. On a build
/// of Python that can do without, loading this module switches the GIL on, unless it was forbidden.
fn require_gil(py: Python<'_>) -> PyResult<()> {
    let is_enabled = py.import("sys")?.getattr_opt("_is_gil_enabled")?;
    match is_enabled.map(|is_enabled| is_enabled.call0()?.is_truthy()).transpose()? {
        Some(false) => Err(PyImportError::new_err(
            "kvoxide needs the GIL, which this Python runs without; allow it (unset PYTHON_GIL, no \
             -X gil=0) or use a build of Python that has it",
        )),
        _ => Ok(()),
    }
}
