//! The Python objects of blocks: views that Python has asked for, and later vLLM's own blocks. A block keeps its view for the lifetime of its
//! pool, because vLLM's code compares blocks with `is`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::BlockId;

/// The number of views per page. A page is created with its first view.
const PAGE: usize = 1 << 9;

type View = Option<Py<PyAny>>;

/// The view of each block id. Every view refers to the engine, which holds these views. Therefore
/// the pool drops them when it ends.
#[derive(Default)]
pub(super) struct BlockObjects(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    is_open: bool,
    pages: Vec<Option<Box<[View]>>>,
    num_created: usize,
    ends: Option<[Py<PyAny>; 2]>,
    vllm_objects: Option<VllmObjects>,
}

/// vLLM's own objects, which have the state of blocks once vLLM's pool replaced the engine's.
pub(super) struct VllmObjects {
    /// vLLM's object for each block.
    pub(super) blocks: Vec<Py<PyAny>>,
    /// The sentinels at both ends of the free queue.
    pub(super) ends: [Py<PyAny>; 2],
}

impl BlockObjects {
    /// Starts to keep views, and stores the sentinels at both ends of the free queue.
    pub(super) fn open(&self, ends: [Py<PyAny>; 2]) {
        let mut pages = self.pages();
        pages.is_open = true;
        pages.ends = Some(ends);
    }

    /// Drops every view.
    pub(super) fn close(&self) {
        let closed = std::mem::take(&mut *self.pages());
        drop(closed);
    }

    /// Returns the number of created views.
    pub(super) fn num_created(&self) -> usize {
        self.pages().num_created
    }

    /// Returns the view of a block. Creates the view if it does not exist.
    #[inline]
    pub(super) fn of<'py>(
        &self,
        py: Python<'py>,
        id: BlockId,
        make: impl FnOnce() -> PyResult<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.pages().of(py, id, make)
    }

    /// Returns the views of blocks as a list.
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

    /// Returns the sentinel before the first block of the free queue (0) or after the last one (1).
    pub(super) fn end<'py>(&self, py: Python<'py>, end: usize) -> Option<Bound<'py, PyAny>> {
        self.pages().ends.as_ref().map(|ends| ends[end].bind(py).clone())
    }

    /// Lets views pass all accesses to vLLM's objects from now on. If a block has no view yet,
    /// vLLM's object is used as its view. Returns every block of the pool.
    pub(super) fn replace(&self, py: Python<'_>, objects: VllmObjects) -> PyResult<Vec<Py<PyAny>>> {
        let mut pages = self.pages();
        let blocks = objects.blocks.iter().enumerate().map(|(id, object)| {
            let view = pages.of(py, id as BlockId, || Ok(object.clone_ref(py)))?;
            Ok(view.unbind())
        });
        let blocks = blocks.collect();
        pages.vllm_objects = Some(objects);
        blocks
    }

    /// Returns vLLM's object for a block.
    pub(super) fn vllm_object<'py>(
        &self,
        py: Python<'py>,
        id: BlockId,
    ) -> Option<Bound<'py, PyAny>> {
        let pages = self.pages();
        let object = pages.vllm_objects.as_ref()?.blocks.get(id as usize)?;
        Some(object.bind(py).clone())
    }

    /// Returns vLLM's sentinel at an end of the free queue.
    pub(super) fn vllm_end<'py>(&self, py: Python<'py>, end: usize) -> Option<Bound<'py, PyAny>> {
        Some(self.pages().vllm_objects.as_ref()?.ends[end].bind(py).clone())
    }

    /// Returns the pages. The lock is always free, because the GIL is held and no Python code runs
    /// under the lock.
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
        self.num_created += 1;
    }
}
