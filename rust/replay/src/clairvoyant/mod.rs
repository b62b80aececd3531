//! The clairvoyant bound: an upper bound on the hits of every policy, under the schedule of one run
//! (Belady).
//!
//! The [`schedule`] of a run says which tokens have slots when, and so which blocks are in use
//! under any policy (`tables`, `blocks_in_use`). A request hits a prefix if it stays in the rest of
//! the pool from its last use on. The `intervals` of such stays come from the schedule. Each unit
//! of a prefix is worth the same, so that `selection` drops the units whose interval ends last
//! where they exceed the free blocks.
//!
//! Where the abilities of a policy are not known, the bound assumes them: a hit may have gaps, free
//! blocks of windows and states cost nothing, and requests share everything that can be shared.

mod blocks_in_use;
mod hit_rules;
mod intervals;
mod prefix_numbers;
pub(crate) mod schedule;
mod selection;
mod tables;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use kvoxide_core::Manager;

use crate::tokens::HashSizes;
use crate::trace::Trace;
use hit_rules::HitRules;
use intervals::BoundInput;
use schedule::Schedule;
use tables::{Table, tables};

/// The bound of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bound {
    /// Prompt tokens that each request of the trace hits at its first admission; `None` for
    /// requests that do not count. Only the sum is a bound, because one request may hit less so
    /// that others hit more.
    pub hit_tokens: Vec<Option<usize>>,
    /// Time of the computation.
    pub wall: Duration,
}

impl Bound {
    /// Returns the most prompt tokens that any policy can hit, over the requests that count.
    pub fn num_hit_tokens(&self) -> usize {
        self.hit_tokens.iter().flatten().sum()
    }
}

/// What a bound needs of a manager: its pool and groups.
#[derive(Clone, Debug)]
pub(crate) struct BoundModel {
    num_blocks: usize,
    tables: Vec<Table>,
    rules: HitRules,
}

impl BoundModel {
    /// Returns the model of a manager.
    pub fn of(manager: &Manager) -> Self {
        Self {
            num_blocks: manager.config().num_blocks,
            tables: tables(manager),
            rules: HitRules::of(manager),
        }
    }

    /// Returns the bound of a run of `trace` with this schedule, or `None` if it was cancelled.
    /// `counts` says which requests count.
    pub fn bound(
        self,
        (trace, hash_sizes): (&Trace, HashSizes),
        schedule: &Schedule,
        counts: Vec<bool>,
        cancelled: &AtomicBool,
    ) -> Option<Bound> {
        let start = Instant::now();
        let Self { num_blocks, tables, rules } = self;
        let (unit, num_requests) = (rules.unit, counts.len());
        let input = BoundInput { trace, hash_sizes, num_blocks, tables, rules, counts };
        let found = intervals::find(&input, schedule, cancelled)?;
        let dropped = selection::num_dropped(found.intervals, &found.capacity, num_requests);
        let hits = found.reachable.iter().zip(dropped);
        let hit_tokens = hits.map(|(&hit, dropped)| Some(hit? - dropped * unit)).collect();
        Some(Bound { hit_tokens, wall: start.elapsed() })
    }
}
