//! Determines the value of window tails and states from their position and from where requests
//! resume.
//!
//! A hit resumes where a tail (the window's blocks, or a state) is cached. Some tails have the
//! value of full blocks per unit of the pool: tails at the end of a prompt, tails near the end
//! where requests resume, and tails at shared-prefix boundaries.
//!
//! Other tails are inside a prompt of L tokens. Let s be the sparsest power-of-two spacing to which
//! such a tail belongs. With probability s/L, a request diverges within s tokens after the tail,
//! and the tail saves it from computing s tokens again. The tail's value is s² / (4·c·L) full
//! blocks, where c is the cost of a tail.
//!
//! Sources: the checkpoint rules of Marconi (MLSys 2025) and of vLLM PR 43447.

use std::ops::{Range, RangeInclusive};

use super::block_values::BlockValues;
use super::doublings::doublings_to;
use super::ends::EndValues;
use super::resume_histogram::{Bin, KeptBins};
use crate::pool::{Nearness, ValueLevel, tuning};
use crate::retention::shape::{TailShape, blocks_per_token, tails_and_others};

/// The sizes of a model's groups and blocks, and the observed positions where requests resume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueModel {
    /// The cost of a tail in tokens: for this many tokens, the blocks of the groups without tails
    /// are as many as the blocks of one tail.
    pub tail_cost: f64,
    /// The boundaries near a prompt's end that have the value of the end.
    pub kept_bins: KeptBins,
    /// The values of ends.
    pub ends: EndValues,
    /// The number of blocks of all groups per token.
    pub blocks_per_token: f64,
}

impl ValueModel {
    /// Returns the model of a manager with these groups, before anything is learnt.
    pub(super) fn of(shapes: &[TailShape]) -> Self {
        let (tails, others) = tails_and_others(shapes);
        let per_token = blocks_per_token(others.iter().copied());
        let blocks: usize = tails.iter().map(|shape| shape.tail_len).sum();
        // Without other groups, tails compete only with tails, so any common measure is correct.
        let per_token = if others.is_empty() { 1.0 / 16.0 } else { per_token };
        Self {
            tail_cost: blocks as f64 / per_token,
            kept_bins: KeptBins::ALL,
            ends: EndValues::default(),
            blocks_per_token: blocks_per_token(shapes.iter().filter(|shape| shape.is_cacheable)),
        }
    }

    /// Returns whether tails without a value would still be cached when their prompt is computed.
    /// Such tails are in the free queue.
    pub(crate) fn has_room(&self, num_prompt_tokens: usize, num_queued: usize) -> bool {
        num_prompt_tokens as f64 * self.blocks_per_token <= num_queued as f64
    }
}

/// Determines the value of the tails of one request in one group. Positions are in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailValue<'a> {
    /// The model that determines the values.
    pub model: &'a ValueModel,
    /// The number of tokens in the prompt.
    pub num_prompt_tokens: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Hits end at multiples of this many tokens.
    pub alignment: usize,
    /// The number of blocks per tail.
    pub tail_len: usize,
    /// The number of the tail's blocks after the end of the hit.
    pub num_dropped: usize,
}

