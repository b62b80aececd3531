//! What window tails and states are worth, from geometry alone.
//!
//! A hit resumes where a tail (the window's blocks, or a state) was kept. The tail where a prompt
//! ends and the one where prompts part are worth as much per unit of the pool as full blocks. One
//! inside a prompt of L tokens, on the sparsest power-of-two spacing s that it belongs to, spares
//! s tokens to a request that parts in the s tokens behind it, which happens with a chance of s/L:
//! s² / (4·c·L) full blocks' worth, where c is what a tail costs. Sources: the checkpoint rules of
//! Marconi (MLSys 2025) and of vLLM PR 43447.

use std::ops::Range;

use crate::pool::Grade;

/// The geometry of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// Tokens of a prefix that take as many blocks without tails as one tail does: what a tail
    /// costs.
    pub tail_cost: f64,
}

/// The last tokens of a prompt: every boundary there is worth as much as its end, since follow-ups
/// part a little before it.
const NEAR_END_TOKENS: usize = 512;

/// What decides the worth of the tails of one request in one group. Positions are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct TailWorth<'a> {
    /// The model.
    pub worth: &'a Worth,
    /// Tokens of the prompt.
    pub num_prompt_tokens: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Hits end at multiples of so many tokens.
    pub alignment: usize,
    /// Blocks of a tail.
    pub need: usize,
    /// Blocks behind a hit's end that it needs too.
    pub shift: usize,
}

impl TailWorth<'_> {
    /// Halvings of worth of the tail at `position`, in tokens, where `spacing` is the sparsest that
    /// it belongs to.
    fn halvings(&self, spacing: usize) -> usize {
        let cost = 4.0 * self.worth.tail_cost * self.num_prompt_tokens.max(1) as f64;
        let halvings = (cost / (spacing as f64 * spacing as f64)).log2().ceil();
        halvings.clamp(0.0, Grade::WORST.halvings() as f64) as usize
    }

    /// The closest spacing, a power of two times the alignment, whose tails are worth anything.
    fn closest(&self) -> usize {
        let mut spacing = self.alignment;
        while self.halvings(spacing) >= Grade::WORST.halvings() {
            spacing *= 2;
        }
        spacing
    }

    /// The grades of the blocks of a window group, `range`, as far as they are worth to be kept.
    /// `boundaries` are positions, in tokens, at which later requests are known to resume.
    pub fn of_window(
        &self,
        range: Range<usize>,
        boundaries: &[usize],
    ) -> Vec<(Range<usize>, Grade)> {
        let mut grades = Grades::new(range.clone());
        let prompt_end = self.tail_end(self.num_prompt_tokens);
        // What is generated may end anywhere.
        grades.improve(prompt_end.saturating_sub(self.shift)..range.end, Grade::WORST);
        let step = self.closest();
        let first = (range.start * self.block_size).saturating_sub(self.alignment) / step * step;
        let last = range.end.saturating_add(self.need) * self.block_size;
        for position in (first..=last).step_by(step).filter(|&position| position > 0) {
            let spacing = self.alignment << (position / self.alignment).trailing_zeros();
            let end = self.tail_end(position);
            grades.improve(end.saturating_sub(self.need)..end, Grade::new(self.halvings(spacing)));
        }
        for before in (0..NEAR_END_TOKENS).step_by(self.alignment) {
            let end = self.tail_end(self.num_prompt_tokens.saturating_sub(before));
            grades.improve(end.saturating_sub(self.need)..end, Grade::BEST);
        }
        for &boundary in boundaries {
            let end = self.tail_end(boundary);
            grades.improve(end.saturating_sub(self.need)..end, Grade::BEST);
        }
        grades.runs()
    }

    /// The block behind the tail of a hit that ends at or below so many tokens.
    fn tail_end(&self, num_tokens: usize) -> usize {
        num_tokens / self.alignment * self.alignment / self.block_size + self.shift
    }

    /// The grades of the states `range`: only where a step ended is one of them there.
    pub fn of_states(
        &self,
        range: Range<usize>,
        boundaries: &[usize],
    ) -> Vec<(Range<usize>, Grade)> {
        let (start, end) = (range.start * self.block_size, range.end * self.block_size);
        let mut spacing = self.alignment;
        while end / (2 * spacing) > start / (2 * spacing) {
            spacing *= 2;
        }
        let mut grades = Grades::new(range.clone());
        grades.improve(range, Grade::new(self.halvings(spacing)));
        for &boundary in boundaries {
            let end = self.tail_end(boundary);
            grades.improve(end.saturating_sub(1)..end, Grade::BEST);
        }
        grades.runs()
    }
}

