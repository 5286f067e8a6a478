//! `warpline conform`: tests an iWARP peer over raw TCP, or a RoCE v2 peer over a UDP socket, with correct and wrong
//! octets, and reports a verdict for each requirement: pass, fail with the octets, or not testable and why.
//!
//! Main thread only, one case at a time, each on fresh connections and within a bounded time. A peer
//! that dies, stops responding or sends false data is a verdict, never an error.

mod answer;
mod args;
mod bench;
mod case;
mod catalogue;
mod ending;
mod extensions;
mod fpdu_check;
mod frames;
mod framing;
mod initiator;
mod judge;
mod link;
mod negotiation;
mod order;
mod peer;
mod reads;
mod record;
mod report;
mod responder;
mod roce;
mod serve;
mod serve_ud;
mod session;
mod stand;
mod tagged;
mod untagged;
mod verdict;

use std::io::Write;
use std::net::SocketAddr;

pub(crate) use args::ConformArgs;

use self::bench::Bench;
use crate::error::{CliError, CliResult, Exit};
use crate::values::PING_PORT;

/// Runs the requested side.
pub(crate) fn run(args: &ConformArgs, out: &mut dyn Write) -> CliResult<()> {
    if let Some(address) = &args.serve {
        return serve::run(args, address, out);
    }
    match (args.roce, args.list) {
        (false, false) => session::run::<Bench>(args, out),
        (false, true) => session::list::<Bench>(out),
        (true, false) => session::run::<roce::Bench>(args, out),
        (true, true) => session::list::<roce::Bench>(out),
    }
}

fn resolve(text: &str) -> CliResult<SocketAddr> {
    let wrong = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::InvalidInput => Exit::Usage,
            _ => Exit::Network,
        };
        CliError::new(exit, error.to_string()).at("conform").hint("write HOST:PORT or [IPV6]:PORT")
    };
    let first = itapi::resolve(text, PING_PORT).map_err(wrong)?.into_iter().next();
    first.ok_or_else(|| CliError::new(Exit::Network, format!("{text} has no address")))
}
