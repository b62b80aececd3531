//! Configuration and policy, for Python.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyString;

use kvoxide_core::{Policy, ProtectedShare, RecycleOrder, Retention};

use super::errors::{IntoPyResult, config_error};
use super::groups::PyGroupSpec;
use super::numbers::{optional_size, size};
use super::pickling::{NewArgs, new_args};

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

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<NewArgs<'py, (usize, Vec<PyGroupSpec>)>> {
        let zeroing = self.needs_zeroing.into_bound_py_any(py)?;
        let arguments = (self.num_blocks, self.groups.clone());
        new_args(py, arguments, [("needs_kv_cache_zeroing", zeroing)])
    }

    fn __repr__(&self) -> String {
        let groups: Vec<_> = self.groups.iter().map(PyGroupSpec::__repr__).collect();
        format!("KVCacheConfig({}, [{}])", self.num_blocks, groups.join(", "))
    }
}

/// Retention and recycling of blocks.
#[pyclass(module = "kvoxide", name = "Policy", frozen, eq, from_py_object)]
#[derive(Clone, Default, PartialEq)]
pub(crate) struct PyPolicy {
    pub(crate) policy: Policy,
}

#[pymethods]
impl PyPolicy {
    #[new]
    #[pyo3(
        signature = (*, retention="standard", recycle_order="uncached-first",
            reachable_block_mask=true, retention_interval=Interval(Some(0)),
            pin_min_drop_size=None, protected_share=None),
        text_signature = "(*, retention='standard', recycle_order='uncached-first', \
            reachable_block_mask=True, retention_interval=0, pin_min_drop_size=None, \
            protected_share=None)"
    )]
    fn new(
        py: Python<'_>,
        retention: &str,
        recycle_order: &str,
        reachable_block_mask: bool,
        retention_interval: Interval,
        pin_min_drop_size: Option<i64>,
        protected_share: Option<f64>,
    ) -> PyResult<Self> {
        let retention = retention_named(py, retention)?;
        let recycle_order = one_of(py, "recycle_order", recycle_order, RECYCLE_ORDERS)?;
        let pin_min_drop_size = optional_size(py, "pin_min_drop_size", pin_min_drop_size)?;
        // Adaptive retention has no interval, and the default of this argument is vLLM's.
        let is_standard = retention == Retention::Standard;
        let share = protected_share.map(ProtectedShare::new).transpose().into_py(py)?;
        let policy = Policy {
            retention,
            recycle_order,
            reachable_block_mask,
            retention_interval: retention_interval.0.filter(|&tokens| is_standard || tokens > 0),
            pin_min_drop_size,
            protected_share: share.unwrap_or_default(),
        };
        policy.check_parts().into_py(py)?;
        Ok(Self { policy })
    }

    #[getter]
    fn retention(&self) -> &'static str {
        self.policy.retention.name()
    }

    #[getter]
    fn recycle_order(&self) -> &'static str {
        name_of(self.policy.recycle_order, RECYCLE_ORDERS)
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

    #[getter]
    fn protected_share(&self) -> f64 {
        self.policy.protected_share.as_f64()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, ()>> {
        new_args(
            py,
            (),
            [
                ("retention", self.retention().into_bound_py_any(py)?),
                ("recycle_order", self.recycle_order().into_bound_py_any(py)?),
                ("reachable_block_mask", self.reachable_block_mask().into_bound_py_any(py)?),
                ("retention_interval", self.retention_interval().into_bound_py_any(py)?),
                ("pin_min_drop_size", self.pin_min_drop_size().into_bound_py_any(py)?),
                ("protected_share", self.protected_share().into_bound_py_any(py)?),
            ],
        )
    }

    fn __repr__(&self) -> String {
        match self.policy.retention {
            Retention::Standard => self.standard_repr(),
            Retention::Adaptive => self.adaptive_repr(),
        }
    }
}

impl PyPolicy {
    fn adaptive_repr(&self) -> String {
        let share = self.policy.protected_share;
        match share == ProtectedShare::default() {
            true => "Policy(retention='adaptive')".to_owned(),
            false => format!("Policy(retention='adaptive', protected_share={:?})", share.as_f64()),
        }
    }

    fn standard_repr(&self) -> String {
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

/// Values with their names in Python. The default is first.
type Named<T> = [(&'static str, T); 2];

const RECYCLE_ORDERS: Named<RecycleOrder> =
    [("uncached-first", RecycleOrder::UncachedFirst), ("fifo", RecycleOrder::Fifo)];

fn retention_named(py: Python<'_>, name: &str) -> PyResult<Retention> {
    let mut all = Retention::ALL.into_iter();
    all.find(|retention| retention.name() == name).ok_or_else(|| {
        let names = Retention::ALL.map(|retention| format!("'{}'", retention.name()));
        config_error(py, format!("retention is '{name}'; it can be {}", names.join(" or ")))
    })
}

fn one_of<T>(py: Python<'_>, what: &str, given: &str, named: Named<T>) -> PyResult<T> {
    let [(first, _), (second, _)] = named;
    let mut values = named.into_iter();
    values.find(|(name, _)| *name == given).map(|(_, value)| value).ok_or_else(|| {
        config_error(py, format!("{what} is '{given}'; it can be '{first}' or '{second}'"))
    })
}

fn name_of<T: PartialEq>(value: T, named: Named<T>) -> &'static str {
    let [first, second] = named;
    if first.1 == value { first.0 } else { second.0 }
}

/// The retention interval in tokens; none to keep every tail.
struct Interval(Option<usize>);

impl<'py> FromPyObject<'_, 'py> for Interval {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let refuse = || {
            config_error(
                py,
                format!(
                    "retention_interval is {}; it can be None, 0, a number of tokens or 'auto'",
                    *value
                ),
            )
        };
        if value.is_none() {
            return Ok(Self(None));
        }
        if let Ok(text) = value.cast::<PyString>() {
            return match text.to_str()? {
                "auto" => Ok(Self(Some(Policy::AUTO_RETENTION_INTERVAL))),
                _ => Err(refuse()),
            };
        }
        let number = value.extract::<i64>().map_err(|_| refuse())?;
        usize::try_from(number).map(|tokens| Self(Some(tokens))).map_err(|_| refuse())
    }
}
