//! warpline-tests
