//! Determines the order in which a request releases its blocks under adaptive retention. Blocks of
//! all groups are released together, from the end of the sequence on. So blocks that a hit needs
//! together are evicted together.

use std::cmp::Reverse;

use super::ends::EndValue;
use super::resumes::SequenceValues;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::{Adaptive, Blocks, ValueLevel};
use crate::request::{GroupBlocks, HeldBlocks, RequestBlocks};
use crate::retention::shape::TailShape;

/// Notes which tails of a request became protected. Of the tails in its answer, only the tails at
/// the last boundary stay protected.
#[cold]
#[inline(never)]
pub(in crate::retention) fn note_protected_tails(
    held: &mut RequestBlocks,
    adaptive: &mut Adaptive,
    blocks: &mut Blocks,
    tails: &[BlockId],
    alignment: usize,
) {
    let boundary = |tail| blocks.last_hash_num_tokens(tail).div_ceil(alignment);
    let in_answer = tails.iter().filter(|&&tail| adaptive.meta(tail).is_unused_answer());
    let last = in_answer.map(|&tail| boundary(tail)).max();
    let protected = &mut held.tails.get_or_insert_default().protected;
    protected.extend(tails.iter().map(|&tail| (tail, blocks.name_word(tail))));
    let mut passed = Vec::new();
    if let Some(last) = last {
        protected.retain(|tail| {
            let is_passed = is_own(adaptive, blocks, tail)
                && adaptive.meta(tail.0).is_unused_answer()
                && boundary(tail.0) < last;
            passed.extend(is_passed.then_some(tail.0));
            !is_passed
        });
    }
    if passed.is_empty() {
        return;
    }
    adaptive.raise_priorities(blocks, passed.iter().copied());
    adaptive.promote(passed.iter().map(|&tail| (tail, NULL_BLOCK)), ValueLevel::WORST);
    adaptive.release_by(blocks, |release| {
        passed.iter().for_each(|&tail| release.unprotect(tail));
    });
}

/// Releases every block of a request that ends, and ends the protection of its tails.
pub(in crate::retention) fn release_all(
    shapes: &[TailShape],
    adaptive: &mut Adaptive,
    blocks: &mut Blocks,
    held: &RequestBlocks,
    values: SequenceValues,
    alignment: usize,
) {
    let tails = protected_tails(adaptive, blocks, held);
    raise_priorities(adaptive, blocks, held, &tails);
    let num_prompt_tokens = held.tails.as_ref().map_or(0, |tails| tails.num_prompt_tokens);
    let prompt_end = num_prompt_tokens / alignment * alignment;
    let ended = EndedRequest { shapes, held: &held.groups, prompt_end };
    ended.promote_tails(adaptive, &tails, values.end);
    ended.demote_passed_tails(adaptive, blocks, &tails, values.resumed);
    ended.release(adaptive, blocks, &tails);
}

/// Ends the protection of a request's tails.
pub(in crate::retention) fn unprotect_tails(
    adaptive: &mut Adaptive,
    blocks: &mut Blocks,
    held: &RequestBlocks,
) {
    let tails = protected_tails(adaptive, blocks, held);
    raise_priorities(adaptive, blocks, held, &tails);
    adaptive
        .release_by(blocks, |release| tails.iter().for_each(|&(_, tail)| release.unprotect(tail)));
}

/// The number of tokens before a tail's end, and the tail's block.
type Tail = (usize, BlockId);

/// Returns whether a tail that became protected still is. A block that was allocated for other
/// content since then has another hash.
fn is_own(adaptive: &Adaptive, blocks: &Blocks, &(tail, word): &(BlockId, u64)) -> bool {
    adaptive.is_protected(tail) && blocks.name_word(tail) == word
}

/// Returns the protected tails of a request, from last to first.
fn protected_tails(adaptive: &Adaptive, blocks: &Blocks, held: &RequestBlocks) -> Vec<Tail> {
    let protected = held.tails.iter().flat_map(|tails| &tails.protected);
    let own = protected.filter(|tail| is_own(adaptive, blocks, tail));
    let mut tails: Vec<_> =
        own.map(|&(block, _)| (blocks.last_hash_num_tokens(block), block)).collect();
    tails.sort_unstable_by_key(|&tail| Reverse(tail));
    tails.dedup();
    tails
}

/// Sets the request's priority for its blocks and protected tails, if it has one.
fn raise_priorities(
    adaptive: &mut Adaptive,
    blocks: &Blocks,
    held: &RequestBlocks,
    tails: &[Tail],
) {
    let tails = tails.iter().map(|&(_, tail)| tail);
    adaptive.raise_priorities(blocks, held.iter_owned_rev().chain(tails));
}

