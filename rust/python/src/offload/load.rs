//! A load of a group: which chunks, and into which blocks.

use std::ops::Range;

use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;

use kvoxide_core::host::HostGroup;
use kvoxide_core::{BlockId, NULL_BLOCK};

use crate::vllm::VllmBlocks;

/// The blocks of a request in a group, of kvoxide's manager or of vLLM's.
pub(super) enum Table<'py> {
    Native(Bound<'py, VllmBlocks>, usize),
    Objects(Bound<'py, PyAny>),
}

impl<'py> Table<'py> {
    /// Returns the table of a group of `blocks`.
    pub(super) fn of(blocks: &Bound<'py, PyAny>, group: usize) -> PyResult<Self> {
        if let Ok(native) = blocks.cast_exact::<VllmBlocks>() {
            return Ok(Self::Native(native.clone(), group));
        }
        Ok(Self::Objects(blocks.getattr(intern!(blocks.py(), "blocks"))?.get_item(group)?))
    }

    fn len(&self) -> PyResult<usize> {
        match self {
            Self::Native(blocks, group) => Ok(blocks.get().group(*group)?.len()),
            Self::Objects(blocks) => blocks.len(),
        }
    }

    /// Returns the first place that has a block to be filled, else the end of the places. Blocks of
    /// a load within the step have their hashes already.
    fn first_to_fill(&self, places: Range<usize>, is_sync: bool) -> PyResult<usize> {
        match self {
            Self::Native(blocks, group) => {
                blocks.get().first_unhashed(blocks.py(), *group, places.start, places.end, is_sync)
            }
            Self::Objects(blocks) => {
                let py = blocks.py();
                for at in places.clone() {
                    let block = blocks.get_item(at)?;
                    let is_null = block.getattr(intern!(py, "is_null"))?.is_truthy()?;
                    if !is_null && (is_sync || block.getattr(intern!(py, "block_hash"))?.is_none())
                    {
                        return Ok(at);
                    }
                }
                Ok(places.end)
            }
        }
    }

    /// Adds the ids of the blocks at these places.
    fn add_ids(&self, places: Range<usize>, ids: &mut Vec<BlockId>) -> PyResult<()> {
        match self {
            Self::Native(blocks, group) => {
                let table = blocks.get().group(*group)?;
                ids.extend(places.map(|at| table.get(at).unwrap_or(NULL_BLOCK)));
            }
            Self::Objects(blocks) => {
                for at in places {
                    let id = blocks.get_item(at)?.getattr(intern!(blocks.py(), "block_id"))?;
                    ids.push(id.extract()?);
                }
            }
        }
        Ok(())
    }
}

/// A load of a group.
pub(super) struct GroupLoad {
    /// The chunks.
    pub(super) chunks: Range<usize>,
    /// The tokens that the chunks bring.
    pub(super) tokens: Range<usize>,
    /// The first block that is filled.
    pub(super) first_block: usize,
    /// Blocks that are filled.
    pub(super) num_blocks: usize,
}

impl GroupLoad {
    /// Returns what a load of the tokens after `num_computed` up to `num_cached` covers, and adds
    /// the blocks to `block_ids`; `None` for what vLLM's own method has to refuse.
    pub(super) fn plan(
        group: &HostGroup,
        table: &Table<'_>,
        (num_computed, num_cached): (usize, usize),
        (num_keys, blocks_per_chunk): (usize, usize),
        is_sync: bool,
        block_ids: &mut Vec<BlockId>,
    ) -> PyResult<Option<Self>> {
        let size = group.tokens_per_block;
        let end = num_cached.div_ceil(size);
        if !num_computed.is_multiple_of(size) || table.len()? < end {
            return Ok(None);
        }
        let first = table.first_to_fill(num_computed / size..end, is_sync)?;
        let num_chunks = num_cached.div_ceil(group.tokens_per_chunk);
        let num_blocks =
            end.checked_sub(first).ok_or_else(|| PyIndexError::new_err("a load has no block"))?;
        let most = group.window_chunks.map(|window| window * blocks_per_chunk + 1);
        if most.is_some_and(|most| num_blocks > most) || num_keys < num_chunks {
            return Ok(None);
        }
        table.add_ids(first..end, block_ids)?;
        let start = if first < end { first / blocks_per_chunk } else { num_chunks };
        Ok(Some(Self {
            chunks: start..num_chunks,
            tokens: if group.is_state { num_computed } else { first * size }..num_cached,
            first_block: first,
            num_blocks,
        }))
    }
}
