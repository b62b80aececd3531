//! The blocks of requests under the adaptive policy: their allocation, which of them become cached,
//! and with which values. Callers give the hit of a request and make sure that enough blocks are
//! free. The model has groups of full attention and of sliding windows.

use std::collections::HashMap;
use std::ops::Range;

use kvoxide_core::pool::PrefixIndex;
use kvoxide_core::{BlockHash, BlockId, CacheKey, NULL_BLOCK};

use super::Adaptive;
use super::block::{Block, WORTHLESS};
use super::calls::Cached;
use super::ends::{EndWorths, Ends};
use super::priority::Retention;
use super::sessions::Sessions;
use super::value::{Prompt, ResumeHistogram, Value};

#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub block_size: usize,
    /// The number of tokens in the window; `None` for full attention.
    pub window: Option<usize>,
}

impl Group {
    /// Returns how many blocks before the end of a hit are needed.
    pub fn tail_len(&self) -> usize {
        self.window.map_or(0, |window| (window - 1).div_ceil(self.block_size))
    }

    /// Returns the number of leading blocks of a table that no later token attends to.
    pub fn num_left_behind(&self, num_computed: usize) -> usize {
        self.window.map_or(0, |window| (num_computed + 1).saturating_sub(window) / self.block_size)
    }
}

/// The blocks of a request.
pub struct Request {
    /// A table for each group, with null blocks at released positions.
    pub tables: Vec<Vec<BlockId>>,
    /// The number of leading blocks of each table that are cached or stay uncached.
    pub num_cached: Vec<usize>,
    /// Tails that were protected when the request released them.
    pub tails: Vec<Tail>,
    pub num_prompt_tokens: usize,
    /// The number of tokens that were computed before the request was admitted.
    pub num_hit_tokens: usize,
    /// The tokens of the prompt that vLLM's default policy computes again.
    pub without_tail: Range<usize>,
}

impl Request {
    fn new(num_groups: usize, step: &Step<'_>, without_tail: Range<usize>) -> Self {
        Self {
            tables: vec![Vec::new(); num_groups],
            num_cached: vec![0; num_groups],
            tails: Vec::new(),
            num_prompt_tokens: step.num_prompt_tokens,
            num_hit_tokens: step.num_computed,
            without_tail,
        }
    }
}

/// A block of a window that was protected when its request released it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The number of tokens in the prefix that ends with the block.
    pub end: usize,
    pub block: BlockId,
    pub hash: BlockHash,
}

/// A step of a request. Counts are in tokens.
pub struct Step<'a> {
    pub id: u64,
    pub hashes: &'a [BlockHash],
    pub num_prompt_tokens: usize,
    /// The number of tokens that are computed before the step, including tokens of a hit, and the
    /// number of new tokens.
    pub num_computed: usize,
    pub num_new: usize,
    /// The blocks of the hit in each group, if the request starts with this step.
    pub hit: Option<&'a [Vec<BlockId>]>,
    /// The position where the request diverges from a cached prompt that is longer than its hit; 0
    /// if there is none.
    pub shared_prefix_boundary: usize,
}

pub struct Manager {
    pub policy: Adaptive,
    pub groups: Vec<Group>,
    /// Tokens per hash. The length of a hit is a multiple of `alignment`.
    pub(super) hash_block_size: usize,
    pub alignment: usize,
    resumes: ResumeHistogram,
    prompt_ends: Ends,
    answer_ends: Ends,
    resumed_ends: Ends,
    /// The worths of the three kinds of ends, computed when a request last ended or resumed at an
    /// end.
    pub(super) end_worths: EndWorths,
    pub requests: HashMap<u64, Request>,
    pub(super) sessions: Sessions,
}

impl Manager {
    /// The most tokens after the position of a resume for which a prompt counts as a repeated one.
    const MAX_REPEATED: usize = 16;

    pub fn new(
        policy: Adaptive,
        groups: &[Group],
        hash_block_size: usize,
        alignment: usize,
    ) -> Self {
        let resumes = ResumeHistogram::new(alignment);
        let groups = groups.to_vec();
        Self {
            policy,
            groups,
            hash_block_size,
            alignment,
            resumes,
            prompt_ends: Ends::default(),
            answer_ends: Ends::default(),
            resumed_ends: Ends::default(),
            end_worths: EndWorths::default(),
            requests: HashMap::new(),
            sessions: Sessions::default(),
        }
    }

    /// Makes a call for a request that asks for a retention.
    pub fn asking<R>(&mut self, asked: &Retention, call: impl FnOnce(&mut Self) -> R) -> R {
        self.policy.priorities.asked = asked.clone();
        let result = call(self);
        self.policy.priorities.asked = Retention::default();
        result
    }

