//! Data from a vLLM request: its numbers at each call, and the hashes that the call needs.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};

use kvoxide_core::{
    BlockHash, Error, HashSource, HashWindow, RequestId, RequestRetention, RequestView, Result,
};

use super::attributes::Reader;
use super::errors::IntoVllmResult;
use crate::ffi::{ComputedChain, block_hash, hash_error};

/// A request that has been looked up or has blocks, with its copied hashes.
#[derive(Default)]
pub(super) struct RequestCache {
    pub(super) id: RequestId,
    /// The retention that the request asks for.
    pub(super) retention: Option<Arc<RequestRetention>>,
    /// The position of the first copied hash.
    start: usize,
    hashes: Vec<BlockHash>,
    /// The number of hashes of the request.
    num_hashes: usize,
    /// Whether kvoxide's hasher computed the copied hashes, each from the previous one.
    is_chain: bool,
}

impl RequestCache {
    /// Returns a request without copied hashes.
    pub(super) fn new(id: RequestId, retention: Option<Arc<RequestRetention>>) -> Self {
        Self { id, retention, ..Self::default() }
    }

    /// Drops the copied hashes, so that the next call copies the hashes again.
    pub(super) fn forget_hashes(&mut self) {
        self.hashes.clear();
    }

    /// Copies the `needed` hashes that are not copied yet, and some that will be needed next.
    /// Hashes are chained, so if the last hash is equal, all earlier ones are equal. If the list
    /// was replaced by another one, its hashes are copied again.
    pub(super) fn update(&mut self, source: &PyHashes<'_, '_>, needed: Range<usize>) -> Result<()> {
        if needed.start < self.start || !self.is_continued_by(source)? {
            self.start = needed.start;
            self.hashes.clear();
            self.is_chain = true;
        }
        self.num_hashes = source.len();
        if self.end() >= needed.end.min(self.num_hashes) {
            return Ok(());
        }
        self.is_chain = self.is_chain && source.is_chain();
        self.forget_before(needed.start);
        let end = needed.end.max(self.end() + READ_AHEAD).min(self.num_hashes);
        source.read(self.end(), 1, end - self.end(), &mut self.hashes)
    }

    /// Returns the position after the last copied hash.
    fn end(&self) -> usize {
        self.start + self.hashes.len()
    }

    /// Drops hashes that are no longer needed, once they are half of all copied hashes.
    fn forget_before(&mut self, first_needed: usize) {
        let num_passed = (first_needed - self.start).min(self.hashes.len());
        if num_passed * 2 >= self.hashes.len() {
            self.hashes.drain(..num_passed);
            self.start = first_needed;
        }
    }

    fn is_continued_by(&self, source: &PyHashes<'_, '_>) -> Result<bool> {
        match self.hashes.last() {
            None => Ok(false),
            Some(last) => Ok(self.end() <= source.len() && source.get(self.end() - 1)? == *last),
        }
    }

    /// Returns the request as the core reads it.
    pub(super) fn view(&self, snapshot: &RequestSnapshot) -> RequestView<'_> {
        let hashes = HashWindow::new(self.start, &self.hashes);
        let hashes = hashes.of_chain(self.num_hashes).chained(self.is_chain);
        RequestView {
            num_prompt_tokens: snapshot.num_prompt_tokens,
            num_computed_tokens: snapshot.num_computed_tokens,
            num_in_flight_tokens: snapshot.num_in_flight_tokens,
            shared_prefix_boundary: snapshot.shared_prefix_boundary,
            is_waiting: snapshot.is_waiting,
            ..RequestView::new(self.id, hashes, snapshot.num_tokens)
        }
    }
}

/// The number of hashes that are copied at once, if the request has them. The first chunk of a long
/// prompt must not wait for all hashes, and later chunks must not each wait for their own.
const READ_AHEAD: usize = 8192;

/// The number of hashes below which they are read one by one, because a slice would be slower.
const FEW: usize = 16;

/// The hashes of a request in Python: a list or another sequence of bytes.
pub(super) struct PyHashes<'a, 'py> {
    hashes: &'a Bound<'py, PyAny>,
    list: Option<&'a Bound<'py, PyList>>,
    len: usize,
    request: Option<&'a Reader<'a, 'py>>,
    computed: OnceCell<Option<ComputedChain>>,
    hash_len: Cell<Option<usize>>,
    failure: RefCell<Option<PyErr>>,
}

impl<'a, 'py> PyHashes<'a, 'py> {
    /// Returns the hashes of a request. The request shows which of them kvoxide's hasher computed.
    pub(super) fn of(
        request: &'a Reader<'a, 'py>,
        hashes: &'a Bound<'py, PyAny>,
        hash_len: Option<usize>,
    ) -> PyResult<Self> {
        Ok(Self { request: Some(request), ..Self::new(hashes, hash_len)? })
    }

    /// Returns a sequence of hashes of `hash_len` bytes, if the length is known.
    pub(super) fn new(hashes: &'a Bound<'py, PyAny>, hash_len: Option<usize>) -> PyResult<Self> {
        let list = hashes.cast::<PyList>().ok();
        let len = match list {
            Some(list) => list.len(),
            None => hashes.len()?,
        };
        Ok(Self {
            hashes,
            list,
            len,
            request: None,
            computed: OnceCell::new(),
            hash_len: Cell::new(hash_len),
            failure: RefCell::default(),
        })
    }

    /// Returns the number of bytes per hash, once a hash has been read.
    pub(super) fn hash_len(&self) -> Option<usize> {
        self.hash_len.get()
    }

