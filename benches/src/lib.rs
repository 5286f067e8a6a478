//! warpline-benches
