//! warpline-spec
