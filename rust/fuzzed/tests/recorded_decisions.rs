//! Recorded decisions: hashes of the results and states of random traffic. The engine that made
//! them agreed with vLLM's manager over millions of calls. If decisions change, they must agree
//! with vLLM first (docs/explain/sameness.md). Then `KVOXIDE_RECORD=1 cargo test --test recorded_decisions`
//! records them again.

mod traffic;

use std::fs;
use std::path::Path;

use kvoxide_core::Manager;
use kvoxide_fuzzed::manager::{Call, Traffic};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use traffic::{call, config};

const NUM_CASES: usize = 4000;

#[test]
fn decisions_are_as_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded_decisions.txt");
    let decided = decisions();
    if std::env::var_os("KVOXIDE_RECORD").is_some() {
        fs::write(&path, decided.join("\n") + "\n").expect("a file that can be written");
    }
    let recorded = fs::read_to_string(&path).expect("the record");
    let recorded: Vec<_> = recorded.lines().collect();
    assert_eq!(recorded.len(), NUM_CASES);
    let differs = |(i, line): (usize, &String)| (recorded[i] != line).then_some(i);
    let different: Vec<_> = decided.iter().enumerate().filter_map(differs).collect();
    assert!(
        different.is_empty(),
        "{} of {NUM_CASES} cases differ, the first is number {}: {:?}",
        different.len(),
        different[0],
        case(different[0]).0
    );
}

fn decisions() -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let cases = cases();
    let mut decide = |_| {
        let (config, calls) = cases.new_tree(&mut runner).expect("a case").current();
        let mut traffic = Traffic::new(Manager::new(config).expect("a configuration that works"));
        let left: Vec<_> = calls.iter().map(|call| traffic.decide(call)).collect();
        traffic.end();
        format!("{:016x}", left.iter().fold(0, |all: u64, each| all.rotate_left(5) ^ each))
    };
    (0..NUM_CASES).map(&mut decide).collect()
}

fn cases() -> impl Strategy<Value = (kvoxide_core::ManagerConfig, Vec<Call>)> {
    (config(), prop::collection::vec(call(), 1..120))
}

fn case(number: usize) -> (kvoxide_core::ManagerConfig, Vec<Call>) {
    let mut runner = TestRunner::deterministic();
    let cases = cases();
    let mut next = || cases.new_tree(&mut runner).expect("a case").current();
    (0..number).for_each(|_| drop(next()));
    next()
}
