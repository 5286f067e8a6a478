//! Runs every fuzz body over its committed corpus, so that a fixed finding stays fixed.
//!
//! Owner of the state: none. One thread. No peer.

use std::fs;
use std::path::Path;

#[test]
fn every_target_takes_its_corpus() {
    for (name, run) in warpline_fuzz_bodies::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
        let mut count = 0;
        for entry in fs::read_dir(&folder).expect("each target has a corpus") {
            let input = fs::read(entry.expect("an entry").path()).expect("a file");
            run(&input);
            // Each prefix of an input is an input, too.
            (0..input.len().min(600)).for_each(|cut| run(&input[..cut]));
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }
}
