//! Configuration and policy, as Python describes them.

use pyo3::prelude::*;
use pyo3::types::PyString;

use kvoxide_core::{Policy, RecycleOrder, Retention};

use super::errors::{IntoPyResult, config_error};
use super::groups::PyGroupSpec;
use super::numbers::{optional_size, size};

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
    #[pyo3(signature = (*, retention="standard", recycle_order="uncached-first",
        reachable_block_mask=true, retention_interval=None, pin_min_drop_size=None))]
    fn new(
        py: Python<'_>,
        retention: &str,
        recycle_order: &str,
        reachable_block_mask: bool,
        retention_interval: Option<&Bound<'_, PyAny>>,
        pin_min_drop_size: Option<i64>,
    ) -> PyResult<Self> {
        let retention = match retention {
            "standard" => Retention::Standard,
            "adaptive" => Retention::Adaptive,
            other => {
                return Err(config_error(
                    py,
                    format!("retention is '{other}'; it can be 'standard' or 'adaptive'"),
                ));
            }
        };
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
        let policy = Policy {
            retention,
            recycle_order,
            reachable_block_mask,
            retention_interval: retention_interval.map(interval).transpose()?,
            pin_min_drop_size,
        };
        policy.check_parts().into_py(py)?;
        Ok(Self { policy })
    }

    #[getter]
    fn retention(&self) -> &'static str {
        match self.policy.retention {
            Retention::Standard => "standard",
            Retention::Adaptive => "adaptive",
        }
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
        if self.policy.retention == Retention::Adaptive {
            return "Policy(retention='adaptive')".to_owned();
        }
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
