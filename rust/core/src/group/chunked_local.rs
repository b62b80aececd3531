//! Chunked local attention: a token attends within its own chunk, so everything before the chunk
//! of the next token counts as computed without a block.

use super::data::Head;
use super::declaration::{Caching, Declaration, Sharding, Support};
use super::kind::Kind;
use super::query::{GroupHit, HitQuery};
use super::spec::{GroupSpec, Size};
use crate::error::{Error, Result};
use crate::request::GroupBlocks;

/// Chunked local attention.
pub static CHUNKED_LOCAL: Declaration = Declaration {
    name: "chunked_local_attention",
    event_name: "chunked_local_attention",
    short_name: "chunked",
    vllm_classes: ("ChunkedLocalAttentionSpec", "ChunkedLocalAttentionManager"),
    vllm_attributes: &[],
    required: &[Size::AttentionChunkSize],
    optional: &[],
    caching: Caching::Always,
    sharding: Sharding::Replicated,
    support: Support {
        hit_needs: "its chunk",
        gives_back: "those before its chunk",
        is_sparse: false,
        is_pinned_by_drop: true,
        supports_eagle: false,
        mixes_block_sizes: false,
    },
    build: ChunkedLocalAttention::build,
};

/// Attention within chunks.
#[derive(Clone, Debug)]
struct ChunkedLocalAttention {
    block_size: usize,
    chunk: usize,
}

impl ChunkedLocalAttention {
    fn build(spec: &GroupSpec) -> Result<Box<dyn Kind>> {
        let chunk = spec.required(Size::AttentionChunkSize)?;
        Ok(Box::new(Self { block_size: spec.block_size, chunk }))
    }
}

impl Kind for ChunkedLocalAttention {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        let num_nulls = self.head().num_skipped_tokens(query.max_length) / query.block_size;
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

    fn head(&self) -> Head {
        Head::Chunk(self.chunk)
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