    /// Allocates slots for a step, which must be free, and caches the blocks that are full then.
    /// Returns the new blocks.
    pub fn allocate(&mut self, step: &Step<'_>) -> Vec<Vec<BlockId>> {
        self.leave_behind(step.id, step.num_computed);
        let mut request = match self.requests.remove(&step.id) {
            Some(request) => request,
            None => {
                let without_tail = self.note_resume(step);
                self.note_shared(step);
                Request::new(self.groups.len(), step, without_tail)
            }
        };
        for (i, hit) in step.hit.into_iter().flatten().enumerate() {
            let num_left = self.groups[i].num_left_behind(step.num_computed).min(hit.len());
            request.tables[i] = hit.clone();
            request.tables[i][..num_left].fill(NULL_BLOCK);
            request.num_cached[i] = hit.len();
            self.policy.touch(&request.tables[i]);
        }
        let num_tokens = step.num_computed + step.num_new;
        let new = self.groups.iter().zip(&mut request.tables).map(|(group, table)| {
            let num_missing = num_tokens.div_ceil(group.block_size).saturating_sub(table.len());
            let new = self.policy.take(num_missing);
            table.extend(&new);
            new
        });
        let new = new.collect();
        for i in 0..self.groups.len() {
            self.cache(i, &mut request, step, num_tokens);
        }
        self.requests.insert(step.id, request);
        new
    }

    /// Counts a resume. A resume is described by the distance between the end of an earlier prompt
    /// and the position where the request diverges from it. Returns the tokens of the prompt that
    /// vLLM's default policy computes again.
    fn note_resume(&mut self, step: &Step<'_>) -> Range<usize> {
        let shared = step.num_computed.max(step.shared_prefix_boundary);
        let position = shared / self.alignment * self.alignment;
        let last = self.last_shared_block(step, position);
        if let Some(last) = last {
            self.note_resume_after(step, position, last);
        }
        self.note_default(step, position, last)
    }

    /// Returns the full-attention block that ends at a position of the shared prefix.
    fn last_shared_block(&self, step: &Step<'_>, position: usize) -> Option<Block> {
        let group = self.policy.full_group()?;
        let block_size = self.groups[usize::from(group)].block_size;
        let last = (position / block_size).checked_sub(1)?;
        let hit = step.hit.and_then(|hit| hit[usize::from(group)].get(last).copied());
        let hash = self.hashes(step, block_size).get(last).copied();
        let found = hash.and_then(|hash| self.policy.pool.find(&CacheKey { hash, group }));
        hit.or(found).map(|block| self.policy.blocks[block as usize])
    }

    fn note_resume_after(&mut self, step: &Step<'_>, position: usize, last: Block) {
        let Block { uses, nearness, is_generated, .. } = last;
        {
            if uses == 1 {
                self.resumes.note(position, nearness);
            }
            if !is_generated && nearness.is_none() {
                return;
            }
            if uses > 1 {
                if step.num_prompt_tokens <= position + Self::MAX_REPEATED {
                    return;
                }
                self.resumed_ends.note_resume(position);
            } else {
                let ends = if is_generated { &mut self.answer_ends } else { &mut self.prompt_ends };
                ends.note_resume(position);
                self.resumed_ends.note_end(position, 1.0);
            }
            self.update_end_worths();
        }
    }

    /// Counts the end of the prompt if the request computed its last block. Counts the end of an
    /// answer if the last cached block has generated tokens. Returns the halvings of tails at the
    /// end of the sequence.
    pub fn note_ends(&mut self, request: &Request) -> usize {
        let Some(full) = self.policy.full_group() else { return 0 };
        let table = &request.tables[usize::from(full)];
        let last = table.iter().rposition(|&block| self.policy.is_cached(block));
        let has_answer = last.is_some_and(|last| self.policy.is_unused_answer(table[last]));
        let block_size = self.groups[usize::from(full)].block_size;
        let num_tokens = last.map_or(0, |last| (last + 1) * block_size);
        let weight = Ends::weight(num_tokens.saturating_sub(request.num_hit_tokens));
        let num_full = request.num_prompt_tokens / block_size * block_size;
        if request.num_hit_tokens < num_full && num_full <= num_tokens {
            self.prompt_ends.note_end(request.num_prompt_tokens, weight);
        }
        if has_answer {
            self.answer_ends.note_end(num_tokens, weight);
        }
        self.update_end_worths();
        let worth = if has_answer { self.end_worths.answer } else { self.end_worths.prompt };
        worth.halvings(num_tokens)
    }

    fn update_end_worths(&mut self) {
        let (cost, reuse) = (self.tail_cost(), self.policy.duel.reuse_of_once_used());
        self.end_worths = EndWorths {
            prompt: self.prompt_ends.worth(cost, reuse),
            answer: self.answer_ends.worth(cost, reuse),
            resumed: self.resumed_ends.worth(cost, reuse),
        };
    }

