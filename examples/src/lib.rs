//! warpline-examples
