//! KV cache groups and their kinds, for Python.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use kvoxide_core::group::{Declaration, Kind, Sharding, declaration, kinds};
use kvoxide_core::{GroupSpec, Size};

use super::errors::{IntoPyResult, config_error};
use super::numbers::size;
use super::pickling::{NewArgs, new_args};

/// One KV cache group.
#[pyclass(module = "kvoxide", name = "KVCacheGroupSpec", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyGroupSpec {
    pub(crate) spec: GroupSpec,
}

#[pymethods]
impl PyGroupSpec {
    #[new]
    #[pyo3(signature = (kind, block_size, *, is_eagle_group=false, prefix_cacheable=None,
        dcp_sharded=None, layout=0, **sizes))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        kind: &str,
        block_size: i64,
        is_eagle_group: bool,
        prefix_cacheable: Option<bool>,
        dcp_sharded: Option<bool>,
        layout: i64,
        sizes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut spec = GroupSpec::new(kind, size(py, "block_size", block_size)?);
        for (name, value) in sizes.into_iter().flatten() {
            if let Some((size, tokens)) = named_size(&name, &value)? {
                spec = spec.with(size, tokens);
            }
        }
        spec.is_eagle_group = is_eagle_group;
        spec.prefix_cacheable = prefix_cacheable;
        spec.dcp_sharded = dcp_sharded;
        spec.layout = u32::try_from(layout).map_err(|_| {
            config_error(py, format!("layout is {layout}; it must be from 0 to {}", u32::MAX))
        })?;
        Kind::new(&spec).into_py(py)?;
        Ok(Self { spec })
    }

    #[getter]
    fn kind(&self) -> &str {
        &self.spec.kind
    }

    #[getter]
    fn block_size(&self) -> usize {
        self.spec.block_size
    }

    #[getter]
    fn is_eagle_group(&self) -> bool {
        self.spec.is_eagle_group
    }

    #[getter]
    fn prefix_cacheable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(declaration(&self.spec).into_py(py)?.is_cacheable(&self.spec))
    }

    #[getter]
    fn dcp_sharded(&self, py: Python<'_>) -> PyResult<bool> {
        let default = declaration(&self.spec).into_py(py)?.sharding != Sharding::Whole;
        Ok(self.spec.dcp_sharded.unwrap_or(default))
    }

    #[getter]
    fn layout(&self) -> u32 {
        self.spec.layout
    }

    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sizes = PyDict::new(py);
        for (size, tokens) in self.spec.sizes() {
            sizes.set_item(size.name(), tokens)?;
        }
        Ok(sizes)
    }

    /// Returns a size by its name. The sizes that kinds declare are attributes of every group.
    fn __getattr__(&self, name: &str) -> PyResult<Option<usize>> {
        let size = Size::named(name).ok_or_else(|| {
            let message = format!("'kvoxide.KVCacheGroupSpec' object has no attribute '{name}'");
            PyAttributeError::new_err(message)
        })?;
        Ok(self.spec.size(size))
    }

    fn num_blocks_at_end(&self, py: Python<'_>, num_tokens: i64) -> PyResult<usize> {
        let num_tokens = size(py, "num_tokens", num_tokens)?;
        Ok(Kind::new(&self.spec).into_py(py)?.num_blocks_at_end(self.spec.block_size, num_tokens))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, (&str, usize)>> {
        let GroupSpec { kind, block_size, .. } = &self.spec;
        let (args, keywords) = new_args(
            py,
            (&**kind, *block_size),
            [
                ("is_eagle_group", self.spec.is_eagle_group.into_bound_py_any(py)?),
                ("prefix_cacheable", self.spec.prefix_cacheable.into_bound_py_any(py)?),
                ("dcp_sharded", self.spec.dcp_sharded.into_bound_py_any(py)?),
                ("layout", self.spec.layout.into_bound_py_any(py)?),
            ],
        )?;
        keywords.update(self.sizes(py)?.as_mapping())?;
        Ok((args, keywords))
    }

    pub(super) fn __repr__(&self) -> String {
        let GroupSpec { kind, block_size, .. } = &self.spec;
        let sizes = self.spec.sizes().map(|(size, tokens)| format!(", {}={tokens}", size.name()));
        format!("KVCacheGroupSpec('{kind}', {block_size}{})", sizes.collect::<String>())
    }
}

/// Returns a size and its number of tokens; `None` for Python's None.
fn named_size(
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<Option<(Size, usize)>> {
    let (py, name) = (name.py(), name.extract::<String>()?);
    let known = Size::named(&name).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "KVCacheGroupSpec.__new__() got an unexpected keyword argument '{name}'"
        ))
    })?;
    let tokens: Option<i64> = value.extract().inspect_err(|error: &PyErr| {
        // The note names the argument, as for every other argument of a wrong type.
        let _ = error.add_note(py, format!("while processing '{name}'"));
    })?;
    tokens.map(|tokens| Ok((known, size(py, &name, tokens)?))).transpose()
}

/// The declaration of a kind of group.
#[pyclass(module = "kvoxide", frozen)]
pub(crate) struct GroupDeclaration(&'static Declaration);

#[pymethods]
impl GroupDeclaration {
    #[getter]
    fn name(&self) -> &str {
        self.0.name
    }

    #[getter]
    fn short_name(&self) -> &str {
        self.0.short_name
    }

    #[getter]
    fn event_name(&self) -> &str {
        self.0.event_name
    }

    #[getter]
    fn vllm_spec(&self) -> &str {
        self.0.vllm_classes.0
    }

    #[getter]
    fn vllm_manager(&self) -> &str {
        self.0.vllm_classes.1
    }

    #[getter]
    fn vllm_attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attributes = PyDict::new(py);
        for (name, value) in self.0.vllm_attributes {
            attributes.set_item(name, value)?;
        }
        Ok(attributes)
    }

    #[getter]
    fn required_sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.required.iter().map(|size| size.name()))
    }

    #[getter]
    fn optional_sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.optional.iter().map(|size| size.name()))
    }

    #[getter]
    fn prefix_caching(&self) -> &str {
        self.0.caching.name()
    }

    #[getter]
    fn hit_needs(&self) -> &str {
        self.0.hit_needs
    }

    #[getter]
    fn releases(&self) -> &str {
        self.0.releases
    }

    #[getter]
    fn is_sparse(&self) -> bool {
        self.0.is_sparse
    }

    #[getter]
    fn is_pinned_by_drop(&self) -> bool {
        self.0.is_pinned_by_drop
    }

    #[getter]
    fn supports_eagle(&self) -> bool {
        self.0.supports_eagle
    }

    #[getter]
    fn mixes_block_sizes(&self) -> bool {
        self.0.mixes_block_sizes
    }

    fn __repr__(&self) -> String {
        format!("GroupDeclaration('{}')", self.0.name)
    }
}

/// Returns the declarations of every kind of group.
#[pyfunction]
pub(crate) fn group_kinds(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, kinds().into_iter().map(GroupDeclaration))
}
