//! Replays of traces: small ones with a known outcome, and random ones that are compared with plain
//! loops.

mod answers;
mod clairvoyant;
mod losses;
mod outcomes;
mod outputs;
mod priorities;
mod runs;
mod serving;
mod traffic;
mod unknown_tokens;

use kvoxide_core::{GroupSpec, Policy};
use kvoxide_replay::{Control, Report, Settings, Trace, run};

/// Returns settings of small replays: the default policy, and one request at a time.
fn settings(groups: &[GroupSpec], num_blocks: Option<usize>) -> Settings {
    Settings {
        groups: groups.to_vec(),
        num_blocks,
        policy: Policy::every_tail(),
        concurrency: 1,
        max_batched_tokens: 64,
        report_from: 0,
        has_bound: false,
        follows_schedule: false,
        baseline: None,
        host: None,
        enable_caching: true,
        rules: None,
        release: None,
    }
}

fn play(trace: &Trace, settings: &Settings) -> Report {
    run(trace, settings, &Control::default()).expect("settings that can work")
}
