//! `warpline demo`: moves a file to a second process and back by Send, RDMA Write and RDMA Read.
//!
//! Each side owns its end of the connection and its memory; see `proto` for the messages. When one dies, the
//! other notices by the broken connection or the broken pipe, whichever comes first.

mod args;
mod child;
mod file;
mod link;
mod parent;
mod process;
mod proto;

pub(crate) use args::{DemoArgs, DemoPeerArgs};
pub(crate) use child::run as run_peer;
pub(crate) use parent::run;

use itapi::{Crc, Ia};

use crate::device;
use crate::error::CliResult;

/// Opens an adapter over this device, with or without CRC.
fn open(device: Option<&str>, crc: bool) -> CliResult<Ia> {
    let crc = if crc { Crc::Require } else { Crc::Off };
    Ok(device::builder(device).policy(move |policy| policy.crc = crc).open()?)
}