/// The tables of a request that ends.
#[derive(Clone, Copy)]
struct EndedRequest<'a> {
    shapes: &'a [TailShape],
    held: &'a [HeldBlocks],
    /// The end of the last hit in the prompt.
    prompt_end: usize,
}

impl<'a> EndedRequest<'a> {
    fn is_tail(self, group: usize) -> bool {
        self.shapes[group].is_sparse
    }

    /// Returns the group's last tail and the position of its first block. For a kind without tails,
    /// returns the whole table.
    fn last_tail(self, group: usize) -> (usize, &'a [BlockId]) {
        let (shape, in_group) = (&self.shapes[group], &self.held[group]);
        let before_tail = match shape.tail_len {
            0 => 0,
            len => in_group.num_cached_blocks.unwrap_or(0).saturating_sub(len),
        };
        in_group.blocks.ids_from(before_tail)
    }

    /// Gives the last window and state the value of an end, because later requests continue at the
    /// end of a sequence. Tails get the number of uses of the prefix block that ends with them.
    fn promote_tails(self, adaptive: &mut Adaptive, tails: &[Tail], end_value: ValueLevel) {
        let prefix = self.prefix();
        for group in (0..self.shapes.len()).filter(|&group| self.is_tail(group)) {
            let size = self.shapes[group].block_size;
            let (first, mut left) = self.last_tail(group);
            if let Some((prefix_size, prefix)) = prefix
                && prefix_size == size
            {
                let (first_prefix, prefixes) = prefix.ids_from(first);
                let num_without_prefix = (first_prefix - first).min(left.len());
                let (without_prefix, with_prefix) = left.split_at(num_without_prefix);
                let num_paired = with_prefix.len().min(prefixes.len());
                let (paired, others) = with_prefix.split_at(num_paired);
                let paired = paired.iter().zip(prefixes).map(|(&tail, &prefix)| (tail, prefix));
                adaptive.promote(paired, end_value);
                adaptive.promote(others.iter().map(|&tail| (tail, NULL_BLOCK)), end_value);
                left = without_prefix;
            }
            let prefix_size = prefix.map_or(usize::MAX, |(size, _)| size);
            let mut end = (first + 1) * size;
            while !left.is_empty() {
                let next_end = (end / prefix_size).saturating_add(1).saturating_mul(prefix_size);
                let num_same = (next_end - end).div_ceil(size).min(left.len());
                let (same_prefix, behind) = left.split_at(num_same);
                let prefix = self.prefix_at(end);
                adaptive.promote(same_prefix.iter().map(|&tail| (tail, prefix)), end_value);
                (left, end) = (behind, end + num_same * size);
            }
        }
        for &(end, tail) in tails {
            // Tails in the prompt keep their value.
            let is_answer = adaptive.meta(tail).is_unused_answer();
            let value = if is_answer { end_value } else { ValueLevel::WORST };
            adaptive.promote([(tail, self.prefix_at(end))], value);
        }
    }

    /// Lowers the value of tails at earlier ends where a request resumed to the value of a further
    /// resume. Does not lower blocks in the tail of the prompt's end.
    fn demote_passed_tails(
        self,
        adaptive: &mut Adaptive,
        blocks: &Blocks,
        tails: &[Tail],
        resumed: EndValue,
    ) {
        for &(end, tail) in tails {
            let shape = &self.shapes[usize::from(blocks.group_of(tail))];
            let tail_len = shape.tail_len * shape.block_size;
            let is_at_end = |prefix| prefix != NULL_BLOCK && adaptive.meta(prefix).is_end();
            if end + tail_len <= self.prompt_end && is_at_end(self.prefix_at(end)) {
                adaptive.demote_resumed(tail, resumed.behind(end));
            }
        }
    }

    /// Returns the blocks of a group that needs the whole prefix, and the group's block size.
    fn prefix(self) -> Option<(usize, &'a GroupBlocks)> {
        let whole = (0..self.shapes.len()).find(|&group| !self.is_tail(group))?;
        Some((self.shapes[whole].block_size, &self.held[whole].blocks))
    }

    /// Returns that group's block with which a prefix of `num_tokens` tokens ends; the null block
    /// if it has none.
    fn prefix_at(self, num_tokens: usize) -> BlockId {
        let Some((size, table)) = self.prefix() else { return NULL_BLOCK };
        table.get((num_tokens / size).saturating_sub(1)).unwrap_or(NULL_BLOCK)
    }

    /// Releases the blocks of every group and unprotects the tails, both from the end of the
    /// sequence on.
    fn release(self, adaptive: &mut Adaptive, blocks: &mut Blocks, tails: &[Tail]) {
        adaptive.release_by(blocks, |release| {
            self.held.iter().for_each(|in_group| release.release_all(in_group.blocks.ids()));
            tails.iter().for_each(|&(_, tail)| release.unprotect(tail));
        });
    }
}
