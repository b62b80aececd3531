//! Traces and their runs, for Python.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use serde::{Deserialize, Serialize};

use kvoxide_core::Error;
use kvoxide_replay::clairvoyant::Bound as HitBound;
use kvoxide_replay::id_width::{IdWidths, MAX_WIDTH, MOONCAKE};
use kvoxide_replay::report::{Report, RetentionPoint, TimelinePoint};
use kvoxide_replay::scheduler::{Control, Settings, Stopped, run};
use kvoxide_replay::serving::{MAX_INSTANCES, Served, Serving, serve};
use kvoxide_replay::trace::{LineError, MAX_LENGTH, Reader, Trace, TraceRequest};

use crate::serving::{PyServing, ServingResult};

use crate::ffi::{
    Exceptions, PyGroupSpec, PyPolicy, Reduced, contained, optional_size, reduced, request_error,
    restored, size, to_py, token_ids,
};
use crate::standalone::PyRetention;

/// Requests of a trace in arrival order. A run keeps the requests that the trace had when the run
/// was made.
#[pyclass(module = "kvoxide", name = "Trace")]
#[derive(Default)]
pub(crate) struct PyTrace {
    trace: Arc<Trace>,
    reader: Reader,
}

#[pymethods]
impl PyTrace {
    #[new]
    #[pyo3(signature = (tokens_per_id=None, *, format=None))]
    fn new(py: Python<'_>, tokens_per_id: Option<i64>, format: Option<&str>) -> PyResult<Self> {
        let reader = match format {
            None => Reader::default(),
            Some(name) => Reader::of_dialect(name).ok_or_else(|| {
                let names = Reader::dialects().collect::<Vec<_>>().join(", ");
                let message = format!("format is {name:?}; it can be {names}");
                to_py(py, &Error::Config(message))
            })?,
        };
        let trace = match optional_size(py, "tokens_per_id", tokens_per_id)? {
            None => Trace::default(),
            Some(given @ 1..=MAX_WIDTH) => Trace::with_tokens_per_id(given),
            Some(given) => {
                let message = format!("tokens_per_id is {given}; it can be 1 to {MAX_WIDTH}");
                return Err(to_py(py, &Error::Config(message)));
            }
        };
        Ok(Self { trace: Arc::new(trace), reader })
    }

    #[staticmethod]
    fn formats() -> Vec<&'static str> {
        Reader::dialects().collect()
    }

    #[getter]
    fn format(&self) -> Option<&'static str> {
        self.reader.dialect()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.reader.notes().to_vec()
    }

    fn find_format(&mut self, py: Python<'_>, lines: Vec<Bound<'_, PyBytes>>) -> PyResult<bool> {
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        let reader = &mut self.reader;
        contained(py, || Ok(reader.find_dialect(&lines)))
    }

    fn push_line(&mut self, py: Python<'_>, line: &Bound<'_, PyBytes>) -> PyResult<()> {
        let Self { trace, reader } = self;
        let trace = Arc::make_mut(trace);
        let pushed = contained(py, || Ok(trace.push_line(reader, line.as_bytes())))?;
        pushed.map_err(|error| trace_error(py, &error))
    }

    #[pyo3(signature = (prompt_token_ids, output_length, *, arrival=None, retention=None))]
    fn push_prompt(
        &mut self,
        py: Python<'_>,
        #[pyo3(from_py_with = token_ids)] prompt_token_ids: Vec<i64>,
        output_length: i64,
        arrival: Option<f64>,
        retention: Option<PyRetention>,
    ) -> PyResult<()> {
        if prompt_token_ids.is_empty() {
            let message = "the prompt is empty; a request has at least one token";
            return Err(request_error(py, message.into()));
        }
        let output_length = size(py, "output_length", output_length)?;
        if output_length > MAX_LENGTH {
            let message = format!("output_length is {output_length}; at most {MAX_LENGTH} tokens");
            return Err(to_py(py, &Error::Config(message)));
        }
        let arrival = arrival.map(|seconds| microseconds(py, "arrival", seconds)).transpose()?;
        let priority = retention.map(|retention| retention.priority);
        let request = TraceRequest::of_tokens(prompt_token_ids, output_length);
        let request = TraceRequest { arrival, priority, ..request };
        let pushed = Arc::make_mut(&mut self.trace).push(request);
        pushed.map_err(|error| trace_error(py, &error))
    }

    fn __len__(&self) -> usize {
        self.trace.requests().len()
    }

    #[getter]
    fn num_prompt_tokens(&self) -> usize {
        self.trace.requests().iter().map(|request| request.prompt.len()).sum()
    }

    #[getter]
    fn num_output_tokens(&self) -> usize {
        self.trace.requests().iter().map(|request| request.output_length).sum()
    }

    #[getter]
    fn tokens_per_id(&self, py: Python<'_>) -> PyResult<usize> {
        self.trace.tokens_per_id().map_err(|error| trace_error(py, &error))
    }

    #[getter]
    fn has_answers(&self) -> bool {
        self.trace.has_answers()
    }

    #[getter]
    fn num_follow_ups(&self) -> Option<usize> {
        self.trace.num_follow_ups()
    }

    #[getter]
    fn num_restarts(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.trace.num_restarts().map_err(|error| trace_error(py, &error))
    }

    fn return_answers(&mut self, py: Python<'_>) -> PyResult<usize> {
        let trace = Arc::make_mut(&mut self.trace);
        let found = contained(py, || Ok(trace.return_answers()))?;
        found.map_err(|error| trace_error(py, &error))
    }

    #[getter]
    fn may_be_mooncakes(&self) -> bool {
        let IdWidths { least, most } = self.trace.id_widths();
        (least..=most).contains(&MOONCAKE)
    }

    #[pyo3(signature = (delay=0.0, instance=None))]
    fn start_part(&mut self, py: Python<'_>, delay: f64, instance: Option<i64>) -> PyResult<()> {
        let delay = microseconds(py, "delay", delay)?;
        let instance = optional_size(py, "instance", instance)?;
        if let Some(number) = instance.filter(|&number| number >= MAX_INSTANCES) {
            let message = format!("instance is {number}; it can be 0 to {}", MAX_INSTANCES - 1);
            return Err(to_py(py, &Error::Config(message)));
        }
        let instance = instance.map(|number| number as u32);
        Arc::make_mut(&mut self.trace).start_part(delay, instance);
        Ok(())
    }

    fn sort_by_arrival(&mut self) {
        Arc::make_mut(&mut self.trace).sort_by_arrival();
    }

    fn truncate(&mut self, py: Python<'_>, num_requests: i64) -> PyResult<()> {
        let num_requests = size(py, "num_requests", num_requests)?;
        Arc::make_mut(&mut self.trace).truncate(num_requests);
        Ok(())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        reduced(&slf.get_type(), "Trace", &*slf.borrow().trace)
    }

    #[classmethod]
    fn _from_bytes(class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<Self> {
        let trace = Arc::new(restored(class.py(), "Trace", bytes)?);
        Ok(Self { trace, reader: Reader::default() })
    }
}

