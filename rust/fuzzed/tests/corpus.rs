//! Runs each fuzz target on the inputs of its archive in `rust/fuzz/corpus`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kvoxide_fuzzed::TARGETS;

#[test]
fn every_input_of_every_corpus_passes() {
    for (name, run) in TARGETS {
        let folder = unpacked(name);
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

/// Creates a new folder with the inputs of a target's archive. Returns its path.
fn unpacked(name: &str) -> PathBuf {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fuzz/corpus/{name}.tar.gz"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the inputs");
    let tar = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&folder).status();
    assert!(tar.expect("tar").success(), "{} cannot be unpacked", archive.display());
    folder
}
