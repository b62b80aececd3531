//! Random calls of a pool.

use std::ops::Range;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{FULL_ATTENTION, NUM_HASHES, TAILS};
use crate::adaptive::value::Value;
use crate::{Part, part};

#[derive(Clone, Debug)]
pub enum Step {
    /// Serves a request whose prompt is a chain of hashes. It hits the cached part and computes the
    /// rest. Then it ends, or its blocks stay in use.
    Serve {
        first_hash: usize,
        len: usize,
        tails: Tails,
        stays: bool,
    },
    Take {
        num: usize,
        num_null: usize,
    },
    Cache {
        holding: Index,
        part: Part,
        first_hash: usize,
        group: u16,
        value: Value,
        num_in_prompt: usize,
    },
    Touch {
        holding: Index,
        part: Part,
        is_turned: bool,
    },
    Release {
        holding: Index,
        how: Release,
    },
    /// Releases blocks that a running request has passed.
    LeaveBehind {
        holding: Index,
        part: Part,
    },
    Unprotect {
        part: Part,
    },
    Promote {
        tail: (Index, Index),
        full: (Index, Index),
        /// The halvings of the end, if a sequence ends there.
        end: Option<usize>,
    },
    AddKey {
        holding: Index,
        at: Index,
        hash: usize,
        group: u16,
    },
    MoveKeys {
        from: (Index, Index),
        to: (Index, Index),
    },
    Evict {
        holding: Index,
        part: Part,
    },
    Reset,
    /// Uses blocks for a request with a priority for some tokens from now on.
    Ask {
        priority: u8,
        half_seconds: u64,
        tokens: Range<usize>,
    },
    /// Uses blocks for requests without a priority from now on.
    AskNothing,
    Wait {
        half_seconds: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Tails {
    pub num: usize,
    pub value: Value,
}

#[derive(Clone, Copy, Debug)]
pub enum Release {
    FirstToLast,
    LastToFirst,
    InRuns,
    ToBack,
}

fn value() -> impl Strategy<Value = Value> {
    let halvings = prop_oneof![3 => Just(0), 1 => Just(1), 2 => 2..8_usize];
    (halvings, prop::bool::weighted(0.3))
        .prop_map(|(halvings, is_durable)| Value { halvings, is_durable })
}

pub fn step() -> impl Strategy<Value = Step> {
    let at = any::<Index>;
    let place = || (any::<Index>(), any::<Index>());
    let hash = || 0..NUM_HASHES;
    let tails = (0..4_usize, value()).prop_map(|(num, value)| Tails { num, value });
    let release = prop_oneof![
        4 => Just(Release::FirstToLast),
        4 => Just(Release::LastToFirst),
        4 => Just(Release::InRuns),
        1 => Just(Release::ToBack)
    ];
    let some_tokens = (0..600_usize, 0..600_usize).prop_map(|(start, len)| start..start + len);
    let tokens = prop_oneof![Just(0..usize::MAX), some_tokens];
    let priority = prop_oneof![Just(0_u8), Just(20), Just(50), Just(60), Just(100)];
    prop_oneof![
        12 => (0..NUM_HASHES / 16, 1..60_usize, tails, prop::bool::weighted(0.2)).prop_map(
            |(first, len, tails, stays)| Step::Serve { first_hash: first * 16, len, tails, stays }
        ),
        2 => (prop_oneof![1..80_usize, 80..600_usize], 0..3_usize).prop_map(
            |(num, num_null)| Step::Take { num, num_null }
        ),
        4 => (at(), part(), hash(), FULL_ATTENTION..=TAILS, value(), 0..60_usize).prop_map(
            |(holding, part, first_hash, group, value, num_in_prompt)| Step::Cache {
                holding, part, first_hash, group, value, num_in_prompt
            }
        ),
        5 => (at(), part(), any::<bool>()).prop_map(
            |(holding, part, is_turned)| Step::Touch { holding, part, is_turned }
        ),
        9 => (at(), release).prop_map(|(holding, how)| Step::Release { holding, how }),
        4 => (at(), part()).prop_map(|(holding, part)| Step::LeaveBehind { holding, part }),
        1 => part().prop_map(|part| Step::Unprotect { part }),
        2 => (place(), place(), prop::option::of(0..8_usize)).prop_map(
            |(tail, full, end)| Step::Promote { tail, full, end }
        ),
        1 => (at(), at(), hash(), FULL_ATTENTION..=TAILS).prop_map(
            |(holding, at, hash, group)| Step::AddKey { holding, at, hash, group }
        ),
        1 => (place(), place()).prop_map(|(from, to)| Step::MoveKeys { from, to }),
        1 => (at(), part()).prop_map(|(holding, part)| Step::Evict { holding, part }),
        1 => Just(Step::Reset),
        2 => (priority, 0..8_u64, tokens).prop_map(
            |(priority, half_seconds, tokens)| Step::Ask { priority, half_seconds, tokens }
        ),
        2 => Just(Step::AskNothing),
        2 => (0..4_u64).prop_map(|half_seconds| Step::Wait { half_seconds }),
    ]
}
