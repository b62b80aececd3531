//! Runs of traces, for Python.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyType;
use serde::{Deserialize, Serialize};

use kvoxide_core::Error;
use kvoxide_replay::baselines::Baseline;
use kvoxide_replay::clairvoyant::Bound as HitBound;
use kvoxide_replay::report::{Report, RequestReport, RetentionPoint, TimelinePoint};
use kvoxide_replay::serving::{Served, Serving, serve};
use kvoxide_replay::trace::Trace;
use kvoxide_replay::{Control, Settings, Stopped, run};

use crate::ffi::{
    PyGroupSpec, PyPolicy, Reduced, contained, optional_size, reduced, restored, size, to_py,
    warn_renamed,
};
use crate::host_memory::{HostMemoryResult, PyHostMemory};
use crate::serving::{PyServing, ServingResult};
use crate::trace::{PyTrace, outcome_rows};

/// One run of a trace.
#[pyclass(module = "kvoxide", name = "Simulation", frozen)]
pub(crate) struct PySimulation {
    trace: Arc<Trace>,
    settings: Settings,
    serving: Option<Serving>,
    control: Control,
}

#[pymethods]
impl PySimulation {
    #[new]
    #[pyo3(signature = (trace, kv_cache_groups, num_blocks, *, policy=None, baseline=None,
        concurrency=256, max_batched_tokens=8192, report_from=0, bound=false, serving=None,
        follows_schedule=false, rules=None, release=None, enable_caching=true, host_memory=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        trace: &PyTrace,
        kv_cache_groups: Vec<PyGroupSpec>,
        num_blocks: Option<i64>,
        policy: Option<PyPolicy>,
        baseline: Option<&str>,
        concurrency: i64,
        max_batched_tokens: i64,
        report_from: i64,
        bound: bool,
        serving: Option<PyServing>,
        follows_schedule: bool,
        rules: Option<&Bound<'_, PyAny>>,
        release: Option<&Bound<'_, PyAny>>,
        enable_caching: bool,
        host_memory: Option<PyHostMemory>,
    ) -> PyResult<Self> {
        let settings = Settings {
            groups: kv_cache_groups.into_iter().map(|group| group.spec).collect(),
            num_blocks: optional_size(py, "num_blocks", num_blocks)?,
            policy: policy.unwrap_or_default().policy,
            host: host_memory.map(|given| given.memory),
            baseline: baseline.map(named_baseline).transpose().map_err(|it| to_py(py, &it))?,
            concurrency: size(py, "concurrency", concurrency)?,
            max_batched_tokens: size(py, "max_batched_tokens", max_batched_tokens)?,
            report_from: size(py, "report_from", report_from)?,
            has_bound: bound,
            follows_schedule,
            rules: rules.map(pythonize::depythonize).transpose()?,
            release: release.map(pythonize::depythonize).transpose()?,
            enable_caching,
        };
        let serving = serving.map(|given| given.serving);
        Ok(Self { trace: trace.trace.clone(), settings, serving, control: Control::default() })
    }

    fn run(&self, py: Python<'_>) -> PyResult<SimulationResult> {
        match contained(py, || Ok(py.detach(|| self.play())))? {
            Ok(result) => Ok(result),
            Err(Stopped::Refused(error)) => Err(to_py(py, &error)),
            Err(stopped @ Stopped::Cancelled) => {
                Err(PyKeyboardInterrupt::new_err(stopped.to_string()))
            }
        }
    }

    fn cancel(&self) {
        self.control.cancelled.store(true, Ordering::Relaxed);
    }

    fn progress(&self) -> usize {
        self.control.finished.load(Ordering::Relaxed)
    }
}

/// Returns the simple policy with a name.
fn named_baseline(name: &str) -> Result<Baseline, Error> {
    let names = Baseline::ALL.map(Baseline::name).join(", ");
    let message = || Error::Config(format!("baseline is {name:?}; it can be {names}"));
    Baseline::named(name).ok_or_else(message)
}

