//! Prints the skipped tests, and why, at the end of `cargo test --workspace`.
//!
//! Not a test but the last program that cargo runs in a test run, see `warpline_skip`.

#![forbid(unsafe_code)]

fn main() {
    // List no test if the runner only lists tests.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let skips = warpline_skip::of_this_run();
    if skips.is_empty() {
        println!("skipped: nothing\n");
        return;
    }
    println!("skipped: {}", skips.len());
    for line in &skips {
        println!("  {line}");
    }
    println!();
}
