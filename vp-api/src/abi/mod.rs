//! The provider interface in C (`include/rnicpi.h`), in both directions: [`crate::export_provider`] makes a shared
//! library of a [`crate::Provider`], [`import`] makes a provider of a library.
//!
//! All `unsafe` of the crate is here, except [`crate::MemRange`]'s. State: an imported object owns its handle of
//! the library, an exported handle is an `Arc`; libraries are never unloaded. Any thread. Peers have no influence
//! on this layer.
//!
//! | file | what |
//! |---|---|
//! | `types` | the header's structs, field by field |
//! | `codes` | the header's numbers against our enums |
//! | `grow` | reading and writing structs of another minor version |
//! | `text` | strings and errors |
//! | `keep` | reference counts of what is used beyond a call |
//! | `net`, `events`, `memory`, `qp`, `cm`, `ud`, `path` | attributes and infos, both directions |
//! | `work` | work requests and completions |
//! | `export`, `import` | the two directions |
//!
//! # Versions and loading
//!
//! `rnicpi.h`, written by hand, is the provider interface in C; `vp-api/src/abi` implements it in both
//! directions. `export_provider!` makes a library of a Rust provider, `import::load` a provider of a
//! library. A separate small crate (`vp-softrdma/dylib`, `vp-roce/dylib`) exports the two symbols, because a program
//! that links the provider must not contain them twice. How to write a provider: `spec/provider-guide.md`.
//!
//! - Structs begin with their size and grow at their end; fields that one side does not know are zero. `abi.txt`
//!   has every offset. rustc and the C compiler are both compared with it. A library built with the first header
//!   still works.
//! - Services are passed to `open` and not to `get_ops`, so that they live as long as the RNIC. Whatever is used
//!   after a call is passed as a context with retain and release: memory, handlers, services.
//! - Libraries are named by `[providers]` (`libraries`, `order`, `disabled`), by manifests in
//!   `providers.d` beside the configuration, and by `$WARPLINE_PROVIDER_PATH`; a setuid program ignores
//!   its environment. They are loaded on first use. One that cannot be used is listed with the reason.
//! - A library that crashes while it is loaded kills its process. The command `warpline` therefore tries
//!   each in a second process first; other programs can do so with `import::probe_with`.
//! - Whether a file is a library is decided by its first octets: for a library of another processor the
//!   loader would report that the file does not exist.
//! - `vp-api/suite` is one suite for every provider in every form: built in, through the tables within
//!   the process, as a library, in wrappers and in layers; the bridge to hardware is tested over a
//!   stand-in for rdma-core, and in the virtual machine over the kernel's devices. `warpline provider
//!   check` runs the suite for a vendor.
//! - Vendor calls (`Rnic::vendor_calls`) are a pair of pointers, the same for providers in C and in
//!   Rust, built in or not: nothing stands between the application and the provider. The Rust face's
//!   `VendorCalls` keeps the adapter open, so that the pointers stay valid. SoftRDMA has none.
//! - An argument of a caller in C that is missing, has no size, or has a number out of its range is refused with
//!   [`crate::VpStatus::InvalidModifier`] and its name, before the provider is called. On the data path only numbers
//!   are checked.
//! - Miri checks everything as it crosses in both directions (`crossing_tests`).

mod cm;
mod codes;
#[cfg(test)]
mod crossing_tests;
mod events;
pub mod export;
mod grow;
#[cfg(test)]
mod header_tests;
pub mod import;
mod keep;

mod memory;
mod net;
mod path;
mod qp;
mod text;
pub mod types;
mod ud;
mod work;

/// What a descriptor begins with: "RIVP".
pub const MAGIC: u32 = 0x5249_5650;
/// Must be equal on both sides.
pub const MAJOR: u16 = 1;
/// The smaller of both sides' minor versions applies.
pub const MINOR: u16 = 4;