/// The best grade of each block of a range.
struct Grades {
    start: usize,
    grades: Vec<Option<Grade>>,
}

impl Grades {
    fn new(range: Range<usize>) -> Self {
        Self { start: range.start, grades: vec![None; range.len()] }
    }

    fn improve(&mut self, blocks: Range<usize>, grade: Grade) {
        let len = self.grades.len();
        let [first, end] =
            [blocks.start, blocks.end].map(|block| block.saturating_sub(self.start).min(len));
        for known in self.grades.get_mut(first..end).into_iter().flatten() {
            *known = Some(known.map_or(grade, |known| known.min(grade)));
        }
    }

    fn runs(self) -> Vec<(Range<usize>, Grade)> {
        let mut runs: Vec<(Range<usize>, Grade)> = Vec::new();
        for (block, grade) in (self.start..).zip(self.grades) {
            let Some(grade) = grade else { continue };
            match runs.last_mut() {
                Some((run, last)) if run.end == block && *last == grade => run.end += 1,
                _ => runs.push((block..block + 1, grade)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORTH: Worth = Worth { tail_cost: 32.0 };

    fn tail(num_prompt_tokens: usize) -> TailWorth<'static> {
        TailWorth {
            worth: &WORTH,
            num_prompt_tokens,
            block_size: 16,
            alignment: 16,
            need: 2,
            shift: 0,
        }
    }

    fn grades(of: &TailWorth<'_>, range: Range<usize>, boundaries: &[usize]) -> Vec<String> {
        let show = |(run, grade): (Range<usize>, Grade)| format!("{run:?} {}", grade.halvings());
        of.of_window(range, boundaries).into_iter().map(show).collect()
    }

    #[test]
    fn a_tail_inside_is_worth_its_spacing_squared() {
        // 4 * 32 * 2048 = 2^18, so that a spacing of 512 is worth a full block.
        for (spacing, halvings) in [(512, 0), (1024, 0), (256, 2), (128, 4), (64, 6), (32, 7)] {
            assert_eq!(tail(2048).halvings(spacing), halvings, "{spacing} tokens");
        }
        assert_eq!(tail(2049).halvings(512), 1, "rounded up");
        assert_eq!(tail(2048).closest(), 64);
    }

    #[test]
    fn the_end_of_a_prompt_is_worth_most_and_what_follows_it_nothing() {
        // 40 blocks, of which the last 32, and what a tail at the first of them needs, are its end.
        assert_eq!(grades(&tail(640), 6..42, &[]), ["6..7 3", "7..40 0", "40..42 7"]);
    }

    #[test]
    fn inside_a_prompt_tails_alone_are_kept_by_their_spacing() {
        // 128 blocks: tails of two blocks at multiples of 4, whose spacing is a power of two.
        let expected = ["2..4 6", "6..8 4", "10..12 6", "14..16 2", "18..20 6", "22..24 4"];
        assert_eq!(grades(&tail(2048), 0..24, &[]), expected);
        assert_eq!(grades(&tail(2048), 15..18, &[]), ["15..16 2"]);
        assert_eq!(grades(&tail(2048), 31..33, &[]), ["31..32 0"]);
    }

    #[test]
    fn where_prompts_part_is_worth_as_much_as_the_end() {
        // 80 tokens are 5 blocks, and so are 90.
        for boundary in [80, 90] {
            assert_eq!(grades(&tail(2048), 0..8, &[boundary]), ["2..3 6", "3..5 0", "6..8 4"]);
        }
    }

    #[test]
    fn a_tail_reaches_behind_a_hit_that_drops_its_last_block() {
        let shifted = TailWorth { need: 3, shift: 1, ..tail(2048) };
        assert_eq!(grades(&shifted, 0..9, &[]), ["2..5 6", "6..9 4"]);
    }

    #[test]
    fn a_state_is_worth_the_sparsest_spacing_in_its_step() {
        let of = |range| tail(2048).of_states(range, &[]);
        assert_eq!(of(3..4), [(3..4, Grade::new(6))]);
        assert_eq!(of(4..5), [(4..5, Grade::WORST)]);
        assert_eq!(of(7..8), [(7..8, Grade::new(4))]);
        assert_eq!(of(20..40), [(20..40, Grade::BEST)]);
        let parted = tail(2048).of_states(4..6, &[90]);
        assert_eq!(parted, [(4..5, Grade::BEST), (5..6, Grade::new(7))]);
    }
}
