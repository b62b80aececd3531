//! Which blocks were allocated in a step, and what lists of block ids have of them.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use kvoxide_core::{BlockId, NULL_BLOCK};

use super::blocks::VllmBlocks;
use crate::ffi::each_block;

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

    /// Adds ids but that of the null block.
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
    fn among<'py>(&self, block_ids: &Bound<'py, PyDict>) -> PyResult<Vec<Bound<'py, PyAny>>> {
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

    /// Replaces the ids from `start` to before `end` in a list that are here by the null block's.
    /// Returns where the first other one is then, else `end`.
    fn forget(&self, block_ids: &Bound<'_, PyList>, start: usize, end: usize) -> PyResult<usize> {
        let mut first = end;
        each_block(block_ids, start..end, |at, id| {
            if self.has(id) {
                block_ids.set_item(at, NULL_BLOCK)?;
            } else {
                first = first.min(at);
            }
            Ok(true)
        })?;
        Ok(first)
    }

    /// Returns where the first id of another block than the null block is from `start` to before
    /// `end` in a list, else `end`.
    #[staticmethod]
    fn first_in(block_ids: &Bound<'_, PyList>, start: usize, end: usize) -> PyResult<usize> {
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
