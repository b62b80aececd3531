//! The blocks that were allocated in a step, and where lists of block ids have them.

use pyo3::exceptions::{PyAttributeError, PyIndexError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use kvoxide_core::{BlockId, NULL_BLOCK};

use crate::ffi::each_block;
use crate::vllm::VllmBlocks;

/// Ids of blocks, a bit each.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlockIds")]
#[derive(Default)]
pub(crate) struct VllmBlockIds {
    words: Vec<u64>,
    len: usize,
}

#[pymethods]
impl VllmBlockIds {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds ids, without the null block's.
    fn update(&mut self, block_ids: &Bound<'_, PyList>) -> PyResult<()> {
        each_block(block_ids, 0..block_ids.len(), |_, id| {
            self.add(id);
            Ok(true)
        })
    }

    /// Adds the ids of all groups.
    fn update_from(&mut self, blocks: &VllmBlocks) {
        blocks.ids().filter(|&id| id != NULL_BLOCK).for_each(|id| self.add(id));
    }

    /// Returns which keys of a dictionary are here.
    fn contained_of<'py>(
        &self,
        block_ids: &Bound<'py, PyDict>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut found = Vec::new();
        if self.len > 0 {
            for (id, _) in block_ids {
                if self.has(id.extract()?) {
                    found.push(id);
                }
            }
        }
        Ok(found)
    }

    /// Replaces the ids that are here by the null block's in the parts of lists that requests'
    /// windowed `groups` did not store yet: after the stored chunks, and before the number of blocks
    /// that `num_before` has of a request in each of these groups, else in all of its list.
    fn forget_in(
        &self,
        states: &Bound<'_, PyDict>,
        groups: Vec<usize>,
        blocks_per_chunk: usize,
        num_before: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let py = states.py();
        for (request_id, state) in states {
            let ends = num_before.get_item(request_id)?.map(|ends| ends.extract::<Vec<usize>>());
            let ends = ends.transpose()?;
            let of_groups = state.getattr(intern!(py, "group_states"))?.cast_into::<PyTuple>()?;
            for (at, &group) in groups.iter().enumerate() {
                let list = PendingList::of(&of_groups.get_item(group)?, blocks_per_chunk)?;
                let end = match &ends {
                    Some(ends) => *ends.get(at).ok_or_else(|| {
                        PyIndexError::new_err("a request has fewer ends than groups")
                    })?,
                    None => list.block_ids.len(),
                };
                list.forget(self, end)?;
            }
        }
        Ok(())
    }

    /// Returns where the first id of another block than the null block is from `start` to before
    /// `end` in a list, else `end`.
    #[staticmethod]
    fn first_not_null(block_ids: &Bound<'_, PyList>, start: usize, end: usize) -> PyResult<usize> {
        let mut first = end;
        each_block(block_ids, start..end, |at, _| {
            first = at;
            Ok(false)
        })?;
        Ok(first)
    }

    fn __contains__(&self, id: BlockId) -> bool {
        self.has(id)
    }

    fn __len__(&self) -> usize {
        self.len
    }
}

impl VllmBlockIds {
    fn add(&mut self, id: BlockId) {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    fn has(&self, id: BlockId) -> bool {
        self.words.get(id as usize / 64).is_some_and(|word| word & (1 << (id % 64)) != 0)
    }
}

/// Lists that are longer have a note of what was looked at.
const MAX_WITHOUT_NOTE: usize = 64;

/// The blocks of a request in a windowed group. Blocks after the stored chunks may leave the window,
/// and be another request's, before they are stored.
struct PendingList<'py> {
    /// The attributes of vLLM's object.
    fields: Bound<'py, PyDict>,
    block_ids: Bound<'py, PyList>,
    /// The first block that is not stored.
    start: usize,
}

impl<'py> PendingList<'py> {
    fn of(group_state: &Bound<'py, PyAny>, blocks_per_chunk: usize) -> PyResult<Self> {
        let py = group_state.py();
        let fields = group_state.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
        let field = |name: &Bound<'py, PyString>| {
            let missing = || PyAttributeError::new_err(format!("a group's state has no {name}"));
            fields.get_item(name)?.ok_or_else(missing)
        };
        let block_ids = field(intern!(py, "block_ids"))?.cast_into::<PyList>()?;
        let num_stored: usize = field(intern!(py, "next_stored_chunk_idx"))?.extract()?;
        Ok(Self { block_ids, start: num_stored.saturating_mul(blocks_per_chunk), fields })
    }

    /// Replaces those before `end` that were allocated by the null block. What is null from a place
    /// to before another one stays so until vLLM empties the list; the note has both places.
    fn forget(self, allocated: &VllmBlockIds, end: usize) -> PyResult<()> {
        let name = intern!(self.fields.py(), "_kvoxide_gone");
        let note = self.fields.get_item(name)?;
        let (mut gone_from, mut first) = match &note {
            Some(note) => note.extract()?,
            None => (0, 0),
        };
        if !(gone_from <= self.start && self.start <= first && first <= end) {
            (gone_from, first) = (self.start, self.start);
        }
        let mut first_left = end;
        each_block(&self.block_ids, first..end, |at, id| {
            if allocated.has(id) {
                self.block_ids.set_item(at, NULL_BLOCK)?;
            } else {
                first_left = first_left.min(at);
            }
            Ok(true)
        })?;
        if note.is_none() && end.saturating_sub(self.start) <= MAX_WITHOUT_NOTE {
            return Ok(());
        }
        self.fields.set_item(name, (gone_from, first_left))
    }
}
