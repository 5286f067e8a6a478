//! `warpline ping`: rdma-core's rping protocol, both sides; see `wire` for the protocol.

mod args;
mod client;
mod server;
mod stats;
mod target;
pub(crate) mod wire;

use std::io::Write;

use itapi::{Crc, Ia, PeerToPeer, Policy};

pub(crate) use args::PingArgs;

use crate::device;
use crate::error::CliResult;

/// Runs the side that was asked for.
pub(crate) fn run(args: &PingArgs, out: &mut dyn Write) -> CliResult<()> {
    match (&args.serve, &args.host) {
        (Some(address), _) => server::run(args, address, out),
        (None, host) => client::run(args, host.as_deref().unwrap_or_default(), out),
    }
}

/// Opens the adapter of the command line.
fn open(args: &PingArgs) -> CliResult<Ia> {
    Ok(device::builder(args.device.as_deref()).policy(set_policy(args)).open()?)
}

/// The part of the policy that the command line decides.
fn set_policy(args: &PingArgs) -> impl FnOnce(&mut Policy) + 'static {
    let crc = if args.crc.is_on() { Crc::Require } else { Crc::Off };
    let (revision, both) = (args.mpa, args.peer_to_peer);
    let serving = args.serve.is_some();
    move |policy| {
        policy.crc = crc;
        if !serving {
            policy.revision = revision;
            policy.peer_to_peer = PeerToPeer { send: false, write: both, read: both };
        }
    }
}
