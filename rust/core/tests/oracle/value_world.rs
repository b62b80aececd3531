//! Random prompts. The engine and [`Prompt`] must give their blocks the same values.

use std::ops::Range;

use kvoxide_core::pool::{Nearness, ValueLevel};
use kvoxide_core::retention::{self, EndValue, KeptBins, MaskQuery, RetentionMask, ValueModel};
use proptest::prelude::*;

use crate::adaptive::block::WORTHLESS;
use crate::adaptive::ends::{EndWorths, Worth};
use crate::adaptive::value::{Prompt, ResumeHistogram, Value, nearness};

#[derive(Clone, Debug)]
struct Case {
    num_tokens: usize,
    block_size: usize,
    blocks_per_alignment: usize,
    /// The number of tokens in the window; `None` for states.
    window: Option<usize>,
    use_eagle: bool,
    tail_cost: f64,
    has_room: bool,
    replays: Vec<usize>,
    shared: Vec<usize>,
    ends: EndWorths,
    /// Positions where requests resumed, in alignments, and their distances from the end, in
    /// tokens.
    resumes: Vec<(usize, usize)>,
    blocks: Range<usize>,
}

fn any_case() -> impl Strategy<Value = Case> {
    let block_size = prop_oneof![Just(1_usize), Just(8), Just(16), Just(24), Just(64)];
    let per_alignment = prop_oneof![4 => Just(1_usize), 1 => Just(2), 1 => Just(3), 1 => Just(16)];
    let num_tokens = prop_oneof![0..700_usize, 0..8_000_usize];
    let window =
        prop_oneof![Just(None), (1..40_usize).prop_map(Some), (1..1200_usize).prop_map(Some)];
    let tail_cost = prop_oneof![Just(0.5), Just(32.0), Just(128.0), 1.0..4000.0_f64];
    let resumes = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec((0..64_usize, 0..600_usize), 0..300),
        prop::collection::vec((Just(4_usize), 0..70_usize), 0..1200),
    ];
    let blocks = (0..1500_usize, 0..40_usize, any::<bool>(), any::<bool>());
    let geometry = (num_tokens, block_size, per_alignment, window, any::<bool>(), tail_cost);
    let positions = || prop::collection::vec(0..8_000_usize, 0..3);
    (geometry, (positions(), positions(), ends()), resumes, blocks).prop_map(
        |(
            (num_tokens, block_size, blocks_per_alignment, window, use_eagle, tail_cost),
            (replays, shared, ends),
            resumes,
            (first, len, is_at_end, has_room),
        )| {
            let first = if is_at_end {
                (num_tokens / block_size).saturating_sub(first / 40)
            } else {
                first
            };
            Case {
                num_tokens,
                block_size,
                blocks_per_alignment,
                window,
                use_eagle,
                tail_cost,
                has_room,
                replays,
                shared,
                ends,
                resumes,
                blocks: first..first + len,
            }
        },
    )
}

/// Generates values of ends, mostly the values before anything is learnt.
fn ends() -> impl Strategy<Value = EndWorths> {
    let worth = || {
        let assumed = prop_oneof![Just(0.0), 0.0..0.3_f64, 0.0..1.0_f64];
        let any = (assumed, prop_oneof![Just(0.0), 0.0..0.001_f64], 0.0..5000.0_f64)
            .prop_map(|(assumed, per_token, tail_cost)| Worth { assumed, per_token, tail_cost });
        prop_oneof![Just(Worth::default()), any]
    };
    (worth(), worth()).prop_map(|(prompt, answer)| EndWorths {
        prompt,
        answer,
        ..EndWorths::default()
    })
}

/// Generates prompts in which only boundaries near the end have a value, after many resumes.
fn learnt_case() -> impl Strategy<Value = Case> {
    let before = prop_oneof![2 => 0..64_usize, 3 => 64..256_usize, 3 => 256..512_usize];
    let resumes = prop::collection::vec((0..64_usize, before), 40..400);
    let block_size = prop_oneof![Just(8_usize), Just(16), Just(64)];
    (600..700_usize, block_size, resumes).prop_map(|(num_tokens, block_size, resumes)| Case {
        num_tokens,
        block_size,
        blocks_per_alignment: 1,
        window: Some(2),
        use_eagle: false,
        tail_cost: 1e6,
        has_room: false,
        replays: Vec::new(),
        shared: Vec::new(),
        ends: EndWorths {
            answer: Worth { assumed: 0.0, ..Worth::default() },
            ..EndWorths::default()
        },
        resumes,
        blocks: 0..num_tokens / block_size,
    })
}