/// Returns a time or duration in microseconds from seconds.
fn microseconds(py: Python<'_>, name: &str, seconds: f64) -> PyResult<u64> {
    let microseconds = (seconds * 1e6).round();
    if (0.0..u64::MAX as f64).contains(&microseconds) {
        return Ok(microseconds as u64);
    }
    let message = format!("{name} is {seconds} s; it must be a number of at least 0");
    Err(to_py(py, &Error::Config(message)))
}

fn trace_error(py: Python<'_>, error: &LineError) -> PyErr {
    let make = || {
        let exception = Exceptions::get(py)?.trace.bind(py).call1((error.to_string(),))?;
        exception.setattr("field", &error.field)?;
        Ok(PyErr::from_value(exception))
    };
    make().unwrap_or_else(|failure: PyErr| failure)
}

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
    #[pyo3(signature = (trace, kv_cache_groups, num_blocks, *, policy=None, concurrency=256,
        max_batched_tokens=8192, report_from=0, bound=false, serving=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        trace: &PyTrace,
        kv_cache_groups: Vec<PyGroupSpec>,
        num_blocks: Option<i64>,
        policy: Option<PyPolicy>,
        concurrency: i64,
        max_batched_tokens: i64,
        report_from: i64,
        bound: bool,
        serving: Option<PyServing>,
    ) -> PyResult<Self> {
        let settings = Settings {
            groups: kv_cache_groups.into_iter().map(|group| group.spec).collect(),
            num_blocks: optional_size(py, "num_blocks", num_blocks)?,
            policy: policy.unwrap_or_default().policy,
            concurrency: size(py, "concurrency", concurrency)?,
            max_batched_tokens: size(py, "max_batched_tokens", max_batched_tokens)?,
            report_from: size(py, "report_from", report_from)?,
            has_bound: bound,
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
    fn orderings(&self) -> Vec<Option<&'static str>> {
        let points = self.report.retention.iter();
        points.map(|point| point.retention.ordering.map(|ordering| ordering.name())).collect()
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
                4 => share(retention.waiting.full),
                5 => share(retention.waiting.tail),
                6 => share(retention.held),
                7 => share(retention.empty),
                8 => retention.evictions.full as f64,
                _ => retention.evictions.tail as f64,
            }
        });
        rows.into_pyarray(py)
    }
}
