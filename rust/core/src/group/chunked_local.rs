//! Chunked local attention: a token attends within its own chunk, so everything before the chunk
//! of the next token counts as computed without a block.

use super::{AttentionKind, GroupHit, HitQuery};
use crate::error::{Error, Result};
use crate::request::GroupBlocks;
use crate::spec::GroupSpec;

/// Chunked local attention.
#[derive(Clone, Debug)]
pub struct ChunkedLocalAttention {
    block_size: usize,
    chunk: usize,
}

impl ChunkedLocalAttention {
    /// The kind of a spec.
    pub fn build(spec: &GroupSpec) -> Result<Box<dyn AttentionKind>> {
        spec.forbidden("sliding_window", spec.sliding_window.is_some())?;
        spec.forbidden("extra_retained_tokens", spec.extra_retained_tokens > 0)?;
        spec.forbidden("prefix_cacheable=False", !spec.prefix_cacheable)?;
        Ok(Box::new(Self {
            block_size: spec.block_size,
            chunk: spec.required("attention_chunk_size", spec.attention_chunk_size)?,
        }))
    }
}

impl AttentionKind for ChunkedLocalAttention {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        let num_nulls = self.num_skipped_tokens(query.max_length) / query.block_size;
        let mut found = vec![Vec::new(); query.groups.len()];
        let mut cursors = query.cursors();
        for i in num_nulls..query.max_blocks() {
            query.hashes.require(i + 1)?;
            if !query.find(&mut cursors, i, &mut found)? {
                break;
            }
        }
        let blocks: Vec<_> =
            found.into_iter().map(|ids| GroupBlocks::new(num_nulls, ids)).collect();
        Ok(GroupHit { length: blocks[0].len() * query.block_size, blocks })
    }

    fn num_skipped_tokens(&self, num_computed_tokens: usize) -> usize {
        num_computed_tokens / self.chunk * self.chunk
    }

    fn max_admission_blocks(
        &self,
        max_in_flight_tokens: usize,
        max_model_len: usize,
    ) -> Option<usize> {
        let held = self.chunk.saturating_add(max_in_flight_tokens).min(max_model_len);
        Some(held.div_ceil(self.block_size))
    }

    fn check_lookup(&self, alignment: usize, drops_eagle_block: bool) -> Result<()> {
        if drops_eagle_block {
            return Err(Error::Config(
                "chunked local attention cannot drop the last block of a hit; do not use EAGLE \
                 with a group of this kind"
                    .into(),
            ));
        }
        if alignment != self.block_size {
            return Err(Error::Config(format!(
                "a chunked-local group of block size {} cannot be mixed with groups that align \
                 hits to {alignment} tokens; give all groups the same block size",
                self.block_size
            )));
        }
        Ok(())
    }
}
