//! Rules of older releases of vLLM, by name.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyTuple;

use kvoxide_core::OlderRules;

use super::errors::config_error;

/// The rules that a sequence of names switches on.
#[derive(Clone, Copy, Default)]
pub(crate) struct NamedRules(pub(crate) OlderRules);

impl FromPyObject<'_, '_> for NamedRules {
    type Error = PyErr;

    fn extract(names: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let given: Vec<PyBackedStr> = names.extract()?;
        OlderRules::named(given.iter().map(|name| &**name)).map(Self).map_err(|unknown| {
            let known = OlderRules::NAMES.join("', '");
            let message = format!("older_rules has '{unknown}'; it can have '{known}'");
            config_error(names.py(), message)
        })
    }
}

/// Returns the names of all rules.
#[pyfunction]
pub(crate) fn older_rules(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, OlderRules::NAMES)
}
