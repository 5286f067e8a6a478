//! The provider interface in C (`include/rnicpi.h`), in both directions: [`crate::export_provider`]
//! makes a shared library of a [`crate::Provider`], [`import`] makes a provider of a library.
//!
//! All `unsafe` of the crate but [`crate::MemRange`]'s is here. State: an imported object owns its
//! handle of the library, an exported handle is an `Arc`; libraries are never unloaded. Any thread.
//! A peer is nothing to this layer.
//!
//! | file | what |
//! |---|---|
//! | `types` | the header's structs, field by field |
//! | `codes` | the header's numbers against our enums |
//! | `grow` | reading and writing structs of another minor version |
//! | `text` | strings and errors |
//! | `keep` | what is used beyond a call |
//! | `net`, `events`, `memory`, `qp`, `cm`, `ud` | attributes and infos, both ways |
//! | `work` | work requests and completions |
//! | `export`, `import` | the two directions |
//!
//! # How it grows, and who loads it
//!
//! `rnicpi.h` is the provider interface in C, written by hand; `vp-api/src/abi` is it in both
//! directions. `export_provider!` makes a library of a Rust provider, `import::load` a provider of
//! a library; a tiny crate of its own (`vp-softrdma/dylib`) carries the two exported symbols, which
//! programs that link the provider must not have twice. How to write one: `spec/provider-guide.md`.
//!
//! - Structs say their size and grow at their end; what one side does not know is zero. `abi.txt`
//!   holds every offset; rustc and the C compiler are both compared with it, and a library built
//!   with the first header still passes.
//! - Services belong to `open` and not to `get_ops`, so that their life is that of the RNIC. What
//!   outlives a call is a context with retain and release: memory, handlers, services.
//! - Libraries are named by `[providers]` (`libraries`, `order`, `disabled`), by manifests in
//!   `providers.d` beside the configuration, and by `$WARPLINE_PROVIDER_PATH`; a setuid program
//!   takes nothing from its environment. They are loaded when first needed. One that cannot be used
//!   is listed with the reason.
//! - A library that crashes while it is loaded takes its process along. The command `warpline`
//!   therefore tries each in a second process before; other programs can with `import::probe_with`.
//! - What a file is not, its first octets tell: of a library for another processor the loader says
//!   that the file does not exist.
//! - `vp-api/suite` is one suite for every provider in every form: built in, through the tables
//!   within the process, as a library, in wrappers and in layers; the bridge to hardware over a
//!   stand-in for rdma-core, and in the virtual machine over the kernel's devices. `warpline
//!   provider check` runs it for a vendor.
//! - Vendor calls (`Rnic::vendor_calls`) are a pair of pointers, the same for providers in C and in
//!   Rust, built in or not: nothing stands between the application and the provider. The Rust
//!   face's `VendorCalls` keeps the adapter open, so that the pointers stay good. SoftRDMA has
//!   none.
//! - Miri looks on while everything crosses both ways (`crossing_tests`).

mod cm;
mod codes;
#[cfg(test)]
mod crossing_tests;
mod events;
pub mod export;
mod grow;
#[cfg(test)]
mod held_tests;
pub mod import;
mod keep;

mod memory;
mod net;
mod qp;
mod text;
pub mod types;
mod ud;
mod work;

/// What a descriptor begins with: "RIVP".
pub const MAGIC: u32 = 0x5249_5650;
/// Must be the same on both sides.
pub const MAJOR: u16 = 1;
/// The smaller one of both sides counts.
pub const MINOR: u16 = 4;