impl TailValue<'_> {
    /// Returns the value of the prompt's end.
    fn prompt_end_value(&self) -> ValueLevel {
        self.model.ends.prompt.behind(self.num_prompt_tokens)
    }

    /// Returns the halvings of the value of a tail whose sparsest spacing is the alignment. The
    /// number is not limited. With twice the spacing, it is two halvings less.
    fn halvings_at_alignment(&self) -> i32 {
        let cost = 4.0 * self.model.tail_cost * self.num_prompt_tokens.max(1) as f64;
        let spacing = self.alignment as f64;
        doublings_to(cost / (spacing * spacing))
    }

    /// Returns the values of the cached blocks of a window group in `range`. Requests that repeat
    /// or extend the prompt resume at `replays`. Other requests that share a prefix resume at
    /// `shared`.
    pub(crate) fn values_of_window(
        &self,
        range: Range<usize>,
        [replays, shared]: [&[usize]; 2],
    ) -> Vec<(Range<usize>, ValueLevel)> {
        let mut values = BlockValues::new(range.clone());
        shared.iter().for_each(|&end| values.raise(self.tail(end), ValueLevel::BEST));
        // The best values come first, so that few blocks are left for the others.
        let are_ends_best = self.prompt_end_value() == ValueLevel::BEST;
        if are_ends_best {
            self.raise_ends(&mut values, replays);
        }
        self.raise_answer(&mut values, &range);
        let halvings_at_alignment = self.halvings_at_alignment();
        self.raise_tails(&mut values, self.ends(&range), halvings_at_alignment);
        if !are_ends_best {
            self.raise_ends(&mut values, replays);
        }
        self.durable_tails(&range, halvings_at_alignment)
            .for_each(|tail| values.mark_durable(tail));
        // Generated tokens can end anywhere.
        let prompt_end = self.tail_end(self.num_prompt_tokens);
        values.raise(prompt_end.saturating_sub(self.num_dropped)..range.end, ValueLevel::WORST);
        values.runs()
    }

    /// Returns the ends of hits whose tails have blocks in a range, in alignments.
    fn ends(&self, range: &Range<usize>) -> RangeInclusive<usize> {
        let first = (range.start * self.block_size).saturating_sub(self.alignment);
        let last = range.end.saturating_add(self.tail_len).saturating_mul(self.block_size);
        (first / self.alignment).max(1)..=last / self.alignment
    }

    /// Returns the tails in or after a range that are durable: their spacing alone gives them twice
    /// the value of full blocks. They keep this value as long as their prefix is used.
    fn durable_tails(
        &self,
        range: &Range<usize>,
        halvings_at_alignment: i32,
    ) -> impl Iterator<Item = Range<usize>> {
        let doublings =
            (halvings_at_alignment + tuning::DURABLE_DOUBLINGS).max(0).unsigned_abs().div_ceil(2);
        let spacing = 1_usize.checked_shl(doublings).unwrap_or(usize::MAX);
        let (first, last) = self.ends(range).into_inner();
        let first = first.checked_next_multiple_of(spacing).unwrap_or(usize::MAX);
        (first..=last).step_by(spacing).map(|end| self.tail(end * self.alignment))
    }

    /// Sets the values of the tails of hits with these ends, in alignments. The end on the sparsest
    /// power-of-two spacing has the highest value. A block in several tails gets the highest of
    /// their values.
    fn raise_tails(
        &self,
        values: &mut BlockValues,
        ends: RangeInclusive<usize>,
        halvings_at_alignment: i32,
    ) {
        let (first, last) = ends.into_inner();
        if first > last || values.is_complete() {
            return;
        }
        let doublings = (last ^ (first - 1)).ilog2();
        let halvings = (halvings_at_alignment - 2 * doublings as i32).max(0) as usize;
        if halvings >= ValueLevel::WORST.halvings() {
            return;
        }
        let sparsest = last >> doublings << doublings;
        values.raise(self.tail(sparsest * self.alignment), ValueLevel::new(halvings));
        self.raise_tails(values, first..=sparsest - 1, halvings_at_alignment);
        self.raise_tails(values, sparsest + 1..=last, halvings_at_alignment);
    }

    /// Gives the value of ends to tails at the prompt's end, and to tails at boundaries near it
    /// where requests resume.
    fn raise_ends(&self, values: &mut BlockValues, replays: &[usize]) {
        let value = self.prompt_end_value();
        values.raise(self.range_at_end(), value);
        replays.iter().for_each(|&end| values.raise(self.tail(end), value));
        if self.tails_touch_at_end() {
            return;
        }
        for before in (self.alignment..Nearness::REACH).step_by(self.alignment) {
            let num_tokens = self.num_prompt_tokens.saturating_sub(before);
            let boundary = num_tokens / self.alignment * self.alignment;
            let nearness = Nearness::of(self.num_prompt_tokens - boundary);
            if self.model.kept_bins.contains(Bin::of(boundary, self.alignment, nearness)) {
                values.raise(self.tail(boundary), value);
            }
        }
    }

    /// Returns whether the last tail of the answer is kept. If hits can end at every block, the
    /// request itself holds that tail.
    fn keeps_answer(&self) -> bool {
        self.alignment > self.block_size && self.model.ends.keep_answers(self.num_prompt_tokens)
    }

    /// Gives tails of the answer the best value if the last of them is kept. The first of them can
    /// start in the prompt.
    fn raise_answer(&self, values: &mut BlockValues, range: &Range<usize>) {
        if !self.keeps_answer() {
            return;
        }
        for end in self.ends(range).filter(|end| end * self.alignment > self.num_prompt_tokens) {
            values.raise(self.tail(end * self.alignment), ValueLevel::BEST);
        }
    }

    /// Returns whether the tails near the prompt's end touch. Then they are one range of blocks.
    fn tails_touch_at_end(&self) -> bool {
        self.model.kept_bins == KeptBins::ALL && self.alignment <= self.tail_len * self.block_size
    }

    /// Returns the range of the tails near the prompt's end if they touch, otherwise the last tail.
    fn range_at_end(&self) -> Range<usize> {
        let reach = if self.tails_touch_at_end() { Nearness::REACH - 1 } else { 0 };
        let furthest = reach / self.alignment * self.alignment;
        let first = self.tail(self.num_prompt_tokens.saturating_sub(furthest));
        first.start..self.tail(self.num_prompt_tokens).end
    }

    /// Returns the values of a range inside [`Self::range_at_end`] in which no tail has a higher
    /// value than the prompt's end; `None` for any other range. An empty list means the best value
    /// for all blocks. It is cheaper than [`Self::values_of_window`] and has the same result.
    pub(crate) fn values_of_prompt_end(
        &self,
        range: &Range<usize>,
        shared: &[usize],
    ) -> Option<Vec<(Range<usize>, ValueLevel)>> {
        let at_end = self.range_at_end();
        let is_inside = at_end.start <= range.start && range.end <= at_end.end;
        let value = self.prompt_end_value();
        let is_highest = || {
            shared.is_empty() && !self.keeps_answer() && self.best_inside(range).max(value) == value
        };
        match value == ValueLevel::BEST {
            _ if !is_inside => None,
            true => Some(self.durable_in_best(range)),
            false => is_highest().then(|| vec![(range.clone(), value)]),
        }
    }

    /// Returns the values of a range whose blocks all have the best value; no runs if none of the
    /// blocks is durable.
    fn durable_in_best(&self, range: &Range<usize>) -> Vec<(Range<usize>, ValueLevel)> {
        let (mut runs, mut next) = (Vec::new(), range.start);
        for tail in self.durable_tails(range, self.halvings_at_alignment()) {
            let durable = tail.start.max(next)..tail.end.min(range.end);
            if durable.is_empty() {
                continue;
            }
            if next < durable.start {
                runs.push((next..durable.start, ValueLevel::BEST));
            }
            next = durable.end;
            runs.push((durable, ValueLevel::BEST.durable()));
        }
        if !runs.is_empty() && next < range.end {
            runs.push((next..range.end, ValueLevel::BEST));
        }
        runs
    }

    /// Returns the best value that a tail in a range has from its spacing.
    fn best_inside(&self, range: &Range<usize>) -> ValueLevel {
        let (first, last) = self.ends(range).into_inner();
        let doublings = if first > last { 0 } else { (last ^ (first - 1)).ilog2() };
        let halvings = self.halvings_at_alignment() - 2 * doublings as i32;
        ValueLevel::new(halvings.max(0) as usize)
    }

    /// Returns the tail of the longest hit of at most `num_tokens` tokens.
    fn tail(&self, num_tokens: usize) -> Range<usize> {
        let end = self.tail_end(num_tokens);
        end.saturating_sub(self.tail_len)..end
    }

    /// Returns the end of the tail of the longest hit of at most `num_tokens` tokens.
    fn tail_end(&self, num_tokens: usize) -> usize {
        num_tokens / self.alignment * self.alignment / self.block_size + self.num_dropped
    }

    /// Returns the values of the states in `range`. Only states at the end of a step exist.
    /// `replays` and `shared` are the same as in [`Self::values_of_window`].
    pub(crate) fn values_of_states(
        &self,
        range: Range<usize>,
        [replays, shared]: [&[usize]; 2],
    ) -> Vec<(Range<usize>, ValueLevel)> {
        let (start, end) = (range.start * self.block_size, range.end * self.block_size);
        let is_passed = |&doublings: &i32| {
            let spacing = self.alignment << doublings;
            end / spacing > start / spacing
        };
        let doublings = (1..).take_while(is_passed).last().unwrap_or(0);
        let halvings = self.halvings_at_alignment() - 2 * doublings;
        let mut values = BlockValues::new(range.clone());
        let last_at = |num_tokens| {
            let end = self.tail_end(num_tokens);
            end.saturating_sub(1)..end
        };
        let prompt_end = self.prompt_end_value();
        shared.iter().for_each(|&end| values.raise(last_at(end), ValueLevel::BEST));
        replays.iter().for_each(|&end| values.raise(last_at(end), prompt_end));
        if self.model.ends.keep_answers(self.num_prompt_tokens) {
            let first = self.num_prompt_tokens / self.block_size;
            values.raise(first..range.end, ValueLevel::BEST);
        }
        values.raise(range.clone(), ValueLevel::new(halvings.max(0) as usize));
        if halvings <= -tuning::DURABLE_DOUBLINGS {
            values.mark_durable(range);
        }
        values.runs()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::EndValue;
    use super::*;

    const FULL: EndValue = EndValue { assumed: 1.0, per_token: 0.0, tail_cost: 32.0 };
    const NONE: EndValue = EndValue { assumed: 0.0, ..FULL };

    const MODEL: ValueModel = ValueModel {
        tail_cost: 32.0,
        kept_bins: KeptBins::ALL,
        ends: EndValues { prompt: FULL, answer: NONE, resumed: FULL },
        blocks_per_token: 1.0,
    };

    fn tail(num_prompt_tokens: usize) -> TailValue<'static> {
        TailValue {
            model: &MODEL,
            num_prompt_tokens,
            block_size: 16,
            alignment: 16,
            tail_len: 2,
            num_dropped: 0,
        }
    }

    fn values(of: &TailValue<'_>, range: Range<usize>, shared: &[usize]) -> Vec<String> {
        let show = |(run, value): (Range<usize>, ValueLevel)| {
            let durable = if value.is_durable() { " for good" } else { "" };
            format!("{run:?} {}{durable}", value.halvings())
        };
        of.values_of_window(range, [&[], shared]).into_iter().map(show).collect()
    }

    #[test]
    fn the_end_of_a_prompt_is_worth_most_and_what_follows_it_nothing() {
        // The prompt has 40 blocks. Its end consists of the last 32 blocks and of the blocks that a
        // tail at the first of them needs. At block 32, the spacing of 512 tokens in a prompt of
        // 640 alone gives a value of more than three full blocks.
        const EXPECTED: [&str; 5] =
            ["6..7 3", "7..30 0", "30..32 0 for good", "32..40 0", "40..42 7"];
        assert_eq!(values(&tail(640), 6..42, &[]), EXPECTED);
    }

    fn each(runs: Vec<(Range<usize>, ValueLevel)>) -> Vec<(usize, ValueLevel)> {
        runs.into_iter().flat_map(|(run, value)| run.map(move |i| (i, value))).collect()
    }

    #[test]
    fn the_end_of_a_prompt_is_graded_alike_by_itself() {
        let levels = 0..=ValueLevel::WORST.halvings();
        let mut num_alike = [0; 8];
        for (halvings, (num_prompt_tokens, tail_len, num_dropped)) in levels
            .flat_map(|n| [(640, 2, 0), (4096, 8, 0), (4099, 40, 1), (9, 1, 0)].map(|of| (n, of)))
        {
            let prompt = EndValue { assumed: 0.5_f64.powi(halvings as i32), ..FULL };
            let model = ValueModel { ends: EndValues { prompt, ..MODEL.ends }, ..MODEL };
            let of =
                TailValue { model: &model, num_prompt_tokens, tail_len, num_dropped, ..tail(0) };
            let at_end = of.range_at_end();
            assert_eq!(of.values_of_prompt_end(&(at_end.start..at_end.end + 1), &[]), None);
            for (start, len) in
                at_end.clone().flat_map(|start| [1, 2, 7, 64].map(|len| (start, len)))
            {
                let range = start..(start + len).min(at_end.end - num_dropped);
                let Some(runs) = of.values_of_prompt_end(&range, &[]) else { continue };
                let whole = vec![(range.clone(), ValueLevel::BEST)];
                let runs = if runs.is_empty() { whole } else { runs };
                num_alike[halvings] += 1;
                let all = of.values_of_window(range.clone(), [&[]; 2]);
                assert_eq!(each(runs), each(all), "{of:?} {range:?}");
            }
        }
        // For the lowest values, the spacing alone gives more.
        assert!(num_alike[..6].iter().all(|&num| num > 0), "{num_alike:?}");
    }

    #[test]
    fn inside_a_prompt_tails_alone_are_kept_by_their_spacing() {
        // 128 blocks: tails of two blocks at multiples of 4, whose spacing is a power of two.
        let expected = ["2..4 6", "6..8 4", "10..12 6", "14..16 2", "18..20 6", "22..24 4"];
        assert_eq!(values(&tail(2048), 0..24, &[]), expected);
        assert_eq!(values(&tail(2048), 15..18, &[]), ["15..16 2"]);
        assert_eq!(values(&tail(2048), 31..33, &[]), ["31..32 0"]);
    }

    #[test]
    fn where_prompts_part_is_worth_as_much_as_the_end() {
        // 80 tokens are 5 blocks, and 90 tokens have 5 full blocks.
        for boundary in [80, 90] {
            assert_eq!(values(&tail(2048), 0..8, &[boundary]), ["2..3 6", "3..5 0", "6..8 4"]);
        }
    }

    #[test]
    fn a_tail_reaches_behind_a_hit_that_drops_its_last_block() {
        let shifted = TailValue { tail_len: 3, num_dropped: 1, ..tail(2048) };
        assert_eq!(values(&shifted, 0..9, &[]), ["2..5 6", "6..9 4"]);
    }

    #[test]
    fn a_state_is_worth_the_sparsest_spacing_in_its_step() {
        let of = |range| tail(2048).values_of_states(range, [&[]; 2]);
        assert_eq!(of(3..4), [(3..4, ValueLevel::new(6))]);
        assert_eq!(of(4..5), [(4..5, ValueLevel::WORST)]);
        assert_eq!(of(7..8), [(7..8, ValueLevel::new(4))]);
        assert_eq!(of(20..40), [(20..40, ValueLevel::BEST)]);
        let parted = tail(2048).values_of_states(4..6, [&[], &[90]]);
        assert_eq!(parted, [(4..5, ValueLevel::BEST), (5..6, ValueLevel::new(7))]);
    }
}
