//! The views of blocks that somebody holds: asked for again, a block is the same Python object, as
//! vLLM's code expects (`is`).

use std::sync::Mutex;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass_init::PyClassInitializer;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use kvoxide_core::BlockId;

/// Lists of more blocks are made of views of their own: nobody compares so many by identity, and a
/// long request's blocks are not worth a lookup each.
pub(super) const MAX_SHARED: usize = 1024;

type Weak = Py<PyWeakrefReference>;

/// Block id -> the view of it that is in use, if any is.
#[derive(Default)]
pub(super) struct Views(Mutex<HeldViews>);

#[derive(Default)]
struct HeldViews {
    by_id: hashbrown::HashMap<BlockId, Weak, foldhash::fast::FixedState>,
    /// Entries at which those of views that are gone are looked for.
    prune_at: usize,
}

impl Views {
    /// The view of a block: the one in use, or one that is made now.
    pub(super) fn of<'py, T>(
        &self,
        py: Python<'py>,
        id: BlockId,
        make: impl FnOnce() -> T,
    ) -> PyResult<Bound<'py, T>>
    where
        T: PyClass + Into<PyClassInitializer<T>>,
    {
        if let Some(view) = self.held(py, id) {
            return Ok(view);
        }
        let view = Bound::new(py, make())?;
        let weak = PyWeakrefReference::new(view.as_any())?.unbind();
        // Python code may run while an object is made, and ask for a view itself: whoever finds the
        // map in use goes without it.
        let replaced = match self.0.try_lock() {
            Ok(mut held) => held.insert(py, id, weak),
            Err(_) => Vec::new(),
        };
        drop(replaced);
        Ok(view)
    }

    fn held<'py, T: PyClass>(&self, py: Python<'py>, id: BlockId) -> Option<Bound<'py, T>> {
        let held = self.0.try_lock().ok()?;
        let view = held.by_id.get(&id)?.bind(py).upgrade()?;
        drop(held);
        view.cast_into().ok()
    }
}

impl HeldViews {
    /// Keeps a reference; hands out those that are not needed any more.
    fn insert(&mut self, py: Python<'_>, id: BlockId, weak: Weak) -> Vec<Weak> {
        let mut gone: Vec<_> = self.by_id.insert(id, weak).into_iter().collect();
        if self.by_id.len() > self.prune_at {
            let is_gone = |weak: &mut Weak| weak.bind(py).upgrade().is_none();
            gone.extend(self.by_id.extract_if(|_, weak| is_gone(weak)).map(|(_, weak)| weak));
            self.prune_at = (2 * self.by_id.len()).max(MAX_SHARED);
        }
        gone
    }
}
