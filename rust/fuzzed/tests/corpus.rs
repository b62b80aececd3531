//! What fuzzers found, once more: each input of `rust/fuzz/corpus` through its target.

use std::fs;
use std::path::Path;

use kvoxide_fuzzed::TARGETS;

#[test]
fn every_input_of_every_corpus_passes() {
    for (name, run) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
        let inputs = fs::read_dir(&folder).expect("a corpus for each target");
        let mut num_inputs = 0;
        for input in inputs {
            let path = input.expect("a file").path();
            eprintln!("{}", path.display());
            run(&fs::read(&path).expect("a readable file"));
            num_inputs += 1;
        }
        assert!(num_inputs >= 20, "{num_inputs} inputs in {}", folder.display());
    }
}
