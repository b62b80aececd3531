//! Numbers of an engine for metrics.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use kvoxide_core::BlockCounts;

use super::construction::VllmManager;
use crate::vllm::call_times::CallTimes;

#[pymethods]
impl VllmManager {
    /// Returns whether the engine failed. It then refuses every call.
    #[getter]
    fn is_poisoned(&self) -> bool {
        self.engine.cell.is_poisoned()
    }

    /// Returns the number of blocks in use, of evictable, of protected and of empty blocks.
    fn count_blocks(&self, py: Python<'_>) -> PyResult<(usize, usize, usize, usize)> {
        self.engine.cell.ask(py, |core| {
            let BlockCounts { in_use, evictable, protected, empty } = core.count_blocks();
            (in_use, evictable, protected, empty)
        })
    }

    /// Starts to time a sample of the scheduler's calls.
    fn time_calls(&self) {
        self.engine.call_times.switch_on();
    }

    /// Returns the upper bounds of buckets in seconds. For each call, returns how many timed calls
    /// are in each bucket and how many seconds they took.
    fn call_seconds<'py>(&self, py: Python<'py>) -> PyResult<(Vec<f64>, Bound<'py, PyDict>)> {
        let calls = PyDict::new(py);
        for (name, counts, seconds) in self.engine.call_times.totals() {
            calls.set_item(name, (counts, seconds))?;
        }
        Ok((CallTimes::bounds(), calls))
    }
}
