//! The views of blocks that somebody looked at: a block is one Python object from then on, for as long
//! as its pool lives, as vLLM's code expects (`is`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::BlockId;

/// Views that are in one piece of memory, made once one of them is asked for.
const PAGE: usize = 1 << 9;

type View = Option<Py<PyAny>>;

/// Block id -> the view of it. Every view leads back to who has these: the pool closes them when it
/// ends.
#[derive(Default)]
pub(super) struct Views(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    is_open: bool,
    pages: Vec<Option<Box<[View]>>>,
    num_made: usize,
    ends: Option<[Py<PyAny>; 2]>,
}

impl Views {
    /// From now on views are kept, and the objects at both ends of the free queue too.
    pub(super) fn open(&self, ends: [Py<PyAny>; 2]) {
        let mut pages = self.pages();
        pages.is_open = true;
        pages.ends = Some(ends);
    }

    /// Lets every view go.
    pub(super) fn close(&self) {
        let closed = std::mem::take(&mut *self.pages());
        drop(closed);
    }

    /// Number of views that were made.
    pub(super) fn num_made(&self) -> usize {
        self.pages().num_made
    }

    /// The view of a block: the one that is there, or one that is made now.
    #[inline]
    pub(super) fn of<'py>(
        &self,
        py: Python<'py>,
        id: BlockId,
        make: impl FnOnce() -> PyResult<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.pages().of(py, id, make)
    }

    /// The views of blocks as a list.
    pub(super) fn list<'py>(
        &self,
        py: Python<'py>,
        ids: impl ExactSizeIterator<Item = BlockId>,
        make: impl Fn(BlockId) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let views = {
            let mut pages = self.pages();
            let view = |id| pages.of(py, id, || make(id));
            ids.map(view).collect::<PyResult<Vec<_>>>()?
        };
        PyList::new(py, views)
    }

    /// What stands before the first block of the free queue (0) or behind the last one (1).
    pub(super) fn end<'py>(&self, py: Python<'py>, end: usize) -> Option<Bound<'py, PyAny>> {
        self.pages().ends.as_ref().map(|ends| ends[end].bind(py).clone())
    }

    /// Under the GIL nobody waits: no Python code runs while this is held.
    #[inline]
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    #[inline]
    fn of<'py>(
        &mut self,
        py: Python<'py>,
        id: BlockId,
        make: impl FnOnce() -> PyResult<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (page, place) = (id as usize / PAGE, id as usize % PAGE);
        if let Some(Some(views)) = self.pages.get(page)
            && let Some(view) = &views[place]
        {
            return Ok(view.bind(py).clone());
        }
        let view = make()?;
        if self.is_open {
            self.keep(page, place, view.clone_ref(py));
        }
        Ok(view.into_bound(py))
    }

    fn keep(&mut self, page: usize, place: usize, view: Py<PyAny>) {
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let empty = || std::iter::repeat_with(|| None).take(PAGE).collect();
        self.pages[page].get_or_insert_with(empty)[place] = Some(view);
        self.num_made += 1;
    }
}
