//! Hashes that kvoxide's hasher computed for a prompt, in Rust next to vLLM's list of them.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyNone, PyType};

use kvoxide_core::BlockHash;

/// The attribute in which `kvoxide.vllm.plugin.hashing` leaves a request its [`ChainEnd`].
const CHAIN_END: &str = "_kvoxide_chain_end";

/// The first hashes of a request, of [`BlockHash::MAX_LEN`] bytes each. A copy or a pickle of the
/// request has none: its hashes are other objects.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmHashChain", frozen)]
pub(crate) struct HashChain(pub(crate) Arc<Vec<BlockHash>>);

#[pymethods]
impl HashChain {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, ()) {
        (PyNone::get(py).get_type(), ())
    }
}

/// How many hashes kvoxide's hasher computed for a request, the last of them and, if there are
/// many, the first ones in Rust.
#[derive(FromPyObject)]
struct ChainEnd<'py>(usize, Bound<'py, PyAny>, Option<Py<HashChain>>);

/// The properties of a list of hashes that kvoxide's hasher computed.
pub(crate) struct ComputedChain {
    /// The first hashes, or none.
    pub(crate) head: Arc<Vec<BlockHash>>,
}

impl ComputedChain {
    /// Returns what the attributes of a request tell of its list of hashes. `None` unless the list
    /// has the length that it had when kvoxide's hasher last added to it, and ends with the object
    /// that it added.
    pub(crate) fn of(attributes: &Bound<'_, PyDict>, list: &Bound<'_, PyList>) -> Option<Self> {
        let end = attributes.get_item(intern!(attributes.py(), CHAIN_END)).ok()??;
        let ChainEnd(len, last, head) = end.extract().ok()?;
        let is_last = |hash: Bound<'_, PyAny>| hash.is(&last);
        if len == 0 || len != list.len() || !list.get_item(len - 1).is_ok_and(is_last) {
            return None;
        }
        let head = head.map(|head| Arc::clone(&head.get().0)).filter(|head| head.len() <= len);
        Some(Self { head: head.unwrap_or_default() })
    }
}