    /// Caches the full computed blocks of a request in a group.
    fn cache(&mut self, i: usize, request: &mut Request, step: &Step<'_>, num_tokens: usize) {
        let Group { block_size, window } = self.groups[i];
        // Hits of several groups end at multiples of the alignment.
        let num_tokens = if self.groups.len() > 1 {
            num_tokens / self.alignment * self.alignment
        } else {
            num_tokens
        };
        let hashes = self.hashes(step, block_size);
        let end = (num_tokens / block_size).min(hashes.len());
        let new = request.num_cached[i]..end;
        let valued = self.runs(i, new.clone(), step, |prompt, block| match window {
            Some(_) => prompt.value_in_window(block),
            None => Some(Value { halvings: 0, is_durable: false }),
        });
        let worthless = Value { halvings: WORTHLESS, is_durable: false };
        let cached = match window {
            Some(_) if self.has_room(step) => self.runs(i, new, step, |prompt, block| {
                prompt.is_reachable(block).then_some(worthless)
            }),
            _ => valued.clone(),
        };
        for (run, value) in cached {
            let blocks = &request.tables[i][run.clone()];
            // Blocks that were released before they were cached are null.
            let num_null = blocks.iter().take_while(|&&block| block == NULL_BLOCK).count();
            for first in (run.start + num_null..run.end).step_by(PrefixIndex::BATCH) {
                let batch = first..(first + PrefixIndex::BATCH).min(run.end);
                self.policy.cache(&Cached {
                    blocks: &request.tables[i][batch.clone()],
                    hashes: &hashes[batch],
                    group: i as u16,
                    value,
                    first_end: (first + 1) * block_size,
                    block_size,
                    num_prompt_tokens: step.num_prompt_tokens,
                    without_tail: match self.policy.full_group() == Some(i as u16) {
                        true => request.without_tail.clone(),
                        false => 0..0,
                    },
                });
            }
        }
        for (run, value) in valued {
            self.policy.set_value(&request.tables[i][run], value);
        }
        request.num_cached[i] = request.num_cached[i].max(end);
        self.cache_prompt_end(i, &request.tables[i], step, num_tokens);
    }

    /// Also caches a full block under the end of the prompt inside it. That end does not include
    /// the token that is always computed.
    fn cache_prompt_end(
        &mut self,
        i: usize,
        table: &[BlockId],
        step: &Step<'_>,
        num_tokens: usize,
    ) {
        let Group { block_size, window } = self.groups[i];
        let num_hashes = (step.num_prompt_tokens - 1) / self.hash_block_size;
        let end = num_hashes.min(step.hashes.len()) * self.hash_block_size;
        let is_inside = end > 0 && end <= num_tokens && !end.is_multiple_of(block_size);
        if window.is_none() && is_inside {
            let hash = step.hashes[end / self.hash_block_size - 1];
            self.policy.add_key(table[end / block_size], CacheKey { hash, group: i as u16 }, end);
        }
    }

    /// Returns whether worthless blocks would still be cached when the prompt is computed.
    fn has_room(&self, step: &Step<'_>) -> bool {
        let per_token: f64 = self.groups.iter().map(|group| 1.0 / group.block_size as f64).sum();
        step.num_prompt_tokens as f64 * per_token <= self.policy.pool.queue.len() as f64
    }

    /// Returns runs of blocks that have a value. The blocks of a run have the same value.
    fn runs(
        &self,
        i: usize,
        blocks: Range<usize>,
        step: &Step<'_>,
        value: impl Fn(&Prompt<'_>, usize) -> Option<Value>,
    ) -> Vec<(Range<usize>, Value)> {
        let Group { block_size, .. } = self.groups[i];
        let shared =
            vec![step.shared_prefix_boundary; usize::from(step.shared_prefix_boundary > 0)];
        let prompt = Prompt {
            num_tokens: step.num_prompt_tokens,
            block_size,
            alignment: self.alignment,
            tail_len: self.groups[i].tail_len(),
            num_behind: 0,
            tail_cost: self.tail_cost(),
            resumes: &self.resumes,
            ends: self.end_worths,
            replays: &[step.num_prompt_tokens.saturating_sub(1)],
            shared: &shared,
        };
        let mut runs: Vec<(Range<usize>, Value)> = Vec::new();
        for block in blocks {
            match (value(&prompt, block), runs.last_mut()) {
                (None, _) => {}
                (Some(value), Some((run, last))) if run.end == block && *last == value => {
                    run.end += 1
                }
                (Some(value), _) => runs.push((block..block + 1, value)),
            }
        }
        runs
    }

    /// Returns the number of tokens for which a prefix has as many full-attention blocks as its
    /// tails have blocks.
    fn tail_cost(&self) -> f64 {
        let whole = self.groups.iter().filter(|group| group.window.is_none());
        let per_token: f64 = whole.map(|group| 1.0 / group.block_size as f64).sum();
        let num_blocks: usize = self.groups.iter().map(Group::tail_len).sum();
        num_blocks as f64 / if per_token == 0.0 { 1.0 / 16.0 } else { per_token }
    }

    fn hashes(&self, step: &Step<'_>, block_size: usize) -> Vec<BlockHash> {
        let per_block = block_size / self.hash_block_size;
        step.hashes.chunks_exact(per_block).map(|block| block[per_block - 1]).collect()
    }
}
