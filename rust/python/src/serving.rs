//! Replays over time, for Python.

use std::collections::BTreeMap;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyType};

use kvoxide_core::Error;
use kvoxide_replay::clock::{Quantiles, RequestTimes, StepTime, seconds};
use kvoxide_replay::router::Routing;
use kvoxide_replay::serving::{Arrivals, InstanceReport, Served, Serving};

use crate::ffi::{NewArgs, Reduced, new_args, reduced, restored, size, to_py};

/// The duration of a step.
#[pyclass(module = "kvoxide", name = "StepTime", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyStepTime {
    time: StepTime,
}

#[pymethods]
impl PyStepTime {
    #[new]
    #[pyo3(signature = (*, base=None, prefill=None, context=None, running=None))]
    fn new(
        py: Python<'_>,
        base: Option<f64>,
        prefill: Option<f64>,
        context: Option<f64>,
        running: Option<f64>,
    ) -> PyResult<Self> {
        let usual = StepTime::default();
        let time = StepTime {
            base: base.unwrap_or(usual.base),
            prefill: prefill.unwrap_or(usual.prefill),
            context: context.unwrap_or(usual.context),
            running: running.unwrap_or(usual.running),
        };
        time.check().map_err(|error| to_py(py, &error))?;
        Ok(Self { time })
    }

    #[getter]
    fn base(&self) -> f64 {
        self.time.base
    }

    #[getter]
    fn prefill(&self) -> f64 {
        self.time.prefill
    }

    #[getter]
    fn context(&self) -> f64 {
        self.time.context
    }

    #[getter]
    fn running(&self) -> f64 {
        self.time.running
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, ()>> {
        let StepTime { base, prefill, context, running } = self.time;
        let parts = StepTime::NAMES.into_iter().zip([base, prefill, context, running]);
        Ok(((), parts.into_py_dict(py)?))
    }

    fn __repr__(&self) -> String {
        let StepTime { base, prefill, context, running } = self.time;
        format!("StepTime(base={base}, prefill={prefill}, context={context}, running={running})")
    }
}

/// The serving instances and the arrivals of their requests.
#[pyclass(module = "kvoxide", name = "Serving", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyServing {
    pub(crate) serving: Serving,
}

#[pymethods]
impl PyServing {
    #[new]
    #[pyo3(signature = (*, step_time=None, speed=None, closed_loop=false, instances=1,
        router="round-robin", weights=None, as_recorded=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        step_time: Option<PyStepTime>,
        speed: Option<f64>,
        closed_loop: bool,
        instances: i64,
        router: &str,
        weights: Option<BTreeMap<String, f64>>,
        as_recorded: bool,
    ) -> PyResult<Self> {
        let routing = Routing::named(router, weights.unwrap_or_default());
        let serving = Serving {
            step_time: step_time.map_or_else(StepTime::default, |given| given.time),
            arrivals: match (speed, closed_loop) {
                (None, false) => Arrivals::Full,
                (Some(speed), false) => Arrivals::Trace { speed },
                (Some(speed), true) => Arrivals::Closed { speed },
                (None, true) => {
                    let message = "closed_loop needs a speed, such as speed=1.0";
                    return Err(to_py(py, &Error::Config(message.into())));
                }
            },
            instances: size(py, "instances", instances)?,
            routing: routing.map_err(|error| to_py(py, &error))?,
            as_recorded,
        };
        serving.check().map_err(|error: Error| to_py(py, &error))?;
        Ok(Self { serving })
    }

    #[getter]
    fn step_time(&self) -> PyStepTime {
        PyStepTime { time: self.serving.step_time }
    }

    #[getter]
    fn speed(&self) -> Option<f64> {
        match self.serving.arrivals {
            Arrivals::Full => None,
            Arrivals::Trace { speed } | Arrivals::Closed { speed } => Some(speed),
        }
    }

    #[getter]
    fn closed_loop(&self) -> bool {
        matches!(self.serving.arrivals, Arrivals::Closed { .. })
    }

    #[getter]
    fn instances(&self) -> usize {
        self.serving.instances
    }

    #[getter]
    fn router(&self) -> &'static str {
        self.serving.routing.name()
    }

    #[getter]
    fn weights(&self) -> BTreeMap<&'static str, f64> {
        self.serving.routing.weights().into_iter().collect()
    }

    #[getter]
    fn as_recorded(&self) -> bool {
        self.serving.as_recorded
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, ()>> {
        new_args(
            py,
            (),
            [
                ("step_time", self.step_time().into_bound_py_any(py)?),
                ("speed", self.speed().into_bound_py_any(py)?),
                ("closed_loop", self.closed_loop().into_bound_py_any(py)?),
                ("instances", self.instances().into_bound_py_any(py)?),
                ("router", self.router().into_bound_py_any(py)?),
                ("weights", self.weights().into_bound_py_any(py)?),
                ("as_recorded", self.as_recorded().into_bound_py_any(py)?),
            ],
        )
    }
}

