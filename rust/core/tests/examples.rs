//! The example prints what its documentation says.

use std::env::{consts::EXE_SUFFIX, current_exe};
use std::process::Command;

const SOURCE: &str = include_str!("../examples/look_up_and_allocate.rs");

#[test]
fn look_up_and_allocate_prints_its_documented_output() {
    // Cargo builds examples before tests, into the folder next to the tests' own.
    let tests = current_exe().unwrap();
    let name = format!("examples/look_up_and_allocate{EXE_SUFFIX}");
    let example = tests.parent().and_then(|deps| deps.parent()).unwrap().join(name);
    assert!(example.is_file(), "run `cargo test --package kvoxide-core` without `--test`");
    let done = Command::new(example).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8(done.stdout).unwrap(), documented());
}

/// Returns the block of text in the documentation of the example.
fn documented() -> String {
    let lines = SOURCE.lines().map_while(|line| line.strip_prefix("//!"));
    let block = lines.skip_while(|line| line.trim() != "```text").skip(1);
    let output = block.take_while(|line| line.trim() != "```");
    let text: String =
        output.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    assert!(!text.is_empty());
    text
}
