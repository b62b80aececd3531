//! Groups, configuration and policy, as Python describes them.

use pyo3::prelude::*;
use pyo3::types::PyString;

use kvoxide_core::group::attention_kind;
use kvoxide_core::{GroupSpec, Policy, RecycleOrder};

use super::errors::{IntoPyResult, config_error};
use super::numbers::{optional_size, size};

/// One KV cache group.
#[pyclass(module = "kvoxide", name = "KVCacheGroupSpec", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyGroupSpec {
    pub(crate) spec: GroupSpec,
}

#[pymethods]
impl PyGroupSpec {
    #[new]
    #[pyo3(signature = (kind, block_size, *, sliding_window=None, attention_chunk_size=None,
        extra_retained_tokens=0, is_eagle_group=false, prefix_cacheable=true, layout=0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        kind: &str,
        block_size: i64,
        sliding_window: Option<i64>,
        attention_chunk_size: Option<i64>,
        extra_retained_tokens: i64,
        is_eagle_group: bool,
        prefix_cacheable: bool,
        layout: i64,
    ) -> PyResult<Self> {
        let spec = GroupSpec {
            kind: kind.to_owned(),
            block_size: size(py, "block_size", block_size)?,
            sliding_window: optional_size(py, "sliding_window", sliding_window)?,
            attention_chunk_size: optional_size(py, "attention_chunk_size", attention_chunk_size)?,
            extra_retained_tokens: size(py, "extra_retained_tokens", extra_retained_tokens)?,
            is_eagle_group,
            prefix_cacheable,
            layout: u32::try_from(layout).map_err(|_| {
                config_error(py, format!("layout is {layout}; it must be from 0 to {}", u32::MAX))
            })?,
        };
        attention_kind(&spec).into_py(py)?;
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
    fn sliding_window(&self) -> Option<usize> {
        self.spec.sliding_window
    }

    #[getter]
    fn attention_chunk_size(&self) -> Option<usize> {
        self.spec.attention_chunk_size
    }

    #[getter]
    fn extra_retained_tokens(&self) -> usize {
        self.spec.extra_retained_tokens
    }

    #[getter]
    fn is_eagle_group(&self) -> bool {
        self.spec.is_eagle_group
    }

    #[getter]
    fn prefix_cacheable(&self) -> bool {
        self.spec.prefix_cacheable
    }

    #[getter]
    fn layout(&self) -> u32 {
        self.spec.layout
    }

    fn __repr__(&self) -> String {
        let GroupSpec { kind, block_size, .. } = &self.spec;
        let window = self.spec.sliding_window.map(|w| format!(", sliding_window={w}"));
        let chunk = self.spec.attention_chunk_size.map(|c| format!(", attention_chunk_size={c}"));
        let (window, chunk) = (window.unwrap_or_default(), chunk.unwrap_or_default());
        format!("KVCacheGroupSpec('{kind}', {block_size}{window}{chunk})")
    }
}

/// The pool and its groups.
#[pyclass(module = "kvoxide", name = "KVCacheConfig", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyConfig {
    pub(crate) num_blocks: usize,
    pub(crate) groups: Vec<PyGroupSpec>,
    pub(crate) needs_zeroing: bool,
}

#[pymethods]
impl PyConfig {
    #[new]
    #[pyo3(signature = (num_blocks, kv_cache_groups, *, needs_kv_cache_zeroing=false))]
    fn new(
        py: Python<'_>,
        num_blocks: i64,
        kv_cache_groups: Vec<PyGroupSpec>,
        needs_kv_cache_zeroing: bool,
    ) -> PyResult<Self> {
        Ok(Self {
            num_blocks: size(py, "num_blocks", num_blocks)?,
            groups: kv_cache_groups,
            needs_zeroing: needs_kv_cache_zeroing,
        })
    }

    #[getter]
    fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    #[getter]
    fn kv_cache_groups(&self) -> Vec<PyGroupSpec> {
        self.groups.clone()
    }

    #[getter]
    fn needs_kv_cache_zeroing(&self) -> bool {
        self.needs_zeroing
    }

    fn __repr__(&self) -> String {
        let groups: Vec<_> = self.groups.iter().map(PyGroupSpec::__repr__).collect();
        format!("KVCacheConfig({}, [{}])", self.num_blocks, groups.join(", "))
    }
}

/// Retention and recycling.
#[pyclass(module = "kvoxide", name = "Policy", frozen, eq, from_py_object)]
#[derive(Clone, Default, PartialEq)]
pub(crate) struct PyPolicy {
    pub(crate) policy: Policy,
}

#[pymethods]
impl PyPolicy {
    #[new]
    #[pyo3(signature = (*, recycle_order="uncached-first", reachable_block_mask=true,
        retention_interval=None, pin_min_drop_size=None))]
    fn new(
        py: Python<'_>,
        recycle_order: &str,
        reachable_block_mask: bool,
        retention_interval: Option<&Bound<'_, PyAny>>,
        pin_min_drop_size: Option<i64>,
    ) -> PyResult<Self> {
        let recycle_order = match recycle_order {
            "uncached-first" => RecycleOrder::UncachedFirst,
            "fifo" => RecycleOrder::Fifo,
            other => {
                return Err(config_error(
                    py,
                    format!("recycle_order is '{other}'; it can be 'uncached-first' or 'fifo'"),
                ));
            }
        };
        let pin_min_drop_size = optional_size(py, "pin_min_drop_size", pin_min_drop_size)?;
        if pin_min_drop_size == Some(0) {
            return Err(config_error(
                py,
                "pin_min_drop_size is 0; give at least 1 block, or None to switch pinning off"
                    .into(),
            ));
        }
        Ok(Self {
            policy: Policy {
                recycle_order,
                reachable_block_mask,
                retention_interval: retention_interval.map(interval).transpose()?,
                pin_min_drop_size,
            },
        })
    }

    #[getter]
    fn recycle_order(&self) -> &'static str {
        match self.policy.recycle_order {
            RecycleOrder::UncachedFirst => "uncached-first",
            RecycleOrder::Fifo => "fifo",
        }
    }

    #[getter]
    fn reachable_block_mask(&self) -> bool {
        self.policy.reachable_block_mask
    }

    #[getter]
    fn retention_interval(&self) -> Option<usize> {
        self.policy.retention_interval
    }

    #[getter]
    fn pin_min_drop_size(&self) -> Option<usize> {
        self.policy.pin_min_drop_size
    }

    fn __repr__(&self) -> String {
        let option = |value: Option<usize>| value.map_or("None".to_owned(), |v| v.to_string());
        format!(
            "Policy(recycle_order='{}', reachable_block_mask={}, retention_interval={}, \
             pin_min_drop_size={})",
            self.recycle_order(),
            if self.policy.reachable_block_mask { "True" } else { "False" },
            option(self.policy.retention_interval),
            option(self.policy.pin_min_drop_size)
        )
    }
}

fn interval(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = value.py();
    let refuse = || {
        config_error(
            py,
            format!(
                "retention_interval is {value}; it can be None, 0, a number of tokens or 'auto'"
            ),
        )
    };
    if let Ok(text) = value.cast::<PyString>() {
        return match text.to_str()? {
            "auto" => Ok(Policy::AUTO_RETENTION_INTERVAL),
            _ => Err(refuse()),
        };
    }
    let number = value.extract::<i64>().map_err(|_| refuse())?;
    usize::try_from(number).map_err(|_| refuse())
}