    /// Returns the result of a call that read these hashes, or Python's own error if reading
    /// failed.
    pub(super) fn or_python_error<T>(&self, py: Python<'_>, result: Result<T>) -> PyResult<T> {
        match self.failure.take() {
            Some(failure) if result.is_err() => Err(failure),
            _ => result.into_vllm(py),
        }
    }

    /// Returns the properties of the list if kvoxide's hasher computed all of it.
    fn computed(&self) -> Option<&ComputedChain> {
        let of = |list| self.request.and_then(|request| request.computed_chain(list));
        self.computed.get_or_init(|| self.list.and_then(of)).as_ref()
    }

    /// Returns the first hashes, if Rust has them too.
    fn head(&self) -> &[BlockHash] {
        let is_whole = self.hash_len.get().is_none_or(|len| len == BlockHash::MAX_LEN);
        let head = self.computed().filter(|_| is_whole).map_or(&[][..], |chain| &chain.head);
        if !head.is_empty() {
            self.hash_len.set(Some(BlockHash::MAX_LEN));
        }
        head
    }

    #[inline]
    fn get_one(&self, index: usize) -> PyResult<BlockHash> {
        self.hash_of(match self.list {
            Some(list) => list.get_item(index)?,
            None => self.hashes.get_item(index)?,
        })
    }

    /// Reads hashes through a slice. A slice touches all of them in one tight loop, so that the
    /// waits for memory overlap.
    fn get_slice(&self, first: usize, step: usize, n: usize) -> PyResult<Vec<BlockHash>> {
        let [first, step, n] = [first, step, n].map(|number| number as isize);
        let stop = first + (n - 1) * step + 1;
        let slice = self.hashes.get_item(PySlice::new(self.hashes.py(), first, stop, step))?;
        let read = slice.try_iter()?.map(|hash| self.hash_of(hash?));
        let read = read.collect::<PyResult<Vec<_>>>()?;
        if read.len() == n as usize {
            return Ok(read);
        }
        let message = format!("a slice of {n} block hashes returned {}", read.len());
        Err(hash_error(slice.py(), message))
    }

    #[inline]
    fn hash_of(&self, value: Bound<'py, PyAny>) -> PyResult<BlockHash> {
        if let (Ok(bytes), Some(BlockHash::MAX_LEN)) =
            (value.cast::<PyBytes>(), self.hash_len.get())
            && let Ok(whole) = bytes.as_bytes().try_into()
        {
            return Ok(BlockHash::from_bytes(whole));
        }
        self.checked_hash_of(&value)
    }

    #[cold]
    fn checked_hash_of(&self, value: &Bound<'py, PyAny>) -> PyResult<BlockHash> {
        let mut hash_len = self.hash_len.get();
        let hash = block_hash(value, &mut hash_len);
        self.hash_len.set(hash_len);
        hash
    }

    fn keep_python_error<T>(&self, result: PyResult<T>) -> Result<T> {
        result.map_err(|error| {
            self.failure.replace(Some(error));
            Error::BlockHash("a block hash cannot be read".into())
        })
    }
}

impl HashSource for PyHashes<'_, '_> {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<BlockHash> {
        self.keep_python_error(self.get_one(index))
    }

    fn is_chain(&self) -> bool {
        self.computed().is_some()
    }

    fn read(&self, first: usize, step: usize, n: usize, out: &mut Vec<BlockHash>) -> Result<()> {
        let head = if n < FEW { &[] } else { self.head() };
        if head.len() > first {
            let from_head = n.min((head.len() - first).div_ceil(step));
            match step {
                1 => out.extend_from_slice(&head[first..first + from_head]),
                _ => out.extend(head[first..].iter().step_by(step).take(from_head)),
            }
            return self.read(first + from_head * step, step, n - from_head, out);
        }
        if step == 1 || n < FEW {
            out.reserve(n);
            for i in 0..n {
                out.push(self.keep_python_error(self.get_one(first + i * step))?);
            }
        } else {
            out.append(&mut self.keep_python_error(self.get_slice(first, step, n))?);
        }
        Ok(())
    }
}

/// The numbers of a request at the time of a call.
pub(super) struct RequestSnapshot {
    pub(super) num_tokens: usize,
    pub(super) num_prompt_tokens: usize,
    pub(super) num_computed_tokens: usize,
    pub(super) num_in_flight_tokens: isize,
    pub(super) shared_prefix_boundary: usize,
    pub(super) is_waiting: bool,
}

impl RequestSnapshot {
    /// Reads a request. The watermark applies to the statuses in `waiting`. Without a watermark,
    /// the status is not read.
    pub(super) fn read(request: &Reader<'_, '_>, waiting: &[Py<PyAny>]) -> PyResult<Self> {
        let py = request.py();
        let is_waiting = match waiting {
            [] => false,
            states => {
                let status = request.get(intern!(py, "status"))?;
                states.iter().any(|state| status.is(state))
            }
        };
        Ok(Self {
            num_tokens: request.num_tokens()?,
            num_prompt_tokens: request.count(intern!(py, "num_prompt_tokens"))?,
            num_computed_tokens: request.count(intern!(py, "num_computed_tokens"))?,
            num_in_flight_tokens: request.get(intern!(py, "num_in_flight_tokens"))?.extract()?,
            shared_prefix_boundary: request.count(intern!(py, "shared_prefix_boundary"))?,
            is_waiting,
        })
    }
}
