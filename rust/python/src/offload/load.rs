//! A load of a group: which chunks, and into which blocks.

use std::ops::Range;

use pyo3::intern;
use pyo3::prelude::*;

use kvoxide_core::host::HostGroup;
use kvoxide_core::{BlockId, NULL_BLOCK};

use crate::ffi::runs;
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

    /// Returns the places of blocks to be filled, as runs of neighbours: the empty ones, or all places
    /// from the first empty one on if it is `to_end`. Blocks of a load within the step have their hashes
    /// already.
    fn places_to_fill(
        &self,
        places: Range<usize>,
        is_sync: bool,
        to_end: bool,
    ) -> PyResult<Vec<Range<usize>>> {
        let end = places.end;
        let mut empty = match self {
            Self::Native(blocks, group) => {
                blocks.get().unhashed_places(blocks.py(), *group, places, is_sync)?
            }
            Self::Objects(blocks) => {
                let py = blocks.py();
                let mut found = Vec::new();
                for at in places {
                    let block = blocks.get_item(at)?;
                    let is_null = block.getattr(intern!(py, "is_null"))?.is_truthy()?;
                    if !is_null && (is_sync || block.getattr(intern!(py, "block_hash"))?.is_none())
                    {
                        found.push(at);
                        if to_end {
                            break;
                        }
                    }
                }
                runs(found.into_iter())
            }
        };
        if to_end && let Some(first) = empty.first_mut() {
            first.end = end;
            empty.truncate(1);
        }
        Ok(empty)
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
    /// The chunks that are loaded, and the tokens that they bring.
    pub(super) parts: Vec<(Range<usize>, Range<usize>)>,
    /// The chunk after the last one that the request needs.
    pub(super) num_chunks: usize,
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
        let (start, end) = (num_computed / size, num_cached.div_ceil(size));
        if !num_computed.is_multiple_of(size) || table.len()? < end {
            return Ok(None);
        }
        // The pool can have blocks of a window after those that are loaded.
        let to_end = !group.is_window() || blocks_per_chunk > 1;
        let runs = table.places_to_fill(start..end, is_sync, to_end)?;
        let first_block = runs.first().map_or(end, |run| run.start);
        let num_chunks = num_cached.div_ceil(group.tokens_per_chunk);
        let num_blocks = runs.iter().map(ExactSizeIterator::len).sum();
        let most = group.window_chunks.map(|window| window * blocks_per_chunk + 1);
        if most.is_some_and(|most| num_blocks > most) || num_keys < num_chunks {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for run in runs {
            table.add_ids(run.clone(), block_ids)?;
            let tokens = if group.is_state { num_computed } else { run.start * size };
            let chunks = run.start / blocks_per_chunk..run.end.div_ceil(blocks_per_chunk);
            parts.push((chunks, tokens..num_cached.min(run.end * size)));
        }
        Ok(Some(Self { parts, num_chunks, first_block, num_blocks }))
    }
}
