//! The compiled module of kvoxide: converts arguments, calls the core, converts results.

mod blocks;
mod checks;
mod config;
mod errors;
mod events;
mod hasher;
mod id_lists;
mod manager;
mod pool;
mod replay;
mod request;
mod stats;
mod tokens;
mod vllm;

use pyo3::prelude::*;

/// Everything that Rust hands to Python.
#[pymodule]
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
        errors::Exceptions::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("DEFAULT_PIN_MIN_DROP_SIZE", kvoxide_core::Policy::DEFAULT_PIN_MIN_DROP_SIZE)
    }
}
