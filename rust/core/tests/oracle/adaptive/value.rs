//! The value of tails, and the positions where requests resume.
//!
//! A hit ends where all groups can continue. So it needs a tail there: the window's blocks, or a
//! state. At a shared-prefix boundary, a tail has the value of full-attention blocks, per block. At
//! the end of a prompt, and where follow-ups of prompts mostly resume, it has the value that
//! `ends.rs` has learnt.
//!
//! At other positions, the position determines the value. Three numbers of tokens decide:
//!
//! - s is the alignment of hits times the largest power of two for which the position is a multiple
//!   of s.
//! - L is the length of the prompt.
//! - c is the length of a prefix whose full-attention blocks take as much of the pool as a tail.
//!
//! A request that diverges in the s tokens after the tail saves s tokens. So the value is s² / (4 ·
//! c · L): the checkpoint rule of Marconi (MLSys 2025). Values are rounded to 1 / 2^*halvings*.
//!
//! Window blocks with a value below 1/64 are cached only while the free queue is longer than the
//! blocks of their prompt. They wait in this queue, and otherwise would be allocated before their
//! request ends. Generated blocks are always cached.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::block::WORTHLESS;
use super::ends::EndWorths;

/// The value of a block. If `is_durable`, its position alone gives it twice the value of a
/// full-attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub halvings: usize,
    pub is_durable: bool,
}

/// The tails of one prompt in one group. Ends of hits are in tokens. Blocks are positions in the
/// table.
#[derive(Clone, Debug)]
pub struct Prompt<'a> {
    pub num_tokens: usize,
    pub block_size: usize,
    /// The length of a hit is a multiple of this many tokens.
    pub alignment: usize,
    /// The number of blocks of a tail, and the number of these blocks after the end of the hit.
    pub tail_len: usize,
    pub num_behind: usize,
    /// The number of tokens for which a prefix has as many full-attention blocks as its tail has
    /// blocks.
    pub tail_cost: f64,
    pub resumes: &'a ResumeHistogram,
    pub ends: EndWorths,
    /// Positions where a request resumes that repeats the prompt.
    pub replays: &'a [usize],
    /// Positions where requests diverge that share a prefix with this one.
    pub shared: &'a [usize],
}

impl Prompt<'_> {
    /// Returns the value of a block of a window; `None` if it is not cached.
    pub fn value_in_window(&self, block: usize) -> Option<Value> {
        let is_in_tail = |end: usize| self.tail(end).contains(&block);
        let behind_first = (1..).take_while(|i| self.tail(i * self.alignment).start <= block);
        let spacings: Vec<_> = behind_first
            .filter(|i| is_in_tail(i * self.alignment))
            .map(|i: usize| i.trailing_zeros())
            .collect();
        let by_spacing = spacings.iter().map(|&doublings| self.halvings(doublings)).min();
        let is_end = self.ends().into_iter().chain(self.replays.iter().copied()).any(is_in_tail);
        let is_best = self.shared.iter().copied().any(is_in_tail) || self.is_in_answer(block);
        let halvings = by_spacing
            .filter(|&halvings| halvings < WORTHLESS)
            .into_iter()
            .chain(is_end.then_some(self.ends.prompt.halvings(self.num_tokens)))
            .chain(is_best.then_some(0))
            .min();
        let is_durable = spacings.iter().any(|&doublings| self.is_durable(doublings));
        // The output can end anywhere.
        let first_generated = self.tail(self.num_tokens).end.saturating_sub(self.num_behind);
        let generated =
            (block >= first_generated).then_some(Value { halvings: WORTHLESS, is_durable: false });
        halvings.map(|halvings| Value { halvings, is_durable }).or(generated)
    }

    /// Returns whether some hit needs a block. If tails touch, vLLM also counts the blocks before
    /// the first one.
    pub fn is_reachable(&self, block: usize) -> bool {
        if self.tail_len * self.block_size >= self.alignment {
            return true;
        }
        let ends = (1..).map(|i| self.tail(i * self.alignment));
        ends.take_while(|tail| tail.start <= block).any(|tail| tail.contains(&block))
    }

    /// Returns whether a block is in a tail of the answer that must be kept. The first of these
    /// tails can start in the prompt. If hits can end at every block, the request itself holds its
    /// last tail.
    fn is_in_answer(&self, block: usize) -> bool {
        let ends = (self.num_tokens / self.alignment + 1..).map(|i| i * self.alignment);
        let mut tails = ends.map(|end| self.tail(end)).take_while(|tail| tail.start <= block);
        self.ends.keep_answers(self.num_tokens)
            && self.alignment > self.block_size
            && tails.any(|tail| tail.contains(&block))
    }

    /// Returns the value of a state that was computed in a step over some blocks.
    pub fn value_of_state(&self, block: usize, step: &Range<usize>) -> Value {
        let [start, end] = [step.start, step.end].map(|block| block * self.block_size);
        let sparsest = (1..usize::BITS / 2).take_while(|doublings| {
            let spacing = self.alignment << doublings;
            end / spacing > start / spacing
        });
        let doublings = sparsest.last().unwrap_or(0);
        let ends_here = |ends: &[usize]| ends.iter().any(|&end| self.tail(end).end == block + 1);
        let is_generated = block >= self.num_tokens / self.block_size;
        let halvings =
            if ends_here(self.shared) || is_generated && self.ends.keep_answers(self.num_tokens) {
                0
            } else if ends_here(self.replays) {
                self.halvings(doublings).min(self.ends.prompt.halvings(self.num_tokens))
            } else {
                self.halvings(doublings)
            };
        Value { halvings, is_durable: self.is_durable(doublings) }
    }

    /// Returns the end of the prompt, and the positions near it where follow-ups resume.
    fn ends(&self) -> Vec<usize> {
        let before = (1..).map(|i| i * self.alignment).take_while(|&before| before < NEAR_END[0]);
        let aligned = before.map(|before| self.aligned(self.num_tokens.saturating_sub(before)));
        let is_kept = |&end: &usize| self.resumes.keeps(end, nearness(self.num_tokens - end));
        std::iter::once(self.num_tokens).chain(aligned.filter(is_kept)).collect()
    }

    /// Returns the blocks of the tail of the longest hit of at most `num_tokens` tokens.
    fn tail(&self, num_tokens: usize) -> Range<usize> {
        let end = self.aligned(num_tokens) / self.block_size + self.num_behind;
        end.saturating_sub(self.tail_len)..end
    }

    fn aligned(&self, num_tokens: usize) -> usize {
        num_tokens / self.alignment * self.alignment
    }

    /// Returns the halvings of a tail whose spacing is the alignment, doubled `doublings` times.
    fn halvings(&self, doublings: u32) -> usize {
        self.signed_halvings(doublings).clamp(0, WORTHLESS as i32) as usize
    }

    fn is_durable(&self, doublings: u32) -> bool {
        self.signed_halvings(doublings) <= -1
    }

    /// Returns the smallest number of halvings of 1 whose result is at most the value of a tail. It
    /// is negative if that value is more than 1.
    fn signed_halvings(&self, doublings: u32) -> i32 {
        let cost = 4.0 * self.tail_cost * self.num_tokens.max(1) as f64;
        let cost = cost / (self.alignment as f64 * self.alignment as f64);
        let halvings = (-64..64).find(|&halvings| 2_f64.powi(halvings) >= cost);
        halvings.expect("a cost") - 2 * doublings as i32
    }
}

