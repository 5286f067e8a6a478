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
