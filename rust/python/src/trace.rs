//! Traces, for Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use kvoxide_core::{Error, Outcome};
use kvoxide_replay::id_width::{MAX_WIDTH, MOONCAKE};
use kvoxide_replay::outcomes::Outcomes;
use kvoxide_replay::serving::MAX_INSTANCES;
use kvoxide_replay::trace::{
    HintedRanges, LineError, MAX_LENGTH, Reader, StepDuration, Trace, TraceRequest, Unit,
};

use crate::ffi::{
    Exceptions, Reduced, contained, optional_size, reduced, request_error, restored, size, to_py,
    token_ids,
};
use crate::standalone::PyRetention;

/// The requests of a trace in arrival order. A run keeps the requests that the trace had when the
/// run was created.
#[pyclass(module = "kvoxide", name = "Trace")]
#[derive(Default)]
pub(crate) struct PyTrace {
    pub(crate) trace: Arc<Trace>,
    reader: Reader,
}

#[pymethods]
impl PyTrace {
    #[new]
    #[pyo3(signature = (tokens_per_id=None, *, format=None, time_unit=None, columns=None))]
    fn new(
        py: Python<'_>,
        tokens_per_id: Option<i64>,
        format: Option<&str>,
        time_unit: Option<&str>,
        columns: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let reader = reader(format, time_unit, columns);
        let reader = reader.map_err(|message| to_py(py, &Error::Config(message)))?;
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

    #[staticmethod]
    fn describe_formats() -> Vec<(&'static str, &'static str, &'static str, &'static str, bool)> {
        let details = Reader::details();
        details.map(|it| (it.name, it.about, it.sign, it.example, it.is_played)).collect()
    }

    fn read_columns(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Vec<String>> {
        self.reader.columns(&names).map_err(|error| trace_error(py, &error))
    }

    #[getter]
    fn format(&self) -> Option<&'static str> {
        self.reader.dialect()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.reader.notes()
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

    #[pyo3(signature = (*, leave_out=false))]
    fn finish(&mut self, py: Python<'_>, leave_out: bool) -> PyResult<usize> {
        let Self { trace, reader } = self;
        let trace = Arc::make_mut(trace);
        let finished = contained(py, || Ok(trace.finish(reader, leave_out)))?;
        finished.map_err(|error| trace_error(py, &error))
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
        let priorities: Vec<_> = retention.iter().map(PyRetention::of_core).collect();
        let ranges = HintedRanges { priorities, given_up: Vec::new() };
        let ranges = Some(Box::new(ranges)).filter(|ranges| !ranges.priorities.is_empty());
        let request = TraceRequest::of_tokens(prompt_token_ids, output_length);
        let request = TraceRequest { arrival, ranges, ..request };
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
    fn counts_from_zero(&self) -> bool {
        self.trace.counts_from_zero()
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
        self.trace.id_widths().has(MOONCAKE)
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

    fn start_schedule(&mut self) {
        Arc::make_mut(&mut self.trace).start_schedule();
    }

    fn push_schedule(&mut self, py: Python<'_>, line: &Bound<'_, PyBytes>) -> PyResult<()> {
        let trace = Arc::make_mut(&mut self.trace);
        let pushed = contained(py, || Ok(trace.push_schedule(line.as_bytes())))?;
        pushed.map_err(|error| trace_error(py, &error))
    }

    fn push_durations(&mut self, py: Python<'_>, steps: Vec<(f64, u32)>) -> PyResult<()> {
        let most = u64::MAX as f64 / 1e9 / 2.0;
        if let Some((seconds, _)) = steps.iter().find(|(seconds, _)| !(0.0..most).contains(seconds))
        {
            let message =
                format!("a step cannot take {seconds} s; the time must be a number of at least 0");
            return Err(to_py(py, &Error::Config(message)));
        }
        let durations = steps.into_iter().map(|(seconds, running)| StepDuration {
            nanoseconds: (seconds * 1e9).round() as u64,
            running,
        });
        Arc::make_mut(&mut self.trace).push_durations(durations);
        Ok(())
    }

    #[getter]
    fn has_schedule(&self) -> bool {
        self.trace.has_schedule()
    }

    #[getter]
    fn is_closed_loop(&self) -> bool {
        self.trace.is_closed_loop()
    }

    #[getter]
    fn num_resets(&self) -> usize {
        self.trace.schedules().iter().map(|schedule| schedule.resets().count()).sum()
    }

    #[getter]
    fn num_skipping_requests(&self) -> usize {
        self.trace.requests().iter().filter(|request| request.skips_reading).count()
    }

    #[getter]
    fn recorded_requests<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<i64>> {
        let requests = self.trace.requests();
        let rows = Array2::from_shape_fn((requests.len(), 3), |(row, column)| {
            let TraceRequest { recorded, arrival, .. } = &requests[row];
            match column {
                0 => recorded.map_or(-1, |recorded| i64::from(recorded.schedule)),
                1 => recorded.map_or(-1, |recorded| i64::from(recorded.number)),
                _ => arrival.map_or(-1, |arrival| arrival as i64),
            }
        });
        rows.into_pyarray(py)
    }

    #[getter]
    fn recorded_outcomes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<i64>> {
        let requests = self.trace.requests().iter();
        outcome_rows(requests.map(|request| request.outcomes.as_deref().copied())).into_pyarray(py)
    }

    fn close_loop(&mut self, py: Python<'_>) -> PyResult<usize> {
        let trace = Arc::make_mut(&mut self.trace);
        let closed = contained(py, || Ok(trace.close_loop()))?;
        closed.map_err(|error| trace_error(py, &error))
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

/// Returns a row of outcomes for each request, with -1 in each place of a request without them.
pub(crate) fn outcome_rows(
    requests: impl ExactSizeIterator<Item = Option<Outcomes>>,
) -> Array2<i64> {
    let mut rows = Array2::from_elem((requests.len(), Outcome::ALL.len()), -1);
    for (mut row, outcomes) in rows.outer_iter_mut().zip(requests) {
        if let Some(outcomes) = outcomes {
            row.iter_mut().zip(outcomes.tokens).for_each(|(cell, tokens)| *cell = tokens.into());
        }
    }
    rows
}

/// Returns the reader that the arguments of a trace ask for, or an error.
fn reader(
    format: Option<&str>,
    time_unit: Option<&str>,
    columns: Option<BTreeMap<String, String>>,
) -> Result<Reader, String> {
    let reader = match (format, columns) {
        (Some(_), Some(_)) => {
            return Err("format and columns cannot be used together; give one of them".into());
        }
        (None, None) => Reader::default(),
        (None, Some(columns)) => {
            Reader::of_columns(columns.into_iter().collect()).map_err(|error| error.to_string())?
        }
        (Some(name), None) => Reader::of_dialect(name).ok_or_else(|| {
            let names = Reader::dialects().collect::<Vec<_>>().join(", ");
            format!("format is {name:?}; it can be {names}")
        })?,
    };
    let unit = |name| {
        let names = || Unit::ALL.map(Unit::name).join(", ");
        Unit::named(name).ok_or_else(|| format!("time_unit is {name:?}; it can be {}", names()))
    };
    Ok(reader.with_time_unit(time_unit.map(unit).transpose()?))
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
