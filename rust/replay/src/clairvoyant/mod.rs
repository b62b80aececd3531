//! The clairvoyant bound: an upper bound on the hits of every policy, under the schedule of one run
//! (Belady).
//!
//! The [`schedule`] of a run says which tokens have slots at which time. So it determines which
//! blocks are in use under any policy (`tables`, `blocks_in_use`). A request hits a prefix if the
//! prefix stays in the rest of the pool from its last use on. `intervals` computes these stays from
//! the schedule. Each unit of a prefix has the same value. So if units exceed the free blocks,
//! `selection` drops the units whose interval ends last.
//!
//! If it is not known what a policy can do, the bound assumes that it can do it:
//!
//! - A hit can have gaps.
//! - Free blocks of windows and states cost nothing.
//! - Requests share everything that can be shared.

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
    /// For each request of the trace, the number of prompt tokens that it hits at its first
    /// admission; `None` for requests that do not count. Only the sum is a bound, because one
    /// request can hit less so that others hit more.
    pub hit_tokens: Vec<Option<usize>>,
    /// The time that the computation took.
    pub wall: Duration,
}

impl Bound {
    /// Returns the most prompt tokens that any policy can hit, for all requests that count.
    pub fn num_hit_tokens(&self) -> usize {
        self.hit_tokens.iter().flatten().sum()
    }
}

/// The data of a manager that a bound needs: its pool and groups.
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

    /// Returns the bound of a run of `trace` with this schedule; `None` if it was cancelled.
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
