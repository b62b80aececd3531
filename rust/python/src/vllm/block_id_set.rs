//! Which blocks were allocated in a step.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use kvoxide_core::{BlockId, NULL_BLOCK};

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
        for id in block_ids {
            let id: BlockId = id.extract()?;
            if id != NULL_BLOCK {
                self.add(id);
            }
        }
        Ok(())
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
        for at in start..end.min(block_ids.len()) {
            let id: BlockId = block_ids.get_item(at)?.extract()?;
            if self.has(id) {
                block_ids.set_item(at, NULL_BLOCK)?;
            } else if id != NULL_BLOCK {
                first = first.min(at);
            }
        }
        Ok(first)
    }

    /// Returns where the first id of another block than the null block is from `start` to before
    /// `end` in a list, else `end`.
    #[staticmethod]
    fn first_in(block_ids: &Bound<'_, PyList>, start: usize, end: usize) -> PyResult<usize> {
        for at in start..end.min(block_ids.len()) {
            if block_ids.get_item(at)?.extract::<BlockId>()? != NULL_BLOCK {
                return Ok(at);
            }
        }
        Ok(end)
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
