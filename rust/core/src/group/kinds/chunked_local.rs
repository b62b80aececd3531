//! Chunked local attention. A token attends only to its own chunk, so tokens before the chunk of
//! the next token need no blocks.

use super::full::FULL;
use crate::error::Result;
use crate::group::data::Skipped;
use crate::group::declaration::{Declaration, PartialHits, Sharding};
use crate::group::query::{GroupHit, HitQuery};
use crate::group::spec::{GroupSpec, Size};
use crate::request::GroupBlocks;

/// Chunked local attention.
pub(super) static CHUNKED_LOCAL: Declaration = Declaration {
    name: "chunked_local_attention",
    event_name: "chunked_local_attention",
    short_name: "chunked",
    vllm_classes: ("ChunkedLocalAttentionSpec", "ChunkedLocalAttentionManager"),
    required: &[Size::AttentionChunkSize],
    sharding: Sharding::Replicated,
    partial_hits: PartialHits::Never,
    hit_needs: "its chunk",
    releases: "blocks before its chunk",
    is_pinned_by_drop: true,
    supports_eagle: false,
    mixes_block_sizes: false,
    is_prefix_closed: false,
    ..FULL
};

/// Attention within chunks.
#[derive(Clone, Debug)]
pub struct ChunkedLocal {
    chunk: usize,
}

impl ChunkedLocal {
    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        Ok(Self { chunk: spec.required(Size::AttentionChunkSize)? })
    }

    pub(crate) fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        let num_nulls = self.skips().num_skipped_tokens(query.max_length) / query.block_size;
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

    pub(crate) fn skips(&self) -> Skipped {
        Skipped::BeforeChunk(self.chunk)
    }
}