/// Times of a run.
#[pyclass(module = "kvoxide", frozen)]
pub(crate) struct ServingResult {
    pub(crate) served: Served,
}

#[pymethods]
impl ServingResult {
    #[getter]
    fn total(&self) -> InstanceResult {
        InstanceResult { report: self.served.all.clone() }
    }

    #[getter]
    fn instances(&self) -> Vec<InstanceResult> {
        let reports = self.served.instances.iter().cloned();
        reports.map(|report| InstanceResult { report }).collect()
    }

    #[getter]
    fn instance_of<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let instances: Vec<_> = self.served.instance_of.iter().map(|&id| id as i64).collect();
        instances.into_pyarray(py)
    }

    #[getter]
    fn moments<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f64>> {
        let requests = &self.served.times.requests;
        let rows = Array2::from_shape_fn((requests.len(), 3), |(row, column)| {
            let RequestTimes { arrived, first_token, last_token } = requests[row];
            match (column, first_token) {
                (0, _) => seconds(arrived),
                (_, None) => f64::NAN,
                (1, Some(first)) => seconds(first),
                _ => seconds(last_token),
            }
        });
        rows.into_pyarray(py)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        reduced(&slf.get_type(), "ServingResult", &slf.get().served)
    }

    #[classmethod]
    fn _from_bytes(class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self { served: restored(class.py(), "ServingResult", bytes)? })
    }
}

/// Results of one instance, or of all of them.
#[pyclass(module = "kvoxide", frozen)]
pub(crate) struct InstanceResult {
    report: InstanceReport,
}

#[pymethods]
impl InstanceResult {
    #[getter]
    fn requests(&self) -> usize {
        self.report.requests
    }

    #[getter]
    fn prompt_tokens(&self) -> usize {
        self.report.prompt_tokens
    }

    #[getter]
    fn hit_tokens(&self) -> usize {
        self.report.hit_tokens
    }

    #[getter]
    fn generated_tokens(&self) -> usize {
        self.report.output_tokens
    }

    #[getter]
    fn preemptions(&self) -> usize {
        self.report.preemptions
    }

    #[getter]
    fn evictions(&self) -> u64 {
        self.report.evictions
    }

    #[getter]
    fn steps(&self) -> usize {
        self.report.steps
    }

    #[getter]
    fn makespan_seconds(&self) -> f64 {
        self.report.makespan
    }

    #[getter]
    fn utilisation(&self) -> f64 {
        self.report.utilisation
    }

    #[getter]
    fn running_requests(&self) -> f64 {
        self.report.running
    }

    #[getter]
    fn time_to_first_token(&self) -> Option<(f64, f64, f64)> {
        self.report.latencies.time_to_first_token.map(of_quantiles)
    }

    #[getter]
    fn time_between_tokens(&self) -> Option<(f64, f64, f64)> {
        self.report.latencies.time_between_tokens.map(of_quantiles)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        reduced(&slf.get_type(), "InstanceResult", &slf.get().report)
    }

    #[classmethod]
    fn _from_bytes(class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self { report: restored(class.py(), "InstanceResult", bytes)? })
    }
}

fn of_quantiles(Quantiles { p50, p90, p99 }: Quantiles) -> (f64, f64, f64) {
    (p50, p90, p99)
}
