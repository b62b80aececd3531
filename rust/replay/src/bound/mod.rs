//! What a policy that knows the future could hit: an upper bound for every policy, from the
//! schedule that the run of one of them had.
//!
//! The [`schedule`] of a run says which tokens have slots when, and with that what is in use
//! whoever decides (`tables`, `usage`). What a request hits has to lie in the rest of the pool
//! since it was last used. The `sweep` turns the schedule into such `waits`, of which as many
//! are kept as there is room for: each is worth the same, so that of too many at a time the one
//! that ends last is given up (Belady).
//!
//! Where it is not known what a policy could do, the bound allows it: a hit may have gaps, the
//! blocks of windows and states cost nothing once nobody uses them, and requests share all that can
//! be shared.

mod prefixes;
mod rules;
pub mod schedule;
mod sweep;
mod tables;
mod usage;
mod waits;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use kvoxide_core::Manager;

use crate::tokens::HashSizes;
use crate::trace::Trace;
use rules::HitRules;
use schedule::Schedule;
use sweep::Plan;
use tables::{Table, tables};

/// The bound for one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bound {
    /// Prompt tokens that each request of the trace could hit when it is first admitted; `None`
    /// where its hits do not count. One request may hit less so that others hit more: only the sum
    /// is a bound.
    pub hit_tokens: Vec<Option<usize>>,
    /// Time that it took to find.
    pub wall: Duration,
}

impl Bound {
    /// The most prompt tokens that any policy could hit, of the requests that count.
    pub fn num_hit_tokens(&self) -> usize {
        self.hit_tokens.iter().flatten().sum()
    }
}

/// What a bound has to know of a manager.
#[derive(Clone, Debug)]
pub struct Groups {
    num_blocks: usize,
    tables: Vec<Table>,
    rules: HitRules,
}

impl Groups {
    /// The groups of a manager, and its pool.
    pub fn of(manager: &Manager) -> Self {
        Self {
            num_blocks: manager.config().num_blocks,
            tables: tables(manager),
            rules: HitRules::of(manager),
        }
    }

    /// The bound for a run of `trace` that had this schedule; `counts` says whose hits count.
    /// `None` if it was cancelled.
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
        let plan = Plan { trace, hash_sizes, num_blocks, tables, rules, counts };
        let swept = sweep::sweep(&plan, schedule, cancelled)?;
        let given_up = waits::given_up(swept.waits, &swept.room, num_requests);
        let hits = swept.reachable.iter().zip(given_up);
        let hit_tokens = hits.map(|(&hit, given_up)| Some(hit? - given_up * unit)).collect();
        Some(Bound { hit_tokens, wall: start.elapsed() })
    }
}