impl PySimulation {
    fn play(&self) -> Result<SimulationResult, Stopped> {
        let Self { trace, settings, serving, control } = self;
        Ok(match serving {
            None => SimulationResult { report: run(trace, settings, control)?, served: None },
            Some(serving) => {
                let (report, served) = serve(trace, settings, serving, control)?;
                SimulationResult { report, served: Some(served) }
            }
        })
    }
}

/// The result of a run.
#[pyclass(module = "kvoxide", frozen)]
#[derive(Serialize, Deserialize)]
pub(crate) struct SimulationResult {
    report: Report,
    served: Option<Served>,
}

#[pymethods]
impl SimulationResult {
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        reduced(&slf.get_type(), "SimulationResult", slf.get())
    }

    #[classmethod]
    fn _from_bytes(class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<Self> {
        restored(class.py(), "SimulationResult", bytes)
    }

    #[getter]
    fn serving(&self) -> Option<ServingResult> {
        self.served.clone().map(|served| ServingResult { served })
    }

    #[getter]
    fn requests(&self) -> usize {
        self.report.counted().count()
    }

    #[getter]
    fn rejected_requests(&self) -> usize {
        self.report.num_rejected()
    }

    #[getter]
    fn prompt_tokens(&self) -> usize {
        self.report.counted().map(|request| request.prompt_tokens).sum()
    }

    #[getter]
    fn generated_tokens(&self) -> usize {
        self.report.counted().map(|request| request.output_tokens).sum()
    }

    #[getter]
    fn hit_tokens(&self) -> usize {
        self.report.counted().filter_map(|request| request.hit_tokens).sum()
    }

    #[getter]
    fn hit_answer_tokens(&self) -> Option<usize> {
        let mut counted = self.report.counted().filter_map(|request| request.hit_answer_tokens);
        let first = counted.next()?;
        Some(counted.fold(first, |sum, tokens| sum + tokens))
    }

    /// Returns the hit tokens that were loaded from CPU memory.
    #[getter]
    fn loaded_tokens(&self) -> usize {
        self.report.counted().map(|request| request.loaded_tokens).sum()
    }

    #[getter]
    fn loaded_per_request<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let of = |request: &RequestReport| request.hit_tokens.map(|_| request.loaded_tokens as i64);
        let loaded: Vec<_> = self.report.requests.iter().map(|it| of(it).unwrap_or(-1)).collect();
        loaded.into_pyarray(py)
    }

    #[getter]
    fn host_memory(&self) -> Option<HostMemoryResult> {
        self.report.host.map(|report| HostMemoryResult { report })
    }

    #[getter]
    fn loss_tokens(&self) -> [usize; 4] {
        let each = self.report.counted().map(|request| request.unhit());
        each.fold([0; 4], |sums, losses| std::array::from_fn(|i| sums[i] + losses[i]))
    }

    #[getter]
    fn losses_per_request<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<i64>> {
        let requests = &self.report.requests;
        let rows = Array2::from_shape_fn((requests.len(), 4), |(row, column)| {
            let request = &requests[row];
            request.hit_tokens.map_or(-1, |_| request.unhit()[column] as i64)
        });
        rows.into_pyarray(py)
    }

    #[getter]
    fn outcomes_per_request<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<i64>> {
        let requests = self.report.requests.iter();
        let of = |request: &RequestReport| request.hit_tokens.map(|_| request.outcomes());
        outcome_rows(requests.map(of)).into_pyarray(py)
    }

    #[getter]
    fn bound_hit_tokens(&self) -> Option<usize> {
        self.report.bound.as_ref().map(HitBound::num_hit_tokens)
    }

    #[getter]
    fn bound_seconds(&self) -> Option<f64> {
        self.report.bound.as_ref().map(|bound| bound.wall.as_secs_f64())
    }

    #[getter]
    fn bound_per_request<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<i64>>> {
        let hits = self.report.bound.as_ref()?.hit_tokens.iter();
        let hits: Vec<_> = hits.map(|hit| hit.map_or(-1, |hit| hit as i64)).collect();
        Some(hits.into_pyarray(py))
    }

    #[getter]
    fn evictions(&self) -> u64 {
        self.report.last.evictions
    }

    #[getter]
    fn preemptions(&self) -> usize {
        self.report.requests.iter().map(|request| request.preemptions).sum()
    }

    #[getter]
    fn peak_used_blocks(&self) -> usize {
        self.report.peak_used_blocks
    }

    #[getter]
    fn cached_blocks(&self) -> usize {
        self.report.last.cached
    }

    #[getter]
    fn steps(&self) -> usize {
        self.report.steps
    }

    #[getter]
    fn schedule_seconds(&self) -> (f64, f64, f64) {
        self.report.schedule.summary()
    }

    #[getter]
    fn step_seconds(&self) -> (f64, f64, f64) {
        self.report.step.summary()
    }

    #[getter]
    fn wall_seconds(&self) -> f64 {
        self.report.wall.as_secs_f64()
    }

    #[getter]
    fn per_request<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<i64>> {
        let requests = &self.report.requests;
        let rows = Array2::from_shape_fn((requests.len(), 4), |(row, column)| {
            let request = &requests[row];
            match column {
                0 => request.prompt_tokens as i64,
                1 => request.output_tokens as i64,
                2 => request.hit_tokens.map_or(-1, |hit| hit as i64),
                _ => request.preemptions as i64,
            }
        });
        rows.into_pyarray(py)
    }

    #[getter]
    fn timeline<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f64>> {
        let points = &self.report.timeline;
        let rows = Array2::from_shape_fn((points.len(), 4), |(row, column)| {
            let TimelinePoint { finished, occupancy } = points[row];
            let share = |blocks: usize| blocks as f64 / occupancy.capacity.max(1) as f64;
            match column {
                0 => finished as f64,
                1 => share(occupancy.used),
                2 => share(occupancy.cached),
                _ => share(occupancy.pinned),
            }
        });
        rows.into_pyarray(py)
    }

    #[getter]
    fn scoring_functions(&self) -> Vec<Option<&'static str>> {
        let points = self.report.retention.iter();
        points
            .map(|point| point.retention.scoring_function.map(|function| function.name()))
            .collect()
    }

    /// Returns the functions under the name that version 0.2.0 had for them.
    #[getter]
    fn orderings(&self, py: Python<'_>) -> PyResult<Vec<Option<&'static str>>> {
        warn_renamed(py, c"SimulationResult.orderings is now SimulationResult.scoring_functions")?;
        Ok(self.scoring_functions())
    }

    #[getter]
    fn default_hit_tokens(&self) -> Option<u64> {
        let last = self.report.retention.last()?;
        last.retention.sample.map(|_| last.retention.default_hits.tokens)
    }

    #[getter]
    fn retention_timeline<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f64>> {
        let points = &self.report.retention;
        let rows = Array2::from_shape_fn((points.len(), 10), |(row, column)| {
            let RetentionPoint { finished, prompt_tokens, hit_tokens, retention } = &points[row];
            let capacity = self.report.last.capacity.max(1) as f64;
            let share = |blocks: u64| blocks as f64 / capacity;
            match column {
                0 => *finished as f64,
                1 => *prompt_tokens as f64,
                2 => *hit_tokens as f64,
                3 => share(retention.in_use),
                4 => share(retention.evictable.full),
                5 => share(retention.evictable.tail),
                6 => share(retention.protected),
                7 => share(retention.empty),
                8 => retention.evictions.full as f64,
                _ => retention.evictions.tail as f64,
            }
        });
        rows.into_pyarray(py)
    }
}
