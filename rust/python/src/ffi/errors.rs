//! The exception types of kvoxide, and the exception for each error of the core.

use pyo3::exceptions::{
    PyAssertionError, PyAttributeError, PyException, PyKeyError, PyOverflowError, PyRuntimeError,
    PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use kvoxide_core::Error;

/// The exception types.
pub(crate) struct Exceptions {
    base: Py<PyType>,
    config: Py<PyType>,
    unsupported_group: Py<PyType>,
    request: Py<PyType>,
    unknown_request: Py<PyType>,
    duplicate_request: Py<PyType>,
    block_hash: Py<PyType>,
    block: Py<PyType>,
    busy: Py<PyType>,
    internal: Py<PyType>,
    poisoned: Py<PyType>,
    pub(crate) pickle: Py<PyType>,
    pub(crate) trace: Py<PyType>,
}

static EXCEPTIONS: PyOnceLock<Exceptions> = PyOnceLock::new();

impl Exceptions {
    /// Returns the exception types, which are created on first use.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        EXCEPTIONS.get_or_try_init(py, || Self::new(py))
    }

    fn new(py: Python<'_>) -> PyResult<Self> {
        let value_error = py.get_type::<PyValueError>();
        let base = new_type(py, "KvoxideError", &[&py.get_type::<PyException>()])?;
        let of_value = |name| new_type(py, name, &[base.bind(py), &value_error]);
        let config = of_value("ConfigError")?;
        let request = of_value("RequestError")?;
        let key_error = py.get_type::<PyKeyError>();
        let internal =
            new_type(py, "InternalError", &[base.bind(py), &py.get_type::<PyAssertionError>()])?;
        let runtime_error = py.get_type::<PyRuntimeError>();
        Ok(Self {
            unsupported_group: new_type(py, "UnsupportedGroupError", &[config.bind(py)])?,
            unknown_request: new_type(py, "UnknownRequestError", &[request.bind(py), &key_error])?,
            duplicate_request: new_type(py, "DuplicateRequestError", &[request.bind(py)])?,
            block_hash: of_value("BlockHashError")?,
            block: of_value("BlockError")?,
            busy: new_type(py, "BusyError", &[base.bind(py), &runtime_error])?,
            poisoned: new_type(py, "PoisonedError", &[internal.bind(py)])?,
            internal,
            pickle: of_value("PickleError")?,
            trace: of_value("TraceError")?,
            config,
            request,
            base,
        })
    }

    /// Adds the types to the module.
    pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let all = Self::get(py)?;
        for exception in [
            &all.base,
            &all.config,
            &all.unsupported_group,
            &all.request,
            &all.unknown_request,
            &all.duplicate_request,
            &all.block_hash,
            &all.block,
            &all.busy,
            &all.internal,
            &all.poisoned,
            &all.pickle,
            &all.trace,
        ] {
            let exception = exception.bind(py);
            module.add(exception.name()?, exception)?;
        }
        Ok(())
    }
}

/// Returns a new exception type of this package. `KeyError` shows the `repr` of its message. This
/// type shows the message in the same way as `Exception`.
fn new_type(py: Python<'_>, name: &str, bases: &[&Bound<'_, PyType>]) -> PyResult<Py<PyType>> {
    let dict = PyDict::new(py);
    dict.set_item("__module__", "kvoxide")?;
    dict.set_item("__str__", py.get_type::<PyException>().getattr("__str__")?)?;
    let bases = PyTuple::new(py, bases)?;
    let made = py.get_type::<PyType>().call1((name, bases, dict))?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// Returns the Python exception for an error of the core.
pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    let exception = |all: &'static Exceptions| match error {
        Error::Config(_) => &all.config,
        Error::UnsupportedGroup { .. } => &all.unsupported_group,
        Error::Request(_) | Error::Precondition(_) | Error::OutOfRange(_) => &all.request,
        Error::UnknownRequest(_) => &all.unknown_request,
        Error::DuplicateRequest(_) => &all.duplicate_request,
        Error::BlockHash(_) => &all.block_hash,
        Error::Block(_) => &all.block,
        Error::Internal(_) => &all.internal,
    };
    made(py, exception, error.to_string())
}

/// Converts the core's results into Python's results.
pub(crate) trait IntoPyResult<T> {
    /// Returns the value, or the exception for the error.
    fn into_py(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPyResult<T> for kvoxide_core::Result<T> {
    fn into_py(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_py(py, &error))
    }
}

/// Returns the error of a call that arrives while another call is running.
#[cold]
pub(crate) fn busy_error(py: Python<'_>, name: &str) -> PyErr {
    let message = format!(
        "the {name} is in the middle of another call. Use it from one thread at a time, and not \
         inside its own callbacks"
    );
    made(py, |all| &all.busy, message)
}

/// Returns the error of every call of a poisoned manager or tier.
#[cold]
pub(crate) fn poisoned_error(py: Python<'_>, name: &str, reason: &str) -> PyErr {
    let message = format!(
        "the {name} is poisoned and refuses every call: {reason}; its state can no longer be \
         trusted. Create a new {name} or restart the server, and please report it"
    );
    made(py, |all| &all.poisoned, message)
}

/// Returns the error of every call of a manager or tier that was replaced.
#[cold]
pub(super) fn retired_error(py: Python<'_>, name: &str) -> PyErr {
    let message = format!(
        "the {name} was replaced by vLLM's own, which has its state; get the object from vLLM again"
    );
    made(py, |all| &all.busy, message)
}

fn made(
    py: Python<'_>,
    exception: impl FnOnce(&'static Exceptions) -> &'static Py<PyType>,
    message: String,
) -> PyErr {
    match Exceptions::get(py) {
        Ok(all) => PyErr::from_type(exception(all).bind(py).clone(), message),
        Err(error) => error,
    }
}

/// Returns a `BlockError`.
pub(crate) fn block_error(py: Python<'_>, message: &str) -> PyErr {
    to_py(py, &Error::Block(message.to_owned()))
}

/// Returns the `BlockError` for blocks of another manager.
pub(crate) fn foreign_blocks(py: Python<'_>) -> PyErr {
    block_error(py, "the blocks belong to another manager; pass blocks of this one")
}

/// Returns a `RequestError`.
pub(crate) fn request_error(py: Python<'_>, message: String) -> PyErr {
    to_py(py, &Error::Request(message))
}

/// Returns a `ConfigError`.
pub(crate) fn config_error(py: Python<'_>, message: String) -> PyErr {
    to_py(py, &Error::Config(message))
}

/// Returns a `BlockHashError`.
pub(crate) fn hash_error(py: Python<'_>, message: String) -> PyErr {
    to_py(py, &Error::BlockHash(message))
}

/// Returns `refusal()` for a value of a wrong type or size. An error that the value's own code
/// raised is returned unchanged.
pub(crate) fn or_raised(error: PyErr, py: Python<'_>, refusal: impl FnOnce() -> PyErr) -> PyErr {
    let is_of_value = error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
        || error.is_instance_of::<PyAttributeError>(py);
    if is_of_value { refusal() } else { error }
}