/// The upper limits of the three steps of nearness, in tokens before the end of a prompt.
const NEAR_END: [usize; 3] = [512, 256, 64];

/// Returns the step of a position, from its distance in tokens to the end of its prompt.
pub fn nearness(num_tokens: usize) -> Option<usize> {
    NEAR_END.iter().filter(|&&bound| num_tokens < bound).count().checked_sub(1)
}

/// A bin of boundaries near the end of a prompt: their step, and how often the alignment is doubled
/// to get the largest spacing that divides them.
type Bin = (usize, u32);

/// The resumes of later requests near the ends of prompts. A bin has no value if it has fewer than
/// half of the resumes that it would have if requests resumed anywhere.
#[derive(Clone, Debug)]
pub struct ResumeHistogram {
    alignment: usize,
    bins: BTreeMap<Bin, u32>,
    num: u32,
    dropped: BTreeSet<Bin>,
}

impl ResumeHistogram {
    /// The number of assumed resumes at the start, at any position near the end.
    const PRIOR: f64 = 48.0;
    const LEAST_SHARE: f64 = 0.5;
    /// The number of resumes after which bins are judged again.
    const JUDGED_EACH: u32 = 8;
    /// The number of resumes after which half of them are forgotten.
    const MAX: u32 = 1024;

    pub fn new(alignment: usize) -> Self {
        Self { alignment, bins: BTreeMap::new(), num: 0, dropped: BTreeSet::new() }
    }

    /// Counts a request that resumed at a multiple of the alignment, in a step before the end of an
    /// earlier prompt.
    pub fn note(&mut self, position: usize, step: Option<usize>) {
        let Some(step) = step else { return };
        *self.bins.entry((step, self.doublings(position))).or_default() += 1;
        self.num += 1;
        if self.num == Self::MAX {
            self.bins.values_mut().for_each(|num| *num /= 2);
            self.num = self.bins.values().sum();
        }
        if self.num.is_multiple_of(Self::JUDGED_EACH) {
            self.judge();
        }
    }

    fn judge(&mut self) {
        let all = f64::from(self.num) + Self::PRIOR;
        let bins =
            (0..NEAR_END.len()).flat_map(|step| (0..=self.max_doublings()).map(move |n| (step, n)));
        let is_dropped = |bin: &Bin| {
            let share = self.share(*bin);
            let num = f64::from(self.bins.get(bin).copied().unwrap_or(0));
            num + Self::PRIOR * share < Self::LEAST_SHARE * all * share
        };
        self.dropped = bins.filter(is_dropped).collect();
    }

    /// Returns whether a boundary in a step before the end has the value of the end.
    fn keeps(&self, position: usize, step: Option<usize>) -> bool {
        step.is_some_and(|step| !self.dropped.contains(&(step, self.doublings(position))))
    }

    fn doublings(&self, position: usize) -> u32 {
        (position / self.alignment).trailing_zeros().min(self.max_doublings())
    }

    /// Returns the number of doublings from which mostly one boundary is near an end.
    fn max_doublings(&self) -> u32 {
        (NEAR_END[0] / self.alignment).max(1).ilog2()
    }

    /// Returns a bin's share of the boundaries near an end.
    fn share(&self, (step, doublings): Bin) -> f64 {
        let end = NEAR_END.get(step + 1).copied().unwrap_or(0);
        let of_step = (NEAR_END[step] - end) as f64 / NEAR_END[0] as f64;
        of_step / f64::from(1 << (doublings + 1).min(self.max_doublings()))
    }
}
