//! The compiled module of kvoxide: it converts arguments, calls the core, and converts results.

mod host_memory;
mod offload;
mod replay;
mod serving;
mod standalone;
mod trace;
mod vllm;

mod ffi;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The classes and functions of `kvoxide._core`.
#[pymodule(gil_used = true)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::ffi::{
        GroupDeclaration, PyBlockCopy, PyConfig, PyGroupSpec, PyOutcomeReport, PyPolicy,
        PyRetentionReport, group_kinds, older_rules,
    };
    #[pymodule_export]
    use super::host_memory::{HostMemoryResult, PyHostMemory};
    #[pymodule_export]
    use super::offload::{
        PyHostEvent, PyHostRequest, PyHostStep, PyHostStorePlan, PyHostTier, PyHostTransfer,
    };
    #[pymodule_export]
    use super::replay::{PySimulation, SimulationResult};
    #[pymodule_export]
    use super::serving::{InstanceResult, PyServing, PyStepTime, ServingResult};
    #[pymodule_export]
    use super::standalone::{
        AllBlocksCleared, BlockRemoved, BlockStored, PrefixCacheStats, PyBlock, PyBlockHasher,
        PyBlockPool, PyBlocks, PyManager, PyRequest, PyRetention, RequestStatus,
    };

    #[pymodule_export]
    use super::trace::PyTrace;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        require_gil(module.py())?;
        ffi::keep_reports();
        ffi::Exceptions::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("DEFAULT_PIN_MIN_DROP_SIZE", kvoxide_core::Policy::DEFAULT_PIN_MIN_DROP_SIZE)?;
        add_core_vllm(module.py())
    }
}

/// Adds the module `kvoxide._core_vllm`, which only `kvoxide.vllm` uses. It has no file of its own,
/// so it goes into `sys.modules`.
fn add_core_vllm(py: Python<'_>) -> PyResult<()> {
    let module = PyModule::new(py, "kvoxide._core_vllm")?;
    module.add_class::<vllm::VllmManager>()?;
    module.add_class::<vllm::VllmBlock>()?;
    module.add_class::<vllm::VllmBlocks>()?;
    module.add_class::<vllm::VllmBlockSequence>()?;
    module.add_class::<vllm::VllmFreeWalk>()?;
    module.add_class::<vllm::VllmPoolCloser>()?;
    module.add_class::<vllm::VllmQueueEnd>()?;
    module.add_class::<vllm::VllmBlockHasher>()?;
    module.add_class::<ffi::HashChain>()?;
    module.add_class::<vllm::VllmBlockNumbers>()?;
    module.add_class::<vllm::VllmGrantedHints>()?;
    module.add_class::<vllm::VllmEventClasses>()?;
    module.add_class::<vllm::VllmEvents>()?;
    module.add_class::<offload::VllmBlockIds>()?;
    module.add_class::<offload::RequestKeys>()?;
    module.add_class::<offload::GroupKeys>()?;
    module.add_class::<offload::ChunkKeys>()?;
    module.add_class::<offload::OffloadPlanner>()?;
    module.add_class::<offload::LoadPlan>()?;
    module.add_class::<offload::LeavingPlan>()?;
    module.add_class::<offload::StorePlan>()?;
    py.import("sys")?.getattr("modules")?.set_item(module.name()?, module)
}

/// Returns an error if Python runs without the GIL. The objects of this module are used by one
/// thread at a time, which the GIL ensures. On a build of Python that can run without the GIL,
/// loading this module switches it on, unless that is forbidden.
fn require_gil(py: Python<'_>) -> PyResult<()> {
    let is_enabled = py.import("sys")?.getattr_opt("_is_gil_enabled")?;
    match is_enabled.map(|is_enabled| is_enabled.call0()?.is_truthy()).transpose()? {
        Some(false) => Err(PyImportError::new_err(
            "this Python runs without the GIL, which kvoxide needs. Unset PYTHON_GIL and omit -X \
             gil=0, or use a build of Python with the GIL",
        )),
        _ => Ok(()),
    }
}
