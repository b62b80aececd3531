//! Reads the attributes of a request. It reads them from the `__dict__` if the request's class
//! allows that. This gives the same values as the object in a third of the time.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};

use crate::ffi::ComputedChain;

/// The attributes that calls read in addition to the number of tokens.
const NAMES: [&str; 11] = [
    "request_id",
    "status",
    "num_prompt_tokens",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "shared_prefix_boundary",
    "block_hashes",
    "skip_reading_prefix_cache",
    "sampling_params",
    "session_id",
    "kv_hints",
];

/// A property that returns the length of a list: the property object, and the list's name.
pub(super) type ListLength = (Py<PyAny>, Py<PyString>);

/// Creates readers of requests, and stores how the class of the last request is read.
pub(super) struct Requests {
    num_tokens: Option<ListLength>,
    last: Option<Class>,
}

struct Class {
    class: Py<PyType>,
    /// Whether the `__dict__` of an instance holds all of these attributes.
    has_plain_attributes: bool,
    /// Whether no instance has further attributes of these names.
    has_all_in_dict: bool,
    /// The list whose length `num_tokens` returns.
    token_list: Option<Py<PyString>>,
}

impl Requests {
    /// Creates the readers. `num_tokens` is the property of that name whose value is the length of
    /// a list.
    pub(super) fn new(num_tokens: Option<ListLength>) -> Self {
        Self { num_tokens, last: None }
    }

    /// Returns a reader of a request.
    #[inline]
    pub(super) fn reader<'a, 'py>(
        &mut self,
        request: &'a Bound<'py, PyAny>,
    ) -> PyResult<Reader<'a, 'py>> {
        let py = request.py();
        let class = match &self.last {
            Some(last) if last.class.as_ptr().cast() == request.get_type_ptr() => last,
            _ => self.last.insert(Class::of(&request.get_type(), self.num_tokens.as_ref())?),
        };
        if !class.has_plain_attributes {
            return Ok(Reader { request, attributes: None, is_complete: false, token_list: None });
        }
        let is_complete = class.has_all_in_dict;
        let attributes = request.getattr(intern!(py, "__dict__"))?.cast_into().ok();
        let token_list = class.token_list.as_ref().map(|name| name.bind(py).clone());
        Ok(Reader { request, attributes, is_complete, token_list })
    }
}

impl Class {
    fn of(class: &Bound<'_, PyType>, num_tokens: Option<&ListLength>) -> PyResult<Self> {
        let py = class.py();
        let object = py.get_type::<PyAny>();
        let reads = intern!(py, "__getattribute__");
        let has_dict = class.getattr_opt(intern!(py, "__dictoffset__"))?;
        let has_dict =
            has_dict.is_some_and(|offset| offset.extract::<isize>().is_ok_and(|n| n != 0));
        let mut has_plain_attributes = has_dict && class.getattr(reads)?.is(object.getattr(reads)?);
        for name in NAMES {
            has_plain_attributes &= class.getattr_opt(name)?.is_none();
        }
        let token_list = match num_tokens {
            Some((property, list)) if has_plain_attributes => {
                let own = class.getattr_opt(intern!(py, "num_tokens"))?;
                own.filter(|own| own.is(property)).map(|_| list.clone_ref(py))
            }
            _ => None,
        };
        let computes_missing = class.getattr_opt(intern!(py, "__getattr__"))?.is_some();
        let has_all_in_dict = has_plain_attributes && !computes_missing;
        let class = class.clone().unbind();
        Ok(Self { class, has_plain_attributes, has_all_in_dict, token_list })
    }
}

/// A request that is being read.
pub(super) struct Reader<'a, 'py> {
    pub(super) request: &'a Bound<'py, PyAny>,
    attributes: Option<Bound<'py, PyDict>>,
    /// Whether the attributes in [`NAMES`] are nowhere else.
    is_complete: bool,
    token_list: Option<Bound<'py, PyString>>,
}

impl<'py> Reader<'_, 'py> {
    pub(super) fn py(&self) -> Python<'py> {
        self.request.py()
    }

    /// Returns one of the attributes in [`NAMES`].
    #[inline]
    pub(super) fn get(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(attributes) = &self.attributes
            && let Some(value) = attributes.get_item(name)?
        {
            return Ok(value);
        }
        self.request.getattr(name)
    }

    /// Returns an attribute that requests can lack. Returns `None` if this one lacks it, or if it is
    /// `None`.
    pub(super) fn find(&self, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let own = match &self.attributes {
            Some(attributes) => attributes.get_item(name)?,
            None => None,
        };
        let found = own.map_or_else(|| self.request.getattr_opt(name), |value| Ok(Some(value)))?;
        Ok(found.filter(|value| !value.is_none()))
    }

    /// Returns one of the attributes in [`NAMES`] that requests can lack. Returns `None` if this
    /// one lacks it, or if it is `None`.
    #[inline]
    pub(super) fn find_optional(
        &self,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.attributes.as_ref().filter(|_| self.is_complete) {
            Some(attributes) => Ok(attributes.get_item(name)?.filter(|value| !value.is_none())),
            None => self.find(name),
        }
    }

    /// Returns one of the attributes in [`NAMES`] as a count.
    #[inline]
    pub(super) fn count(&self, name: &Bound<'py, PyString>) -> PyResult<usize> {
        self.get(name)?.extract()
    }

    /// Returns the properties of the request's list of hashes if kvoxide's hasher created all of
    /// them.
    pub(super) fn computed_chain(&self, list: &Bound<'py, PyList>) -> Option<ComputedChain> {
        ComputedChain::of(self.attributes.as_ref()?, list)
    }

    /// Returns the number of prompt and output tokens.
    #[inline]
    pub(super) fn num_tokens(&self) -> PyResult<usize> {
        if let (Some(attributes), Some(name)) = (&self.attributes, &self.token_list)
            && let Some(tokens) = attributes.get_item(name)?
        {
            return tokens.len();
        }
        self.request.getattr(intern!(self.py(), "num_tokens"))?.extract()
    }
}
