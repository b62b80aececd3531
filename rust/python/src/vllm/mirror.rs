//! What is known of a vLLM request: its hashes, copied once as they grow.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use kvoxide_core::{BlockHash, RequestId, RequestView};

use crate::tokens::hash_error;

/// A request that has been seen and not been freed.
#[derive(Default)]
pub struct Mirror {
    pub id: RequestId,
    pub hashes: Vec<BlockHash>,
}

impl Mirror {
    /// Copies the hashes that are new. Hashes are chained, so an equal last one means that all
    /// before it are equal; a list that was replaced is copied anew.
    pub fn update(
        &mut self,
        hashes: &Bound<'_, PyAny>,
        hash_len: &mut Option<usize>,
    ) -> PyResult<()> {
        let source = HashSource::new(hashes)?;
        let known = self.hashes.len();
        let is_continued = known <= source.len
            && (known == 0 || source.get(known - 1, hash_len)? == self.hashes[known - 1]);
        if !is_continued {
            self.hashes.clear();
        }
        for index in self.hashes.len()..source.len {
            self.hashes.push(source.get(index, hash_len)?);
        }
        Ok(())
    }

    /// What the core reads.
    pub fn view(&self, facts: &Facts) -> RequestView<'_> {
        RequestView {
            id: self.id,
            block_hashes: &self.hashes,
            num_tokens: facts.num_tokens,
            num_prompt_tokens: facts.num_prompt_tokens,
            num_computed_tokens: facts.num_computed_tokens,
            num_in_flight_tokens: facts.num_in_flight_tokens,
            shared_prefix_boundary: facts.shared_prefix_boundary,
            is_waiting: facts.is_waiting,
        }
    }
}

/// The hashes of a request, a list or another sequence.
struct HashSource<'a, 'py> {
    hashes: &'a Bound<'py, PyAny>,
    list: Option<&'a Bound<'py, PyList>>,
    len: usize,
}

impl<'a, 'py> HashSource<'a, 'py> {
    fn new(hashes: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let list = hashes.cast::<PyList>().ok();
        let len = match list {
            Some(list) => list.len(),
            None => hashes.len()?,
        };
        Ok(Self { hashes, list, len })
    }

    fn get(&self, index: usize, hash_len: &mut Option<usize>) -> PyResult<BlockHash> {
        let item = match self.list {
            Some(list) => list.get_item(index)?,
            None => self.hashes.get_item(index)?,
        };
        block_hash(&item, hash_len)
    }
}

/// A hash from bytes, of the one length that a manager's hashes have.
pub fn block_hash(value: &Bound<'_, PyAny>, hash_len: &mut Option<usize>) -> PyResult<BlockHash> {
    let bytes = value.cast::<PyBytes>()?.as_bytes();
    let expected = hash_len.unwrap_or(bytes.len());
    match BlockHash::from_slice(bytes).filter(|_| bytes.len() == expected) {
        Some(hash) => {
            *hash_len = Some(expected);
            Ok(hash)
        }
        None => {
            let message = format!(
                "a block hash has {} bytes; this manager's hashes have {expected}, at most 32",
                bytes.len()
            );
            Err(hash_error(value.py(), message))
        }
    }
}

/// A hash to look up. One of another length than the manager's hashes is cached nowhere.
pub fn known_hash(
    value: &Bound<'_, PyAny>,
    hash_len: Option<usize>,
) -> PyResult<Option<BlockHash>> {
    let bytes = value.cast::<PyBytes>()?.as_bytes();
    Ok(BlockHash::from_slice(bytes).filter(|_| Some(bytes.len()) == hash_len))
}

/// All hashes of a sequence.
pub fn block_hashes(
    hashes: &Bound<'_, PyAny>,
    hash_len: &mut Option<usize>,
) -> PyResult<Vec<BlockHash>> {
    let source = HashSource::new(hashes)?;
    (0..source.len).map(|index| source.get(index, hash_len)).collect()
}

/// The numbers of a request at the time of a call.
pub struct Facts {
    pub num_tokens: usize,
    pub num_prompt_tokens: usize,
    pub num_computed_tokens: usize,
    pub num_in_flight_tokens: usize,
    pub shared_prefix_boundary: usize,
    pub is_waiting: bool,
}

impl Facts {
    /// Reads a request. `waiting` are the states that the watermark applies to; without a
    /// watermark the state is not read.
    pub fn read(request: &Bound<'_, PyAny>, waiting: &[Py<PyAny>]) -> PyResult<Self> {
        let py = request.py();
        let is_waiting = match waiting {
            [] => false,
            states => {
                let status = request.getattr(intern!(py, "status"))?;
                states.iter().any(|state| status.is(state))
            }
        };
        Ok(Self {
            num_tokens: request.getattr(intern!(py, "num_tokens"))?.extract()?,
            num_prompt_tokens: request.getattr(intern!(py, "num_prompt_tokens"))?.extract()?,
            num_computed_tokens: request.getattr(intern!(py, "num_computed_tokens"))?.extract()?,
            num_in_flight_tokens: request
                .getattr(intern!(py, "num_in_flight_tokens"))?
                .extract()?,
            shared_prefix_boundary: request
                .getattr(intern!(py, "shared_prefix_boundary"))?
                .extract()?,
            is_waiting,
        })
    }
}