impl Case {
    /// Returns whether the boundaries near a prompt's end are at multiples from both its start and
    /// its end. In other prompts, the engine has one more boundary before it has learnt anything.
    /// This boundary is up to an alignment before the last 512 tokens.
    fn is_regular(&self) -> bool {
        let alignment = self.block_size * self.blocks_per_alignment;
        512_usize.is_multiple_of(alignment) || alignment > 512 || self.window.is_none()
    }

    fn check(&self) {
        let Self { num_tokens, block_size, window, tail_cost, has_room, .. } = *self;
        let alignment = block_size * self.blocks_per_alignment;
        let (mut learnt, mut kept_bins) =
            (retention::ResumeHistogram::new(alignment), KeptBins::ALL);
        let mut resumes = ResumeHistogram::new(alignment);
        for &(position, before) in &self.resumes {
            kept_bins =
                learnt.record(position * alignment, Nearness::of(before)).unwrap_or(kept_bins);
            resumes.note(position * alignment, nearness(before));
        }
        let worth =
            |Worth { assumed, per_token, tail_cost }| EndValue { assumed, per_token, tail_cost };
        let [prompt, answer] = [self.ends.prompt, self.ends.answer].map(worth);
        let ends = retention::EndValues { prompt, answer, ..retention::EndValues::default() };
        let model = ValueModel { tail_cost, kept_bins, ends, blocks_per_token: 1.0 };
        let query = MaskQuery {
            range: (self.blocks.start, self.blocks.end),
            alignment,
            drops_eagle_block: self.use_eagle,
            retention_interval: None,
            replays: &self.replays,
            shared: &self.shared,
            num_prompt_tokens: num_tokens,
            value_model: Some(&model),
            has_room,
        };
        let num_behind = usize::from(self.use_eagle && window.is_some());
        let prompt = Prompt {
            num_tokens,
            block_size,
            alignment,
            tail_len: window.map_or(1, |window| (window - 1).div_ceil(block_size) + num_behind),
            num_behind,
            tail_cost,
            resumes: &resumes,
            ends: self.ends,
            replays: &self.replays,
            shared: &self.shared,
        };
        let mask = match window {
            Some(_) => query.tails(block_size, prompt.tail_len),
            None => query.states(block_size),
        };
        let reachable = |block| {
            let is_cached = has_room && prompt.is_reachable(block);
            is_cached.then_some(Value { halvings: WORTHLESS, is_durable: false })
        };
        for block in self.blocks.clone() {
            let expected = match window {
                Some(_) => prompt.value_in_window(block).or(reachable(block)),
                None => Some(prompt.value_of_state(block, &self.blocks)),
            };
            assert_eq!(value_of(&mask, block), expected, "block {block}");
        }
    }
}

fn value_of(mask: &RetentionMask, block: usize) -> Option<Value> {
    let value =
        |level: &ValueLevel| Value { halvings: level.halvings(), is_durable: level.is_durable() };
    match mask {
        RetentionMask::Valued(runs) => {
            runs.iter().find(|(run, _)| run.contains(&block)).map(|(_, level)| value(level))
        }
        RetentionMask::PartlyValued(blocks) => {
            let own = blocks.values.iter().find(|(run, _)| run.contains(&block));
            let is_cached = blocks.cached.iter().any(|run| run.contains(&block));
            let other = || is_cached.then_some(&ValueLevel::WORST);
            own.map(|(_, level)| level).or_else(other).map(value)
        }
        RetentionMask::All => Some(value(&ValueLevel::BEST)),
        RetentionMask::Runs(_) => panic!("adaptive retention has no interval"),
    }
}

proptest! {
    #[test]
    fn a_block_has_the_value_of_the_best_tail_that_it_belongs_to(
        case in prop_oneof![any_case(), learnt_case()].prop_filter("a regular case", Case::is_regular)
    ) {
        case.check();
    }
}
